# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packages that provide virtual names. The output is that of apt, dnf, rpm and zypper with small repositories."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers import installed_packages, offers
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.backend import PackageManagerError

SHOWPKG = """\
Package: mail-transport-agent
Versions:

Reverse Depends:
  bsd-mailx,mail-transport-agent
Dependencies:
Provides:
Reverse Provides:
msmtp-mta 1.8.23-1 (= )
dma 0.13-1+b1 (= )
dma 0.13-1 (= )
"""
SEARCH = """
S | Name        | Summary | Type
--+-------------+---------+--------
  | kmod-closed | x       | package
i | kmod-open   | x       | package
"""
STATUS = """\
Package: cuda-lib
Status: install ok installed
Architecture: amd64
Version: 580-1
Provides: nvidia-smi (= 580-1), nvidia-tool, nvidia-data:any

Package: removed
Status: deinstall ok config-files
Architecture: amd64
Version: 1
Provides: nvidia-old
"""


class Programs:
    """Programs with one answer."""

    def __init__(self, rc: int, out: str) -> None:
        self.answer = (rc, out, "")
        self.commands: list[list[str]] = []

    def __call__(self, argv: list[str]) -> tuple[int, str, str]:
        self.commands.append(argv)
        return self.answer


@pytest.mark.parametrize(
    ("manager", "rc", "out", "expected"),
    [
        ("apt", 0, SHOWPKG, ["dma", "msmtp-mta"]),
        # apt knows the name of a package that nothing provides, or no such name.
        ("apt", 0, "Package: x\nVersions: \nReverse Provides: \n", []),
        ("apt", 0, "", []),
        ("dnf", 0, "kmod-closed\n\nkmod-open\n\n", ["kmod-closed", "kmod-open"]),
        ("dnf", 0, "", []),
        ("zypper", 0, SEARCH, ["kmod-closed", "kmod-open"]),
        ("zypper", 104, "No matching items found.\n", []),
    ],
)
def test_available_providers(manager, rc, out, expected):
    run = Programs(rc, out)
    assert offers.providers(manager, ["name"], run, ["--view"]) == {"name": expected}
    (command,) = run.commands
    assert "name" in command
    assert "--view" in command


@pytest.mark.parametrize("manager", ["apt", "dnf", "zypper"])
def test_a_failed_query_is_an_error(manager):
    with pytest.raises(PackageManagerError, match="failed with exit status 1"):
        offers.providers(manager, ["name"], Programs(1, ""))


def test_installed_providers_with_dpkg(tmp_path):
    (tmp_path / "var/lib/dpkg").mkdir(parents=True)
    (tmp_path / "var/lib/dpkg/status").write_text(STATUS)
    names = ["nvidia-smi", "nvidia-tool", "nvidia-data", "nvidia-old", "none"]
    found = installed_packages.providers(str(tmp_path), "apt", names, Programs(1, ""))
    assert found == {name: ["cuda-lib"] for name in names[:3]}


@pytest.mark.parametrize("manager", ["dnf", "zypper"])
@pytest.mark.parametrize(
    ("rc", "out", "found"),
    [(0, "cuda-lib\ncuda-lib\n", {"nvidia-smi": ["cuda-lib"]}), (1, "no package provides nvidia-smi\n", {})],
)
def test_installed_providers_with_rpm(manager, rc, out, found):
    assert installed_packages.providers("/nowhere", manager, ["nvidia-smi"], Programs(rc, out)) == found


def test_an_unknown_package_manager_has_no_providers():
    run = Programs(0, "x\n")
    assert (installed_packages.providers("/nowhere", None, ["x"], run), run.commands) == ({}, [])
