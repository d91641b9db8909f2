# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The inventory groups of an EC2 instance, from the accelerators of its type."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.aws.instance_families import InstanceAccelerator

# The vendors whose models have groups of their own: the group of all hosts, and the prefix of a model's group.
_BY_MODEL = {"nvidia": ("gpu_hosts", "gpu"), "neuron": ("neuron_hosts", "neuron")}


def with_groups(instance_type: str, accelerator: InstanceAccelerator | None) -> dict[str, t.Any]:
    """Return the accelerators with the groups and a message about what is unknown.

    A type without accelerators has the vendor `none`.
    """
    if accelerator is None:
        return {
            "instance_type": instance_type,
            "family": instance_type.partition(".")[0],
            "vendor": "none",
            "model": None,
            "count": 0,
            "memory_gib": None,
            "fraction": None,
            "architecture": None,
            "groups": [],
            "message": "",
        }
    return {**accelerator, "groups": _groups(accelerator), "message": _message(accelerator)}


def _groups(accelerator: InstanceAccelerator) -> list[str]:
    vendor, model = accelerator["vendor"], accelerator["model"]
    if vendor == "unknown":
        return ["gpu_unknown"]
    if vendor not in _BY_MODEL:
        return [f"{vendor}_hosts"]
    all_hosts, prefix = _BY_MODEL[vendor]
    return [all_hosts, f"{prefix}_{re.sub(r'[^a-z0-9]+', '_', str(model).lower())}"]


def _message(accelerator: InstanceAccelerator) -> str:
    instance_type = accelerator["instance_type"]
    if accelerator["vendor"] == "unknown":
        return (
            f"The accelerators of instance type {instance_type} are unknown: this version of gpufleet.hosts does not "
            f"know family {accelerator['family']}. The instance is in group gpu_unknown, and in no other group of "
            "accelerators. Update the collection, or add the instance to group gpu_hosts yourself."
        )
    if accelerator["count"] is None:
        return (
            f"The number of accelerators of instance type {instance_type} is unknown: this version of gpufleet.hosts "
            f"does not know this size of family {accelerator['family']}. The groups are correct."
        )
    return ""
