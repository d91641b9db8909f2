# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All printed texts with 1, 3 and 200 hosts of several vendors, some of which fail or are unreachable."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.output import progress_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.output.progress_text import HostProgress
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import (
    end_of_run_text,
    end_of_run_verdicts,
    plan_report,
    plan_text,
)
from ansible_collections.gpufleet.hosts.tests.unit.plugins import fleet_samples
from ansible_collections.gpufleet.hosts.tests.unit.plugins.plan_samples import REBOOT, part

DRIVER = part("nvidia_driver", "install nvidia-open", disruptions=(REBOOT,))
ENGINE = part("container_engine", "install docker.io")
# Each vendor's part, and the engine that all hosts get.
PLANS = {
    "nvidia": {"changes": [DRIVER, ENGINE]},
    "amd": {"changes": [part("amd_driver", "write /var/run/cdi/gpufleet-amd.json"), ENGINE]},
    "neuron": {"changes": [ENGINE, part("neuron_driver", "install aws-neuronx-dkms")]},
    "gaudi": {"changes": [ENGINE, part("gaudi_driver", "install habanalabs-dkms")]},
    "converged": {"changes": [part("nvidia_driver")]},
    "failed": {"failed": True, "errors": ["The archive does not answer."]},
    "lost": None,
}
GAUDI = fleet_samples.observed(*[("gaudi", "Gaudi3")] * 8)
NEURON = fleet_samples.observed(*[("neuron", "Trainium2")] * 16)
RESULTS = {
    "nvidia": fleet_samples.FLEET["gpu01"],
    "amd": fleet_samples.FLEET["amd01"],
    "neuron": end_of_run_verdicts.FleetResult(
        end_of_run_verdicts.OK, NEURON, {}, first_boot="b1", health=fleet_samples.HEALTHY
    ),
    "gaudi": end_of_run_verdicts.FleetResult(
        end_of_run_verdicts.OK, GAUDI, {}, first_boot="b1", health=fleet_samples.HEALTHY
    ),
    "converged": fleet_samples.FLEET["gpu03"],
    "failed": fleet_samples.FLEET["gpu04"],
    "lost": fleet_samples.FLEET["gpu05"],
}
TASKS = {
    "nvidia": "building nvidia 580.95.05 for kernel 6.8.0-90-generic",
    "amd": "configuring docker.io",
    "neuron": "configuring docker.io",
    "gaudi": "rebooting",
}
# How many hosts of each kind. The last kind of a fleet of 200 hosts has each state.
SIZES = {
    1: {"failed": 1},
    3: {"nvidia": 1, "amd": 1, "lost": 1},
    200: {"nvidia": 80, "amd": 60, "neuron": 30, "gaudi": 20, "converged": 6, "failed": 3, "lost": 1},
}


def names(size: int) -> list[tuple[str, str]]:
    """Return the hosts of a fleet, each with its kind, as a name such as amd007."""
    return [(kind, f"{kind}{number:03}") for kind, count in SIZES[size].items() for number in range(count)]


PLAN = {
    1: ["Errors", "  failed000: The archive does not answer.", "", "1 host: 1 failed"],
    3: [
        "Interruptions",
        "  nvidia000: reboot: required: nouveau is bound to 0000:3b:00.0; only a reboot can unbind it",
        "",
        "nvidia_driver",
        "  nvidia000:",
        "    install nvidia-open",
        "",
        "amd_driver",
        "  amd000:",
        "    write /var/run/cdi/gpufleet-amd.json",
        "",
        "container_engine",
        "  nvidia000, amd000:",
        "    install docker.io",
        "",
        "Unreachable: lost000",
        "",
        "3 hosts: 2 change, 1 unreachable; 1 reboots",
    ],
    200: [
        "Interruptions",
        "  nvidia000, nvidia001, nvidia002, nvidia003, nvidia004 and 75 more: reboot: required: nouveau is bound to",
        "    0000:3b:00.0; only a reboot can unbind it",
        "",
        "nvidia_driver",
        "  nvidia000, nvidia001, nvidia002, nvidia003, nvidia004 and 75 more:",
        "    install nvidia-open",
        "",
        "amd_driver",
        "  amd000, amd001, amd002, amd003, amd004 and 55 more:",
        "    write /var/run/cdi/gpufleet-amd.json",
        "",
        "container_engine",
        "  nvidia000, nvidia001, nvidia002, nvidia003, nvidia004 and 185 more:",
        "    install docker.io",
        "",
        "neuron_driver",
        "  neuron000, neuron001, neuron002, neuron003, neuron004 and 25 more:",
        "    install aws-neuronx-dkms",
        "",
        "gaudi_driver",
        "  gaudi000, gaudi001, gaudi002, gaudi003, gaudi004 and 15 more:",
        "    install habanalabs-dkms",
        "",
        "Errors",
        "  failed000, failed001, failed002: The archive does not answer.",
        "",
        "Unreachable: lost000",
        "",
        "Converged: converged000, converged001, converged002, converged003, converged004 and 1 more",
        "",
        "200 hosts: 6 converged, 190 change, 3 failed, 1 unreachable; 80 reboot",
    ],
}


@pytest.mark.parametrize("size", SIZES)
def test_the_plan(size):
    results = {name: PLANS[kind] for kind, name in names(size)}
    assert [line.text for line in plan_text.render(plan_report.report(results))] == PLAN[size]


TABLE = {
    1: [
        "HOST       ACCELERATORS                          DRIVER  ENGINE  TOOLKIT  REBOOTED  VERDICT",
        "failed000  1 x NVIDIA Hopper, 1 x AWS Trainium2  -       -       -        no        critical",
        "",
        "Failed tasks",
        "  failed000: nvidia_driver : Install the packages",
        "",
        "1 host: 1 critical; 1 failed",
    ],
    3: [
        "HOST       ACCELERATORS               DRIVER          ENGINE         TOOLKIT  REBOOTED  VERDICT",
        "nvidia000  8 x NVIDIA H100 80GB HBM3  580.95.05       docker 28.5.1  1.18.0   yes       pass",
        "amd000     4 x AMD                    amdgpu 6.12.12  docker 28.5.1  -        no        pass",
        "lost000    ?                          ?               ?              ?        ?         unknown",
        "",
        "Unreachable: lost000",
        "",
        "3 hosts: 2 pass, 1 unknown; 1 rebooted, 1 unreachable",
    ],
    200: [
        "HOST                     ACCELERATORS                          DRIVER          ENGINE         TOOLKIT  "
        "REBOOTED  VERDICT",
        "nvidia000 and 79 more    8 x NVIDIA H100 80GB HBM3             580.95.05       docker 28.5.1  1.18.0   "
        "yes       pass",
        "amd000 and 59 more       4 x AMD                               amdgpu 6.12.12  docker 28.5.1  -        "
        "no        pass",
        "neuron000 and 29 more    16 x AWS Trainium2                    -               -              -        "
        "no        pass",
        "gaudi000 and 19 more     8 x Intel Gaudi3                      -               -              -        "
        "no        pass",
        "converged000 and 5 more  2 x NVIDIA Ampere                     580.95.05       podman 5.4.2   -        "
        "no        critical",
        "failed000 and 2 more     1 x NVIDIA Hopper, 1 x AWS Trainium2  -               -              -        "
        "no        critical",
        "lost000                  ?                                     ?               ?              ?        "
        "?         unknown",
        "",
        "Failed tasks",
        "  failed000, failed001, failed002: nvidia_driver : Install the packages",
        "",
        "Problems",
        "  converged000, converged001, converged002, converged003, converged004 and 1 more: GPU 0000:3b:00.0 is not in",
        "    persistence mode. Start nvidia-persistenced.",
        "",
        "Notes",
        "  converged000, converged001, converged002, converged003, converged004 and 1 more: A reboot is required:",
        "    kernel 6.1.0-49-amd64 is running, but kernel 6.1.0-56-amd64 boots next.",
        "",
        "Unreachable: lost000",
        "",
        "200 hosts: 190 pass, 9 critical, 1 unknown; 80 rebooted, 3 failed, 1 unreachable",
    ],
}


@pytest.mark.parametrize("size", SIZES)
def test_the_table_of_site_and_verify(size):
    results = {name: RESULTS[kind] for kind, name in names(size)}
    assert [line.text for line in end_of_run_text.render(end_of_run_verdicts.report(results))] == TABLE[size]


PROGRESS: dict[int, list[str]] = {
    # A failed or unreachable host does nothing.
    1: [],
    3: ["amd000: 1:02 configuring docker.io", "nvidia000: 1:01 building nvidia 580.95.05 for kernel 6.8.0-90-generic"],
    200: [
        "amd000, amd001, amd002, amd003, amd004 and 85 more: 3:50 configuring docker.io",
        "gaudi000, gaudi001, gaudi002, gaudi003, gaudi004 and 15 more: 4:10 rebooting",
        "nvidia000, nvidia001, nvidia002, nvidia003, nvidia004 and 75 more: 2:20 building nvidia 580.95.05 for kernel "
        "6.8.0-90-generic",
    ],
}


@pytest.mark.parametrize("size", SIZES)
def test_the_lines_of_a_long_task(size):
    working = [(kind, name) for kind, name in names(size) if kind in TASKS]
    found = [HostProgress(name, TASKS[kind], 61 + number) for number, (kind, name) in enumerate(working)]
    assert progress_text.lines(found) == PROGRESS[size]
