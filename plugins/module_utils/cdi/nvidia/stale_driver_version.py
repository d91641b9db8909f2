# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The driver version that a CDI specification was written for, and whether it differs from the loaded driver.

The functions search the text of a specification, because parsing a long file as YAML takes longer than the rest of an
observation.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import specification_reader
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi.nvidia import rewrite_command

_VERSION = r"(\d{3,4}\.\d{2,3}(?:\.\d{1,3})?)(?![\w.])"
_LIBRARY = re.compile(rf"\.so\.{_VERSION}")
# The firmware directory, the driver volume, and an argument of NVIDIA's hook for CUDA compatibility libraries.
_OTHER_SOURCES = re.compile(rf"(?:/nvidia/|/nvidia_driver/|--host-driver-version=){_VERSION}")


def versions(text: str) -> tuple[str, ...]:
    """Return the driver versions that a specification names. The result is empty if it names no versioned file."""
    text = text.replace("\\/", "/")  # JSON may escape slashes.
    return tuple(sorted(set(_LIBRARY.findall(text)) or set(_OTHER_SOURCES.findall(text))))


def read(directories: Sequence[str], root: str = "/") -> specification_reader.Specs:
    """Read all specifications, with the driver versions that they name."""
    return specification_reader.read(directories, root, versions)


def stale_message(
    path: str, named: list[str] | tuple[str, ...], loaded: str | None, *, ours: bool, command: str | None = None
) -> str | None:
    """Return a message if a specification is stale. Return None if it is current or names no version.

    A specification may also mount CUDA compatibility libraries, so one matching version is sufficient. `command` writes
    the specification again, if it is not the usual one.
    """
    if not named or not loaded or loaded in named:
        return None
    return (
        f"the CDI specification {path} is stale: it was written for driver {', '.join(named)}, but driver {loaded} is "
        f"loaded; {rewrite_command.remedy(path, command, ours=ours)}"
    )
