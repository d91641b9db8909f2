# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The driver of AWS Neuron: its repository, the versions that a host can use, and why. Pure functions.

Sources: aws-neuron-sdk (81ce03a), setup/pytorch/manual.rst and release-notes/components/runtime.rst.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers import installed_packages
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import role_repository
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import key_trust
from ansible_collections.gpufleet.hosts.plugins.module_utils.vendor_driver import shared_plan

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host
    from ansible_collections.gpufleet.hosts.plugins.module_utils.neuron_driver.variables import NeuronDriverRequest

ROLE = "neuron_driver"
DKMS, TOOLS, HOOK = "aws-neuronx-dkms", "aws-neuronx-tools", "aws-neuronx-oci-hook"
# The package of older guides. Both packages conflict with each other (aws-neuron-driver 2.24.7.0).
OLD_DKMS = "aws-neuron-dkms"
_BASES = {"apt": "https://apt.repos.neuron.amazonaws.com", "dnf": "https://yum.repos.neuron.amazonaws.com"}
_KEY_FILE = "GPG-PUB-KEY-AMAZON-AWS-NEURON.PUB"
# Computed from a copy of the key of neuron-maintainers@amazon.com, 2019-11-11.
KEY_FINGERPRINT = "00FA2C1079260870A76D2C285749CAD8646D9185"
_PATTERN = r"://(apt|yum)\.repos\.neuron\.amazonaws\.com"
_ARCH = "x86_64"
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


def address(host: Host, request: NeuronDriverRequest) -> str:
    """Return the URL of the repository."""
    return (request.mirror or _BASES.get(host["os"]["package_manager"] or "", "")).rstrip("/")


def has_other(host: Host) -> bool:
    """Return whether another file has the repository."""
    return bool(role_repository.others(host, owned.NEURON_REPOSITORY_ID, _PATTERN))


def problem(host: Host, request: NeuronDriverRequest, platform: Mapping[str, Any] | None) -> str | None:
    """Return why the role cannot use the repository on this host, or None."""
    ways_out = f"install the driver yourself and set {ROLE}_source=preinstalled, or set {ROLE}_source=none"
    manager = host["os"]["package_manager"]
    if host["os"]["arch"] != _ARCH:
        return f"AWS has no Neuron driver for {host['os']['arch']}. Set {ROLE}_source=none."
    if manager not in _BASES or (platform is None and not (manager == "apt" and request.suite)):
        more = f" set {ROLE}_suite to the suite of a similar release," if manager == "apt" else ""
        return f"AWS has no Neuron packages for {host['os']['name']}. To change that,{more} {ways_out}."
    if manager == "apt" and not (request.suite or (platform or {}).get("suite")) and not has_other(host):
        return (
            f"The suite of AWS's repository for {host['os']['name']} is not documented. Set {ROLE}_suite, for example "
            f"to {host['os']['codename']}, or {ways_out}."
        )
    return None


def define(host: Host, request: NeuronDriverRequest, platform: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the options of module package_transaction, or None if a file of another tool has the repository."""
    if has_other(host):
        return None
    is_apt = host["os"]["package_manager"] == "apt"
    url = address(host, request)
    return role_repository.definition(
        request,
        name=owned.NEURON_REPOSITORY_ID,
        description="AWS Neuron",
        url=url,
        suite=(request.suite or platform.get("suite")) if is_apt else None,
        components=["main"] if is_apt else None,
        key=request.key_url or f"{url}/{_KEY_FILE}",
        fingerprint=key_trust.normalized(request.key_fingerprint or KEY_FINGERPRINT),
    )


def replacement_problem(host: Host, present: str | None, chosen: str | None) -> str | None:
    """Return why the driver's package cannot be installed over what the host has, or None.

    `present`: its installed version. `chosen`: the version to install, None before the query.
    """
    if installed_packages.is_installed(host, OLD_DKMS):
        tool = "apt-get purge" if host["os"]["package_manager"] == "apt" else "dnf remove"
        return (
            f"Package {OLD_DKMS} is installed, which conflicts with {DKMS}. Stop the containers with chips, run "
            f"'{tool} {OLD_DKMS}', and run this role again. To keep that driver, set {ROLE}_source=preinstalled."
        )
    # A downgrade with dnf fails, so AWS removes the package first (awslabs/amazon-eks-ami, install-neuron-driver.sh).
    if host["os"]["package_manager"] == "dnf" and present and chosen and number(present) > number(chosen):
        return (
            f"{DKMS} {present} is installed, and {chosen} is older, which dnf cannot install over it. Stop the "
            f"containers with chips, run 'dnf remove {DKMS}', and run this role again. To keep {present}, set "
            f"{ROLE}_version={present}."
        )
    return None


def headers(host: Host) -> list[str]:
    """Return the missing packages of the headers that DKMS needs for the running and the next kernel."""
    missing = shared_plan.kernels_without_headers(host)
    if host["os"]["package_manager"] == "apt":
        return [f"linux-headers-{release}" for release in missing]
    return list(dict.fromkeys(f"{_devel(host, release)}={_without_arch(host, release)}" for release in missing))


def _devel(host: Host, release: str) -> str:
    """Return the package of the headers. Amazon Linux has one per series after the first (awslabs/amazon-eks-ami)."""
    series = ".".join(release.split(".")[:2])
    return f"kernel{series}-devel" if host["os"]["family"] == "amazon" and series != "6.1" else "kernel-devel"


def _without_arch(host: Host, release: str) -> str:
    return release.removesuffix(f".{host['os']['arch']}")
