# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The versions of AWS Neuron's driver that a host can use: by release, chips, kernel and installed driver.

Sources: aws-neuron-sdk (81ce03a), setup/pytorch/manual.rst and release-notes/components/runtime.rst.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host
    from ansible_collections.gpufleet.hosts.plugins.module_utils.neuron_driver.variables import NeuronDriverRequest

ROLE = "neuron_driver"
DKMS, TOOLS, HOOK = "aws-neuronx-dkms", "aws-neuronx-tools", "aws-neuronx-oci-hook"
# The package of older guides. Both packages conflict with each other (aws-neuron-driver 2.24.7.0).
OLD_DKMS = "aws-neuron-dkms"
INFERENTIA = "Inferentia"
_LAST_OF_INFERENTIA = (2, 24)
_FIRST_OF_GENERATIONS = {"Trainium2": (2, 22)}


def number(version: str | None) -> tuple[int, ...]:
    """Return the numbers of a version, without epoch and build."""
    text = (version or "").rpartition(":")[2].partition("-")[0]
    return tuple(int(part) for part in text.split(".") if part.isdecimal())


def pins(request: NeuronDriverRequest, releases: Mapping[str, Any], generations: Sequence[str]) -> dict[str, str]:
    """Return the requested versions by package. Raise ValueError with the text of the problem."""
    if request.version:
        return {DKMS: request.version}
    known = releases["versions"]
    if request.release and request.release not in known:
        raise ValueError(
            f"{ROLE}_release is {request.release}, which is not known here. Known releases: {', '.join(known)}. For "
            f"another one, set {ROLE}_version to the version of its driver."
        )
    if INFERENTIA in generations and not request.release:
        return dict(releases["inf1"])
    return dict(known[request.release or releases["default"]])


def obstacle(version: str, request: NeuronDriverRequest, generations: Sequence[str]) -> str | None:
    """Return why a version cannot be used, as the end of a sentence that begins with the version, or None."""
    found = number(version)
    if INFERENTIA in generations:
        if found[:2] > _LAST_OF_INFERENTIA:
            return "does not support Inferentia (Inf1). The last driver for it is 2.24"
        return None
    for generation, first in _FIRST_OF_GENERATIONS.items():
        if generation in generations and found[:2] < first:
            return f"does not support {generation}, which needs {'.'.join(map(str, first))} or later"
    if found < number(request.minimum_version):
        return (
            f"is older than {ROLE}_minimum_version={request.minimum_version}. Drivers before 2.28 have known security "
            "holes"
        )
    return None


def kernel_note(host: Host, data: Mapping[str, Any], release: str) -> str | None:
    """Return that the running kernel is none of those that AWS tested the driver with, or None."""
    tested = (data.get("kernels") or {}).get(release)
    running = host["kernel"]["running"] or ""
    if not tested or ".".join(running.split(".")[:2]) in tested:
        return None
    return (
        f"kernel {running} is not among the kernels that AWS tested SDK {release} with on {host['os']['name']}: "
        f"{', '.join(tested)}"
    )
