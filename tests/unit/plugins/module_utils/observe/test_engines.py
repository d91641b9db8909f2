# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The packages of container engines."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.observe import engines


@pytest.mark.parametrize(
    ("manager", "name", "found"),
    [
        ("apt", "docker.io", "docker.io"),
        # A dock for windows, version 1.5.
        ("apt", "docker", None),
        ("dnf", "docker", "docker"),
        ("zypper", "docker-stable", "docker-stable"),
    ],
)
def test_package_of_docker(manager, name, found):
    host = {"os": {"package_manager": manager}, "packages": {name: {"version": "1.5-2"}}, "services": {}}
    assert engines.engines(host, None)["docker"]["package"] == found


@pytest.mark.parametrize("name", ["containerd.io", "containerd", "moby-containerd"])
def test_package_of_containerd(name):
    host = {"os": {"package_manager": "apt"}, "packages": {name: {"version": "1.7.27-1"}}, "services": {}}
    assert engines.engines(host, None)["containerd"] == {"package": name, "version": "1.7.27-1"}
