# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare a converged run of site.yml with fact gathering and with roles that are written the usual way (baseline/).

Prints tables and writes JSON. docs/performance.md explains the measurements.
Exit status: 0 all limits are met, 1 a limit is exceeded, 2 the measurement failed.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

import measure
import report

INVENTORIES = (measure.ROOT / "tests/sandbox/inventory.yml", measure.HERE / "ssh.yml")
PARTS = ("counts", "times", "scale", "gpu")
# Only on request: the counts of site.yml alone, on any converged hosts, for example those of a scenario.
SITE = "site"
SIZES = (1, 2, 5, report.SMALL_FLEET, 25, report.LARGE_FLEET, measure.HUGE_FLEET)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inventory", action="append", help="path of an inventory; can be repeated")
    parser.add_argument("--limit", help="limit counts and times to these hosts, like in ansible-playbook")
    parser.add_argument("--only", action="append", choices=(*PARTS, SITE), help="measure only this; can be repeated")
    parser.add_argument("--extra-vars", "-e", action="append", default=[], help="like in ansible-playbook")
    parser.add_argument("--repeats", type=int, default=5, help="number of timed runs of each playbook (default: 5)")
    parser.add_argument("--scale-host", default="sim-a100", help="the converged host that is listed under many names")
    parser.add_argument("--scale-repeats", type=int, default=3, help="number of timed runs of each size below 1,000")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--json", type=Path, default=measure.ROOT / "tests/output/benchmark.json")
    return parser.parse_args()


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """Run the selected measurements in their order."""
    parts = options.only or PARTS
    inventory = [word for path in options.inventory or INVENTORIES for word in ("-i", str(path))]
    more = ["--limit", options.limit] if options.limit else []
    more += [word for text in options.extra_vars for word in ("--extra-vars", text)]
    hosts = options.limit or "gpu_hosts"
    found: dict[str, Any] = {"cores": os.cpu_count(), "date": time.strftime("%Y-%m-%d", time.gmtime())}
    if "counts" in parts or "times" in parts:
        measure.prepare(*inventory, *more)
    if "counts" in parts:
        found["counts"] = measure.counts(inventory, hosts, more)
    if SITE in parts:
        found["counts"] = measure.counts(inventory, hosts, more, [SITE])
    if "times" in parts:
        found["times"] = report.times(measure.times([*inventory, *more], options.repeats))
    if "scale" in parts:
        what = f"{options.scale_host} under many names, {measure.FORKS} forks, {os.cpu_count()} cores"
        sizes = sorted(options.sizes)
        runs = measure.scale(inventory, options.scale_host, sizes, options.scale_repeats, report.LARGE_FLEET)
        found["scale"] = {"what": what, **report.scale(*runs)}
    if "gpu" in parts:
        found["gpu"] = measure.gpu(options.json.parent)
    return found


def main() -> int:
    options = arguments()
    options.json.parent.mkdir(parents=True, exist_ok=True)
    try:
        found = measured(options)
    except measure.CannotMeasure as problem:
        print(f"bench: {problem}", file=sys.stderr)
        return 2
    options.json.write_text(report.document(found), encoding="utf-8")
    print(f"\n{report.text(found)}\n\nbench: {options.json}")
    missed = report.exceeded(found)
    for sentence in missed:
        print(f"bench: limit exceeded: {sentence}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
