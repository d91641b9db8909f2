# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host whose rpm trusts further keys from a repository's key file."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import further_rpm_keys, record_ownership
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import openpgp, role_file_paths

TRUSTED, FURTHER, DISTRIBUTION = "A" * 32 + "0000AAAA", "B" * 32 + "0000BBBB", "C" * 32 + "0000CCCC"
KEY_FILE = role_file_paths.repository_key(owned.REPOSITORY_ID, "dnf")
RECORD = owned.DRIVER_RECORD
PACKAGES = {f"gpg-pubkey-{key[-8:].lower()}": "1 (none)" for key in (TRUSTED, FURTHER, DISTRIBUTION)}


def host(record: dict[str, Any] | None, fingerprints: list[str], packages: Any = PACKAGES) -> Any:
    content = None if record is None else json.dumps({"packages": [*PACKAGES], **record})
    return {
        "files": {RECORD: {"content": content}},
        "keyrings": {KEY_FILE: {"fingerprints": fingerprints, "digests": []}},
        "installed_packages": packages,
    }


@pytest.mark.parametrize(
    ("observed", "place"),
    [
        (host({"key": TRUSTED}, [TRUSTED, FURTHER]), KEY_FILE),
        (host({"former_keys": [TRUSTED]}, [FURTHER, TRUSTED]), KEY_FILE),
        # The file was replaced. rpm keeps the key.
        (host({"key": TRUSTED, "further_keys": [FURTHER]}, [TRUSTED]), RECORD),
        # The user erased the key.
        (host({"key": TRUSTED, "further_keys": [FURTHER]}, [TRUSTED], {}), None),
        (host({"key": TRUSTED}, [TRUSTED]), None),
        # Several trusted keys, and a file that this collection did not write.
        (host({"key": TRUSTED, "former_keys": [FURTHER]}, [TRUSTED, FURTHER]), None),
        (host({"key": TRUSTED}, [FURTHER, DISTRIBUTION]), None),
        (host(None, [TRUSTED, FURTHER]), None),
    ],
)
def test_the_further_keys_of_a_host_are_named(observed: Any, place: str | None) -> None:
    assert further_rpm_keys.of_host(observed) == ({} if place is None else {place: ["gpg-pubkey-0000bbbb"]})


def packets(fill: bytes) -> bytes:
    return b"\x99\x00\x3d\x04" + fill * 60


def test_the_further_keys_of_a_replaced_file_are_found() -> None:
    former = openpgp.armored(packets(b"t")) + openpgp.armored(packets(b"f"))
    trusted, further = openpgp.fingerprints(former)
    assert further_rpm_keys.in_files([former, None, b"<html>"], [trusted], []) == [further]
    assert further_rpm_keys.in_files([former], [], [record_ownership.normalized({"key": trusted})]) == [further]
    assert (
        further_rpm_keys.in_files([former], [trusted], [record_ownership.normalized({"former_keys": [further]})]) == []
    )


def test_a_record_lists_a_further_key_until_rpm_no_longer_trusts_it() -> None:
    begun = record_ownership.begin({"key": TRUSTED}, PACKAGES, keys=[TRUSTED], further_keys=[FURTHER])
    done = record_ownership.finish(begun, PACKAGES, PACKAGES, enabled={}, keys=[TRUSTED])
    assert done["further_keys"] == [FURTHER]
    erased = {name: version for name, version in PACKAGES.items() if "bbbb" not in name}
    assert record_ownership.finish(done, erased, erased, enabled={}, keys=[TRUSTED])["further_keys"] == []


def test_removal_erases_a_further_key_that_a_transaction_imported() -> None:
    known = {"key": TRUSTED, "further_keys": [FURTHER], "packages": [*PACKAGES]}
    assert record_ownership.removal(known, PACKAGES, enabled={}).keys == ["gpg-pubkey-0000aaaa", "gpg-pubkey-0000bbbb"]
