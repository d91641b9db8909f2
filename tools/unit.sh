#!/usr/bin/env bash
# Run the unit tests with two workers, and with their temporary files in memory if this machine has a suitable file system.
# The tests write thousands of files with fsync, which takes most of their time on a disk.
#   tools/unit.sh [ARGUMENT OF PYTEST...]
set -euo pipefail
cd "$(dirname "$0")/../.ansible/collections/ansible_collections/gpufleet/hosts"

in_memory() { # print a new directory in memory with 2 GiB of space, in which programs can run
    local directory free
    free=$(df --output=avail -BM /dev/shm 2>/dev/null | tail -n 1 | tr -dc 0-9)
    [ "$(stat --file-system --format %T /dev/shm 2>/dev/null)" = tmpfs ] && [ "${free:-0}" -ge 2048 ] || return 1
    directory=$(mktemp -d /dev/shm/unit.XXXX) || return 1
    if printf '#!/bin/sh\n' >"$directory/program" && chmod +x "$directory/program" && "$directory/program" 2>/dev/null; then
        rm "$directory/program"
        echo "$directory"
    else
        rm -rf "$directory"
        return 1
    fi
}

options=()
if directory=$(in_memory); then
    trap 'rm -rf "$directory"' EXIT
    export TMPDIR=$directory
    # A short path, because the paths of sockets are limited to 107 characters.
    options=(--basetemp "$directory/t")
fi
# A file's tests stay on one worker, because they share what the first of them prepared.
python -m pytest -n "${GPUFLEET_TEST_WORKERS:-2}" --dist loadfile "${options[@]}" "$@"
