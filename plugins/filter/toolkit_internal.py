# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Internal filter of role nvidia_container_toolkit. It can change in any release."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleFilterError

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.variables import plain
from ansible_collections.gpufleet.hosts.plugins.plugin_utils import cdi_program


def program(options: dict[str, Any]) -> str:
    """Return the text of the program that writes the CDI specification."""
    text = cdi_program.build(plain(options))
    if text is None:
        raise AnsibleFilterError("pynvml was removed from the controller. Install the Python package nvidia-ml-py.")
    return text


class FilterModule:
    """Register the filter."""

    def filters(self) -> dict[str, Any]:
        """Return the filter by its name."""
        return {"_cdi_program": program}
