# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import reboot_decision
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import reboot_reasons
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import (
    KERNELS,
    LOADED,
    UPGRADED,
    host,
    upgraded,
)

K12 = KERNELS["debian-12"]


def test_host_without_reasons_is_not_rebooted():
    there = host("debian-12", driver={**LOADED, "on_disk": "535.309.01", "library": "535.309.01"})
    decision = reboot_decision.decision(there, "when_required", False)
    assert (decision["go"], decision["reasons"], decision["why_not"]) == (False, [], None)


def test_other_reboot_reasons_are_ignored():
    there = host("debian-12", next_kernel="6.1.0-56-amd64", reboot_flag={"present": True, "packages": ["libc6"]})
    there["reboot_reasons"] = reboot_reasons.reasons(there)
    assert {reason["id"] for reason in there["reboot_reasons"]} == {"distribution", "newer_kernel"}
    assert not reboot_decision.decision(there, "when_required", False)["go"]


def module(**fields) -> dict:
    """Describe the next kernel, whose module has these fields."""
    there = {"version": "550.163.01", "signer": None, "built_for": K12, "vermagic_mismatch": None, **fields}
    kernel = {"release": K12, "bootable": True, "headers": True, "nvidia_module": there}
    return {"running": K12, "next_boot": K12, "kernels": [kernel]}


SECURE = {"enabled": True, "trusted_signers": ["Debian Secure Boot CA: 6ccece7e"]}
GATE = [
    ("no obstacle", "when_required", False, {}, True, ""),
    ("policy", "never", False, {}, False, "nvidia_driver_reboot_policy is never"),
    ("controller", "when_required", True, {}, False, "the Ansible controller"),
    ("no module", "when_required", False, {"modules": {}}, False, "has no NVIDIA module"),
    ("module of another kernel", "when_required", False,
     {"kernel_": module(vermagic_mismatch="was built for 6.1.0-1-amd64")}, False, "was built for 6.1.0-1-amd64"),
    ("module of another kernel with the same symbols", "when_required", False,
     {"kernel_": module(built_for="6.1.0-1-amd64")}, True, ""),
    ("module of another version than the libraries", "when_required", False,
     {"kernel_": module(version="535.247.01")}, False,
     "has version 535.247.01, but the driver's libraries have version 550.163.01"),
    ("no libraries yet", "when_required", False, {"driver": {**UPGRADED, "library": None}}, True, ""),
    ("module of an unknown version", "when_required", False, {"kernel_": module(version=None)}, True, ""),
    ("unsigned", "when_required", False, {"secure_boot": SECURE}, False, "is not signed"),
    ("signed, untrusted key", "when_required", False, {"secure_boot": SECURE, "kernel_": module(signer="DKMS key")},
     False, "signed by DKMS key, which this machine does not trust"),
    ("unsigned, but the kernel does not enforce signatures", "when_required", False,
     {"secure_boot": {**SECURE, "lockdown": "none"}}, True, ""),
    ("signed, trusted key", "when_required", False,
     {"secure_boot": SECURE, "kernel_": module(signer="Debian Secure Boot CA")}, True, ""),
]  # fmt: skip


@pytest.mark.parametrize(("policy", "controller", "changes", "go", "words"), [row[1:] for row in GATE],
                         ids=[row[0] for row in GATE])  # fmt: skip
def test_policy_and_reasons_decide_about_reboot(policy, controller, changes, go, words):
    kernel = changes.pop("kernel_", None) if "kernel_" in changes else None
    changes = {name: value for name, value in changes.items() if name != "kernel_"}
    there = upgraded(**changes)
    if kernel:
        there["kernel"] = kernel
    decision = reboot_decision.decision(there, policy, controller)
    assert decision["go"] is go
    assert words in (decision["why_not"] or "")
    assert decision["reasons"]


def test_reboot_into_same_module_is_refused():
    there = upgraded(driver={**LOADED, "on_disk": "535.309.01", "on_disk_next": "535.309.01", "library": "550.163.01"},
                     modules={K12: "535.309.01"})  # fmt: skip
    decision = reboot_decision.decision(there, "when_required", False)
    assert (decision["ids"], decision["go"]) == (["library_differs"], False)
    assert "Build or install the module of 550.163.01 for that kernel first" in decision["why_not"]


@pytest.mark.parametrize(
    ("boot", "reasons", "go"),
    [
        ("0f6e2b3c/4", ["library_differs", "module_differs"], True),
        ("another/4", ["library_differs", "module_differs"], False),
        ("another/4", ["library_differs", "module_differs", "nouveau_bound"], False),
        ("another/4", ["nouveau_bound"], True),
        ("another/4", ["library_differs", "nouveau_bound"], True),
        ("another/4", None, True),
        ("another/4", [["library_differs"], 1], True),
    ],
    ids=[
        "interrupted before the reboot",
        "same reasons after the reboot",
        "fewer reasons after the reboot",
        "other reasons",
        "a new reason",
        "no reasons in the record",
        "a damaged record",
    ],
)
def test_failed_reboot_is_not_repeated(boot, reasons, go):
    content = json.dumps({"boot": boot, "reasons": reasons})
    there = upgraded(files={owned.DRIVER_REBOOT_MARKER: {"exists": True, "content": content}})
    decision = reboot_decision.decision(there, "when_required", False)
    assert decision["go"] is go
    if not go:
        assert owned.DRIVER_REBOOT_MARKER in decision["why_not"]


@pytest.mark.parametrize("content", ["", "{", "[]", "null"])
def test_damaged_reboot_record_is_ignored(content):
    there = upgraded(files={owned.DRIVER_REBOOT_MARKER: {"exists": True, "content": content}})
    assert reboot_decision.decision(there, "when_required", False)["go"]


def test_reboot_record_has_boot_and_reasons():
    there = upgraded()
    ids = reboot_decision.decision(there, "when_required", False)["ids"]
    assert json.loads(reboot_decision.attempt(there, ids)) == {"boot": "0f6e2b3c/4", "reasons": ids, "kernel": K12}


@pytest.mark.parametrize(
    ("boot", "kernel", "words"),
    [
        ("another/4", "6.1.0-56-amd64", [f"expected kernel 6.1.0-56-amd64, but kernel {K12} is running"]),
        ("another/4", K12, []),
        ("0f6e2b3c/4", "6.1.0-56-amd64", []),
        ("another/4", None, []),
    ],
)
def test_another_kernel_than_predicted_is_reported_after_the_reboot(boot, kernel, words):
    content = json.dumps({"boot": boot, "reasons": [], "kernel": kernel})
    found = reboot_decision.notes(upgraded(files={owned.DRIVER_REBOOT_MARKER: {"exists": True, "content": content}}))
    assert len(found) == len(words)
    assert all(word in text for word, text in zip(words, found))


def test_unknown_next_kernel_is_reported():
    (text,) = reboot_decision.notes(host("debian-12", next_boot_unknown="GRUB's menu cannot be read"))
    assert "cannot be predicted: GRUB's menu cannot be read" in text


REASONS = [
    ("library_differs", {"driver": {**LOADED, "library": "550.163.01"}}, ["535.309.01", "550.163.01", "new GPU proc"]),
    ("module_differs", {"driver": {**LOADED, "on_disk": "550.163.01"}}, ["535.309.01", K12, "550.163.01"]),
    ("flavor_differs", {"driver": {**LOADED, "on_disk": "535.309.01", "on_disk_flavor": "open"}},
     ["proprietary modules are loaded", "open ones"]),
    ("nouveau_bound", {"driver": {"on_disk_next": "535.309.01"}, "foreign_drivers": {
        "nouveau": {"bound": ["0000:3b:00.0"]}}}, ["nouveau is bound to 0000:3b:00.0"]),
    ("module_for_next_kernel_only", {"driver": {"on_disk_next": "535.309.01"}, "next_kernel": "6.1.0-56-amd64"},
     ["6.1.0-56-amd64", K12]),
    ("distribution", {"reboot_flag": {"present": True, "packages": ["linux-base"]}}, ["linux-base"]),
    ("newer_kernel", {"next_kernel": "6.1.0-56-amd64"}, [K12, "6.1.0-56-amd64"]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "changes", "words"), REASONS, ids=[row[0] for row in REASONS])
def test_every_reason_for_a_reboot_is_explained(name, changes, words):
    texts = {reason["id"]: reason["text"] for reason in reboot_reasons.reasons(host("debian-12", **changes))}
    for word in words:
        assert word in texts[name]


def test_healthy_host_requires_no_reboot():
    driver = {**LOADED, "library": "535.309.01", "on_disk": "535.309.01", "on_disk_flavor": "proprietary"}
    assert reboot_reasons.reasons(host("debian-12", driver=driver)) == []


IMAGE = {"kernel": K12, "path": f"/boot/initrd.img-{K12}", "has_driver": True, "before_boot": True}
REBUILT = {**IMAGE, "before_boot": False}
TOOL = {"packages": {"initramfs-tools": "0.142"}}


def rebooted(*reasons: str, **changes) -> dict:
    """Describe a host that the role has rebooted for these reasons, and that loaded the old driver again."""
    content = json.dumps({"boot": "another/4", "reasons": list(reasons), "kernel": K12})
    return upgraded(files={owned.DRIVER_REBOOT_MARKER: {"exists": True, "content": content}}, **{**TOOL, **changes})


FIRST, SECOND = ["library_differs", "module_differs"], ["initramfs_outdated", "library_differs", "module_differs"]
STALE = [
    ("no initramfs has the driver", FIRST, [], FIRST, False),
    ("an older initramfs has it", FIRST, [IMAGE], SECOND, True),
    ("the role has rebuilt it", FIRST, [REBUILT], SECOND, True),
    ("the rebuild and a second reboot did not help", SECOND, [IMAGE], SECOND, False),
    ("the next run after that", SECOND, [REBUILT], SECOND, False),
    ("the initramfs of another kernel has it", FIRST, [{**IMAGE, "kernel": "5.10.0-1-amd64"}], FIRST, False),
    ("an initramfs without the driver", FIRST, [{**IMAGE, "has_driver": False}], FIRST, False),
    ("an initramfs that cannot be listed", FIRST, [{**IMAGE, "has_driver": None}], FIRST, False),
]


@pytest.mark.parametrize(("before", "images", "ids", "go"), [row[1:] for row in STALE], ids=[row[0] for row in STALE])
def test_an_outdated_initramfs_is_a_reason_of_its_own_for_one_reboot(before, images, ids, go):
    there = rebooted(*before, initramfs=images)
    decision = reboot_decision.decision(there, "when_required", False)
    assert (decision["ids"], decision["go"]) == (ids, go)
    assert any(IMAGE["path"] in text for text in decision["reasons"]) is ("initramfs_outdated" in ids)


def test_no_reboot_into_an_outdated_initramfs_that_the_role_cannot_rebuild():
    decision = reboot_decision.decision(rebooted(*FIRST, initramfs=[IMAGE], packages={}), "when_required", False)
    assert not decision["go"]
    assert f"{IMAGE['path']} would load the outdated module again" in decision["why_not"]


def test_an_initramfs_that_cannot_be_listed_is_reported():
    (text,) = reboot_decision.notes(rebooted(initramfs=[{**IMAGE, "has_driver": None}]))
    assert IMAGE["path"] in text
