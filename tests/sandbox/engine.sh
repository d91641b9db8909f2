#!/usr/bin/env bash
# Make sure that a Docker Engine answers on this machine: use the one that runs, else start the installed one, else
# install the distribution's. Says in one line what stands in the way. Safe to call again at any time.
set -euo pipefail

fail() { printf 'sandbox: %s\n' "$1" >&2; exit 1; }
answers() { docker version --format '{{.Server.Version}}' >/dev/null 2>&1; }

state_dir=${GPUFLEET_SANDBOX_STATE:-"$(cd "$(dirname "$0")/../.." && pwd)/.cache/sandbox"}
mkdir -p "$state_dir" 2>/dev/null || fail "cannot write $state_dir: make the checkout writable or set GPUFLEET_SANDBOX_STATE"

if answers; then
    exit 0
fi

[ "$(id -u)" = 0 ] || fail "the Docker Engine does not answer and only root can start or install one: run make as root, or add yourself to group docker"

if ! command -v dockerd >/dev/null 2>&1; then
    command -v apt-get >/dev/null 2>&1 || fail "no Docker Engine here and no apt-get to install one: install Docker, then run make again"
    echo "sandbox: installing the distribution's Docker Engine"
    log="$state_dir/engine-install.log"
    export DEBIAN_FRONTEND=noninteractive
    { apt-get update && apt-get install -y --no-install-recommends docker.io iptables ca-certificates; } >"$log" 2>&1 ||
        fail "could not install docker.io from this machine's package sources (network? disk?): see $log"
    # Debian 13 and later ship the client apart.
    command -v docker >/dev/null 2>&1 || apt-get install -y --no-install-recommends docker-cli >>"$log" 2>&1 ||
        fail "could not install docker-cli: see $log"
fi

answers && exit 0

if [ -d /run/systemd/system ]; then
    systemctl start docker >/dev/null 2>&1 || fail "systemctl start docker failed: see journalctl -u docker"
else
    # A killed engine leaves these behind, and the next one refuses to start.
    pid=$(cat /var/run/docker.pid 2>/dev/null || echo none)
    if [ "$(cat "/proc/$pid/comm" 2>/dev/null)" != dockerd ]; then
        rm -f /var/run/docker.pid /run/docker/containerd/containerd.pid
        echo "sandbox: starting dockerd"
        setsid --fork dockerd >"$state_dir/dockerd.log" 2>&1 </dev/null
    fi
fi

for _ in $(seq 60); do
    answers && exit 0
    sleep 1
done
fail "the Docker Engine does not answer after 60 s: see ${state_dir}/dockerd.log or journalctl -u docker"
