# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The toolkit is not removed while a node of Kubernetes needs it."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes import distribution_paths
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import removal
from ansible_collections.gpufleet.hosts.tests.unit.plugins import kubernetes_samples as samples

DROP_IN, SETTINGS = distribution_paths.K0S_DROP_IN, distribution_paths.SETTINGS


@pytest.mark.parametrize(
    ("name", "files", "running", "words"),
    [
        ("k3s agent", {}, 0, ""),
        ("k3s agent", {samples.K3S_FILE: samples.K3S_FOUND}, 0, ""),
        ("k3s agent", {samples.K3S_FILE: samples.K3S_FOUND}, 3, "containers of k3s are running (3)"),
        # None of the containers can have a runtime that is not registered.
        ("k3s agent", {}, 3, ""),
        # k3s does not start with a default runtime that it does not find.
        ("k3s agent", {SETTINGS["k3s"]: "default-runtime: nvidia\n"}, 0, "gpu_kubernetes_node_state=absent"),
        ("k0s", {DROP_IN: "version = 2\n"}, 0, "gpu_kubernetes_node_state=absent"),
        ("kubeadm", {}, 3, ""),
        ("no Kubernetes", {}, 0, ""),
    ],
)
def test_toolkit_is_not_removed_from_a_node_that_still_uses_it(
    name: str, files: dict[str, str], running: int, words: str, tmp_path: Path
) -> None:
    seen: t.Any = samples.node(tmp_path, name)
    seen["cri_files"]["nodes"] |= files
    seen["engine_processes"] = {"containers": {"k3s": running} if running else {}, "rootless_docker": []}
    problem = removal.blocked_by_node(seen)
    assert (problem is not None, words in str(problem)) == (bool(words), True)
