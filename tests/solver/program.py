# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the matrix of one platform, where its package manager is installed, and print each failed case and the totals."""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from collections import Counter
from pathlib import Path

from ansible_collections.gpufleet.hosts.tests.solver import (
    cases,
    debian,
    engine_cases,
    engines,
    enterprise,
    guests,
    removals,
    suse,
    ubuntu,
)

MODULES = {"amazon": enterprise, "debian": debian, "el": enterprise, "sles": suse, "ubuntu": ubuntu}
_WHO = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)


def main() -> None:
    """Run the cases, and print one JSON document for each line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--platform", required=True)
    parser.add_argument("--subject", choices=("driver", "engine"), default="driver")
    parser.add_argument("--only", default="", help="run only the cases whose name contains this text")
    parser.add_argument("--all", action="store_true", help="print the passed cases, too")
    options = parser.parse_args()
    family = options.platform.partition("-")[0]
    # The cases of a subject, and the module that plans and judges them.
    module, judge = (engines, engine_cases) if options.subject == "engine" else (MODULES[family], cases)
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        manager = module.manager(Path(scratch), options.platform)
        lab = judge.Lab(manager)
        totals: Counter = Counter()
        removed: set[tuple] = set()
        of_guests = guests.cases(manager, options.platform) if options.subject == "driver" else ()
        for case in (*module.cases(manager, options.platform), *of_guests):
            if options.only not in str(case):
                continue
            outcome = lab.plan(case)
            found = judge.faults(case, outcome)
            removal = removals.key(case, outcome) if options.subject == "driver" and not found else None
            if removal and removal not in removed:
                removed.add(removal)
                totals["removals"] += 1
                found = removals.faults(case, removals.simulate(lab, case, outcome))
            totals["failed" if found else "refused" if outcome.is_refused else "installed"] += 1
            if found or options.all:
                row = {
                    "case": str(case),
                    "faults": found,
                    "errors": [*outcome.errors, *filter(None, [outcome.refused])],
                    "changes": [str(change) for change in outcome.changes],
                    "reasons": outcome.reasons,
                }
                print(json.dumps(row), flush=True)
    totals["simulated"] = lab.simulations
    totals["seconds"] = round(time.monotonic() - start)
    totals["cpu_seconds"] = round(sum(sum(resource.getrusage(who)[:2]) for who in _WHO))
    print(json.dumps({"platform": options.platform, "subject": options.subject, **totals}), flush=True)


if __name__ == "__main__":
    main()
