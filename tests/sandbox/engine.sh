#!/usr/bin/env bash
# Install and start the Docker Engine on this machine if necessary. An installed engine is not replaced. On failure, prints
# one line with the reason.
set -euo pipefail

fail() { printf 'sandbox: %s\n' "$1" >&2; exit 1; }
answers() { docker version --format '{{.Server.Version}}' >/dev/null 2>&1; }

state_dir=${GPUFLEET_SANDBOX_STATE:-"$(cd "$(dirname "$0")/../.." && pwd)/.cache/sandbox"}
mkdir -p "$state_dir" 2>/dev/null || fail "Cannot create $state_dir. Make the checkout writable, or set GPUFLEET_SANDBOX_STATE."

if answers; then
    exit 0
fi

[ "$(id -u)" = 0 ] || fail "The Docker Engine does not answer, and only root can start or install it. Run make as root, or add your user to the group docker."

if ! command -v dockerd >/dev/null 2>&1; then
    command -v apt-get >/dev/null 2>&1 || fail "The Docker Engine is not installed, and there is no apt-get to install it. Install Docker, then run make again."
    echo "sandbox: installing the distribution's Docker Engine"
    log="$state_dir/engine-install.log"
    export DEBIAN_FRONTEND=noninteractive
    { apt-get update && apt-get install -y --no-install-recommends docker.io iptables ca-certificates; } >"$log" 2>&1 ||
        fail "Could not install docker.io with apt-get. See $log, and check the network and the free disk space."
    # Debian 13 and later have a separate package for the client.
    command -v docker >/dev/null 2>&1 || apt-get install -y --no-install-recommends docker-cli >>"$log" 2>&1 ||
        fail "Could not install docker-cli with apt-get. See $log."
fi

answers && exit 0

if [ -d /run/systemd/system ]; then
    systemctl start docker >/dev/null 2>&1 || fail "\`systemctl start docker\` failed. See \`journalctl -u docker\`."
else
    # A killed engine leaves its PID files behind, and a new engine does not start while they exist.
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
fail "The Docker Engine does not answer after 60 s. See $state_dir/dockerd.log or \`journalctl -u docker\`."
