# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The option `gather_subset` of `nvidia_gpu_facts`: the known subsets, the default, and what a value selects."""

from __future__ import annotations

# The subsets of nvml/gpu_fields.py, which is not imported here because it loads slowly, and `topology`.
SUBSETS = (
    "min",
    "identity",
    "pci",
    "memory",
    "ecc",
    "power",
    "clocks",
    "temperature",
    "utilization",
    "nvlink",
    "fabric",
    "processes",
    "throughput",
    "mig",
    "topology",
)
# Not gathered by default: these take long or show other users' processes.
EXPENSIVE = ("processes", "throughput", "topology")
DEFAULT_SUBSETS = ("all", *(f"!{name}" for name in EXPENSIVE))


class SubsetError(Exception):
    """An invalid value of `gather_subset`."""


def choose_subsets(names) -> frozenset[str]:
    """Resolve names, `all` and exclusions (`!name`). `min` is always included."""
    chosen = {name for name in names if not name.startswith("!")}
    excluded = {name[1:] for name in names if name.startswith("!")}
    for name in sorted(chosen | excluded):
        if name not in (*SUBSETS, "all"):
            raise SubsetError(
                f"gather_subset: unknown subset '{name}'. Known subsets: all, {', '.join(SUBSETS)}. "
                "Prefix a subset with ! to exclude it."
            )
    if "min" in excluded:
        raise SubsetError(
            "gather_subset: '!min' is invalid, because min is always gathered. Use '!all' to gather only min."
        )
    if "all" in chosen or not chosen:
        chosen = set(SUBSETS)
    if "all" in excluded:
        chosen = {name for name in names if name in SUBSETS}
    return frozenset((chosen - excluded) | {"min"})
