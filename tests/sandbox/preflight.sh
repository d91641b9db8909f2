#!/usr/bin/env bash
# Check the requirements of the simulated hosts before anything is created: root, disk space and memory. Install the tools
# that build the images and the repositories of packages, and the SSH client. On failure, prints one line with the reason.
set -euo pipefail

fail() { printf 'sandbox: %s\n' "$1" >&2; exit 1; }

[ "$(uname -s)" = Linux ] || fail "Simulated hosts need Linux, but this machine runs $(uname -s)."
[ "$(id -u)" = 0 ] || fail "Simulated hosts need root to create systemd containers and device nodes. Run make as root."
command -v apt-get >/dev/null 2>&1 || fail "This machine has no apt-get, which the images are built with. Use a machine with Debian."

# Existing hosts already use their share of disk space and memory.
disk_mib=12000 memory_mib=2500
if [ -n "$(docker container ls --quiet --filter label=gpufleet.sandbox 2>/dev/null)" ]; then
    disk_mib=2000 memory_mib=500
fi
need_disk_mib=${GPUFLEET_SANDBOX_DISK_MIB:-$disk_mib}
need_memory_mib=${GPUFLEET_SANDBOX_MEMORY_MIB:-$memory_mib}

disk_at=$(docker info --format '{{.DockerRootDir}}' 2>/dev/null || true)
[ -d "$disk_at" ] || disk_at=/var/lib/docker
[ -d "$disk_at" ] || disk_at=/var/lib
free_mib=$(df --output=avail -BM "$disk_at" | tail -n 1 | tr -dc 0-9)
[ "$free_mib" -ge "$need_disk_mib" ] ||
    fail "$disk_at has $free_mib MiB free, but simulated hosts need $need_disk_mib MiB. Free disk space, or set GPUFLEET_SANDBOX_DISK_MIB to a lower limit."
free_memory_mib=$(awk '/^MemAvailable:/ {print int($2 / 1024)}' /proc/meminfo)
[ "$free_memory_mib" -ge "$need_memory_mib" ] ||
    fail "This machine has $free_memory_mib MiB of available memory, but simulated hosts need $need_memory_mib MiB. Free memory, or set GPUFLEET_SANDBOX_MEMORY_MIB to a lower limit."

missing=()
command -v mmdebstrap >/dev/null 2>&1 || missing+=(mmdebstrap)
command -v gcc >/dev/null 2>&1 || missing+=(gcc libc6-dev)
[ -x /bin/busybox ] || missing+=(busybox-static)
command -v gpg >/dev/null 2>&1 || missing+=(gpg)
command -v gpg-agent >/dev/null 2>&1 || missing+=(gpg-agent)
command -v rpmbuild >/dev/null 2>&1 || missing+=(rpm)
command -v createrepo_c >/dev/null 2>&1 || missing+=(createrepo-c)
command -v ssh >/dev/null 2>&1 || missing+=(openssh-client)
if [ ${#missing[@]} -gt 0 ]; then
    echo "sandbox: installing ${missing[*]}"
    log=$(mktemp)
    export DEBIAN_FRONTEND=noninteractive
    { apt-get update && apt-get install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1 ||
        fail "Could not install ${missing[*]} with apt-get: $(grep -m1 -E '^(E:|Err:)' "$log" || tail -n 1 "$log")"
    rm -f "$log"
fi
