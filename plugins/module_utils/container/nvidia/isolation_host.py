# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The properties of a host, other than the engine, that isolation depends on. They are read below a root directory."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import read_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import specification_reader
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia import toolkit_settings
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.toolkit_settings import ToolkitSettings

# Where NVIDIA's programs search for others: NVIDIA/nvidia-container-toolkit, pkg/lookup (d34b304).
_BINARY_DIRECTORIES = ("usr/local/sbin", "usr/local/bin", "usr/sbin", "usr/bin", "sbin", "bin")


@dataclass(frozen=True)
class IsolationHost:
    """The driver, the files and the CDI specifications of a host."""

    driver_version: str | None
    root: str = "/"
    specs: specification_reader.Specs = field(default_factory=specification_reader.Specs)
    # Why containers cannot have graphics, if the user requests graphics.
    graphics_fault: str | None = None
    needs_graphics: bool = False
    # The directory of the driver's user-space files if they are not those of the host itself.
    driver_root: str = "/"
    # The only kind of CDI devices to use, if the user names one.
    cdi_kind: str | None = None

    def path(self, path: str) -> str:
        return os.path.join(self.root, path.lstrip("/"))

    def has(self, path: str) -> bool:
        return os.path.exists(self.path(path))

    def read(self, path: str) -> str:
        return read_text(self.root, path) or ""

    def program(self, names: Sequence[str]) -> str | None:
        """Return the path of the first program that exists. A name may be a path."""
        for name in names:
            if name.startswith("/"):
                if self.has(name):
                    return name
                continue
            for directory in _BINARY_DIRECTORIES:
                path = f"/{directory}/{name}"
                if self.has(path):
                    return path
        return None

    @cached_property
    def toolkit(self) -> ToolkitSettings:
        """The settings of NVIDIA's container toolkit."""
        return toolkit_settings.read(self.read(toolkit_settings.PATH))
