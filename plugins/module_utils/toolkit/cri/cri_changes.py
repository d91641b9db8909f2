# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The planned changes in containerd and CRI-O, and the host after them, for what is planned next. Pure functions."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import observed_files, owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.disruptions import Disruption
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts import steps
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.steps import Step

if t.TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host

CONTAINERD, CRIO = "containerd.service", "crio.service"


@dataclasses.dataclass
class CriFile:
    """A file to write. `content` is None: to remove it. `former`: its text before, None if it does not exist."""

    path: str
    content: str | None
    former: str | None
    mode: str = "0644"


@dataclasses.dataclass
class CriChange:
    """The files of one engine in the order of the steps, and what then applies them.

    `action`: restarted or reloaded, as state of the unit, None if nothing has to apply the files. `marker`: when the
    unit started, for `marker_file`, which exists until the action is done.
    """

    unit: str
    files: list[CriFile] = dataclasses.field(default_factory=list)
    action: str | None = None
    marker: int | None = None
    marker_file: str | None = None


@dataclasses.dataclass
class CriPlan:
    """The changes by engine. `later`: an engine that this run installs is yet to be planned."""

    engines: list[CriChange] = dataclasses.field(default_factory=list)
    later: bool = False
    steps: list[Step] = dataclasses.field(default_factory=list)
    reasons: list[str] = dataclasses.field(default_factory=list)
    problems: list[str] = dataclasses.field(default_factory=list)
    disruptions: list[Disruption] = dataclasses.field(default_factory=list)

    @property
    def changes(self) -> list[str]:
        """Return the texts of the steps."""
        return steps.texts(self.steps)


def after(host: Host, changes: t.Iterable[CriChange]) -> Host:
    """Return the host with the files of changes, for what is planned after them: two runtimes share the root file."""
    texts = {CONTAINERD: dict(host["cri_files"]["containerd"]), CRIO: dict(host["cri_files"]["crio"])}
    files: dict[str, t.Any] = dict(host["files"])
    for change in changes:
        for file in change.files if change.unit in texts else ():
            if file.path == owned.CONTAINERD_CONFIG_RECORD:
                files[owned.CONTAINERD_CONFIG_RECORD] = {"exists": file.content is not None, "content": file.content}
            elif file.content is None:
                texts[change.unit].pop(file.path, None)
            else:
                texts[change.unit][file.path] = file.content
    seen = {**host["cri_files"], "containerd": texts[CONTAINERD], "crio": texts[CRIO]}
    return t.cast("Host", {**host, "cri_files": seen, "files": files})


def file_of(host: Host, path: str, content: str | None) -> CriFile:
    """Return a file with its text on the host."""
    texts = {**host["cri_files"]["containerd"], **host["cri_files"]["crio"]}
    return CriFile(path, content, texts.get(path, observed_files.content(host, path)))
