# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Copies of NVIDIA's key from before its signing subkey was extended. gpg made these keys for the test."""

from __future__ import annotations

import base64

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.migration import expired_copies_of_apt_key
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import openpgp
from ansible_collections.gpufleet.hosts.tests.unit.plugins.gpu_trees import Tree

FINGERPRINT = "B5567F4546D4F33884B78E18AE8D9F5920B0FEB1"
# The subkey is of 2020-01-02 and expired after a year. The second copy extends it for ten years from 2026-11-28.
OLD = base64.b64decode(
    "mDMEXgvhABYJKwYBBAHaRw8BAQdAkrvVkt8HP4jd9vAD5KZpvJXu3RNSuKJFvuDJLsJ877S0CU9sZCA8b0B4PoiQBBMWCAA4FiEE"
    "tVZ/RUbU8ziEt44Yro2fWSCw/rEFAl4L4QACGwEFCwkIBwIGFQoJCAsCBBYCAwECHgECF4AACgkQro2fWSCw/rF22AEA/nx15GZ4"
    "8zSPlrcAGaNibOuAc0BTg24L1yVvmqhGGkEA/0TYBu0C/3rJl7u5hBSYYfX29D9GaMikvyQN6zJ1nZ4GuDMEXg0ygBYJKwYBBAHa"
    "Rw8BAQdAPNFLzfj0PB5I2GOBiItpXMg8+Zf8tp1na5Zrn6EYz4KI9QQYFggAJhYhBLVWf0VG1PM4hLeOGK6Nn1kgsP6xBQJeDTKA"
    "AhsCBQkB4TOAAIEJEK6Nn1kgsP6xdiAEGRYIAB0WIQTm78PX3f5NyumJrCtA20dIUsqXdwUCXg0ygAAKCRBA20dIUsqXdy2hAQDw"
    "97xCObDWnpF/Z1N1MbWYE3Qmzyc91TnWx/5JmBySgQD+JxtlSLpZMNuxtSdUMeKt5uVnNIMGU3ZsimsV6obTIghaEgEA/NIN4wsh"
    "F8sTdIRDTxpkaWEOdnfTbXtwXDOuThB5yP0BANfqJ24y265aUFH35IsybBxb2nz+xocFp49CF87wXfAO"
)
NEW = base64.b64decode(
    "mDMEXgvhABYJKwYBBAHaRw8BAQdAkrvVkt8HP4jd9vAD5KZpvJXu3RNSuKJFvuDJLsJ877S0CU9sZCA8b0B4PoiQBBMWCAA4FiEE"
    "tVZ/RUbU8ziEt44Yro2fWSCw/rEFAl4L4QACGwEFCwkIBwIGFQoJCAsCBBYCAwECHgECF4AACgkQro2fWSCw/rF22AEA/nx15GZ4"
    "8zSPlrcAGaNibOuAc0BTg24L1yVvmqhGGkEA/0TYBu0C/3rJl7u5hBSYYfX29D9GaMikvyQN6zJ1nZ4GuDMEXg0ygBYJKwYBBAHa"
    "Rw8BAQdAPNFLzfj0PB5I2GOBiItpXMg8+Zf8tp1na5Zrn6EYz4KI9QQYFggAJgIbAhYhBLVWf0VG1PM4hLeOGK6Nn1kgsP6xBQJr"
    "CrWFBQkfyYYFAIF2IAQZFggAHRYhBObvw9fd/k3K6YmsK0DbR0hSypd3BQJeDTKAAAoJEEDbR0hSypd3LaEBAPD3vEI5sNaekX9n"
    "U3UxtZgTdCbPJz3VOdbH/kmYHJKBAP4nG2VIulkw27G1J1Qx4q3m5Wc0gwZTdmyKaxXqhtMiCAkQro2fWSCw/rF12wD/QqGTYkhj"
    "p2kBll+r98yQ28MzQlHAJ6rTkSGWKJauZFsA/1vWL4lJNbGWdSDi5L53ui1ZSJLGO9uln8I/almYN5UC"
)
Y2020, Y2022 = 1_590_000_000, 1_650_000_000


@pytest.fixture(autouse=True)
def _key_of_the_test(monkeypatch):
    monkeypatch.setattr(expired_copies_of_apt_key, "FINGERPRINT", FINGERPRINT)


@pytest.mark.parametrize(
    ("data", "now", "expected"),
    [
        (OLD, Y2022, True),
        (openpgp.armored(OLD), Y2022, True),
        (OLD, Y2020, False),
        (NEW, Y2022, False),
    ],
    ids=["expired", "armored", "not yet", "extended"],
)
def test_key_is_expired_when_its_last_subkey_is(data, now, expected):
    assert expired_copies_of_apt_key.is_expired(data, now) is expected


def test_key_of_somebody_else_is_never_reported(monkeypatch):
    monkeypatch.setattr(expired_copies_of_apt_key, "FINGERPRINT", "A" * 40)
    assert expired_copies_of_apt_key.is_expired(OLD, Y2022) is False


def test_files_that_apt_trusts_are_read(tmp_path):
    tree = Tree(tmp_path)
    other = OLD.replace(b"Old <o@x>", b"New <n@y>")
    primary = openpgp.parts_of(OLD)[0]
    foreign = primary[2][:-1] + b"\x01" + openpgp.parts_of(OLD)[1][2]
    tree.file("etc/apt/trusted.gpg", foreign + other)
    tree.file("etc/apt/trusted.gpg.d/nvidia.asc", openpgp.armored(OLD))
    tree.file("etc/apt/keyrings/new.gpg", NEW)
    tree.file("etc/apt/keyrings/broken.gpg", b"x")
    tree.file("etc/apt/trusted.gpg.d/nvidia.txt", OLD)
    tree.file("usr/share/keyrings/gpufleet-nvidia-container-toolkit.gpg", OLD)
    assert expired_copies_of_apt_key.read(tree.root, Y2022) == [
        {"path": "/etc/apt/trusted.gpg", "alone": False},
        {"path": "/etc/apt/trusted.gpg.d/nvidia.asc", "alone": True},
    ]
    kept = expired_copies_of_apt_key.without((tmp_path / "etc/apt/trusted.gpg").read_bytes())
    assert kept == foreign
