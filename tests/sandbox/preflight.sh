#!/usr/bin/env bash
# Refuse in one line, before anything is made, what would only fail half-way: no root, too little disk or memory, no
# package source that answers. Installs the few tools that images are built with, and the SSH client.
set -euo pipefail

fail() { printf 'sandbox: %s\n' "$1" >&2; exit 1; }


[ "$(uname -s)" = Linux ] || fail "simulated hosts need Linux, this is $(uname -s)"
[ "$(id -u)" = 0 ] || fail "simulated hosts need root (systemd containers, device nodes): run make as root"
command -v apt-get >/dev/null 2>&1 || fail "images are built with apt and mmdebstrap: use a Debian-like machine"

# Hosts that are there have taken their share already.
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
    fail "$disk_at has $free_mib MiB free, simulated hosts need $need_disk_mib MiB: free some, or set GPUFLEET_SANDBOX_DISK_MIB"
free_memory_mib=$(awk '/^MemAvailable:/ {print int($2 / 1024)}' /proc/meminfo)
[ "$free_memory_mib" -ge "$need_memory_mib" ] ||
    fail "$free_memory_mib MiB of memory available, simulated hosts need $need_memory_mib MiB: free some, or set GPUFLEET_SANDBOX_MEMORY_MIB"

missing=()
command -v mmdebstrap >/dev/null 2>&1 || missing+=(mmdebstrap)
command -v gcc >/dev/null 2>&1 || missing+=(gcc libc6-dev)
[ -x /bin/busybox ] || missing+=(busybox-static)
command -v gpg >/dev/null 2>&1 || missing+=(gpg)
command -v ssh >/dev/null 2>&1 || missing+=(openssh-client)
if [ ${#missing[@]} -gt 0 ]; then
    echo "sandbox: installing ${missing[*]}"
    log=$(mktemp)
    export DEBIAN_FRONTEND=noninteractive
    { apt-get update && apt-get install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1 ||
        fail "could not install ${missing[*]} from this machine's package sources: $(grep -m1 -E '^(E:|Err:)' "$log" || tail -n 1 "$log")"
    rm -f "$log"
fi
