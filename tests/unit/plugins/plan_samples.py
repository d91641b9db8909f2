# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plans of a small fleet."""

from __future__ import annotations

REBOOT = {"kind": "reboot", "reason": "nouveau is bound to 0000:3b:00.0; only a reboot can unbind it"}
RESTART = {
    "kind": "engine_restart",
    "reason": "the runtime nvidia is added",
    "target": "docker.service",
    "count": 1,
    "names": ("web",),
}


def part(name: str, *changes: str, reasons: tuple[str, ...] = (), disruptions: tuple[dict, ...] = ()) -> dict:
    return {"part": name, "changes": list(changes), "reasons": list(reasons), "disruptions": list(disruptions)}


_DRIVER = part("nvidia_driver", "install nvidia-driver-cuda, nvidia-open", disruptions=(REBOOT,))
_DOCKER = part(
    "container_engine",
    "install docker.io",
    "start docker.service",
    reasons=("docker is missing",),
    disruptions=(RESTART,),
)
_TOOLKIT = part("nvidia_container_toolkit", "install nvidia-container-toolkit")
# Results of module gpu_host_plan: a host in each state.
FLEET = {
    "gpu01": {"changes": [part("nvidia_driver", reasons=("already installed",))]},
    "gpu02": {"changes": [_DRIVER]},
    "gpu03": {"changes": [_DRIVER, _DOCKER], "notes": ["cloud-init is running."]},
    "gpu04": {"failed": True, "errors": ["The archive does not answer."], "changes": [_TOOLKIT]},
    "gpu05": None,
}
