#!/bin/sh
# Print everything that a driver installation can leave on a host, one item per line. Excludes files that change by themselves
# and the key that DKMS generates for its first build, because the key may be enrolled.
export LC_ALL=C
{
    dpkg-query --show --showformat 'deb ${Package} ${Version} ${db:Status-Abbrev}\n'
    ! command -v rpm >/dev/null || rpm -qa --qf 'rpm %{NAME} %{VERSION}\n'
    find /etc /usr/share/keyrings /usr/share/pki /usr/src /usr/lib/modules /var/lib/dkms /var/lib/gpufleet /var/cache/gpufleet \
        \( -name ld.so.cache -o -name 'modules.*' -o -path '/etc/ssl/certs' -o -name .pwd.lock -o -path /etc/hosts -o -path /etc/gpusim -o -path /etc/resolv.conf -o -path '/var/lib/dkms/mok.*' \
        -o -path '/usr/src/linux-*' \) -prune -o -type f -print0 2>/dev/null | xargs -0 cksum | sed 's/^/file /'
    find /var/lib/gpufleet /var/cache/gpufleet -type d -printf 'directory %p\n' 2>/dev/null
    find /var/lib/dkms -mindepth 1 -type d -printf 'directory %p\n' 2>/dev/null
    # This directory may stay if it contains that key or belongs to the dkms package. Otherwise it is a leftover.
    dpkg-query --search /var/lib/dkms >/dev/null 2>&1 || find /var/lib/dkms -maxdepth 0 -empty -printf 'directory %p\n' 2>/dev/null
    find /etc /usr/src /usr/lib/modules -type l -printf 'link %p %l\n' 2>/dev/null
    find /usr/lib /usr/lib64 /lib64 \( -name '*nvidia*' -o -name 'libcuda*' \) -printf 'library %p\n' 2>/dev/null
    find /var/tmp -maxdepth 1 -name 'gpufleet-*' -printf 'temporary %p\n'
    awk '/^nvidia/ {print "module", $1}' /proc/modules
    find /dev -name 'nvidia*'
    systemctl list-unit-files --no-legend --plain | awk '{print "unit", $1, $2}'
    apt-mark showhold | sed 's/^/hold /'
} | sort -u
