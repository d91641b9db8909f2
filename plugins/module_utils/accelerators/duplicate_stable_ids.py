# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether several devices of a host have the same stable ID, which is an error of their vendor. Pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators.schema import AcceleratorDevice


def shared_ids(devices: list[AcceleratorDevice]) -> dict[str, list[str]]:
    """Return the stable IDs that several devices have, with the PCI addresses of these devices."""
    places: dict[str, list[str]] = {}
    for one in devices:
        if one["stable_id"] is not None:
            places.setdefault(one["stable_id"], []).append(one["pci_address"] or "an unknown address")
    return {stable_id: found for stable_id, found in places.items() if len(found) > 1}


def reason(devices: list[AcceleratorDevice]) -> str | None:
    """Return why no device of a vendor can be used, or None if no stable ID occurs twice."""
    shared = shared_ids(devices)
    if not shared:
        return None
    texts = [f"{stable_id} ({', '.join(places)})" for stable_id, places in sorted(shared.items())]
    return (
        f"Several devices have the same stable ID: {'; '.join(texts)}. A container could get another device than the "
        "requested one, so none of them is used. Compare the IDs with the vendor's tool, and ask the vendor of the "
        "cards or of the hypervisor to correct them."
    )
