# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The observation of a directory tree with AMD's GPUs, as the roles' plans read it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import accelerator_pci_ids, pci_functions
from ansible_collections.gpufleet.hosts.plugins.module_utils.observe import file_contents
from ansible_collections.gpufleet.hosts.plugins.module_utils.observe.amd_gaudi_neuron import (
    accelerator_records,
    cdi_specifications,
    render_and_video_groups,
)

UNITS = [path.rpartition("/")[2] for path in owned.ACCELERATOR_CDI_UNITS["amd"]]
FILES = (
    owned.ACCELERATOR_CDI_PROGRAMS["amd"],
    *owned.ACCELERATOR_CDI_UNITS["amd"],
    owned.ACCELERATOR_USERS["amd"],
)
GROUPS = "root:x:0:\nvideo:x:44:bob\nrender:x:992:\n"


def observed(root: str | Path, *, log: str = "", kernel: str = "6.1.0-49-amd64", **changes: Any) -> dict[str, Any]:
    """Return the part of the observation that the plans for AMD need."""
    root = str(root)
    (Path(root) / "etc").mkdir(exist_ok=True)
    (Path(root) / "etc/group").write_text(GROUPS, encoding="utf-8")
    found = accelerator_pci_ids.pick(pci_functions.scan_all(root), root)
    records = accelerator_records.read(root, found, lambda argv: (0, log, ""))
    missing = {
        "load_state": "not-found",
        "unit_file_state": None,
        "active_state": "inactive",
        "need_daemon_reload": False,
    }
    host: dict[str, Any] = {
        "uid": 0,
        "os": {"family": "debian", "key": "debian-12"},
        "kernel": {"running": kernel},
        "python": "/usr/bin/python3",
        "root_python": "/usr/bin/python3",
        "accelerators": accelerator_pci_ids.groups(root, found, kernel, [kernel], records),
        "former_groups": render_and_video_groups.former_users(root, {one["vendor"] for one in found}),
        "accelerator_specs": cdi_specifications.observed(root, ["/etc/cdi", "/var/run/cdi"]),
        "services": {unit: dict(missing) for unit in UNITS},
        "files": {path: file_contents.of_file(root, path) for path in FILES},
    }
    host.update(changes)
    return host
