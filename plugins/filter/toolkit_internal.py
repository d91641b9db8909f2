# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Internal filters of role nvidia_container_toolkit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleFilterError

from ansible_collections.gpufleet.hosts.plugins.plugin_utils import kept_bytecode

kept_bytecode.use()

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.variable_fields import plain
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import mig_without_devices
from ansible_collections.gpufleet.hosts.plugins.plugin_utils import cdi_program


def program(options: dict[str, Any]) -> str:
    """Return the text of the program that writes the CDI specification."""
    text = cdi_program.build(plain(options))
    if text is None:
        raise AnsibleFilterError("pynvml was removed from the controller. Install the Python package nvidia-ml-py.")
    return text


def has_no_mig_devices(facts: Mapping[str, Any]) -> bool:
    """Return whether all GPUs are in MIG mode without MIG devices."""
    return mig_without_devices.has_nothing(facts)


class FilterModule:
    """Register the filters."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by their names."""
        return {"_cdi_program": program, "_has_no_mig_devices": has_no_mig_devices}
