# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who else writes containerd's configuration, which then stays unchanged: k3s, nodeadm, Kubespray. Pure functions."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes import distribution_paths
from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes.distribution_paths import NODEADM_FILES
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import toml_editor
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri import engine_file_parsing
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri.containerd_versions import ROOT_FILE, TABLES
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri.cri_changes import CONTAINERD
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri.vendor_runtimes import NVIDIA, CriRuntime
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.toml_editor import TomlError

if t.TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host

# Files whose owners write them again: k3s and RKE2 have their own; nodeadm (awslabs/amazon-eks-ami, nodeadm/internal/
# containerd, 81fec2e) and Kubespray (roles/container-engine/containerd, 46dbdd3) name this specification of runtimes.
_OWN_FILES = {
    "k3s": "/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
    "RKE2": "/var/lib/rancher/rke2/agent/etc/containerd/config.toml",
}
_NODEADM = "nodeadm"
_SPECIFICATIONS = {
    "/etc/containerd/base-runtime-spec.json": _NODEADM,
    "/etc/containerd/cri-base.json": "Kubespray",
}


def owner(root_text: str | None, existing: t.Collection[str] = ()) -> str | None:
    """Return who else writes containerd's configuration, or None. `existing` names files of the host."""
    found = next((name for name, path in _OWN_FILES.items() if path in existing), None)
    # Before the first boot of an EKS node, nodeadm has not written the file yet.
    found = found or next((_NODEADM for path in NODEADM_FILES if path in existing), None)
    if found or not root_text:
        return found
    root = engine_file_parsing.parsed(ROOT_FILE, root_text)
    tables = (toml_editor.get(root, ("plugins", table, "containerd", "runtimes")) or {} for table in TABLES.values())
    runtimes = [runtime for table in tables for runtime in table.values()]
    specs = (runtime.get("base_runtime_spec") for runtime in runtimes if isinstance(runtime, dict))
    return next((_SPECIFICATIONS[spec] for spec in specs if spec in _SPECIFICATIONS), None)


def way_out(other: str, runtime: CriRuntime = NVIDIA) -> str:
    """Return what registers the runtime where somebody else writes containerd's configuration."""
    if other in _OWN_FILES and runtime == NVIDIA:
        return f"Role gpu_kubernetes_node registers runtime {runtime.name} in {other}"
    return f"Register runtime {runtime.name} with {other}"


def has_unpackaged_containerd(host: Host) -> bool:
    """Return whether somebody has installed containerd without a package, as Kubespray does."""
    service = host["services"].get(CONTAINERD) or {}
    return not host["engines"]["containerd"]["package"] and service.get("load_state") == "loaded"


def existing_files(host: Host) -> list[str]:
    """Return the files of other owners, without those that an uninstalled k3s or RKE2 has left behind."""
    left = [
        distribution_paths.GENERATED[name]
        for name in (distribution_paths.K3S, distribution_paths.RKE2)
        if all(
            (host["services"].get(unit) or {}).get("load_state") == "not-found"
            for unit in distribution_paths.OWN_UNITS[name]
        )
    ]
    return [path for path in host["cri_files"]["others"] if path not in left]


def without_package(host: Host, runtime: CriRuntime) -> str:
    """Say who has to register the runtime. Without a package, the version is unknown, and so is what it merges."""
    seen = host["cri_files"]
    try:
        other = owner(seen["containerd"].get(ROOT_FILE), existing_files(host))
    except TomlError:
        other = None
    if other:
        return f"{other} writes containerd's configuration, so it stays unchanged. {way_out(other, runtime)}"
    return (
        "containerd is installed without a package, so its configuration stays unchanged. Register runtime "
        f"{runtime.name} with the tool that installed it"
    )
