#!/usr/bin/env bash
# Test the Kubernetes parts against a real API server on this machine: run.sh [ARGUMENTS OF pytest]
# The programs are in $GPUFLEET_KUBERNETES_CACHE, by default ~/.cache/gpufleet-kubernetes. The first run builds the API server.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
export GPUFLEET_KUBERNETES_CACHE=${GPUFLEET_KUBERNETES_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/gpufleet-kubernetes}
"$here/tools.sh" "$GPUFLEET_KUBERNETES_CACHE"
"$here/build_server.sh" "$GPUFLEET_KUBERNETES_CACHE"
cd "$here/../../.ansible/collections/ansible_collections/gpufleet/hosts"
exec python -m pytest -p no:cacheprovider "$@" tests/kubernetes
