#!/bin/sh
# Print what a driver's installation can leave on a host, one thing a line. What changes by itself is left out.
export LC_ALL=C
{
    dpkg-query --show --showformat 'deb ${Package} ${Version} ${db:Status-Abbrev}\n'
    ! command -v rpm >/dev/null || rpm -qa --qf 'rpm %{NAME} %{VERSION}\n'
    find /etc /usr/share/keyrings /usr/src /usr/lib/modules /var/lib/dkms /var/lib/gpufleet /var/cache/gpufleet \
        \( -name ld.so.cache -o -name 'modules.*' -o -path '*/ssl/certs/*' -o -path '*/.pwd.lock' \) -prune \
        -o -type f -printf 'file %p %#m ' -exec sh -c 'cksum <"$1"' _ {} \; -o -type l -printf 'link %p %l\n' 2>/dev/null
    find /var/lib/gpufleet /var/lib/dkms /var/cache/gpufleet -type d -printf 'directory %p\n' 2>/dev/null
    find /usr/lib /usr/lib64 /lib64 \( -name '*nvidia*' -o -name 'libcuda*' \) -printf 'library %p\n' 2>/dev/null
    awk '/^nvidia/ {print "module", $1}' /proc/modules
    ls -d /dev/nvidia* 2>/dev/null
    systemctl list-unit-files --no-legend --plain | awk '{print "unit", $1, $2}'
    apt-mark showhold | sed 's/^/hold /'
} | sort -u
