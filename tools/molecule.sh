#!/usr/bin/env bash
# Run Molecule scenarios.
#   molecule.sh                 all scenarios
#   molecule.sh SCENARIO[,...]  these scenarios
# Several scenarios without an inventory of their own share one fleet of the hosts in tests/sandbox/inventory.yml. `default` starts
# with new hosts and converges them, so it is the first. Without `default`, the first of them creates and converges the fleet. If a
# scenario fails, its hosts stay.
set -euo pipefail
cd "$(dirname "$0")/.."

[ $# -le 1 ] || { echo "molecule: Separate scenarios with commas, without spaces: $(IFS=,; echo "$*")" >&2; exit 2; }
scenarios() { printf '%s\n' molecule/*/molecule.yml | cut -d / -f 2; }

if [ -n "${1:-}" ]; then IFS=, read -ra selected <<<"$1"; else mapfile -t selected < <(scenarios); fi
for scenario in "${selected[@]}"; do
    [ -f "molecule/$scenario/molecule.yml" ] || {
        echo "molecule: Unknown scenario '$scenario'. Known scenarios: $(scenarios | xargs)" >&2
        exit 2
    }
done
mapfile -t selected < <(printf '%s\n' "${selected[@]}" | grep -x default || true; printf '%s\n' "${selected[@]}" | grep -vx default || true)

# `default` needs new hosts, but an earlier run may have left some.
[ "${selected[0]}" != default ] || [ -z "$(docker ps --all --quiet --filter label=gpufleet.sandbox)" ] || molecule destroy -s default
shared=$(for scenario in "${selected[@]}"; do [ -d "molecule/$scenario/inventory" ] || echo "$scenario"; done | wc -l)
started=$(date +%s)
for scenario in "${selected[@]}"; do
    keep=()
    if [ "$shared" -gt 1 ] && [ ! -d "molecule/$scenario/inventory" ]; then keep=(--destroy=never); fi
    # Reset Molecule's state, because it skips steps that an interrupted run completed. The hosts of that run are not new.
    molecule reset -s "$scenario"
    echo "== molecule: $scenario ($(($(date +%s) - started)) s since the start)"
    molecule test -s "$scenario" "${keep[@]}"
done
[ "$shared" -le 1 ] || molecule destroy -s default
