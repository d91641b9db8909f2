# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The runtimes in the configurations that distributions generate."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import toml_editor
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.kubernetes_node import generated_configuration
from ansible_collections.gpufleet.hosts.tests.unit.plugins import kubernetes_samples as samples


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (samples.K3S, None),
        (samples.K3S_FOUND, "/usr/bin/nvidia-container-runtime"),
        (samples.NODEADM, "nvidia"),
        ("version = 3\nplugins = {}\n", None),
        ("[plugins]\nx = 1\n", None),
    ],
)
def test_runtime_is_read_from_a_generated_configuration(text: str, expected: str | None) -> None:
    assert generated_configuration.registered_program(toml_editor.parse(text), "nvidia") == expected
