# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import typing as t

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.cuda import toolkit_removal
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import record_of_role
from ansible_collections.gpufleet.hosts.tests.unit.plugins.toolkit_samples import DISTRIBUTIONS, add, bare


def removal(recorded: dict[str, t.Any] | None, *installed: str, **changes: t.Any) -> dict[str, list[str]]:
    """Return the removal on a host with these packages. `recorded` is the role's record."""
    there = bare(**changes)
    there["installed_packages"] = dict.fromkeys(["vim", *installed], "1 all")
    if recorded is not None:
        add(there, record_of_role.TOOLKIT, recorded)
    return toolkit_removal.plan(there, DISTRIBUTIONS)


@pytest.mark.parametrize(
    ("recorded", "remove", "keep"),
    [
        ({"packages": ["cuda-toolkit-12-6", "libgomp1"]}, ["cuda-toolkit-12-6"], ["cuda-toolkit-11-8"]),
        # The role requested 12.6 in an interrupted run. The user installed 11.8 afterwards.
        (
            {"packages": [], "pending": ["vim"], "asked": ["cuda-toolkit-12-6"]},
            ["cuda-toolkit-12-6"],
            ["cuda-toolkit-11-8"],
        ),
        (
            {"packages": ["cuda-toolkit-12-6"], "uncertain": ["cuda-toolkit-11-8"]},
            ["cuda-toolkit-12-6"],
            ["cuda-toolkit-11-8"],
        ),
        (None, [], ["cuda-toolkit-11-8", "cuda-toolkit-12-6"]),
    ],
    ids=["recorded", "interrupted", "uncertain", "no record"],
)
def test_only_toolkits_of_the_role_are_removed(
    recorded: dict[str, t.Any] | None, remove: list[str], keep: list[str]
) -> None:
    done = removal(recorded, "cuda-toolkit-12-6", "cuda-toolkit-11-8", "cuda-toolkit-12-6-config-common", "libgomp1")
    assert (done["remove"], done["keep"], done["problems"]) == (remove, keep, [])


def test_the_distributions_toolkit_is_a_toolkit_and_its_compiler_is_not() -> None:
    came = ["nvidia-cuda-toolkit", "g++"]
    assert removal({"packages": came}, *came)["remove"] == ["nvidia-cuda-toolkit"]
    assert removal({"packages": ["g++"]}, *came)["keep"] == ["nvidia-cuda-toolkit"]


@pytest.mark.parametrize("path", [owned.TOOLKIT_RECORD, owned.TOOLKIT_VERIFIED, owned.TOOLKIT_PROFILE])
def test_a_removal_requires_root(path: str) -> None:
    there = bare(uid=1000)
    assert toolkit_removal.plan(there, DISTRIBUTIONS)["problems"] == []
    (problem,) = toolkit_removal.plan(add(there, path, "{}"), DISTRIBUTIONS)["problems"]
    assert "needs root" in problem
