# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import re
from pathlib import Path

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import variables
from ansible_collections.gpufleet.hosts.plugins.module_utils.site.variables import (
    OUTPUTS,
    REQUESTS,
    Names,
    unknown_names,
)

ROLES = Path(__file__).resolve().parents[5] / "roles"


def test_every_role_has_its_variables():
    assert {path.parent.name for path in ROLES.glob("*/README.md")} == set(REQUESTS)


def test_outputs_are_those_that_the_roles_document():
    documented = set()
    for page in ROLES.glob("*/README.md"):
        documented |= set(
            re.findall(rf"sets the variable `({page.parent.name}_\w+)`", page.read_text(encoding="utf-8"))
        )
    assert documented == OUTPUTS


def test_documented_names_are_known():
    names = {f"{role}_{name}" for role, request in REQUESTS.items() for name in variables.table(request)}
    assert unknown_names(names | OUTPUTS) == Names([], [])


@pytest.mark.parametrize(
    "name",
    [
        "__nvidia_driver_brnch",
        "_nvidia_driver_brnch",
        "nvidia_driver",
        "nvidia_drivers_branch",
        "my_nvidia_driver_brnch",
        "NVIDIA_DRIVER_BRNCH",
        "container_engines",
        "gpufleet_host",
        "ansible_facts",
    ],
)
def test_names_without_the_prefix_of_a_role_are_not_checked(name):
    assert unknown_names([name]) == Names([], [])


@pytest.mark.parametrize(
    ("name", "role", "meant"),
    [
        ("nvidia_driver_brnch", "nvidia_driver", "nvidia_driver_branch"),
        ("nvidia_driver_versions", "nvidia_driver", "nvidia_driver_version"),
        ("nvidia_driver_Branch", "nvidia_driver", "nvidia_driver_branch"),
        ("nvidia_driver_reboot-policy", "nvidia_driver", "nvidia_driver_reboot_policy"),
        ("nvidia_driver_rebot_policy", "nvidia_driver", "nvidia_driver_reboot_policy"),
        ("nvidia_driver_runfile_checksun", "nvidia_driver", "nvidia_driver_runfile_checksum"),
        ("nvidia_persistenced_time_out", "nvidia_persistenced", "nvidia_persistenced_timeout"),
        ("container_engine_naem", "container_engine", "container_engine_name"),
        ("container_engine_docker_option", "container_engine", "container_engine_docker_options"),
        ("cuda_toolkit_version", "cuda_toolkit", "cuda_toolkit_versions"),
        ("observe_service", "observe", "observe_services"),
        # The prefix of another role.
        ("nvidia_driver_restart_policy", "nvidia_driver", "container_engine_restart_policy"),
        ("container_engine_reboot_policy", "container_engine", "nvidia_driver_reboot_policy"),
        ("container_engine_minimum_verison", "container_engine", "container_engine_minimum_version"),
        ("nvidia_persistenced_module_optons", "nvidia_persistenced", "nvidia_driver_module_options"),
        ("nvidia_driver_proxy_name", "nvidia_driver", "nvidia_driver_proxy_username"),
        # Several variables are close. Only the closest three of four are shown.
        (
            "nvidia_persistenced_repository_passwordname",
            "nvidia_persistenced",
            "nvidia_driver_repository_password, nvidia_driver_repository_username or "
            "container_engine_repository_password",
        ),
    ],
)
def test_a_name_that_is_close_to_a_variable_is_an_error(name, role, meant):
    assert unknown_names([name]) == Names([f"{name} is not a variable of role {role}. Did you mean {meant}?"], [])


@pytest.mark.parametrize(
    "name",
    [
        "container_engine_foo",
        "container_engine_result",
        "container_engine_installed",
        "container_engine_status_text",
        "container_engine_info",
        "container_engine_running",
        "nvidia_driver_volume",
        "nvidia_driver_facts",
        "nvidia_driver_held",
        "nvidia_driver_installed",
        "nvidia_driver_packages",
        "nvidia_driver_reports",
        "nvidia_driver_timeout",
        "nvidia_persistenced_state",
        "cuda_toolkit_verified",
        "observe_result",
        "observe_",
    ],
)
def test_a_variable_of_the_playbook_is_only_a_warning(name):
    role = next(role for role in REQUESTS if name.startswith(f"{role}_"))
    assert unknown_names([name]) == Names(
        [],
        [
            f"{name} is not a variable of role {role} and has no effect. 'ansible-doc -t role gpufleet.hosts.{role}' "
            "lists its variables."
        ],
    )


def test_all_names_are_reported_in_order():
    found = unknown_names(["observe_x", "nvidia_driver_hodl", "ansible_host", "container_engine_nam", "cuda_toolkit_x"])
    assert [text.split()[0] for text in found.errors] == ["container_engine_nam", "nvidia_driver_hodl"]
    assert [text.split()[0] for text in found.warnings] == ["cuda_toolkit_x", "observe_x"]
