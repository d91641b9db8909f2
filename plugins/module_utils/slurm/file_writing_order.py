# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write the planned files of a node: first the marker that slurmd must restart, then its files."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import atomic_file, owned

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.slurm import node_files_plan


def write(plan: node_files_plan.SlurmNodePlan, host: node_files_plan.SlurmHost, root: str = "/") -> None:
    """Write the planned files. The marker first, so that a killed run does not leave a slurmd with the old files."""
    if plan.restart and host.invocation:
        _put(root, owned.SLURMD_RESTART_MARKER, host.invocation + "\n")
    for path, text in plan.writes.items():
        if text is not None:
            _put(root, path, text)
            continue
        with contextlib.suppress(FileNotFoundError):
            os.unlink(_real(root, path))
        if path == owned.SLURMD_DROP_IN:
            with contextlib.suppress(OSError):
                os.rmdir(os.path.dirname(_real(root, path)))


def _real(root: str, path: str) -> str:
    # A file of the configuration can be a link into a shared directory, which stays.
    return os.path.realpath(os.path.join(root, path.lstrip("/")))


def _put(root: str, path: str, text: str) -> None:
    real = _real(root, path)
    os.makedirs(os.path.dirname(real), mode=0o755, exist_ok=True)
    before = os.stat(real) if os.path.exists(real) else None

    def prepare(temporary: str) -> None:
        if before is not None:
            os.chown(temporary, before.st_uid, before.st_gid)
        os.chmod(temporary, 0o644 if before is None else before.st_mode & 0o7777)

    atomic_file.put(real, text.encode(), prepare)


def diff(plan: node_files_plan.SlurmNodePlan, host: node_files_plan.SlurmHost) -> list[dict[str, str]]:
    """Return the diffs of the files."""
    before = {f"{host.directory}/{name}": text for name, text in host.texts.items()}
    before[owned.SLURMD_DROP_IN] = host.drop_in
    return [
        {
            "before_header": path,
            "after_header": path,
            "before": before.get(path) or "",
            "after": text or "",
        }
        for path, text in plan.writes.items()
    ]
