#!/usr/bin/env bash
# Run ansible-test on a copy of the tracked files, because it requires the path .../ansible_collections/<namespace>/<name> and
# rejects a symlink.
#   tools/ansible_test.sh [sanity | units] [ARGUMENT...]      for example: the path of a test
set -euo pipefail
cd "$(dirname "$0")/.."

command=${1:-sanity}
[ $# -eq 0 ] || shift
case $command in
sanity) ;;
units) set -- --num-workers "${GPUFLEET_TEST_WORKERS:-1}" "$@" ;;
*)
    echo "$0: unknown command $command. Use sanity or units." >&2
    exit 2
    ;;
esac

# ansible-test starts one process of pylint for each CPU that it may use. Each process reads most of the imported modules, so two of
# them need 10% to 25% more CPU time than one.
one_cpu() { # COMMAND [ARGUMENT...]
    exec python -c 'import os, sys
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
os.execvp(sys.argv[1], sys.argv[1:])' "$@"
}

python=$(python -c 'import sys; print("%d.%d" % sys.version_info[:2])')
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
tree=$scratch/ansible_collections/gpufleet/hosts
# ansible-test keeps its environments below HOME, under the hash of their requirements.
home=$PWD/.cache/ansible-test
mkdir -p "$tree" "$home/.ansible/test/cache"
git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' file; do
    [ ! -e "$file" ] || printf '%s\0' "$file"
done | xargs -0 cp --parents -t "$tree"

# ansible-test downloads a script that installs pip in its own environments. A closed network does not reach that server.
# ansible-test uses a script of the same name in its cache instead. This script unpacks the pip that Python includes. With
# ensurepip.bootstrap(), each environment would take 3 seconds longer.
pip_version=$(python -c 'from ansible_test._internal.python_requirements import get_venv_packages as p; from types import SimpleNamespace as N
import sys; print(p(N(version="%d.%d" % sys.version_info[:2]))["pip"])')
cat >"$home/.ansible/test/cache/get_pip_${pip_version//./_}.py" <<'PY'
import ensurepip
import sysconfig
import zipfile
from pathlib import Path

# Debian keeps the wheels of ensurepip outside of ensurepip.
wheels = Path(sysconfig.get_config_var("WHEEL_PKG_DIR") or Path(ensurepip.__file__).with_name("_bundled"))
packages = Path(sysconfig.get_path("purelib"))
zipfile.ZipFile(next(wheels.glob("pip-*.whl"))).extractall(packages)
# Python runs this file when it starts in one of the environments. pylint keeps all that it has read, and the garbage collector would
# look at it again and again. The test `import` imports every file with all that the file imports, so it compiles each one many times.
(packages / "less_work.py").write_text("""
import builtins, functools, gc, sys

gc.disable()
if any(word.endswith("/import/importer.py") for word in sys.orig_argv):
    builtins.compile = functools.cache(compile)
""")
(packages / "less_work.pth").write_text("import less_work\n")
PY
export HOME=$home
unset ANSIBLE_COLLECTIONS_PATH ANSIBLE_CONFIG
collection=$PWD
cd "$tree"
git init -q . && git add -A >/dev/null
# The unit tests reuse the files that earlier runs built and downloaded.
[ "$command" = sanity ] || ln -s "$collection/.cache" .cache
if [ "$command" = sanity ] && [ $# -eq 0 ]; then
    # These two take most of the time. They run beside the other tests, in a tree of their own, because both write tests/output.
    slow=(pylint pep8)
    mkdir "$scratch/slow"
    cp -a "$scratch/ansible_collections" "$scratch/slow/"
    (cd "$scratch/slow/ansible_collections/gpufleet/hosts" &&
        one_cpu ansible-test sanity --python "$python" "${slow[@]/#/--test=}") >"$scratch/slow.log" 2>&1 &
    failed=0
    ansible-test sanity --python "$python" "${slow[@]/#/--skip-test=}" || failed=1
    wait $! || failed=1
    cat "$scratch/slow.log"
    exit "$failed"
fi
ansible-test "$command" --python "$python" "$@"
