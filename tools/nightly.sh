#!/usr/bin/env bash
# Run every test, with new processes and empty caches: make test, make cores ALL=1, make bench and all scenarios.
#   nightly.sh            start, or continue an interrupted run of the same commit
#   nightly.sh --restart  start again
# .cache/nightly/COMMIT has the log of each step. A step that passed is not repeated by the run that continues. All steps run, even
# if one fails, each with new hosts. Scenarios that share hosts are one step. The table at the end shows the wall time and the CPU
# time of each step.
set -euo pipefail
cd "$(dirname "$0")/.."
[ -z "$(git status --porcelain)" ] || { echo "nightly: commit your changes first: the results belong to a commit" >&2; exit 2; }
logs=.cache/nightly/$(git rev-parse --short HEAD)
[ "${1:-}" != --restart ] || rm -rf "$logs"

if [ ! -d "$logs" ]; then
    # Everything that an earlier run or a developer left can hide a fault.
    make clean
    mkdir -p "$logs"
fi

steps() {
    printf '%s\n' 'test' 'cores ALL=1' bench
    # Scenarios without an inventory of their own share one fleet.
    shared=
    for scenario in molecule/*/; do
        scenario=$(basename "$scenario")
        if [ "$scenario" = default ]; then continue; fi
        if [ -d "molecule/$scenario/inventory" ]; then echo "molecule SCENARIO=$scenario"; else shared=${shared:+$shared,}$scenario; fi
    done
    [ -z "$shared" ] || echo "molecule SCENARIO=$shared"
}

# A step that failed or was interrupted may have left hosts, which the next step would not create again.
remove_hosts() {
    docker version >/dev/null 2>&1 || return 0
    docker ps -aq --filter label=gpufleet.sandbox | xargs -r docker rm -fv >/dev/null
}

failed=0
while IFS= read -r step; do
    log=$logs/${step//[ =]/-}
    if [ ! -e "$log.passed" ]; then
        remove_hosts
        echo "== nightly: make $step (log: $log)"
        # shellcheck disable=SC2086 # a step is a target and perhaps a variable
        if tools/cpu.sh make $step </dev/null >"$log" 2>&1; then touch "$log.passed"; else failed=1; fi
    fi
    verdict=failed
    [ ! -e "$log.passed" ] || verdict=passed
    printf '%-7s %s\n' "$verdict" "$(grep '^cpu.sh: ' "$log" | tail -n 1)"
done < <(steps)
exit "$failed"
