#!/usr/bin/env bash
# Run Molecule scenarios.
#   molecule.sh                 all scenarios
#   molecule.sh SCENARIO[,...]  these scenarios
# Several scenarios share one fleet of the hosts in tests/sandbox/inventory.yml. `default` starts with new hosts and converges them,
# so it is the first. Without `default`, the first scenario that uses the fleet creates and converges it.
set -euo pipefail
cd "$(dirname "$0")/.."

scenarios() { printf '%s\n' molecule/*/molecule.yml | cut -d / -f 2; }

if [ $# -gt 0 ]; then IFS=, read -ra selected <<<"$1"; else mapfile -t selected < <(scenarios); fi
for scenario in "${selected[@]}"; do
    [ -f "molecule/$scenario/molecule.yml" ] || {
        echo "molecule: Unknown scenario '$scenario'. Known scenarios: $(scenarios | xargs)" >&2
        exit 2
    }
done
mapfile -t selected < <(printf '%s\n' "${selected[@]}" | grep -x default || true; printf '%s\n' "${selected[@]}" | grep -vx default || true)

# `default` needs new hosts, but an earlier run may have left some.
[ "${selected[0]}" != default ] || [ -z "$(docker ps --all --quiet --filter label=gpufleet.sandbox)" ] || molecule destroy -s default
keep=()
[ "${#selected[@]}" = 1 ] || keep=(--destroy=never)
started=$(date +%s)
for scenario in "${selected[@]}"; do
    # Reset Molecule's state, because it skips steps that an interrupted run completed. The hosts of that run are not new.
    molecule reset -s "$scenario"
    echo "== molecule: $scenario ($(($(date +%s) - started)) s since the start)"
    molecule test -s "$scenario" "${keep[@]}"
done
[ "${#selected[@]}" = 1 ] || molecule destroy -s default
