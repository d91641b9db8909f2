#!/usr/bin/env bash
# Build the image of a simulated host from the Debian archive that apt on this machine is configured to use.
#   build.sh debian12|debian13 IMAGE [--force]
# A second tag contains a digest of the image's inputs. If the digest has not changed, the image is not rebuilt.
set -euo pipefail

fail() { printf 'sandbox image %s: %s\n' "${distribution:-?}" "$1" >&2; exit 1; }

here=$(cd "$(dirname "$0")" && pwd)
simulator=$here/../simulator
cache=$(cd "$here/../../.." && pwd)/.cache/sandbox
distribution=${1:?usage: build.sh debian12|debian13 IMAGE}
image=${2:?usage: build.sh debian12|debian13 IMAGE}

case $distribution in
debian12) suite=bookworm ;;
debian13) suite=trixie ;;
*) fail "Unknown distribution. Known distributions: debian12, debian13." ;;
esac
packages=systemd,systemd-sysv,dbus,python3,python3-apt,sudo,iproute2,ca-certificates,udev,kmod,procps,cron,less,openssh-server,ccache

mkdir -p "$cache"
"$simulator/build.sh" "$cache/simulator"

# Read the URLs of the archive and of its security suite from apt's configuration on this machine.
source_of() { # SUITE_PATTERN
    # shellcheck disable=SC2016 # apt-get expands $(REPO_URI) and $(RELEASE)
    apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' |
        awk -v suite="$1" '$2 ~ suite && !found {found = $1} END {print found}'
}
archive=$(source_of '^(bookworm|trixie)$')
security=$(source_of '^(bookworm|trixie)-security$')
[ -n "$archive" ] || fail "The apt sources of this machine contain no Debian archive (bookworm or trixie). Add one to /etc/apt/sources.list.d."

digest=$({
    printf '%s %s %s\n' "$suite" "$archive" "$packages"
    for part in "$here" "$simulator" "$cache/simulator"; do
        (cd "$part" && find . -type f -not -name '.*' -not -path '*/__pycache__/*' -exec sha256sum {} + | sort)
    done
} | sha256sum | cut -c1-16)
if [ "${3:-}" != --force ] && docker image inspect "$image-$digest" >/dev/null 2>&1; then
    # Another checkout may have built its own image since.
    docker tag "$image-$digest" "$image"
    exit 0
fi

work=$(mktemp -d "$cache/image.XXXXXX")
trap 'rm -rf "$work"' EXIT
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
sources=("deb [signed-by=$keyring] $archive $suite main" "deb [signed-by=$keyring] $archive $suite-updates main")
[ -z "$security" ] || sources+=("deb [signed-by=$keyring] $security $suite-security main")

cat >"$work/customize" <<'HOOK'
#!/bin/sh
# mmdebstrap runs this hook before it removes the package lists. $1 is the root directory.
set -e
root=$1
# The host pretends to run the oldest kernel that the archive has headers for, like a host that was not rebooted recently.
# The distribution's driver may not support a newer kernel. The roles must not install one as a side effect.
release=$(chroot "$root" apt-cache pkgnames linux-headers- | sed -n 's/^linux-headers-\([0-9].*-amd64\)$/\1/p' |
    grep -vE -- '-(cloud|rt)-' | sort -V | sed -n 1p)
[ -n "$release" ] || { echo "The archive has no linux-headers package for amd64." >&2; exit 1; }
mkdir -p "$root/usr/lib/gpusim" "$root/lib/modules/$release" "$root/boot"
echo "$release" >"$root/usr/lib/gpusim/kernel-release"
: >"$root/boot/vmlinuz-$release"
: >"$root/lib/modules/$release/modules.builtin"
: >"$root/lib/modules/$release/modules.order"
"$SIMULATOR/install.sh" "$SIMULATOR_BUILD" "$root"
for name in gcc-12 x86_64-linux-gnu-gcc-14; do install -D -m 0755 "$IMAGES/compiler" "$root/usr/local/bin/$name"; done
install -m 0755 "$IMAGES/xz" "$root/usr/local/bin/xz"
install -m 0644 "$IMAGES/gpusim_bytecode.py" "$root/usr/lib/python3/dist-packages/"
echo 'import os; os.environ.get("GPUSIM_BYTECODE") and __import__("gpusim_bytecode")' >"$root/usr/lib/python3/dist-packages/gpusim.pth"
# apt gives dpkg, and so the build of kernel modules, a PATH without /usr/local.
echo 'DPkg::Path "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";' >"$root/etc/apt/apt.conf.d/00gpusim"
# Replace the sources that mmdebstrap wrote with sources in the format of the distribution's installer.
rm -f "$root"/etc/apt/sources.list "$root"/etc/apt/sources.list.d/*
cp "$SOURCES" "$root/etc/apt/$SOURCES_AT"
: >"$root/etc/machine-id"
# A container has no console.
ln -sf /dev/null "$root/etc/systemd/system/getty.target"
ln -sf /dev/null "$root/etc/systemd/system/systemd-remount-fs.service"
# Each login starts its own SSH server through `docker exec`, so no SSH server runs permanently.
for unit in ssh.service ssh.socket; do ln -sf /dev/null "$root/etc/systemd/system/$unit"; done
rm -f "$root"/etc/ssh/ssh_host_*
printf '#!/bin/sh\nmkdir -p -m 755 /run/sshd\nexec /usr/sbin/sshd -i -h /etc/ssh/ssh_host_ed25519_key\n' >"$root/usr/lib/gpusim/sshd"
chmod 755 "$root/usr/lib/gpusim/sshd"
HOOK
chmod 755 "$work/customize"

case $distribution in
debian12) # one-line format, as in Debian 12's installer
    at=sources.list
    { echo "deb $archive $suite main"
      echo "deb $archive $suite-updates main"
      [ -z "$security" ] || echo "deb $security $suite-security main"; } >"$work/sources" ;;
debian13) # deb822 format
    at=sources.list.d/debian.sources
    { printf 'Types: deb\nURIs: %s\nSuites: %s %s-updates\nComponents: main\nSigned-By: %s\n' "$archive" "$suite" "$suite" "$keyring"
      [ -z "$security" ] || printf '\nTypes: deb\nURIs: %s\nSuites: %s-security\nComponents: main\nSigned-By: %s\n' "$security" "$suite" "$keyring"; } >"$work/sources" ;;
esac

echo "sandbox: building the image of a $distribution host"
proxy=$(apt-config dump | grep -E '^Acquire::(http|https)::Proxy ' || true)
aptopts=()
while read -r line; do [ -z "$line" ] || aptopts+=("--aptopt=$line"); done <<<"$proxy"
IMAGES=$here SIMULATOR=$simulator SIMULATOR_BUILD=$cache/simulator SOURCES=$work/sources SOURCES_AT=$at \
    mmdebstrap --quiet --variant=minbase --include="$packages" "${aptopts[@]}" \
    --customize-hook="$work/customize" "$suite" "$work/root.tar" "${sources[@]}" >"$work/log" 2>&1 ||
    { cp "$work/log" "$cache/image-$distribution.log"; fail "mmdebstrap failed: $(grep -m1 -E '^(E:|Err:)' "$work/log" || tail -n 1 "$work/log") (see $cache/image-$distribution.log)"; }
docker import -c 'ENV container=docker' -c 'ENTRYPOINT ["/usr/lib/gpusim/init"]' "$work/root.tar" "$image" >"$work/log" 2>&1 ||
    fail "docker import failed: $(tail -n 1 "$work/log")"
docker tag "$image" "$image-$digest"
