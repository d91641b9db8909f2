#!/usr/bin/env bash
# Build Kubernetes' API server and controller manager from Debian's source package, into a cache outside the repository.
#   build_server.sh CACHE
# CACHE/bin then has kube-apiserver and kube-controller-manager. A second call returns at once. The first one takes about
# fifteen minutes on two cores. Nothing is installed on this machine: compiler and tools are unpacked into the cache.
set -euo pipefail

fail() { printf 'kubernetes: %s\n' "$1" >&2; exit 1; }

cache=${1:?usage: build_server.sh CACHE}
suite=bookworm
programs=(kube-apiserver kube-controller-manager)
mkdir -p "$cache/bin"
cache=$(cd "$cache" && pwd)
exec 9>"$cache/build.lock"
flock 9
for name in "${programs[@]}"; do [ -x "$cache/bin/$name" ] || missing=1; done
[ -n "${missing:-}" ] || exit 0

command -v apt-get >/dev/null 2>&1 || fail "This machine has no apt-get, which downloads the source of the API server. Use a machine with Debian."
needed=()
for name in dpkg-source:dpkg-dev patch:patch make:make gcc:gcc flock:util-linux; do
    command -v "${name%%:*}" >/dev/null 2>&1 || needed+=("${name##*:}")
done
[ ${#needed[@]} -eq 0 ] || fail "Install ${needed[*]}, which unpack and build the API server."
free_mib=$(df --output=avail -BM "$cache" | tail -n 1 | tr -dc 0-9)
[ "$free_mib" -ge 6000 ] || fail "$cache has $free_mib MiB free, but the build of the API server needs 6000 MiB. Free disk space, or set GPUFLEET_KUBERNETES_CACHE to another directory."

# An apt of its own, so that neither the sources nor the lists of this machine change.
# shellcheck disable=SC2016 # apt-get expands $(REPO_URI) and $(RELEASE)
archive=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' |
    awk '$2 ~ /^(bookworm|trixie)$/ && !found {found = $1} END {print found}')
[ -n "$archive" ] || fail "The apt sources of this machine contain no Debian archive (bookworm or trixie). Add one to /etc/apt/sources.list.d."
apt=$cache/apt
mkdir -p "$apt/state/lists/partial" "$apt/cache/archives/partial" "$apt/packages"
: >"$apt/status"
printf '%s [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s %s main\n' \
    deb "$archive" $suite deb-src "$archive" $suite >"$apt/sources.list"
own_apt() {
    apt-get -qq -o "Dir::State=$apt/state" -o "Dir::State::status=$apt/status" -o "Dir::Cache=$apt/cache" \
        -o "Dir::Etc::sourcelist=$apt/sources.list" -o Dir::Etc::sourceparts=- -o APT::Sandbox::User=root "$@" \
        >>"$apt/log" 2>&1 || fail "apt-get $* failed: $(grep -m1 -E '^(E:|Err:)' "$apt/log" || tail -n 1 "$apt/log") (see $apt/log)"
}
echo "kubernetes: downloading the source of the API server and a Go compiler from Debian $suite"
: >"$apt/log"
own_apt update
(
    cd "$apt/packages"
    own_apt download golang-1.19-go golang-1.19-src golang-github-modern-go-reflect2-dev rsync libpopt0 jq libjq1 libonig5
    own_apt source --download-only kubernetes
)

tools=$cache/tools
rm -rf "$tools" "$cache/go"
mkdir -p "$tools" "$cache/go/src/k8s.io"
for package in "$apt"/packages/*.deb; do dpkg-deb -x "$package" "$tools"; done
source=$cache/go/src/k8s.io/kubernetes
dpkg-source --no-check -x "$apt"/packages/kubernetes_*.dsc "$source" >>"$apt/log" 2>&1 ||
    fail "The source of the API server could not be unpacked: $(tail -n 1 "$apt/log") (see $apt/log)"
# The packed reflect2 is older than Go 1.18: a server built with it starts, and crashes at the first write.
rm -rf "$source/vendor/github.com/modern-go/reflect2"
cp -a "$tools/usr/share/gocode/src/github.com/modern-go/reflect2" "$source/vendor/github.com/modern-go/reflect2"

echo "kubernetes: building ${programs[*]} (about fifteen minutes on two cores)"
version=$(sed -n 's/^Version: .*really\([0-9.]*\)-.*/v\1/p' "$apt"/packages/kubernetes_*.dsc | sed -n 1p)
(
    cd "$source"
    export GOROOT=$tools/usr/lib/go-1.19 GOPATH=$cache/go GOCACHE=$cache/gocache GO111MODULE=off CGO_ENABLED=0 FORCE_HOST_GO=y
    export PATH=$GOROOT/bin:$tools/usr/bin:$PATH LD_LIBRARY_PATH=$tools/usr/lib/x86_64-linux-gnu LC_ALL=C.UTF-8
    export KUBE_GIT_VERSION=$version KUBE_GIT_TREE_STATE=archive KUBE_GIT_COMMIT=debian
    make "WHAT=${programs[*]/#/cmd/}"
) >"$cache/build.log" 2>&1 || fail "The build of the API server failed: $(grep -m1 -iE 'error' "$cache/build.log" || tail -n 1 "$cache/build.log") (see $cache/build.log)"
for name in "${programs[@]}"; do
    binary=$(find "$source/_output" -type f -name "$name" -perm -u+x | sed -n 1p)
    [ -n "$binary" ] || fail "The build left no $name (see $cache/build.log)."
    install -m 0755 "$binary" "$cache/bin/$name"
done
rm -rf "$cache/go" "$cache/gocache" "$tools" "$apt"
