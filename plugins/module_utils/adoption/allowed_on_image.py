# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What playbook dlami may change on a prepared image.

Pure functions of the observation of a host.
"""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import nvidia_group
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import prepared_image

if t.TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host

DLAMI = "dlami"
# What acts on an image for AWS Neuron. Role neuron_driver only adopts the driver: see playbook dlami.
_ON_NEURON = ("container_engine", "neuron_driver")
# Images that their owner updates and configures. Another program would work against the owner.
_OWNERS = {
    "eks": "the image for Amazon EKS: nodeadm chooses the runtime and writes /etc/containerd/config.toml at each boot",
    "ecs": "the image for Amazon ECS: Amazon's packages configure Docker and its GPU runtime for the ECS agent",
    "azure_hpc": "an Azure HPC image: its scripts installed the driver, the fabric manager and the toolkit together",
}
# How users call the images that playbook dlami does not adopt.
_OTHERS = {"dgx": "NVIDIA DGX OS", "gcp_deeplearning": "a Google Cloud Deep Learning VM image"}


class Adoption(t.NamedTuple):
    """What the playbook may do on a host."""

    kind: str
    # The parts of the plan that may act.
    parts: list[str]
    # Why parts are left alone, and the parts that may act nevertheless.
    reason: str
    exceptions: tuple[str, ...] = ()


class NotAdoptable(Exception):
    """The playbook must not run on this host. The message is for the user."""


def adopt(host: Host, parts: t.Sequence[str], requested: str) -> Adoption:
    """Return which of the parts may act on the image. `requested`: the user's name of the image, or empty text.

    Raise NotAdoptable for a host without an image that the playbook knows.
    """
    image = host["image"]
    if requested and requested not in prepared_image.KINDS:
        raise NotAdoptable(
            f"dlami_image is {requested!r}, which is not a known image. Use one of "
            f"{', '.join(prepared_image.KINDS)}, or remove the variable to detect the image."
        )
    kind = requested or image["kind"]
    if kind in _OWNERS:
        return Adoption(kind, [], f"this host runs {_OWNERS[kind]}")
    if kind != DLAMI:
        found = f"runs {_OTHERS[kind]}" if kind in _OTHERS else "has none of its files, such as /opt/dlami"
        raise NotAdoptable(
            f"This host does not run an AWS Deep Learning AMI: it {found}. Nothing was changed. Use playbook "
            "gpufleet.hosts.site for this host. If it does run a Deep Learning AMI, set dlami_image to dlami."
        )
    neuron = neuron_accelerators(host)
    if neuron and not nvidia_group(host)["gpus"]:
        reason = f"this host has {neuron} and no NVIDIA GPU"
        return Adoption(kind, [part for part in parts if part in _ON_NEURON], reason, _ON_NEURON)
    return Adoption(kind, list(parts), "")


def boot_problem(host: Host, timeout: int, variable: str = "dlami_cloud_init_timeout") -> str | None:
    """Return why the host cannot be changed yet: cloud-init runs for longer than the time limit in the variable."""
    if host["image"]["cloud_init"]["state"] != "running":
        return None
    return (
        f"cloud-init has not finished after {timeout} seconds. Nothing was changed. See what it waits for with "
        f"'cloud-init status --long' on the host. Then run the playbook again, or raise {variable}."
    )


def boot_notes(host: Host) -> list[str]:
    """Say that cloud-init can still change the host, for a plan that does not wait."""
    if host["image"]["cloud_init"]["state"] != "running":
        return []
    return [
        "cloud-init has not finished and can still change this host. Before they plan, playbooks site and dlami wait "
        "for it, for up to site_cloud_init_timeout or dlami_cloud_init_timeout seconds."
    ]


def neuron_accelerators(host: Host) -> str:
    """Name the AWS Neuron accelerators of a host: '16 x Trainium'. Empty text if it has none."""
    kinds = [
        item["generation"] or "AWS Neuron" for item in (host["accelerators"]["neuron"] or {"devices": ()})["devices"]
    ]
    return ", ".join(f"{kinds.count(kind)} x {kind}" for kind in dict.fromkeys(kinds))
