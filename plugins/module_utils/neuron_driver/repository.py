# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""AWS's package repository of the Neuron driver: its definition for a host. Pure functions.

Source: aws-neuron-sdk (81ce03a), setup/pytorch/manual.rst.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.neuron_driver.supported_versions import ROLE
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import (
    repositories_of_others,
    role_repository,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import key_trust

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host
    from ansible_collections.gpufleet.hosts.plugins.module_utils.neuron_driver.variables import NeuronDriverRequest

_BASES = {"apt": "https://apt.repos.neuron.amazonaws.com", "dnf": "https://yum.repos.neuron.amazonaws.com"}
_KEY_FILE = "GPG-PUB-KEY-AMAZON-AWS-NEURON.PUB"
# Computed from a copy of the key of neuron-maintainers@amazon.com, 2019-11-11.
KEY_FINGERPRINT = "00FA2C1079260870A76D2C285749CAD8646D9185"
_PATTERN = r"://(apt|yum)\.repos\.neuron\.amazonaws\.com"
_ARCH = "x86_64"


def address(host: Host, request: NeuronDriverRequest) -> str:
    """Return the URL of the repository."""
    return (request.mirror or _BASES.get(host["os"]["package_manager"] or "", "")).rstrip("/")


def has_other(host: Host) -> bool:
    """Return whether another file has the repository."""
    return bool(repositories_of_others.others(host, owned.NEURON_REPOSITORY_ID, _PATTERN))


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
