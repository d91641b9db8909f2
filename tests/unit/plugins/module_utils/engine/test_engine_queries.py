# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import engine_queries
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import plan as engine_plan


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("26.1.5+dfsg1", (26, 1, 5)),
        ("20.10.24+dfsg1-1", (20, 10, 24)),
        ("5:27.3.1-1~debian.12~bookworm", (27, 3, 1)),
        ("5:v27.3.1-1", (27, 3, 1)),
        ("29.2", (29, 2)),
        ("v0.6.0", (0, 6, 0)),
        ("7", (7,)),
        (None, ()),
        ("", ()),
        ("git", ()),
        ("version 3", ()),
    ],
)
def test_version_key_orders_versions(version: str | None, expected: tuple[int, ...]) -> None:
    assert engine_queries.version_key(version) == expected


def test_roles_and_modules_use_one_version_key() -> None:
    assert engine_plan.version_key is engine_queries.version_key


@pytest.mark.parametrize(
    ("version", "directories"),
    [
        ("4.3.1", ("/etc/cdi", "/var/run/cdi")),
        ("5.4.2", ("/etc/cdi", "/var/run/cdi")),
        ("5.5.0", ("/etc/cdi",)),
        ("5.5.2", ("/etc/cdi",)),
        ("5.6.0", ("/etc/cdi", "/var/run/cdi")),
        ("5.50.0", ("/etc/cdi", "/var/run/cdi")),
    ],
)
def test_podman_5_5_reads_only_one_directory_of_cdi_specifications(version: str, directories: tuple[str, ...]) -> None:
    answer = json.dumps({"version": {"Version": version}, "host": {}})
    podman = engine_queries.Podman(lambda _arguments: (0, answer, ""), "/usr/bin/podman")
    assert podman.state().cdi_dirs == directories
