# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The compatibility of CUDA toolkits with drivers and GPUs."""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.versions import whole_number
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import nvidia_generations as hardware_generations

# Minor version compatibility: since CUDA 11, programs of all toolkits of a major version run on this or a newer branch.
_FIRST_BRANCH = {11: 450, 12: 525, 13: 580}
# The last major version of CUDA that supports a GPU, by the GPU's last driver branch: Kepler, and Maxwell to Volta.
_LAST_MAJOR = {470: 11, 580: 12}


def driver_support(driver: str, toolkit: str, branches: dict[str, int]) -> str:
    """Return how a driver supports a toolkit: "fully", with minor version compatibility ("minor"), or "no".

    `branches` maps each toolkit version to its driver branch. An unknown version has the branch of the newest known
    version before it, so that toolkits that may work are not rejected.
    """
    branch, version = whole_number(driver.partition(".")[0]), _key(toolkit)
    first = _FIRST_BRANCH.get(version[0])
    if first is not None and branch < first:
        return "no"
    known = [name for name in branches if _key(name)[0] == version[0] and _key(name) <= version]
    required = int(branches[max(known, key=_key)]) if known else 0
    return "fully" if branch >= required else "minor"


def first_branch(toolkit: str) -> int | None:
    """Return the oldest driver branch that runs a toolkit's programs."""
    return _FIRST_BRANCH.get(_key(toolkit)[0])


def unsupported_gpus(toolkit: str, device_ids: list[str]) -> dict[str, int]:
    """Return the GPUs that a toolkit does not support, as `0x1db1 (Volta)`, with the last major version that does."""
    generations = {device: hardware_generations.of(device) for device in device_ids}
    return {
        f"{device} ({generation.name})": _LAST_MAJOR[generation.last_branch]
        for device, generation in generations.items()
        if generation.last_branch in _LAST_MAJOR and _LAST_MAJOR[generation.last_branch] < _key(toolkit)[0]
    }


def _key(version: str) -> tuple[int, ...]:
    return tuple(whole_number(part) for part in version.split("."))
