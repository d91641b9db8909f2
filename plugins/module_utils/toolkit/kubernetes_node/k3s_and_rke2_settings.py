# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan NVIDIA's runtime in k3s and RKE2, which find it when they start, and their default runtime. Pure functions."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes import distribution_paths
from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes.runtime_placement import RuntimePlacement
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts import steps
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri import engine_file_parsing
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri.cri_changes import CriChange, CriFile, CriPlan
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.docker_runtime import NAME
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.kubernetes_node import (
    restart_policy as restart_policies,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.kubernetes_node.generated_configuration import (
    HEADER,
    default_name,
)

if t.TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host
    from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes.node_distribution import KubernetesNode


# A template of the user replaces what k3s or RKE2 finds, unless it extends the base, lists the found runtimes as a copy
# of an older base does, or has the runtime itself.
_BASE = '{{ template "base" . }}'
_FINDS = re.compile(
    r"""\{\{-?\s*template\s+"base"\s+\.\s*-?\}\}|\.ExtraRuntimes\b|containerd\.runtimes\.["']?"""
    + NAME
    + r"""["']?\]"""
)


def plan(
    result: CriPlan,
    host: Host,
    node: KubernetesNode,
    place: RuntimePlacement,
    is_ready: bool,
    *,
    default_runtime: bool,
    restart_policy: str,
) -> None:
    """Plan k3s and RKE2: they find the runtime when they start, and a setting makes it the default."""
    texts = host["cri_files"]["nodes"]
    path, mine = str(place.path), texts.get(str(place.path))
    wanted = f"{HEADER}default-runtime: {NAME}\n" if default_runtime else None
    generated = texts.get(distribution_paths.GENERATED[node.distribution])
    tree = engine_file_parsing.parsed(distribution_paths.GENERATED[node.distribution], generated)
    is_default = default_name(tree) == NAME
    if wanted and mine is None and is_default:
        result.reasons.append(f"runtime {NAME} is already the default runtime of {node.title}")
        wanted = None
    files = [CriFile(path, wanted, mine)] if wanted != mine else []
    obstacle = None if is_ready else _obstacle(texts, node, tree, is_generated=generated is not None)
    result.reasons += [obstacle] if obstacle else []
    is_pending = False
    if is_ready and mine is not None and not files and not is_default and node.is_running:
        is_pending = path not in (host["cri_files"].get("ignored") or [])
        result.reasons.append(
            f"{node.unit} has not applied {path}"
            + ("" if is_pending else ", although it has started since. Search its other settings and its template")
        )
    if not files and not is_pending and (is_ready or obstacle or generated is None):
        return
    change = CriChange(node.unit, files)
    result.steps += [steps.written(file.path, file.content) for file in files]
    if node.is_running:
        restart_policies.restart(result, change, node, place, restart_policy)
    if change.files or change.action:
        result.engines.append(change)


def _obstacle(
    texts: t.Mapping[str, str], node: KubernetesNode, tree: t.Mapping[str, t.Any], *, is_generated: bool
) -> str | None:
    """Return why a restart would not register the runtime, or None."""
    if not is_generated and node.is_running:
        return (
            f"{distribution_paths.GENERATED[node.distribution]} does not exist, so {node.title} has another data "
            f"directory or uses Docker. Check that its containers have runtime {NAME}, and restart {node.unit} if not"
        )
    template = _template(texts, node.distribution, tree)
    if template and not _FINDS.search(texts[template]):
        return (
            f"{template} is your own template without {_BASE}, so {node.title} does not add runtime {NAME}. Add the "
            "line, or register the runtime in the template"
        )
    return None


def _template(texts: t.Mapping[str, str], distribution: str, generated: t.Mapping[str, t.Any]) -> str | None:
    """Return the user's template that counts. Without containerd 2, k3s and RKE2 ignore that of version 3."""
    known = [path for path in distribution_paths.TEMPLATES[distribution] if path in texts]
    if generated.get("version") == 2 and known:
        return known[-1] if known[-1] == distribution_paths.TEMPLATES[distribution][-1] else None
    return known[0] if known else None
