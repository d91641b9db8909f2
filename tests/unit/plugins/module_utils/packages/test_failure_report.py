# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The message of a failed transaction: the cause first, the rest in a file."""

from __future__ import annotations

import stat

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import failure_report

PACKAGES = [f"libnvidia-part{number}=580.95.05-{number}" for number in range(60)]
RPMS = [f"kmod-nvidia-part{number}-580.95.05-{number}.el9.x86_64" for number in range(60)]
CAUSE = "E: Unable to correct problems, you have held broken packages."
WHERE = f"The whole message is in {owned.PACKAGE_FAILURE} on the host."


@pytest.mark.parametrize(
    "text",
    [
        f"apt cannot install or remove {' '.join(PACKAGES)}: {CAUSE} No package was changed. {'x' * 900}",
        f"dnf cannot install {', '.join(RPMS)}: {CAUSE} {'No package was changed. ' * 60}",
        f"{CAUSE} Not restored: packages {', '.join(PACKAGES)} ({CAUSE}) {'y ' * 900}",
    ],
)
def test_the_cause_comes_first_and_the_rest_is_in_the_file(text):
    short = failure_report.condensed(text)
    assert len(short) <= failure_report.LIMIT
    assert CAUSE in short
    assert short.endswith(WHERE)
    assert all(short.count(name) <= 1 for name in (*PACKAGES, *RPMS))


def test_a_short_message_stays_as_it_is():
    text = f"apt cannot install {' '.join(PACKAGES[:8])}: {CAUSE}"
    assert failure_report.condensed(text) == text


def test_a_sentence_that_is_too_long_is_cut():
    short = failure_report.condensed("The package manager would remove " + ", ".join(f"package{n}" for n in range(200)))
    assert len(short) <= failure_report.LIMIT
    assert f" … {WHERE}" in short


def test_the_file_is_readable_by_its_owner_only_and_has_no_login(tmp_path):
    file = tmp_path / owned.PACKAGE_FAILURE.lstrip("/")
    failure_report.write("first", str(tmp_path))
    failure_report.write("https://robot:s3cret@mirror.example/x failed", str(tmp_path))
    assert "s3cret" not in file.read_text()
    assert "first" not in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    failure_report.remove(str(tmp_path))
    assert not file.parent.exists()
    failure_report.remove(str(tmp_path))


def test_other_files_of_the_directory_stay(tmp_path):
    failure_report.write("first", str(tmp_path))
    record = tmp_path / owned.DRIVER_RECORD.lstrip("/")
    record.write_text("{}")
    failure_report.remove(str(tmp_path))
    assert [path.name for path in record.parent.iterdir()] == [record.name]


@pytest.mark.parametrize(
    ("record", "names"),
    [
        ("nvidia_driver", ["nvidia_driver_mirror", "nvidia_driver_proxy"]),
        ("container_engine", ["container_engine_mirror", "container_engine_proxy"]),
        ("cuda_toolkit", ["cuda_toolkit_mirror", "cuda_toolkit_proxy"]),
        (
            "nvidia_container_toolkit",
            [
                "nvidia_container_toolkit_mirror",
                "nvidia_container_toolkit_proxy",
                "nvidia_container_toolkit_source: none",
            ],
        ),
        ("mine", []),
    ],
)
def test_an_unreachable_repository_names_the_variables_of_the_role(record, names):
    text = "apt could not read the package repositories: x. Check the network, or set another URL."
    shown = failure_report.naming_variables(text, record)
    assert [name for name in names if name in shown] == names
    assert shown.startswith("apt could not read the package repositories: x. Check the network, or set another URL")
    assert (shown != text) == bool(names)
    assert failure_report.naming_variables("nvidia-smi is not installed.", record) == "nvidia-smi is not installed."
