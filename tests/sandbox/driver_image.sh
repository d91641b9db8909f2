#!/usr/bin/env bash
# Make an image of a simulated host on which Debian's driver is installed but not loaded, as after its administrator installed it.
#   driver_image.sh BASE IMAGE ARGUMENT...
# BASE: the image of a host without a driver. ARGUMENT: those of `docker container run` that start the host, with its name. The
# host is removed afterwards. A second tag contains a digest of the inputs. If the digest has not changed, nothing is built.
set -euo pipefail

base=${1:?usage: driver_image.sh BASE IMAGE ARGUMENT...}
image=${2:?usage: driver_image.sh BASE IMAGE ARGUMENT...}
shift 2
for argument; do [[ $argument != --name=* ]] || name=${argument#--name=}; done
fail() { printf 'sandbox image %s: %s\n' "$image" "$1" >&2; exit 1; }
[ -n "${name:-}" ] || fail "The arguments contain no --name."

# Those that role nvidia_driver installs for containers.
packages='dkms nvidia-modprobe nvidia-kernel-dkms nvidia-kernel-support nvidia-smi libnvidia-ml1 libnvidia-cfg1 libcuda1
    libcudadebugger1 libnvidia-ptxjitcompiler1 libnvidia-nvvm4'

digest=$({ docker image inspect --format '{{.Id}}' "$base"; cat "$0"; } | sha256sum | cut -c1-16)
if docker image inspect "$image-$digest" >/dev/null 2>&1; then
    docker tag "$image-$digest" "$image"
    exit 0
fi

echo "sandbox: building the image of a host with a driver: $image"
log=$(mktemp)
trap 'docker container rm --force --volumes "$name" >/dev/null 2>&1; rm -f "$log"' EXIT
docker container run --detach "$@" "$base" >/dev/null
for _second in {1..60}; do
    state=$(docker exec "$name" systemctl is-system-running 2>/dev/null || true)
    case $state in running | degraded) break ;; esac
    sleep 1
done
case $state in running | degraded) ;; *) fail "The host did not start within 60 s." ;; esac
docker exec --interactive --env DEBIAN_FRONTEND=noninteractive --env PACKAGES="$packages" "$name" bash -eu >"$log" 2>&1 <<'HOST' ||
export DEBIAN_FRONTEND
# The driver is in components that Debian does not enable.
for sources in /etc/apt/sources.list /etc/apt/sources.list.d/debian.sources; do
    [ ! -f "$sources" ] || sed -Ei 's/^((deb|Components:).* main)$/\1 contrib non-free non-free-firmware/' "$sources"
done
apt-get --quiet=2 update
# shellcheck disable=SC2086 # several packages
apt-get --quiet=2 --assume-yes --no-install-recommends install "linux-headers-$(cat /usr/lib/gpusim/kernel-release)" $PACKAGES
apt-get clean
rm -rf /var/lib/apt/lists/*
# Each host gets its own.
: >/etc/machine-id
HOST
    fail "Debian's driver could not be installed: $(grep -m1 '^E:' "$log" || tail -n 1 "$log")"
docker container stop "$name" >/dev/null
docker container commit "$name" "$image-$digest" >/dev/null
docker tag "$image-$digest" "$image"
