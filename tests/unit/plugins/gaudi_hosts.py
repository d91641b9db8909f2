# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The observation of a directory tree with Gaudi accelerators, as the role's plan reads it."""

from __future__ import annotations

from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import accelerator_pci_ids, pci_functions
from ansible_collections.gpufleet.hosts.plugins.module_utils.observe import file_contents
from ansible_collections.gpufleet.hosts.plugins.module_utils.observe.amd_gaudi_neuron import (
    accelerator_records,
    cdi_specifications,
)
from ansible_collections.gpufleet.hosts.tests.unit.plugins import driver_samples
from ansible_collections.gpufleet.hosts.tests.unit.plugins.gaudi_trees import GaudiTree

UNITS = [path.rpartition("/")[2] for path in owned.ACCELERATOR_CDI_UNITS["gaudi"]]
FILES = (
    owned.ACCELERATOR_CDI_PROGRAMS["gaudi"],
    *owned.ACCELERATOR_CDI_UNITS["gaudi"],
    owned.GAUDI_MODULES_LOAD,
    owned.GAUDI_RECORD,
    owned.GAUDI_HOOK,
    owned.GAUDI_HOOKS_DIR,
)
MISSING = {"load_state": "not-found", "unit_file_state": None, "active_state": "inactive", "need_daemon_reload": False}


def observed(tree: GaudiTree, key: str = "ubuntu-24.04", **changes: Any) -> dict[str, Any]:
    """Return the observation. `changes`: see driver_samples.host."""
    kernel = driver_samples.KERNELS[key]
    found = accelerator_pci_ids.pick(pci_functions.scan_all(tree.root), tree.root)
    os_changes = changes.pop("os", {})
    host = driver_samples.host(key, (), **{"headers": (kernel,), **changes})
    host["os"].update(os_changes)
    records = accelerator_records.read(tree.root, found, lambda argv: (0, "", ""))
    host.update(
        accelerators={
            **accelerator_pci_ids.groups(tree.root, found, kernel, [kernel], records),
            "nvidia": host["accelerators"]["nvidia"],
        },
        accelerator_specs=cdi_specifications.observed(tree.root, ["/etc/cdi", "/var/run/cdi"]),
        services={**host["services"], **{unit: dict(MISSING) for unit in UNITS}},
        files={**host["files"], **{path: file_contents.of_file(tree.root, path) for path in FILES}},
    )
    return host
