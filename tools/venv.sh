#!/usr/bin/env bash
# Create the Python environment of the project from requirements-dev.txt.
#   venv.sh DIRECTORY [PYTHON]
set -euo pipefail

fail() { printf 'setup: %s\n' "$1" >&2; exit 1; }

venv=${1:?usage: venv.sh DIRECTORY [PYTHON]}
python=${2:-python3}
root=$(cd "$(dirname "$0")/.." && pwd)
# make puts the environment first on PATH. Do not create the environment from itself.
PATH=$(printf %s "$PATH" | tr : '\n' | grep -vxF "$venv/bin" | paste -sd :)

free_mib=$(df --output=avail -BM "$root" | tail -n 1 | tr -dc 0-9)
[ "$free_mib" -ge 1500 ] || fail "$root has $free_mib MiB free, but the Python environment needs 1500 MiB. Free disk space."

if ! "$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
        fail "$python is not installed or has no venv module. Install python3 and python3-venv, or set PYTHON to another Python."
    fi
    echo "setup: installing python3-venv"
    export DEBIAN_FRONTEND=noninteractive
    { apt-get update && apt-get install -y --no-install-recommends python3 python3-venv; } >/dev/null 2>&1 ||
        fail "Could not install python3-venv with apt-get. Check the network and the package sources."
fi
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail "$("$python" --version) is too old for ansible-core 2.19. Set PYTHON to Python 3.11 or newer."

# make marks the environment as complete only after success, so an interrupted run starts again.
rm -rf "$venv"
echo "setup: creating the Python environment"
"$python" -m venv "$venv" || fail "$python -m venv failed."
log=$(mktemp)
# Python compiles what it imports. pip would also compile the thousands of files that nothing imports.
"$venv/bin/pip" install --quiet --no-compile --disable-pip-version-check -r "$root/requirements-dev.txt" >"$log" 2>&1 ||
    fail "pip could not install requirements-dev.txt. Check the network. The error is: $(grep -m1 '^ERROR' "$log" || tail -n 1 "$log")"
rm -f "$log"
