# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether an AMD or Neuron host is ready although some or all of its devices are lost. Pure functions."""

from __future__ import annotations

from collections.abc import Collection

from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators import schema


def state_of_shown(
    found: list[schema.AcceleratorDevice], shown: str, title: str, unhealthy: Collection[str], unbound: str
) -> tuple[str, str]:
    """Return the state and its reason for the devices that a driver shows: an error only if all are lost.

    `shown`: who shows how many. `title`: of one device. `unhealthy`: the states of health to check. `unbound`: a
    sentence about the devices that the driver does not show, or an empty text.
    """
    lost = [one for one in found if one["health"]["state"] == schema.LOST]
    if len(lost) == len(found):
        reason = lost[0]["health"]["reasons"][0]
        return schema.ERROR, f"{shown}, but none is usable. {title} {lost[0]['index']}: {reason}."
    indexes = ", ".join(str(one["index"]) for one in found if one["health"]["state"] in unhealthy)
    return schema.READY, f"{shown}.{f' Check the health of {indexes}.' if indexes else ''}{unbound}"
