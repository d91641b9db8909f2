# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""AutoDetect of gres.conf: the line of a node, what a plugin detects or lacks, and what contradicts it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import AMD, INTEL, NVIDIA

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.slurm.configuration_files import SlurmLine
    from ansible_collections.gpufleet.hosts.plugins.module_utils.slurm.gres_lines import SlurmGres

# The vendors of the plugins that detect GPUs. Newer releases have more, which the user can name.
DETECTED = {"nvml": (NVIDIA,), "rsmi": (AMD,), "oneapi": (INTEL,), "nvidia": (NVIDIA,)}


def line(node: str, plugin: str) -> str:
    """Return the line with which slurmd detects the GPUs of a node."""
    return f"NodeName={node} AutoDetect={plugin}"


def missing_plugin(plugin: str, installed: Sequence[str]) -> str | None:
    """Return what to install if the plugin that the user has named is missing."""
    if plugin in installed:
        return None
    return (
        f"slurmd cannot detect GPUs with {plugin}: the plugin gpu_{plugin}.so is not installed. "
        f"Installed plugins: {', '.join(installed) or 'none'}. Install the plugin of the same release as slurmd, or "
        "use off."
    )


def effective(lines: Sequence[SlurmLine]) -> str:
    """Return the value of AutoDetect for a node. A line for the node overrides one for all nodes."""
    found = [one for one in lines if "autodetect" in one.options]
    found.sort(key=lambda one: "nodename" not in one.options)
    return found[0].options["autodetect"].lower() if found else "off"


def contradiction(others: Iterable[SlurmLine], node: str, path: str) -> str | None:
    """Return what to correct if a line of somebody else in gres.conf turns AutoDetect on for just this node."""
    for other in others:
        plugin = other.options.get("autodetect", "").lower()
        if "nodename" in other.options and plugin not in ("", "off"):
            return (
                f"{path} sets AutoDetect={plugin} for node {node} (line {other.number}), so Slurm would detect the "
                "devices in addition to the lines of this role. Remove this line, or do not use this role for the node."
            )
    return None


def other_vendors(plugin: str, selected: Iterable[SlurmGres]) -> str:
    """Return why a plugin does not fit: it does not detect all devices of the host."""
    vendors = DETECTED.get(plugin)
    others = sorted({one.vendor for one in selected} - set(vendors)) if vendors else []
    if not others:
        return ""
    return (
        f"gpu_slurm_node_detect={plugin} detects only devices of {', '.join(vendors or ())}, but this host also has "
        f"devices of {', '.join(others)}. Set gpu_slurm_node_detect to off."
    )
