# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import re
from pathlib import Path

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import variable_fields
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import drain_decision, health_variables
from ansible_collections.gpufleet.hosts.plugins.module_utils.site.unknown_variables import (
    OUTPUTS,
    PLAYBOOKS,
    REQUESTS,
    Names,
    unknown_names,
)

COLLECTION = Path(__file__).resolve().parents[5]
ROLES = COLLECTION / "roles"


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
    names = {f"{role}_{name}" for role, request in REQUESTS.items() for name in variable_fields.table(request)}
    assert unknown_names(names | OUTPUTS) == Names([], [])


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("container_engin_name", "container_engine_name"),
        ("containerengine_name", "container_engine_name"),
        ("container_enigne_docker_options", "container_engine_docker_options"),
        ("nvidia_drivers_branch", "nvidia_driver_branch"),
        ("nvidia_drvier_reboot_policy", "nvidia_driver_reboot_policy"),
        ("nvidia_persistence_timeout", "nvidia_persistenced_timeout"),
        ("nvidia_container_tookit_source", "nvidia_container_toolkit_source"),
        ("cuda_toolkits_versions", "cuda_toolkit_versions"),
    ],
)
def test_an_option_behind_a_misspelled_role_is_a_warning(name, meant):
    text = f"{name} is not a variable of this collection and has no effect on it. Did you mean {meant}?"
    assert unknown_names([name]) == Names([], [text])


@pytest.mark.parametrize(
    "name",
    [
        "__nvidia_driver_brnch",
        "_nvidia_driver_brnch",
        "nvidia_driver",
        "nvidia_drivers_brnch",
        "my_nvidia_driver_branch",
        "vault_container_engine_name",
        "__container_engin_name",
        "engine_name",
        "site_driver_version",
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
        (
            *("nvidia_driver_restart_policy", "nvidia_driver"),
            "container_engine_restart_policy or gpu_kubernetes_node_restart_policy",
        ),
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


def test_the_variables_of_playbooks_are_known():
    used = set()
    for path in (COLLECTION / "playbooks").rglob("*.yml"):
        text = path.read_text(encoding="utf-8")
        # Variables of a user have a default, and those of the play or of an import have a value.
        used |= set(re.findall(r"\b((?:site|dlami|verify)_[a-z0-9_]+)(?: \| default\(| is defined)", text))

    def value(name, default):
        used.update([name] if name.startswith("verify_") else [])
        return default

    health_variables.read(value)
    used |= {
        f"{drain_decision.PREFIX}_{name}" for name in variable_fields.table(drain_decision.SiteDrainRequest)
    }  # read by gpu_host_plan
    used.add("dlami_docker_on_nvme")
    outputs = {"dlami_outcome", "site_outcome"}
    known = {f"{playbook}_{name}" for playbook, names in PLAYBOOKS.items() for name in names}
    assert used - outputs == known
    assert unknown_names(known | outputs) == Names([], [])


def test_the_names_in_the_scenarios_of_molecule_are_accepted():
    texts = [path.read_text(encoding="utf-8") for path in (COLLECTION / "molecule").rglob("*.yml")]
    names = {name for text in texts for name in re.findall(r"\b(?:site|dlami|verify)_[a-z0-9_]+", text)}
    assert len(names) > 50
    assert unknown_names(names) == Names([], [])


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("verify_expected_gpu", "verify_expected_gpus"),
        ("verify_expected_pci_width", "verify_expected_pcie_width"),
        ("verify_containers", "verify_container"),
        ("dlami_docker_on_nmve", "dlami_docker_on_nvme"),
        ("dlami_cloudinit_timeout", "dlami_cloud_init_timeout"),
        ("site_adpot", "site_adopt"),
        ("site_seriel", "site_serial"),
        ("site_cloudinit_timeout", "site_cloud_init_timeout"),
        ("site_max_fail_percent", "site_max_fail_percentage"),
    ],
)
def test_a_name_that_is_close_to_a_variable_of_a_playbook_is_an_error(name, meant):
    playbook = name.partition("_")[0]
    text = f"{name} is not a variable of playbook {playbook}. Did you mean {meant}?"
    assert unknown_names([name]) == Names([text], [])


@pytest.mark.parametrize("name", ["site_name", "site_reboot_policy", "dlami_release", "verify_tls", "verify_health"])
def test_another_name_with_the_prefix_of_a_playbook_is_accepted(name):
    assert unknown_names([name]) == Names([], [])


def test_all_names_are_reported_in_order():
    found = unknown_names(["observe_x", "nvidia_driver_hodl", "ansible_host", "container_engine_nam", "cuda_toolkit_x"])
    assert [text.split()[0] for text in found.errors] == ["container_engine_nam", "nvidia_driver_hodl"]
    assert [text.split()[0] for text in found.warnings] == ["cuda_toolkit_x", "observe_x"]
