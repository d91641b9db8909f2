# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import os
from pathlib import Path

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import foreign_dkms

KERNEL = "6.1.0-40-amd64"
HOOK = (
    "apt-get failed: run-parts: /etc/kernel/header_postinst.d/dkms exited with return code 11 dpkg: error processing "
    "package linux-headers-6.1.0-40-amd64 (--configure): installed linux-headers-6.1.0-40-amd64 package "
    "post-installation script subprocess returned error exit status 1"
)
DKMS = "dpkg: error processing package dkms (--configure): post-installation script subprocess returned error"


def tree(root: Path, name: str, version: str, log: str = "", sources: bool = True) -> None:
    place = root / "var/lib/dkms" / name / version
    place.mkdir(parents=True)
    if sources:
        (place / "source").mkdir()
        (place / "source/dkms.conf").write_text("")
    else:
        os.symlink("/usr/src/gone", place / "source")
    if log:
        (place / "build").mkdir()
        (place / "build/make.log").write_text(
            f"DKMS make.log for {name}-{version} for kernel {KERNEL} (x86_64)\n{log}\n"
        )


def built(root: Path, name: str, version: str) -> None:
    tree(root, name, version)
    module = root / f"var/lib/dkms/{name}/{version}/{KERNEL}/x86_64/module"
    module.mkdir(parents=True)


@pytest.mark.parametrize("error", [HOOK, DKMS])
def test_a_foreign_module_that_does_not_build_is_named(tmp_path: Path, error: str) -> None:
    tree(tmp_path, "rtl88", "5.6", "rtl.c:1:1: error: implicit declaration of function\n")
    built(tmp_path, "zfs", "2.1")
    built(tmp_path, "nvidia", "580.95.05")
    text = foreign_dkms.causes(error, str(tmp_path))
    assert text.startswith(
        "DKMS failed with rtl88 5.6 (for kernel 6.1.0-40-amd64, log /var/lib/dkms/rtl88/5.6/build/make.log:"
    )
    assert "error: implicit declaration of function" in text
    assert "nvidia 580.95.05 is built for kernel 6.1.0-40-amd64." in text
    assert "'dkms remove rtl88/5.6 --all'" in text
    assert "zfs" not in text


def test_a_tree_without_sources_stops_before_the_driver(tmp_path: Path) -> None:
    tree(tmp_path, "old", "1", sources=False)
    tree(tmp_path, "nvidia", "580.95.05")
    text = foreign_dkms.causes(HOOK, str(tmp_path))
    assert "old 1 (its sources are missing: /var/lib/dkms/old/1/source)" in text
    assert "NVIDIA's modules are not built yet." in text
    assert "'rm -r /var/lib/dkms/old/1'" in text


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        # Nothing of DKMS.
        ("E: Unable to locate package nvidia-driver", ""),
        # The driver's own module.
        (f"{HOOK} Consult /var/lib/dkms/nvidia/580.95.05/build/make.log for more information.", ""),
        (f"Autoinstall on {KERNEL} failed for module(s) nvidia(10). {HOOK}", ""),
        # The output names the module of two.
        (f"Autoinstall on {KERNEL} failed for module(s) nvidia(10) rtl88(10). {HOOK}", "DKMS failed with rtl88 5.6 "),
        (f"{HOOK} Consult /var/lib/dkms/old/1/build/make.log for more information.", "DKMS failed with old 1 "),
        (
            HOOK,
            "DKMS failed with old 1 (its sources are missing: /var/lib/dkms/old/1/source) and rtl88 5.6 (for kernel",
        ),
    ],
)
def test_only_what_the_error_is_about(tmp_path: Path, error: str, expected: str) -> None:
    tree(tmp_path, "old", "1", sources=False)
    tree(tmp_path, "rtl88", "5.6", "x: error: y")
    tree(tmp_path, "nvidia", "580.95.05", "x: error: y")
    text = foreign_dkms.causes(error, str(tmp_path))
    assert text.startswith(expected)
    assert bool(text) == bool(expected)


def test_a_host_whose_modules_are_fine(tmp_path: Path) -> None:
    built(tmp_path, "zfs", "2.1")
    assert foreign_dkms.causes(HOOK, str(tmp_path)) == ""
    assert foreign_dkms.causes(HOOK, str(tmp_path / "no")) == ""
