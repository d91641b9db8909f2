# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the file /usr/local/bin/nvidia-docker, which contains nvidia_docker_program.py. Pure functions."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import observed_files, owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import root_python
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts import steps
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.steps import Step
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import nvidia_docker_program

if t.TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host

PATH = owned.WRAPPER
MODE = "0755"
_OPTION = "nvidia_container_toolkit_wrapper"


@dataclasses.dataclass
class WrapperFile:
    """What the role does with the file.

    `file`: the file to write or remove, as the role's tasks expect it, None if it stays. Changes, reasons and problems
    are texts of the plan.
    """

    file: dict[str, t.Any] | None = None
    steps: list[Step] = dataclasses.field(default_factory=list)
    reasons: list[str] = dataclasses.field(default_factory=list)
    problems: list[str] = dataclasses.field(default_factory=list)


@functools.lru_cache(maxsize=8)
def text(python: str) -> str:
    """Return the text of the program for a Python of the host."""
    with open(nvidia_docker_program.__file__, encoding="utf-8") as file:
        source = file.read()
    # -I: the directory and the variables of the user must not add modules.
    return f"#!{python} -I\n{owned.WRAPPER_MARK}\n{source}"


def digest(python: str) -> str:
    """Return the SHA-256 digest of the program, as the observation has it."""
    return hashlib.sha256(text(python).encode()).hexdigest()


def plan(host: Host, engines: t.Collection[str], *, wanted: bool) -> WrapperFile:
    """Return how the role installs the program. `engines`: those that are installed or will be."""
    if not wanted:
        return removal(host)
    if "docker" not in engines:
        result = removal(host)
        result.reasons.append(f"{_OPTION} is true, but this host has no Docker, so there is no {PATH}")
        return result
    if observed_files.exists(host, PATH) and not is_own(host):
        return WrapperFile(
            problems=[
                f"{_OPTION} is true, but {PATH} exists and this role did not write it. Nothing was changed. Remove or "
                "rename the file, or remove the variable."
            ]
        )
    python = host["root_python"]
    if python is None:
        problem = root_python.missing(f"{_OPTION} is true", host["python"], ", or remove the variable")
        return WrapperFile(problems=[problem])
    seen = host["files"].get(PATH) or {}
    if (seen.get("content"), seen.get("mode")) == (digest(python), MODE):
        return WrapperFile()
    content = text(python)
    return WrapperFile({"path": PATH, "content": content, "mode": MODE}, [steps.written(PATH, content)])


def missing(host: Host) -> str | None:
    """Return why users do not get the program of this role, or None."""
    if is_own(host):
        return None
    state = "was not written by role nvidia_container_toolkit" if observed_files.exists(host, PATH) else "is missing"
    return f"{PATH} {state}, although {_OPTION} is true, so nvidia-docker does not work as documented"


def removal(host: Host) -> WrapperFile:
    """Return how the role removes its program. A file of somebody else stays."""
    if not is_own(host):
        return WrapperFile()
    return WrapperFile({"path": PATH, "content": None, "mode": MODE}, [steps.written(PATH, None)])


def is_own(host: Host) -> bool:
    """Return whether the role wrote the file. The observation has the content of only such a file."""
    return observed_files.content(host, PATH) is not None
