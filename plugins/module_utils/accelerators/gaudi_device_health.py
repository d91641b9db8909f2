# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether one Gaudi accelerator works, by the status that its driver shows, and what to do. Pure functions."""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators import schema
from ansible_collections.gpufleet.hosts.plugins.module_utils.base import untrusted_text

KERNEL_LOG = "Check the kernel log for messages of habanalabs"
_USABLE = "Operational"
# Texts of attribute `status`: habanalabs_drv.c.
_TRANSIENT = {
    "In reset": "the driver is resetting the accelerator. Try again in a minute",
    "In reset after device release": (
        "the driver is resetting the accelerator because a process released it. Try again in a minute"
    ),
    "In device creation": "the driver is starting the accelerator. Try again in a minute",
}
_UNUSABLE = {
    "Disabled": (
        f"the driver disabled the accelerator (status Disabled). {KERNEL_LOG}, and power-cycle the host if a reboot "
        "does not help"
    ),
    "Malfunction": f"the accelerator has a malfunction. {KERNEL_LOG}, and power-cycle the host",
    "Needs reset": "the accelerator needs a reset (status Needs reset). Stop its users and reset it or reboot the host",
}


def of_status(status: str | None) -> schema.AcceleratorHealth:
    """Return the health for the text of attribute `status`."""
    if status == _USABLE:
        return schema.health(schema.OK)
    if status in _TRANSIENT:
        return schema.health(schema.DEGRADED, _TRANSIENT[status])
    if status in _UNUSABLE:
        return schema.health(schema.LOST, _UNUSABLE[status])
    if status is None:
        return schema.health(schema.UNKNOWN, "the driver does not show a status")
    return schema.health(schema.UNKNOWN, f"the driver shows the unknown status {untrusted_text.shown(status)}")


def unbound(*, is_loaded: bool) -> schema.AcceleratorHealth:
    if not is_loaded:
        return schema.health(schema.UNKNOWN, "the driver is not loaded")
    return schema.health(
        schema.LOST,
        f"kernel module habanalabs is loaded, but does not drive this accelerator. {KERNEL_LOG}",
    )


def without_node() -> schema.AcceleratorHealth:
    return schema.health(schema.LOST, f"the driver shows no device of this accelerator. {KERNEL_LOG}")
