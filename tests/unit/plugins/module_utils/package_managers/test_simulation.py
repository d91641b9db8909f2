# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files are the real output of apt 3.0.4, dnf 4.23.0, zypper 1.14.89 and rpm over small repositories."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers import simulation
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.simulation import SimulatedChange

FILES = Path(__file__).parent / "files/simulations"
APP = "app-with-a-rather-long-package-name-for-the-table"
KMOD = "kmod-nvidia-open-dkms-with-an-even-longer-package-name-for-this-test"


def output(name: str) -> str:
    return (FILES / name).read_text(encoding="utf-8")


def described(changes: list[SimulatedChange]) -> list[str]:
    return [str(change) for change in changes]


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("apt-install", ["install app 2.0-1", "install base 2.0-1", "install native 1.0"]),
        ("apt-upgrade", ["upgrade app from 1.0-1 to 2.0-1", "upgrade base from 1.0-1 to 2.0-1", "remove job 1"]),
        ("apt-downgrade", ["downgrade app from 2.0-1 to 1.0-1", "downgrade base from 2.0-1 to 1.0-1"]),
        ("apt-remove", ["remove app 1.0-1", "remove base 1.0-1", "remove job 1"]),
        ("apt-purge", ["remove job 1"]),
        ("apt-reinstall", ["reinstall app from 1.0-1 to 1.0-1"]),
        ("apt-unmet", []),
        ("apt-unknown", []),
    ],
)
def test_changes_of_apt(name: str, changes: list[str]) -> None:
    assert described(simulation.apt(output(f"{name}.txt"))) == changes


def test_apt_names_the_architecture() -> None:
    assert {change.name: change.arch for change in simulation.apt(output("apt-install.txt"))}["native"] == "amd64"
    text = "Inst libc6:i386 [2.36-9] (2.36-10 Debian:12.5/stable [i386]) []\nRemv old:i386 [1]\n"
    assert simulation.apt(text) == [
        SimulatedChange("libc6", "upgrade", "2.36-9", "2.36-10", "i386"),
        SimulatedChange("old", "remove", "1", None, "i386"),
    ]


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("dnf-install", [f"install {APP} 2.0-1", "install base 2.0-1"]),
        ("dnf-install-wrapped", [f"install {APP} 2.0-1", "install base 2.0-1", f"install {KMOD} 580.95.05-1"]),
        (
            "dnf-blocked-upgrade",
            [f"upgrade {APP} from 1.0-1 to 2.0-1", "upgrade base from 1.0-1 to 2.0-1", "upgrade job from 1-1 to 3-1"],
        ),
        ("dnf-downgrade", [f"downgrade {APP} from 2.0-1 to 1.0-1", "downgrade base from 2.0-1 to 1.0-1"]),
        (
            "dnf-erasing",
            [
                f"remove {APP} 1.0-1",
                "remove base 1.0-1",
                "remove job 1-1",
                "install rival 1.0-1",
                "install successor 3.0-1",
            ],
        ),
        ("dnf-replacing", ["remove job 1-1", "install successor 3.0-1"]),
        ("dnf-remove", [f"remove {APP} 1.0-1", "remove base 1.0-1", "remove job 1-1"]),
        ("dnf-unmet", []),
        ("dnf-unknown", []),
    ],
)
def test_changes_of_dnf(name: str, changes: list[str]) -> None:
    newer = {"base": "2.0-1", APP: "2.0-1"}
    installed = newer if name == "dnf-downgrade" else {"base": "1.0-1", APP: "1.0-1", "job": "1-1"}
    found = simulation.dnf(output(f"{name}.txt"), lambda package, _arch: installed.get(package))
    assert described(found) == changes


def test_dnf_without_the_installed_versions() -> None:
    assert "upgrade base 2.0-1" in described(simulation.dnf(output("dnf-blocked-upgrade.txt")))


def test_a_table_of_dnf_with_missing_rows_is_an_error() -> None:
    text = output("dnf-install.txt").replace(" base ", "# base ")
    with pytest.raises(simulation.SimulationError, match="could not be parsed"):
        simulation.dnf(text)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("zypper-install", [f"install {APP} 2.0-1", "install base 2.0-1"]),
        ("zypper-downgrade", [f"downgrade {APP} from 2.0-1 to 1.0-1", "downgrade base from 2.0-1 to 1.0-1"]),
        ("zypper-rival-marked", [f"remove {APP} 1.0-1", "remove base 1.0-1", "remove job 1-1", "install rival 1.0-1"]),
        ("zypper-remove", [f"remove {APP} 1.0-1", "remove base 1.0-1", "remove job 1-1"]),
        ("zypper-rival", []),
        ("zypper-unknown", []),
        ("zypper-unmet", []),
    ],
)
def test_changes_of_zypper(name: str, changes: list[str]) -> None:
    assert described(simulation.zypper(output(f"{name}.xml"))) == changes


def test_a_truncated_summary_of_zypper_is_an_error() -> None:
    text = output("zypper-install.xml").replace("</to-install>", "")
    with pytest.raises(simulation.SimulationError, match="could not be parsed"):
        simulation.zypper(text)


def test_rpm_names_the_packages_that_need_a_removed_one() -> None:
    assert simulation.rpm_dependents(output("rpm-erase.txt")) == {APP, "job"}
