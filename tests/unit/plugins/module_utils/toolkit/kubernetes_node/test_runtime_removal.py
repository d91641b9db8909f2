# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The removal of role gpu_kubernetes_node: the directories to remove if they are empty."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes import distribution_paths
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri.cri_changes import CriChange, CriFile
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.kubernetes_node import runtime_removal

DROP_IN, SETTINGS = distribution_paths.K0S_DROP_IN, distribution_paths.SETTINGS


@pytest.mark.parametrize(
    ("path", "directories"),
    [
        (SETTINGS["k3s"], ["/etc/rancher/k3s/config.yaml.d", "/etc/rancher/k3s", "/etc/rancher"]),
        (SETTINGS["rke2"], ["/etc/rancher/rke2/config.yaml.d", "/etc/rancher/rke2", "/etc/rancher"]),
        (owned.CONTAINERD_DROP_IN, ["/etc/containerd/conf.d"]),
        # k0s and CRI-O have their directories from their own installation.
        (DROP_IN, []),
        (owned.CRIO_DROP_IN, []),
        ("/etc/containerd/config.toml", []),
    ],
)
def test_removal_names_the_directories_that_it_can_leave_empty(path: str, directories: list[str]) -> None:
    removed, written = CriFile(path, None, "x"), CriFile(path, "x", None)
    assert runtime_removal.emptied([CriChange("", [removed])]) == directories
    assert runtime_removal.emptied([CriChange("", [written])]) == []
