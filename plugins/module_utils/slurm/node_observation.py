# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read a GPU node of Slurm: its files, its devices, slurmd, and the view of the controller."""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import (
    owned,
    pinned_environment,
    untrusted_text,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import exists, read_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.program_runner import Run
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import nvidia_device_nodes
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import INTEL
from ansible_collections.gpufleet.hosts.plugins.module_utils.slurm import node_files_plan, node_findings
from ansible_collections.gpufleet.hosts.plugins.module_utils.slurm.node_drain_and_resume import (
    SlurmClient,
    SlurmError,
    SlurmNode,
)

UNIT = "slurmd.service"
# Where slurmd keeps the files that it gets from the controller: slurm.conf(5), "configless".
_CONFIGLESS = ("run/slurm/conf/slurm.conf", "var/spool/slurmd/conf-cache/slurm.conf")
# Where distributions and Slurm's own build install plugins.
_PLUGINS = (
    *("usr/lib/*/slurm-wlm/gpu_*.so", "usr/lib/*/slurm/gpu_*.so", "usr/lib64/slurm/gpu_*.so"),
    *("usr/lib/slurm/gpu_*.so", "usr/local/lib/slurm/gpu_*.so", "opt/slurm/lib/slurm/gpu_*.so"),
)
_NOT_DETECTING = ("generic",)
# Seconds to wait for the controller.
_TIMEOUT = 10


def with_nodes(devices: Sequence[Mapping[str, Any]], root: str = "/") -> list[dict[str, Any]]:
    """Return the devices with the device nodes of those that were only read on the PCI bus."""
    found = []
    for device in devices:
        nodes = device["nodes"]
        if nodes is None and device["vendor"] == INTEL:
            nodes = [
                {"path": path, "role": "render" if "renderD" in path else "card", "gid": None}
                for path in nvidia_device_nodes.drm_nodes(device["pci_address"], root)
            ]
        found.append({**device, "nodes": nodes})
    return found


def observe(
    run: Run,
    devices: Sequence[Mapping[str, Any]],
    *,
    node: str,
    directory: str,
    programs: str | None = None,
    root: str = "/",
) -> node_files_plan.SlurmHost:
    """Read Slurm's files, slurmd, and the node in the controller's view."""
    unit = _unit(run)
    texts = {
        name: read_text(root, f"{directory}/{name}", newline="")
        for name in (node_files_plan.GRES, node_files_plan.CGROUP, node_findings.SLURM)
    }
    slurmd = os.path.join(programs.replace("/bin", "/sbin"), "slurmd") if programs else "slurmd"
    status, out, _err = run(["timeout", "--kill-after=2", "10", slurmd, "-C"])
    hardware = next((line for line in out.splitlines() if line.startswith("NodeName=")), "") if status == 0 else ""
    installed = status == 0 or pinned_environment.find(slurmd) is not None
    active = unit.get("ActiveState") in ("active", "activating", "reloading")
    client = SlurmClient(run, node, programs, _TIMEOUT)
    known, unanswered = None, None
    if active or (installed and texts[node_findings.SLURM] is not None):
        try:
            known = client.node()
        except SlurmError as error:
            # Other messages can also say that something was not found, for example the host of the controller.
            if f"Node {node} not found" not in str(error):
                unanswered = str(error)
    return node_files_plan.SlurmHost(
        name=node,
        directory=directory,
        texts=texts,
        devices=with_nodes(devices, root),
        drop_in=read_text(root, owned.SLURMD_DROP_IN),
        detects=plugins(root),
        installed=installed,
        active=active,
        invocation=unit.get("InvocationID", ""),
        marker=(read_text(root, owned.SLURMD_RESTART_MARKER) or "").strip() or None,
        needs_reload=unit.get("NeedDaemonReload") == "yes",
        configless=texts[node_findings.SLURM] is None and any(exists(root, path) for path in _CONFIGLESS),
        node=known,
        unanswered=unanswered,
        hardware=_renamed(hardware, node),
        has_directory=exists(root, directory),
        lacks_client=f"{programs}/scontrol" if programs and not exists(root, f"{programs}/scontrol") else "",
    )


def plugins(root: str = "/") -> tuple[str, ...]:
    """Return the installed plugins that detect GPUs: gpu_nvml.so → nvml."""
    names = {
        os.path.basename(path)[len("gpu_") : -len(".so")]
        for pattern in _PLUGINS
        for path in glob.glob(os.path.join(glob.escape(root), pattern))
    }
    return tuple(sorted(names - set(_NOT_DETECTING)))


def _renamed(hardware: str, node: str) -> str:
    """Return the line of `slurmd -C` for the name of the node. Some releases print the detected GPUs, too."""
    options = [option for option in hardware.split()[1:] if not option.startswith(("Gres=", "Found=", "UpTime="))]
    return " ".join([f"NodeName={node}", *options]) if hardware else ""


def _unit(run: Run) -> dict[str, str]:
    properties = "--property=ActiveState,InvocationID,NeedDaemonReload,LoadState"
    status, out, _err = run(["systemctl", "show", properties, UNIT])
    return dict(line.split("=", 1) for line in out.splitlines() if "=" in line) if status == 0 else {}


def described(node: SlurmNode | None) -> dict[str, Any] | None:
    """Return the node for the result of a module."""
    if node is None:
        return None
    return {
        "states": sorted(node.states),
        "reason": untrusted_text.shown(node.reason) if node.reason else None,
        "gres": node.gres or None,
    }
