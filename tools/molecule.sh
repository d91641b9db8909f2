#!/usr/bin/env bash
# Run molecule scenarios: all of them on one fleet, or the named one on a fleet of its own.
#   molecule.sh [SCENARIO]
# The scenario `default` starts from bare hosts; the others stand on hosts that it converged and make them if need be.
set -euo pipefail
cd "$(dirname "$0")/.."

scenario=${1:-}
if [ -n "$scenario" ]; then
    [ -f "molecule/$scenario/molecule.yml" ] || {
        echo "molecule: no scenario '$scenario'; there are: $(cd molecule && ls -d */ | tr -d / | xargs)" >&2
        exit 2
    }
    # What molecule remembers of a run that was killed would have it skip steps; its hosts are not bare.
    molecule reset -s "$scenario"
    [ "$scenario" != default ] || molecule destroy -s default
    exec molecule test -s "$scenario"
fi

# Bare hosts first, whatever an earlier run left.
molecule destroy -s default
started=$(date +%s)
for scenario in default $(cd molecule && ls -d */ | tr -d / | grep -vx default); do
    [ -f "molecule/$scenario/molecule.yml" ] || continue
    # What it remembers of an earlier run would keep it from preparing the hosts.
    molecule reset -s "$scenario"
    echo "== molecule: $scenario ($(($(date +%s) - started)) s since the start)"
    molecule test -s "$scenario" --destroy=never
done
molecule destroy -s default
echo "== molecule: all scenarios passed in $(($(date +%s) - started)) s"
