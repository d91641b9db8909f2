#!/usr/bin/env bash
# Build the image of a simulated host from the distribution's own archive, as this machine's package sources name it.
#   build.sh debian12|debian13 IMAGE [--force]
# Built once: a second tag carries a digest of all that goes into the image, and an equal digest is left as it is.
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
*) fail "unknown distribution; known: debian12, debian13" ;;
esac
packages=systemd,systemd-sysv,dbus,python3,python3-apt,sudo,iproute2,ca-certificates,udev,kmod,procps,cron,less,openssh-server

mkdir -p "$cache"
"$simulator/build.sh" "$cache/simulator"

# The archive and its security suite, from the sources that this machine itself uses.
source_of() { # PATTERN OF A SUITE
    apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' |
        awk -v suite="$1" '$2 ~ suite && !found {found = $1} END {print found}'
}
archive=$(source_of '^(bookworm|trixie)$')
security=$(source_of '^(bookworm|trixie)-security$')
[ -n "$archive" ] || fail "this machine's apt sources name no Debian archive (bookworm or trixie)"

digest=$({
    printf '%s %s %s\n' "$suite" "$archive" "$packages"
    for part in "$here" "$simulator" "$cache/simulator"; do
        (cd "$part" && find . -type f -not -name '.*' -not -path '*/__pycache__/*' -exec sha256sum {} + | sort)
    done
} | sha256sum | cut -c1-16)
id_of() { docker image inspect --format '{{.Id}}' "$1" 2>/dev/null || echo "no $1"; }
if [ "${3:-}" != --force ] && [ "$(id_of "$image")" = "$(id_of "$image-$digest")" ]; then
    exit 0
fi

work=$(mktemp -d "$cache/image.XXXXXX")
trap 'rm -rf "$work"' EXIT
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
sources=("deb [signed-by=$keyring] $archive $suite main" "deb [signed-by=$keyring] $archive $suite-updates main")
[ -z "$security" ] || sources+=("deb [signed-by=$keyring] $security $suite-security main")

cat >"$work/customize" <<'HOOK'
#!/bin/sh
# Runs in mmdebstrap's hook, while the package lists are still there. $1 is the root.
set -e
root=$1
# The kernel that this host "runs": the oldest that the archive still has headers for, as on a host that has not been
# rebooted lately. A newer one may have outrun the distribution's driver, and no role may bring it in by the way.
release=$(chroot "$root" apt-cache pkgnames linux-headers- | sed -n 's/^linux-headers-\([0-9].*-amd64\)$/\1/p' |
    grep -vE -- '-(cloud|rt)-' | sort -V | sed -n 1p)
[ -n "$release" ] || { echo "the archive has no linux-headers for amd64" >&2; exit 1; }
mkdir -p "$root/usr/lib/gpusim" "$root/lib/modules/$release" "$root/boot"
echo "$release" >"$root/usr/lib/gpusim/kernel-release"
: >"$root/boot/vmlinuz-$release"
: >"$root/lib/modules/$release/modules.builtin"
: >"$root/lib/modules/$release/modules.order"
"$SIMULATOR/install.sh" "$SIMULATOR_BUILD" "$root"
# mmdebstrap wrote the sources for this machine's eyes: give them the form that the distribution's installer uses.
rm -f "$root"/etc/apt/sources.list "$root"/etc/apt/sources.list.d/*
cp "$SOURCES" "$root/etc/apt/$SOURCES_AT"
: >"$root/etc/machine-id"
# No console in a container, and nothing to log in to.
ln -sf /dev/null "$root/etc/systemd/system/getty.target"
ln -sf /dev/null "$root/etc/systemd/system/systemd-remount-fs.service"
# A login comes through `docker exec`: one SSH server a connection, and none that waits.
for unit in ssh.service ssh.socket; do ln -sf /dev/null "$root/etc/systemd/system/$unit"; done
rm -f "$root"/etc/ssh/ssh_host_*
printf '#!/bin/sh\nmkdir -p -m 755 /run/sshd\nexec /usr/sbin/sshd -i -h /etc/ssh/ssh_host_ed25519_key\n' >"$root/usr/lib/gpusim/sshd"
chmod 755 "$root/usr/lib/gpusim/sshd"
HOOK
chmod 755 "$work/customize"

case $distribution in
debian12) # one line an entry, as Debian 12's installer writes them
    at=sources.list
    { echo "deb $archive $suite main"
      echo "deb $archive $suite-updates main"
      [ -z "$security" ] || echo "deb $security $suite-security main"; } >"$work/sources" ;;
debian13) # deb822
    at=sources.list.d/debian.sources
    { printf 'Types: deb\nURIs: %s\nSuites: %s %s-updates\nComponents: main\nSigned-By: %s\n' "$archive" "$suite" "$suite" "$keyring"
      [ -z "$security" ] || printf '\nTypes: deb\nURIs: %s\nSuites: %s-security\nComponents: main\nSigned-By: %s\n' "$security" "$suite" "$keyring"; } >"$work/sources" ;;
esac

echo "sandbox: building the image of a $distribution host"
proxy=$(apt-config dump | grep -E '^Acquire::(http|https)::Proxy ' || true)
aptopts=()
while read -r line; do [ -z "$line" ] || aptopts+=("--aptopt=$line"); done <<<"$proxy"
SIMULATOR=$simulator SIMULATOR_BUILD=$cache/simulator SOURCES=$work/sources SOURCES_AT=$at \
    mmdebstrap --quiet --variant=minbase --include="$packages" "${aptopts[@]}" \
    --customize-hook="$work/customize" "$suite" "$work/root.tar" "${sources[@]}" >"$work/log" 2>&1 ||
    { cp "$work/log" "$cache/image-$distribution.log"; fail "mmdebstrap failed: $(grep -m1 -E '^(E:|Err:)' "$work/log" || tail -n 1 "$work/log") (see $cache/image-$distribution.log)"; }
docker import -c 'ENV container=docker' -c 'ENTRYPOINT ["/usr/lib/gpusim/init"]' "$work/root.tar" "$image" >"$work/log" 2>&1 ||
    fail "docker import failed: $(tail -n 1 "$work/log")"
docker tag "$image" "$image-$digest"
