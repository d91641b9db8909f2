# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the plan says that a run interrupts: reboots, reloads of the driver, restarts of engines."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import restart_disruptions as engine_disruptions
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import reboot_reasons
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import plan_report, plan_text
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import host as driver_host
from ansible_collections.gpufleet.hosts.tests.unit.plugins.module_utils.driver.test_part import (
    ALLOWED,
    IN_USE,
    OLD,
    outdated,
    present,
)
from ansible_collections.gpufleet.hosts.tests.unit.plugins.site_samples import KERNEL, converged

NOUVEAU = {
    "nouveau": {"bound": ["0000:3b:00.0"], "blacklisted": False, "in_kernel": True},
    "nova_core": {"bound": [], "blacklisted": False, "in_kernel": False},
}
NEXT = "6.1.0-56-amd64"
BOUND = "nouveau is bound to 0000:3b:00.0; only a reboot can unbind it"
LATER = f"kernel {KERNEL} is running, but the modules may be only for {NEXT}, which boots next"


def bare(**changes):
    there = driver_host("debian-12", **changes)
    there["reboot_reasons"] = reboot_reasons.reasons(there)
    return there


def with_nouveau():
    there = bare()
    for name, entry in NOUVEAU.items():
        there["foreign_drivers"][name] = {**there["foreign_drivers"][name], "bound": entry["bound"]}
    return there


def texts(there, values=None, *, is_controller=False):
    return [found.text() for found in present(there, values, is_controller=is_controller)["disruptions"]]


@pytest.mark.parametrize(
    ("there", "values", "is_controller", "expected"),
    [
        (with_nouveau, ALLOWED, False, [f"reboot: required: {BOUND}"]),
        (with_nouveau, {}, False, [
            f"reboot: required, forbidden by nvidia_driver_reboot_policy: {BOUND}"
        ]),
        (with_nouveau, ALLOWED, True, [
            f"reboot: required, forbidden by the role, because this host is the Ansible controller: {BOUND}"
        ]),
        (bare, ALLOWED, False, []),
        (lambda: bare(next_kernel=NEXT), ALLOWED, False, [
            f"reboot: may be needed: {LATER}"
        ]),
        (lambda: bare(next_kernel=NEXT), {}, False, [
            f"reboot: may be needed: {LATER}; a reboot would be forbidden by nvidia_driver_reboot_policy"
        ]),
        (converged, ALLOWED, False, []),
        (outdated, ALLOWED, False, [
            f"reload of the driver: required: another driver than the loaded {OLD} (stopped meanwhile: "
            "nvidia-persistenced.service)"
        ]),
    ],
)  # fmt: skip
def test_the_driver_announces_reload_and_reboot(there, values, is_controller, expected):
    assert texts(there(), values, is_controller=is_controller) == expected


def test_a_process_on_a_gpu_turns_the_reload_into_a_reboot():
    (found,) = present(outdated(IN_USE), ALLOWED)["disruptions"]
    assert (found.kind, found.state, found.count, found.names) == ("reboot", "required", 1, ("process 42 (train)",))
    assert "stops process 42 (train)" in found.text()
    (found,) = present(outdated(IN_USE), {})["disruptions"]
    assert (found.state, found.forbidden_by) == ("forbidden", "nvidia_driver_reboot_policy")


def test_an_upgrade_beside_a_container_with_a_gpu_needs_a_reboot():
    # The packages are still to be installed, so nothing differs on the host yet.
    holder = {**IN_USE, "container": "4f0c", "container_name": "trainer"}
    there = converged(driver={"loaded": OLD, "library": OLD, "on_disk": OLD, "on_disk_next": OLD}, holders=[holder])
    there["installed_packages"].pop("nvidia-smi", None)
    there["packages"].pop("nvidia-smi", None)
    there["reboot_reasons"] = []
    (found,) = present(there, ALLOWED)["disruptions"]
    assert (found.kind, found.state, found.names) == (
        "reboot",
        "required",
        ("process 42 (train) in container trainer",),
    )


def docker(*, running=0, live_restore=False, active="active"):
    there = converged()
    there["services"]["docker.service"] = {**there["services"].get("docker.service", {}), "active_state": active}
    info = {"containers_running": running, "containers_paused": 0, "live_restore": live_restore, "swarm": False}
    there["engines"]["docker"] = {**there["engines"]["docker"], "info": info}
    return there


@pytest.mark.parametrize(
    ("there", "policy", "state", "count"),
    [
        (docker(), "when_safe", "required", 0),
        (docker(running=2), "when_safe", "forbidden", 0),
        (docker(running=2, live_restore=True), "when_safe", "required", 0),
        (docker(running=2), "always", "required", 2),
        (docker(running=2), "never", "forbidden", 0),
    ],
)
def test_docker_announces_its_restart_for_options(there, policy, state, count):
    (found,) = engine_disruptions.of_options(there, ["features.cdi"], {}, policy)
    assert (found.kind, found.state, found.count, found.target) == ("engine_restart", state, count, "docker.service")


def test_a_stopped_docker_and_reloadable_options_interrupt_nothing():
    assert engine_disruptions.of_options(docker(active="inactive"), ["features.cdi"], {}, "always") == []
    assert engine_disruptions.of_options(docker(), [], {}, "always") == []


def test_another_version_of_docker_restarts_the_daemon():
    (found,) = engine_disruptions.of_packages(docker(running=3), "docker", "docker.service", "docker 26.1 is changed")
    assert found.text() == "restart of docker.service: required, stops 3 containers: docker 26.1 is changed"
    (found,) = engine_disruptions.of_packages(docker(running=3, live_restore=True), "docker", "docker.service", "x")
    assert found.text() == "restart of docker.service: required: x; its containers (3) keep running"


def test_the_text_and_the_file_of_playbook_plan_have_the_disruptions():
    disruption = {"kind": "reboot", "reason": "why", "state": "forbidden", "target": "", "count": 0, "names": [],
                  "forbidden_by": "nvidia_driver_reboot_policy"}  # fmt: skip
    changes = [{"part": "nvidia_driver", "changes": [], "reasons": [], "disruptions": [disruption]}]
    (entry,) = plan_report.report({"node01": {"changes": changes}})
    assert entry["changes"][0]["disruptions"] == [disruption]
    lines = [line.text for line in plan_text.render([entry])]
    assert lines[:2] == ["Interruptions", "  node01: reboot: required, forbidden by nvidia_driver_reboot_policy: why"]
    assert lines[-1] == "1 host: 1 converged; 1 needs a forbidden reboot"
