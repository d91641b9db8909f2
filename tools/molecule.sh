#!/usr/bin/env bash
# Run Molecule scenarios: all scenarios on one fleet, or one scenario on its own fleet.
#   molecule.sh [SCENARIO]
# The scenario `default` starts with new hosts. The other scenarios use hosts that `default` converged, and create them if
# necessary.
set -euo pipefail
cd "$(dirname "$0")/.."

scenarios() { printf '%s\n' molecule/*/molecule.yml | cut -d / -f 2; }

scenario=${1:-}
if [ -n "$scenario" ]; then
    [ -f "molecule/$scenario/molecule.yml" ] || {
        echo "molecule: Unknown scenario '$scenario'. Known scenarios: $(scenarios | xargs)" >&2
        exit 2
    }
    # Reset Molecule's state, because it skips steps that an interrupted run completed. The hosts of that run are not new.
    molecule reset -s "$scenario"
    [ "$scenario" != default ] || [ -z "$(docker ps --all --quiet --filter label=gpufleet.sandbox)" ] || molecule destroy -s default
    exec molecule test -s "$scenario"
fi

# Start with new hosts, even if an earlier run left some.
molecule destroy -s default
started=$(date +%s)
for scenario in default $(scenarios | grep -vx default); do
    # Reset Molecule's state. Otherwise, it does not prepare the hosts again.
    molecule reset -s "$scenario"
    echo "== molecule: $scenario ($(($(date +%s) - started)) s since the start)"
    molecule test -s "$scenario" --destroy=never
done
molecule destroy -s default
echo "== molecule: all scenarios passed in $(($(date +%s) - started)) s"
