# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.host import secure_boot
from ansible_collections.gpufleet.hosts.tests.unit.plugins.gpu_trees import Tree

SECURE = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"


@pytest.mark.parametrize(
    ("variable", "enabled"),
    [
        ("MokSBStateRT-605dab50-e046-4300-abb6-3dd810dd8b23", False),
        ("SetupMode-8be4df61-93ca-11d2-aa0d-00e098032b8c", False),
        ("Other-8be4df61-93ca-11d2-aa0d-00e098032b8c", True),
    ],
)
def test_disabled_validation_and_setup_mode_disable_secure_boot(tmp_path, variable, enabled):
    tree = Tree(tmp_path, "6.1.0-47-amd64")
    tree.file(SECURE, b"\x06\x00\x00\x00\x01")
    tree.file(f"sys/firmware/efi/efivars/{variable}", b"\x06\x00\x00\x00\x01")
    assert secure_boot.is_enabled(tree.root) is enabled


@pytest.mark.parametrize(
    ("content", "enabled"),
    [(b"\x06\x00\x00\x00\x01", True), (b"\x06\x00\x00\x00\x00", False), (b"", None), (None, None)],
)
def test_secure_boot(tmp_path, content, enabled):
    tree = Tree(tmp_path, "6.1.0-47-amd64")
    if content is not None:
        tree.file(SECURE, content)
    tree.file(
        "proc/keys", "1 I--Q--- 1 perm 1f030000 0 0 asymmetri Debian Secure Boot CA: 6ccece7e: X509.rsa 1b6eb1 []\n"
    )
    tree.file("sys/kernel/security/lockdown", "none [integrity] confidentiality\n")
    state = secure_boot.read(tree.root)
    assert state["enabled"] is enabled
    assert state["trusted_signers"] == ["Debian Secure Boot CA: 6ccece7e"]
    assert state["lockdown"] == "integrity"
    assert state["signatures_enforced"]
