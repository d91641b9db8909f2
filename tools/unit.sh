#!/usr/bin/env bash
# Run the tests in tests/unit or tests/aws in two processes, and with their temporary files in memory if this machine has a suitable
# file system.
# The tests write thousands of files with fsync, which takes most of their time on a disk.
#   tools/unit.sh [FILE, FOLDER OR OPTION OF PYTEST...]
# --ignore=PATH leaves out the files in PATH. GPUFLEET_TEST_WORKERS is the number of processes.
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

files_of() { # PATH...: print the test files in these files and folders, without those to ignore
    local path
    for path in "$@"; do
        [ -d "$path" ] || { echo "$path"; continue; }
        find "$path" -name 'test_*.py'
    done | sort -u | grep -vE "^(${ignored:-/})(/|\$)"
}

paths=() options=() ignored=
for argument in "$@"; do
    case $argument in
    --ignore=*) ignored+=${ignored:+|}${argument#--ignore=} ;;
    -*) options+=("$argument") ;;
    *) paths+=("$argument") ;;
    esac
done
mapfile -t files < <(files_of "${paths[@]}")
[ ${#files[@]} -gt 0 ] || { echo "unit.sh: no test file in ${paths[*]:-the arguments}. Name test files, or folders with test files." >&2; exit 2; }

workers=${GPUFLEET_TEST_WORKERS:-2}
[ "$workers" -le ${#files[@]} ] || workers=${#files[@]}
directory=$(in_memory) || directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT

# pytest-xdist needs more CPU time for a small test than the test: every worker collects all tests, and sends each result.
# The files are dealt out one by one, so that each process gets the same number from each folder.
run() { # NUMBER: run this worker's files
    local own=() number
    for number in "${!files[@]}"; do
        [ $((number % workers)) -ne "$1" ] || own+=("${files[number]}")
    done
    mkdir "$directory/$1"
    # A short path, because the paths of sockets are limited to 107 characters.
    TMPDIR=$directory/$1 python -m pytest --basetemp "$directory/$1/t" "${options[@]}" "${own[@]}"
}

failed=0 pids=()
for ((worker = 1; worker < workers; worker++)); do
    run "$worker" >"$directory/log.$worker" 2>&1 &
    pids+=($!)
done
run 0 2>&1 | tee "$directory/log.0" || failed=1
for worker in "${!pids[@]}"; do
    wait "${pids[worker]}" || failed=1
    cat "$directory/log.$((worker + 1))"
done
# Those of all workers at the end, where a shortened log still has them.
[ "$failed" = 0 ] || sed 's/\x1b\[[0-9;]*m//g' "$directory"/log.* | grep -E '^(FAILED|ERROR) ' | sort -u || true
exit "$failed"
