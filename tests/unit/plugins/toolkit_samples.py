# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts and requests for the tests of role cuda_toolkit."""

from __future__ import annotations

import dataclasses
import json
import typing as t
from pathlib import Path

import yaml

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import url_logins
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.variable_fields import VariableError, plain
from ansible_collections.gpufleet.hosts.plugins.module_utils.cuda import plan as cuda_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.cuda import variables as cuda_request
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import (
    nvidia_repository,
    record_of_role,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages.role_packages import RoleTransaction
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import key_trust
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import host

VARS = yaml.safe_load((Path(__file__).resolve().parents[3] / "roles/cuda_toolkit/vars/platforms.yml").read_text())
PLATFORMS = VARS["__cuda_toolkit_platforms"]
DISTRIBUTIONS, BRANCHES = PLATFORMS["distributions"], PLATFORMS["branches"]
URL = "https://developer.download.nvidia.com/compute/cuda/repos"
KEY = "EB693B3035CD5710E231E123A4B469963BF863CC"


def resolve(seen: dict[str, t.Any], **request: t.Any) -> dict[str, t.Any]:
    """Return the plan for a host, with the role's data."""
    try:
        wanted = cuda_request.read(request)
    except VariableError as error:
        return plain(cuda_plan.CudaPlan(problems=[str(error)]))
    for path in cuda_plan.files(wanted):
        seen["files"].setdefault(path, {"exists": False, "content": None})
    return plain(cuda_plan.plan(seen, wanted, DISTRIBUTIONS, BRANCHES))


def nvidia(seen: dict[str, t.Any], *versions: str, **more: t.Any) -> dict[str, t.Any]:
    """Return the plan for toolkits from NVIDIA's repository."""
    return resolve(seen, source="nvidia", versions=list(versions), **more)


def bare(key: str = "debian-12", **changes: t.Any) -> dict[str, t.Any]:
    """Return a complete observation of a host without a toolkit."""
    there = host(key, **changes)
    for version in ("11.8", "12.6", "13.0"):
        there["files"].setdefault(f"/usr/local/cuda-{version}/bin/nvcc", {"exists": False, "content": None})
    return there


def add(seen: dict[str, t.Any], path: str, content: t.Any) -> dict[str, t.Any]:
    """Add a file to a host."""
    text = content if isinstance(content, str) else json.dumps(content)
    seen["files"][path] = {"exists": True, "content": text}
    return seen


def work(plan: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return the options of module package_transaction. They are empty if it has nothing to do."""
    return plan["transaction"] or dataclasses.asdict(RoleTransaction())


def repository(key: str = "debian-12", **request: t.Any) -> dict[str, t.Any]:
    """Return NVIDIA's repository as the role requests it."""
    data = nvidia_repository.of_platform(key)["nvidia"]
    settings = vars(cuda_request.read({"source": "nvidia", **request}))
    return nvidia_repository.describe(data["repository"], {"arch": data["arches"]["x86_64"]}, settings)


def converged(key: str, *versions: str, **request: t.Any) -> dict[str, t.Any]:
    """Return a host after all changes of the plan."""
    wanted = nvidia(bare(key), *versions, **request)
    there = bare(key, packages={cuda_plan.package_of(version): f"{version}.1-1" for version in versions})
    for file in [*wanted["transaction"]["files"], *([wanted["profile"]] if wanted["profile"] else [])]:
        add(there, file["path"], file["content"])
    configure(there, repository(key, **request))
    return there


def configure(seen: dict[str, t.Any], wanted: dict[str, t.Any]) -> None:
    """Add a repository to a host like module package_transaction."""
    entry = nvidia_repository.entry(wanted)
    files = nvidia_repository.access_files(seen, wanted, record_of_role.TOOLKIT)
    for path, content in {**files, entry["path"]: entry["content"]}.items():
        if content is not None:
            add(seen, path, content)
    name(seen, wanted)
    trust(seen, wanted)


def trust(seen: dict[str, t.Any], wanted: dict[str, t.Any]) -> None:
    """Add the trusted key of a repository to a host."""
    trusted = wanted["fingerprint"]
    key = {"fingerprints": [trusted if not key_trust.is_digest(trusted) else KEY], "digests": [trusted]}
    seen["keyrings"][nvidia_repository.keyring(wanted)] = key


def name(seen: dict[str, t.Any], wanted: dict[str, t.Any], file: str | None = None, signed: bool = True) -> None:
    """Add a repository to the package manager of a host."""
    kind = wanted["type"]
    folder = {"apt": "/etc/apt/sources.list.d", "dnf": "/etc/yum.repos.d", "zypper": "/etc/zypp/repos.d"}[kind]
    # The observation contains no logins.
    url = url_logins.plain(wanted["url"])
    path = file or f"{folder}/gpufleet-nvidia-cuda.{'sources' if kind == 'apt' else 'repo'}"
    if kind == "apt":
        entry = {"uris": [url], "enabled": True, "file": path, "signed_by": "/k.gpg" if signed else None}
        seen["apt"]["sources"].append(entry)
    else:
        seen["repositories"].append({"id": "x", "file": path, "url": url, "enabled": True})
