#!/usr/bin/env bash
# ansible-test wants .../ansible_collections/<namespace>/<name> and refuses a symlink: give it a copy of the tracked files.
#   tools/ansible_test.sh [sanity | units] [what else to give it, a test's path for example]
set -euo pipefail
cd "$(dirname "$0")/.."

command=${1:-sanity}
[ $# -eq 0 ] || shift
case $command in
sanity) ;;
units) set -- --num-workers "${GPUFLEET_TEST_WORKERS:-1}" "$@" ;;
*)
    echo "$0: $command is neither sanity nor units" >&2
    exit 2
    ;;
esac

python=$(python -c 'import sys; print("%d.%d" % sys.version_info[:2])')
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
tree=$scratch/ansible_collections/gpufleet/hosts
mkdir -p "$tree" .cache "$scratch/home/.ansible/test/cache"
git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' file; do
    [ ! -e "$file" ] || printf '%s\0' "$file"
done | xargs -0 cp --parents -t "$tree"

# ansible-test bootstraps pip in its own environments from a server that a closed network does not reach. A script of
# that name in its cache is used instead, and Python carries a pip of its own.
pip_version=$(python -c 'from ansible_test._internal.python_requirements import get_venv_packages as p; from types import SimpleNamespace as N
import sys; print(p(N(version="%d.%d" % sys.version_info[:2]))["pip"])')
cat >"$scratch/home/.ansible/test/cache/get_pip_${pip_version//./_}.py" <<'PY'
import ensurepip

ensurepip.bootstrap(upgrade=True, default_pip=True)
PY
export HOME=$scratch/home
unset ANSIBLE_COLLECTIONS_PATH ANSIBLE_CONFIG
collection=$PWD
cd "$tree"
git init -q . && git add -A >/dev/null
# What unit tests have built and fetched before serves here, too.
[ "$command" = sanity ] || ln -s "$collection/.cache" .cache
ansible-test "$command" --python "$python" "$@"
