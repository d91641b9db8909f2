# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The roles use dnf through the module that the platform data selects."""

from __future__ import annotations

import jinja2
import pytest
import yaml

from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import nvidia_repository_data
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import ROOT

ROLES = ("nvidia_driver", "cuda_toolkit")


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(
    ("key", "module"),
    [
        ("el-8", "gpufleet.hosts.dnf_packages"),
        ("el-9", "ansible.builtin.dnf"),
        ("el-10", "ansible.builtin.dnf"),
        ("amazon-2023", "ansible.builtin.dnf"),
        (None, "ansible.builtin.dnf"),
    ],
)
def test_platforms_without_usable_dnf_bindings_use_the_dnf_command(role, key, module):
    text = yaml.safe_load((ROOT / "roles" / role / "vars/main.yml").read_text(encoding="utf-8"))[f"__{role}_dnf"]
    environment = jinja2.Environment()
    environment.filters["gpufleet.hosts._nvidia_repository_dnf_module"] = nvidia_repository_data.dnf_module
    assert environment.from_string(text).render(gpufleet_host={"os": {"key": key}}) == module
