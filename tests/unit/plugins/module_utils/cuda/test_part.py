# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Role cuda_toolkit is planned like the parts of playbook site, which does not contain it."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.part_plan import Context, Part
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import package_queries, registry, unknown_variables
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import plan_of_all_parts as site_plan
from ansible_collections.gpufleet.hosts.plugins.plugin_utils import role_data
from ansible_collections.gpufleet.hosts.tests.unit.plugins.toolkit_samples import add, bare, converged

WANTED = {"source": "nvidia", "versions": ["12.6"]}
PATH = "/usr/local/cuda/bin/nvcc"


def planned(host: dict[str, t.Any], **values: t.Any) -> Part:
    host["files"].setdefault(PATH, {"exists": False, "content": None})
    context = Context(host, {"cuda_toolkit": values}, role_data.platforms("debian-12"))  # type: ignore[arg-type]
    return site_plan.plan(context, ["cuda_toolkit"])["cuda_toolkit"]


def test_the_plan_names_its_changes() -> None:
    part = planned({**bare(), "uid": 0}, **WANTED)
    assert [text.split()[0] for text in part.changes] == ["add", "install", "write"]
    assert part.changes[1] == "install cuda-toolkit-12-6"
    assert (part.acts, part.errors, part.has_secrets) == (True, [], False)


def test_a_converged_host_is_left_alone() -> None:
    part = planned(converged("debian-12", "12.6"), **WANTED)
    assert (part.acts, part.changes, part.errors) == (False, [], [])


def test_a_password_is_a_secret() -> None:
    login = {"mirror": "https://mirror.example/cuda", "repository_username": "a", "repository_password": "b"}
    assert planned({**bare(), "uid": 0}, **WANTED, **login).has_secrets


@pytest.mark.parametrize(("uid", "errors"), [(0, 0), (1000, 1)])
def test_the_removal_is_rehearsed_like_that_of_other_parts(uid: int, errors: int) -> None:
    host = add({**bare(), "uid": uid}, owned.TOOLKIT_RECORD, {"packages": ["cuda-toolkit-12-6"]})
    host["installed_packages"] = {"cuda-toolkit-12-6": "1 all", "cuda-toolkit-11-8": "1 all"}
    part = planned(add(host, owned.TOOLKIT_PROFILE, "x"), state="absent")
    recorded = "remove the repository that this role recorded"
    assert part.changes == ["remove cuda-toolkit-12-6", recorded, f"remove {owned.TOOLKIT_PROFILE}"]
    (removal,) = package_queries.rehearsal({"cuda_toolkit": part})["rehearse_removals"]
    assert (removal["remove"], removal["keep"]) == (["cuda-toolkit-12-6"], ["cuda-toolkit-11-8"])
    assert len(part.errors) == errors


def test_playbook_site_does_not_contain_it() -> None:
    assert "cuda_toolkit" not in {*registry.PARTS, *(turn["part"] for turn in registry.order())}
    assert unknown_variables.unknown_names(["cuda_toolkit_version"]).errors != []
