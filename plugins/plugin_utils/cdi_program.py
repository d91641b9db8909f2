# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build the program that writes the CDI specification of a host, with the controller's pynvml."""

from __future__ import annotations

import hashlib
import os
from functools import lru_cache
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml.pynvml_host_or_controller import BINDING
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import own_cdi_units
from ansible_collections.gpufleet.hosts.plugins.plugin_utils import accelerator_program, host_program
from ansible_collections.gpufleet.hosts.plugins.plugin_utils.nvml_binding import controller_binding

_HEADER = """\
# Written by role gpufleet.hosts.nvidia_container_toolkit. Changes in this file are lost.
# It contains modules of the Ansible collection gpufleet.hosts, and pynvml of NVIDIA's package nvidia-ml-py.
"""


def build(options: dict[str, Any]) -> str | None:
    """Return the text of the program, or None if the controller has no pynvml that is a single file."""
    binding = controller_binding()
    # The pynvml of another package is a directory, and the program can contain only a module.
    if binding is None or os.path.basename(binding) == "__init__.py":
        return None
    return _HEADER + host_program.make_file("toolkit.cdi_program", options, {BINDING: binding})


@lru_cache(maxsize=1)
def digest() -> str | None:
    """Return the SHA-256 digest of the program that the role installs, or None if it cannot be built."""
    text = build(own_cdi_units.OPTIONS)
    return hashlib.sha256(text.encode()).hexdigest() if text else None


# What the plans of the parts need, by the field of their context.
DIGESTS = {"cdi_program": digest, "accelerator_program": accelerator_program.digest}
