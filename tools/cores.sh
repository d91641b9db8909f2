#!/usr/bin/env bash
# Test the collection with every supported ansible-core: the unit tests that run or import Ansible, the module
# nvidia_gpu_facts on this machine, and the syntax of verify.yml. Each version has its own environment in .cache/cores.
#   cores.sh [VERSION...]      for example: cores.sh 2.21.5
# Without arguments, it leaves out what `make unit` tests: the ansible-core and the Python of the project's environment. With
# ALL=1 in the environment, it tests every version.
# If no Python of this machine supports a version, a container with Debian 13 tests it.
set -euo pipefail
cd "$(dirname "$0")/.."

# ansible-core, the oldest and the newest Python of its controller, and the version of the package `ansible`. This package
# contains the collections that the tests need, so that no Galaxy server is required.
table='
2.19.14 3.11 3.13 12.3.0
2.20.10 3.12 3.14 13.8.0
2.21.5  3.12 3.14 14.5.0
'
# All other packages have the versions in requirements-dev.txt.
others='hypothesis|jsonschema|nvidia-ml-py|pytest|pytest-mock|requests|ruff|tomlkit'
states='ready|no_hardware|no_driver|driver_not_loaded|version_mismatch|error'
image=localhost/gpufleet-sandbox:cores
cache=$PWD/.cache/cores

fail() { printf 'cores: %s\n' "$1" >&2; exit 1; }

requirements() { # CORE ANSIBLE
    printf 'ansible-core==%s\nansible==%s\n' "$1" "$2"
    grep -E "^($others)==" requirements-dev.txt
}

tests() { # the tests of plugins, roles and playbooks, and the tests of module_utils that import Ansible
    printf 'tests/unit/%s\n' playbooks roles plugins/action plugins/filter plugins/modules plugins/plugin_utils
    grep -rlE --include='*.py' '^ *(from|import) ansible\.' plugins/module_utils | while IFS= read -r module; do
        test=tests/unit/${module%/*}/test_${module##*/}
        [ ! -e "$test" ] || echo "$test"
    done
    grep -rlE --include='*.py' '^ *(from|import) ansible\.' tests/unit/plugins/module_utils || true
}

find_python() { # OLDEST NEWEST: print the first Python of this machine in this range that can create an environment
    local candidate
    for candidate in python3 python3.{11..14} "$HOME"/.pyenv/versions/*/bin/python3; do
        "$candidate" - "$1" "$2" 2>/dev/null <<'PY' && return
import sys, venv, ensurepip
oldest, newest = (tuple(map(int, bound.split("."))) for bound in sys.argv[1:])
if not oldest <= sys.version_info[:2] <= newest:
    sys.exit(1)
print(sys.executable)
PY
    done
    return 1
}

make_environment() { # CORE ANSIBLE PYTHON DIRECTORY [WHEELS]: create an environment, from the directory WHEELS if it is given
    local pip=("$4/bin/pip") source=()
    rm -rf "$4"
    if [ -n "${5:-}" ]; then
        # Debian's Python has no pip, so the one from the wheels installs everything.
        "$3" -m venv --without-pip "$4"
        pip=("$4/bin/python" "$(echo "$5"/pip-*.whl)/pip")
        source=(--no-index --find-links "$5")
    else
        "$3" -m venv "$4"
    fi
    # Compiling all of `ansible` to bytecode takes longer than the tests would save.
    requirements "$1" "$2" | "${pip[@]}" install --quiet --disable-pip-version-check --no-compile "${source[@]}" \
        -r /dev/stdin >"$4.log" 2>&1 || fail "pip could not install ansible-core $1: $(tail -n 1 "$4.log")"
    requirements "$1" "$2" >"$4/made-of"
}

check() { # CORE ENVIRONMENT: run all tests, print a summary line, and return 1 if a test failed
    local core=$1 started=$SECONDS log=$cache/$1.log python tests_say state verdict=passed
    export PATH=$2/bin:$PATH
    python=$(python -c 'import platform; print(platform.python_version())')
    echo "== ansible-core $core, Python $python"
    # pytest and ansible find the collection by its path below ansible_collections.
    (cd "$ANSIBLE_COLLECTIONS_PATH/ansible_collections/gpufleet/hosts" &&
        tests | sort -u | xargs python -m pytest -p no:cacheprovider) 2>&1 | tee "$log" || verdict=failed
    tests_say=$(tail -n 1 "$log")
    state=$(ansible -m gpufleet.hosts.nvidia_gpu_facts localhost 2>&1 | tee -a "$log" |
        sed -n 's/^ *nvidia_gpu_state: *//p') || verdict=failed
    [[ $state =~ ^($states)$ ]] || { verdict=failed; state="no documented state (see $log)"; }
    ansible-playbook --syntax-check playbooks/verify.yml >>"$log" 2>&1 ||
        { verdict=failed; echo "playbooks/verify.yml: $(tail -n 1 "$log")"; }
    echo "ansible-core $core on Python $python: $verdict; $tests_say; localhost: $state; $((SECONDS - started)) s" |
        tee "$cache/$core.summary"
    [ "$verdict" = passed ]
}

in_container() { # CORE ANSIBLE
    local wheels=$cache/wheels-$1
    echo "== ansible-core $1: this machine has no suitable Python, so a container with Debian 13 tests it"
    tests/sandbox/preflight.sh
    tests/sandbox/engine.sh
    tests/sandbox/images/build.sh debian13 "$image"
    # The container has no compiler and no network, so this machine compiles the library and downloads the wheels.
    tests/sandbox/simulator/build.sh --nvml-only .cache/simulator/unit
    rm -rf "$wheels"
    requirements "$1" "$2" | .venv/bin/pip download --quiet --disable-pip-version-check --only-binary :all: \
        --python-version 3.13 --dest "$wheels" pip -r /dev/stdin || fail "pip could not download ansible-core $1"
    docker run --rm --network none --volume "$PWD:$PWD" --workdir "$PWD" --entrypoint tools/cores.sh \
        --env ANSIBLE_CONFIG --env ANSIBLE_COLLECTIONS_PATH --env LC_ALL --env LANG --env CORES_WHEELS="$wheels" \
        "$image" "$1"
}

# make puts the project's environment first on PATH. Do not create other environments from it.
PATH=$(printf %s "$PATH" | tr : '\n' | grep -vxF "$PWD/.venv/bin" | paste -sd :)
mkdir -p "$cache"
failed=()
chosen=${*:-$(awk 'NF {print $1}' <<<"$table")}
tested_by_unit=none
[ $# -gt 0 ] || [ -n "${ALL:-}" ] ||
    tested_by_unit=$(.venv/bin/python -c 'import sys, ansible.release; print(ansible.release.__version__, sys.version.split()[0])')
for core in $chosen; do
    read -r _ oldest newest ansible < <(grep "^$core " <<<"$table") || fail "Unknown version $core. Known versions: $(awk 'NF {print $1}' <<<"$table" | xargs)"
    environment=$cache/$core
    rm -f "$environment.summary"
    python=$(find_python "$oldest" "$newest") || python=
    if [ -n "$python" ] && [ "$core $("$python" -c 'import sys; print(sys.version.split()[0])')" = "$tested_by_unit" ]; then
        echo "ansible-core $core: left out, because \`make unit\` tests it with the same Python. ALL=1 tests it here, too." |
            tee "$environment.summary"
        continue
    fi
    if [ -z "$python" ]; then
        if [ -n "${CORES_WHEELS:-}" ]; then
            python=$(command -v python3)
        else
            in_container "$core" "$ansible" || failed+=("$core")
            continue
        fi
    fi
    [ -z "${CORES_WHEELS:-}" ] || environment=$environment-container
    if [ "$(cat "$environment/made-of" 2>/dev/null)" != "$(requirements "$core" "$ansible")" ] ||
        ! "$environment/bin/python" -c '' 2>/dev/null; then
        make_environment "$core" "$ansible" "$python" "$environment" "${CORES_WHEELS:-}"
    fi
    (check "$core" "$environment") || failed+=("$core")
done

[ -z "${CORES_WHEELS:-}" ] || exit "${#failed[@]}"
for core in $chosen; do
    cat "$cache/$core.summary" 2>/dev/null || echo "ansible-core $core: could not be tested"
done
[ ${#failed[@]} -eq 0 ] || fail "failed with ansible-core ${failed[*]}"
