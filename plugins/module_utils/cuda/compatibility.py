# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which CUDA toolkits a driver runs the programs of, and which GPUs they compile for."""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import generations as hardware_generations

# From CUDA 11 on, what any toolkit of a major version built runs on every driver from the first of that version on.
_FIRST_OF_MAJOR = {11: 450, 12: 525, 13: 580}
# The last major version that compiles for GPUs, by their last driver branch: Kepler, and Maxwell to Volta.
_LAST_MAJOR = {470: 11, 580: 12}


def serves(driver: str, toolkit: str, branches: dict[str, int]) -> str:
    """Tell how a driver serves a toolkit: fully, within its major version ("minor"), or not at all ("no").

    `branches` tells the driver branch that a toolkit is made for. One that is not in it counts as the newest known
    before it, so that nothing is refused that may well run.
    """
    branch, version = int(driver.partition(".")[0]), _key(toolkit)
    first = _FIRST_OF_MAJOR.get(version[0])
    if first is not None and branch < first:
        return "no"
    own = [name for name in branches if _key(name)[0] == version[0] and _key(name) <= version]
    made_for = int(branches[max(own, key=_key)]) if own else 0
    return "fully" if branch >= made_for else "minor"


def first_branch(toolkit: str) -> int | None:
    """Return the oldest driver branch that runs what a toolkit built."""
    return _FIRST_OF_MAJOR.get(_key(toolkit)[0])


def dropped(toolkit: str, device_ids: list[str]) -> dict[str, int]:
    """Return the GPUs that a toolkit compiles nothing for, as 0x1db1 (Volta), each with the last version that does."""
    generations = {device: hardware_generations.of(device) for device in device_ids}
    return {
        f"{device} ({generation.name})": _LAST_MAJOR[generation.last_branch]
        for device, generation in generations.items()
        if generation.last_branch in _LAST_MAJOR and _LAST_MAJOR[generation.last_branch] < _key(toolkit)[0]
    }


def _key(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))
