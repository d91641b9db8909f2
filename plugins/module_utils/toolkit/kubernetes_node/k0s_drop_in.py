# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the drop-in that registers NVIDIA's runtime in k0s, or leave k0s as it is. Pure functions."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.disruptions import ENGINE_RESTART, Disruption
from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes import distribution_paths
from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes.runtime_placement import RuntimePlacement
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts import steps
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import toml_editor
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri import engine_file_parsing
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri.cri_changes import CriChange, CriFile, CriPlan
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.docker_runtime import NAME, PATH
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.kubernetes_node.generated_configuration import (
    HEADER,
    default_name,
    registered_program,
)

if t.TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host
    from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes.node_distribution import KubernetesNode


_TABLES = {2: "io.containerd.grpc.v1.cri", 3: "io.containerd.cri.v1.runtime"}


def plan(
    result: CriPlan,
    host: Host,
    node: KubernetesNode,
    place: RuntimePlacement,
    is_ready: bool,
    *,
    default_runtime: bool,
) -> None:
    """Plan k0s, which watches its directory of drop-ins, so it needs no restart."""
    texts = host["cri_files"]["nodes"]
    root, mine = texts.get(distribution_paths.K0S_ROOT), texts.get(distribution_paths.K0S_DROP_IN)
    if root is None:
        result.reasons.append(
            f"k0s has not started, so the version of {distribution_paths.K0S_ROOT} is unknown. "
            "Start k0s, and run the role again"
        )
        return
    if root.splitlines()[:1] != [distribution_paths.K0S_MANAGED]:
        result.reasons.append(
            f"{distribution_paths.K0S_ROOT} does not begin with {distribution_paths.K0S_MANAGED}, so k0s ignores "
            f"drop-ins, and the file stays unchanged. Register runtime {NAME} in it, or remove it and restart k0s"
        )
        return
    generated = engine_file_parsing.parsed(
        distribution_paths.GENERATED[distribution_paths.K0S],
        texts.get(distribution_paths.GENERATED[distribution_paths.K0S]),
    )
    if is_ready and mine is None and (not default_runtime or default_name(generated) == NAME):
        known = registered_program(generated, NAME)
        result.reasons.append(f"runtime {NAME} is already registered in k0s as {known}")
        return
    number = engine_file_parsing.parsed(distribution_paths.K0S_ROOT, root).get("version", 2)
    if number not in _TABLES:
        result.problems.append(
            f"{distribution_paths.K0S_ROOT} has version {number}, which is not known. Known versions: 2, 3."
        )
        return
    options = (
        toml_editor.get(generated, ("plugins", _TABLES[number], "containerd", "runtimes", "runc", "options")) or {}
    )
    runtime = {"runtime_type": "io.containerd.runc.v2", "options": {**options, "BinaryName": PATH}}
    table = {"runtimes": {NAME: runtime}, **({"default_runtime_name": NAME} if default_runtime else {})}
    text = HEADER + toml_editor.document({"version": number, "plugins": {_TABLES[number]: {"containerd": table}}})
    if text != mine:
        result.engines.append(CriChange("", [CriFile(distribution_paths.K0S_DROP_IN, text, mine)]))
        result.steps.append(steps.written(distribution_paths.K0S_DROP_IN, text))
        reason = f"{node.title} restarts it when a drop-in changes; running containers stay"
        result.disruptions.append(Disruption(ENGINE_RESTART, reason, target=place.restarts_itself or ""))
