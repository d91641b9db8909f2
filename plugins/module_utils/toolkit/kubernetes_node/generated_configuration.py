# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which runtimes are registered in the configuration that a distribution generates for containerd. Pure functions."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import toml_reader
from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes import distribution_paths
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import registered_runtimes
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri import engine_file_parsing, gone_program
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.docker_runtime import NAME, PATH

if t.TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host
    from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes.node_distribution import KubernetesNode


HEADER = "# Written by role gpufleet.hosts.gpu_kubernetes_node. Changes in this file are lost.\n"


def registered(host: Host, node: KubernetesNode, *, has_runtime: bool) -> str | None:
    """Return the program of the runtime in the configuration that the distribution generated, if the program exists."""
    path = distribution_paths.GENERATED[node.distribution]
    program = registered_program(engine_file_parsing.parsed(path, host["cri_files"]["nodes"].get(path)), NAME)
    if program == PATH:
        return program if has_runtime else None
    return None if gone_program.is_missing(program, registered_runtimes.programs(host)) else program


def registered_program(tree: t.Mapping[str, t.Any], runtime: str) -> str | None:
    """Return the program of a runtime in a generated configuration, or None if it is not registered."""
    for table in _tables(tree):
        found = toml_reader.get(table, "runtimes", runtime)
        if isinstance(found, dict):
            return str(toml_reader.get(found, "options", "BinaryName") or runtime)
    return None


def default_name(tree: t.Mapping[str, t.Any]) -> str | None:
    """Return the name of the default runtime in a generated configuration."""
    return next(
        (str(table["default_runtime_name"]) for table in _tables(tree) if "default_runtime_name" in table), None
    )


def _tables(tree: t.Mapping[str, t.Any]) -> list[t.Mapping[str, t.Any]]:
    """Return the tables of containerd's CRI plugin that have runtimes."""
    plugins = tree.get("plugins")
    found = [toml_reader.get(table, "containerd") for table in (plugins.values() if isinstance(plugins, dict) else ())]
    return [table for table in found if isinstance(table, dict)]
