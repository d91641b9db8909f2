# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan NVIDIA's runtime on a node of Kubernetes, where its distribution expects the runtime. Pure functions.

Configurations that a distribution generates are only read. This file is private to the collection.
"""

from __future__ import annotations

import posixpath
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.disruptions import (
    ENGINE_RESTART,
    FORBIDDEN,
    Disruption,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes import paths
from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes.distribution import recognize
from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes.placement import (
    DROP_IN,
    ENGINE,
    FOUND,
    NONE,
    RuntimePlacement,
    placement,
    registered_program,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import cri_plan, toml_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.docker_runtime import NAME, PATH
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.toml_text import TomlError

if t.TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.types import Host
    from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes.distribution import KubernetesNode

HEADER = "# Written by role gpufleet.hosts.gpu_kubernetes_node. Changes in this file are lost.\n"
_TABLES = {2: "io.containerd.grpc.v1.cri", 3: "io.containerd.cri.v1.runtime"}
_SERVERS = ("k3s.service", "rke2-server.service")
# Without this, a template of the user replaces what k3s or RKE2 finds.
_BASE = '{{ template "base" . }}'
_POLICY = "gpu_kubernetes_node_restart_policy"


def plan(
    host: Host,
    node: KubernetesNode,
    engines: t.Mapping[str, str | None],
    *,
    has_runtime: bool,
    default_runtime: bool,
    restart_policy: str,
) -> cri_plan.CriPlan:
    """Return the registration on a node.

    `engines`: the versions of the engines that are installed or will be. `has_runtime`: NVIDIA's program is installed,
    or will be in this run. `restart_policy`: when_safe (agents only), always or never.
    """
    place = placement(node, "nvidia")
    if place.kind == NONE:
        return cri_plan.CriPlan(reasons=[place.reason])
    if not has_runtime:
        return cri_plan.CriPlan(
            problems=[
                f"{PATH} is not installed, so runtime {NAME} cannot be registered in {node.title}. Run role "
                "nvidia_container_toolkit first, or in the same run."
            ]
        )
    if place.kind == ENGINE:
        policy = "never" if restart_policy == "never" else "when_safe"
        return cri_plan.plan(host, engines, default_runtime=default_runtime, restart_policy=policy)
    result = cri_plan.CriPlan()
    try:
        if place.kind == DROP_IN:
            _k0s(result, host, place, default_runtime=default_runtime)
        else:
            _rancher(result, host, node, place, default_runtime=default_runtime, restart_policy=restart_policy)
    except TomlError as error:
        result.problems.append(f"The configuration that {node.title} generates cannot be read: {error}")
    return result


def own_containerd(host: Host) -> KubernetesNode | None:
    """Return the node if its distribution has its own containerd, which uses the toolkit of the host."""
    node = recognize(host).node
    return node if node and placement(node, "nvidia").kind in (DROP_IN, FOUND) else None


def without_engine(host: Host) -> str | None:
    """Return why a host without an engine of its own needs no toolkit. None: its node of Kubernetes needs it."""
    if own_containerd(host):
        return None
    node = recognize(host).node
    return placement(node, "nvidia").reason if node else "this host has no container engine"


def removal(host: Host, node: KubernetesNode | None, restart_policy: str) -> cri_plan.CriPlan:
    """Return the removal of our files of all distributions, also of one that has been uninstalled."""
    result = cri_plan.CriPlan()
    texts = host["cri_files"]["nodes"]
    for path in (paths.K0S_DROP_IN, *paths.SETTINGS.values()):
        if path in texts:
            unit = node.unit if node and placement(node, "nvidia").path == path else ""
            change = cri_plan.CriChange(unit, [cri_plan.CriFile(path, None, texts[path])])
            is_settings = path != paths.K0S_DROP_IN
            if is_settings and node and node.is_running and _may_restart(unit, restart_policy):
                change.action = "restarted"
                result.disruptions.append(Disruption(ENGINE_RESTART, "the removal of runtime nvidia", target=unit))
            elif is_settings and node and node.is_running:
                result.reasons.append(f"{unit} keeps its default runtime until its next restart ({_POLICY})")
            result.engines.append(change)
            result.changes.append(f"remove {path}")
            result.changes += [f"restart {unit}"] if change.action else []
    return result


def emptied(changes: t.Iterable[cri_plan.CriChange]) -> list[str]:
    """Return the directories that a removal can leave empty. That of k0s is not one: k0s creates and watches it."""
    removed = [file.path for change in changes for file in change.files if file.content is None]
    found = [posixpath.dirname(path) for path in removed if path == owned.CONTAINERD_DROP_IN]
    for path in removed:
        if path in paths.SETTINGS.values():
            # Agents without settings have none of these directories.
            parts = path.split("/")[:-1]
            found += ["/".join(parts[:length]) for length in range(len(parts), 2, -1)]
    return found


def _k0s(result: cri_plan.CriPlan, host: Host, place: RuntimePlacement, *, default_runtime: bool) -> None:
    texts = host["cri_files"]["nodes"]
    root, mine = texts.get(paths.K0S_ROOT), texts.get(paths.K0S_DROP_IN)
    if root is None:
        result.reasons.append(
            f"k0s has not started, so the version of {paths.K0S_ROOT} is unknown. Start k0s, and run the role again"
        )
        return
    if root.splitlines()[:1] != [paths.K0S_MANAGED]:
        result.reasons.append(
            f"{paths.K0S_ROOT} does not begin with {paths.K0S_MANAGED}, so k0s ignores drop-ins, and the file stays "
            f"unchanged. Register runtime {NAME} in it, or remove it and restart k0s"
        )
        return
    generated = toml_text.parse(texts.get(paths.GENERATED[paths.K0S]) or "")
    known = registered_program(generated, NAME)
    if known and mine is None:
        result.reasons.append(f"runtime {NAME} is already registered in k0s as {known}")
        return
    number = toml_text.parse(root).get("version", 2)
    if number not in _TABLES:
        result.problems.append(f"{paths.K0S_ROOT} has version {number}, which is not known. Known versions: 2, 3.")
        return
    options = toml_text.get(generated, ("plugins", _TABLES[number], "containerd", "runtimes", "runc", "options")) or {}
    runtime = {"runtime_type": "io.containerd.runc.v2", "options": {**options, "BinaryName": PATH}}
    table = {"runtimes": {NAME: runtime}, **({"default_runtime_name": NAME} if default_runtime else {})}
    text = HEADER + toml_text.document({"version": number, "plugins": {_TABLES[number]: {"containerd": table}}})
    if text != mine:
        result.engines.append(cri_plan.CriChange("", [cri_plan.CriFile(paths.K0S_DROP_IN, text, mine)]))
        result.changes.append(f"write {paths.K0S_DROP_IN}")
        # k0s watches the directory.
        reason = "k0s restarts it when a drop-in changes; running containers stay"
        result.disruptions.append(Disruption(ENGINE_RESTART, reason, target=place.restarts_itself or ""))


def _rancher(
    result: cri_plan.CriPlan,
    host: Host,
    node: KubernetesNode,
    place: RuntimePlacement,
    *,
    default_runtime: bool,
    restart_policy: str,
) -> None:
    """Plan k3s and RKE2: they find the runtime when they start, and a setting makes it the default."""
    texts = host["cri_files"]["nodes"]
    path, mine = str(place.path), texts.get(str(place.path))
    wanted = f"{HEADER}default-runtime: {NAME}\n" if default_runtime else None
    files = [cri_plan.CriFile(path, wanted, mine)] if wanted != mine else []
    generated = texts.get(paths.GENERATED[node.distribution])
    is_found = generated is not None and registered_program(toml_text.parse(generated), NAME) is not None
    if generated is None and node.is_running:
        result.reasons.append(
            f"{paths.GENERATED[node.distribution]} does not exist, so {node.title} has another data directory. Check "
            f"that its containerd has runtime {NAME}, and restart {node.unit} if not"
        )
    template = next((name for name in paths.TEMPLATES[node.distribution] if name in texts), None)
    if not is_found and template and _BASE not in texts[template]:
        result.reasons.append(
            f"{template} is your own template without {_BASE}, so {node.title} does not add runtime {NAME}. Add the "
            "line, or register the runtime in the template"
        )
    needs_restart = bool(files) or (generated is not None and not is_found and not result.reasons)
    if not needs_restart:
        return
    change = cri_plan.CriChange(node.unit, files)
    result.changes += [f"{'remove' if file.content is None else 'write'} {file.path}" for file in files]
    if node.is_running:
        _restart(result, change, node, place, restart_policy)
    if change.files or change.action:
        result.engines.append(change)


def _restart(
    result: cri_plan.CriPlan,
    change: cri_plan.CriChange,
    node: KubernetesNode,
    place: RuntimePlacement,
    restart_policy: str,
) -> None:
    reason = f"{node.title} finds runtime {NAME} only when it starts; interrupts {place.stops}; running containers stay"
    restart = Disruption(ENGINE_RESTART, reason, target=node.unit)
    if _may_restart(node.unit, restart_policy):
        change.action = "restarted"
        result.changes.append(f"restart {node.unit}")
        result.disruptions.append(restart)
        return
    result.disruptions.append(Disruption(ENGINE_RESTART, reason, FORBIDDEN, node.unit, forbidden_by=_POLICY))
    result.reasons.append(
        f"{node.unit} is not restarted, because {_POLICY} is {restart_policy}. Restart it at a time of your choice, or "
        f"set {_POLICY} to always"
    )


def _may_restart(unit: str, policy: str) -> bool:
    """Return whether the policy allows it. when_safe excludes servers, which have the API server of the cluster."""
    return policy == "always" or (policy == "when_safe" and unit not in _SERVERS)
