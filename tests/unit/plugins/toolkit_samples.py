# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts and requests for the tests of role cuda_toolkit."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import yaml

from ansible_collections.gpufleet.hosts.plugins.filter import cuda_internal
from ansible_collections.gpufleet.hosts.plugins.module_utils.base import addresses
from ansible_collections.gpufleet.hosts.plugins.module_utils.cuda import plan as cuda_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import key_trust, nvidia_repository
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import host

VARS = yaml.safe_load((Path(__file__).resolve().parents[3] / "roles/cuda_toolkit/vars/main.yml").read_text())
DISTRIBUTIONS = VARS["__cuda_toolkit_distributions"]
BRANCHES = VARS["__cuda_toolkit_branches"]
URL = "https://developer.download.nvidia.com/compute/cuda/repos"
KEY = "EB693B3035CD5710E231E123A4B469963BF863CC"


def resolve(seen: dict[str, t.Any], offered: dict[str, list[str]] | None = None, **request: t.Any) -> dict[str, t.Any]:
    """Return the plan for a host, with the roles' data."""
    return cuda_internal.plan(seen, request, DISTRIBUTIONS, BRANCHES, offered=offered)


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


def converged(key: str, *versions: str, **request: t.Any) -> dict[str, t.Any]:
    """Return a host after all changes of the plan."""
    wanted = nvidia(bare(key), *versions, **request)
    there = bare(key, packages={cuda_plan.package_of(version): f"{version}.1-1" for version in versions})
    for file in [*wanted["files"], *([wanted["profile"]] if wanted["profile"] else [])]:
        add(there, file["path"], file["content"])
    name(there, wanted["repository"])
    trust(there, wanted["repository"])
    return there


def trust(seen: dict[str, t.Any], repository: dict[str, t.Any]) -> None:
    """Add the trusted key of a repository to a host."""
    trusted = repository["fingerprint"]
    key = {"fingerprints": [trusted if not key_trust.is_digest(trusted) else KEY], "digests": [trusted]}
    seen["keyrings"][nvidia_repository.keyring(repository)] = key


def name(seen: dict[str, t.Any], repository: dict[str, t.Any], file: str | None = None, signed: bool = True) -> None:
    """Add a repository to the package manager of a host."""
    kind = repository["type"]
    folder = {"apt": "/etc/apt/sources.list.d", "dnf": "/etc/yum.repos.d", "zypper": "/etc/zypp/repos.d"}[kind]
    # The observation contains no logins.
    url = addresses.plain(repository["url"])
    path = file or f"{folder}/gpufleet-nvidia-cuda.{'sources' if kind == 'apt' else 'repo'}"
    if kind == "apt":
        entry = {"uris": [url], "enabled": True, "file": path, "signed_by": "/k.gpg" if signed else None}
        seen["apt"]["sources"].append(entry)
    else:
        seen["repositories"].append({"id": "x", "file": path, "url": url, "enabled": True})
