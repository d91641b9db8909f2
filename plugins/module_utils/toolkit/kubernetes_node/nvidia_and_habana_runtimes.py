# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the runtimes of NVIDIA and Gaudi on a node of Kubernetes, where its distribution expects them. Pure functions.

Configurations that a distribution generates are only read.
"""

from __future__ import annotations

import posixpath
import re
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.disruptions import (
    ENGINE_RESTART,
    FORBIDDEN,
    Disruption,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.json_text import DaemonConfigError
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import coexistence
from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes import distribution_paths
from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes.node_distribution import recognize, unrecognized
from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes.role_variables import NODE_ROLE
from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes.runtime_placement import (
    DROP_IN,
    ENGINE,
    FOUND,
    NONE,
    RuntimePlacement,
    default_name,
    placement,
    registered_program,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts import steps
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import (
    docker_runtime,
    registered_runtimes,
    toml_editor,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri import drop_in as cri_runtime
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri import engine_file_parsing
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri import planned_files as cri_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri.drop_in import HABANA, HABANA_PACKAGE, NVIDIA
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.docker_runtime import NAME, PATH
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.toml_editor import TomlError

if t.TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host
    from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes.node_distribution import KubernetesNode

HEADER = "# Written by role gpufleet.hosts.gpu_kubernetes_node. Changes in this file are lost.\n"
_TABLES = {2: "io.containerd.grpc.v1.cri", 3: "io.containerd.cri.v1.runtime"}
_SERVERS = ("k3s.service", "rke2-server.service")
# A template of the user replaces what k3s or RKE2 finds, unless it extends the base, lists the found runtimes as a copy
# of an older base does, or has the runtime itself.
_BASE = '{{ template "base" . }}'
_FINDS = re.compile(
    r"""\{\{-?\s*template\s+"base"\s+\.\s*-?\}\}|\.ExtraRuntimes\b|containerd\.runtimes\.["']?"""
    + NAME
    + r"""["']?\]"""
)
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
    if place.kind == ENGINE:
        result = cri_plan.plan(
            host,
            engines,
            default_runtime=False,
            restart_policy=_of_engines(restart_policy),
            restart_variable=_POLICY,
            by_node=default_runtime,
        )
        is_ready = not result.engines
    else:
        result, is_ready = cri_plan.CriPlan(), False
        try:
            is_ready = bool(_registered(host, node, has_runtime=has_runtime))
            common = (result, host, node, place, is_ready)
            if place.kind == DROP_IN:
                _k0s(*common, default_runtime=default_runtime)
            else:
                _rancher(*common, default_runtime=default_runtime, restart_policy=restart_policy)
        except TomlError as error:
            result.problems.append(f"The configuration that {node.title} generates cannot be read: {error}")
    if not has_runtime and not is_ready and not result.problems:
        return cri_plan.CriPlan(
            problems=[
                f"{PATH} is not installed, so runtime {NAME} cannot be registered in {node.title}. Run role "
                "nvidia_container_toolkit first, or in the same run."
            ]
        )
    return result


def habana(
    host: Host,
    node: KubernetesNode,
    engines: t.Mapping[str, str | None],
    *,
    default_runtime: bool,
    restart_policy: str,
) -> cri_plan.CriPlan:
    """Return the registration of Gaudi's runtime. Role gaudi_driver installs it, and registers it in the same file."""
    place = placement(node, "gaudi")
    if place.kind == NONE or not _has_habana(host):
        return cri_plan.CriPlan(reasons=[place.reason])
    return cri_plan.plan(
        host,
        engines,
        HABANA,
        default_runtime=False,
        restart_policy=_of_engines(restart_policy),
        restart_variable=_POLICY,
        by_node=default_runtime,
    )


def _of_engines(restart_policy: str) -> str:
    """Return whether the engines of the host may restart. `always` is only about servers."""
    return "never" if restart_policy == "never" else "when_safe"


def _has_habana(host: Host) -> bool:
    """Return whether role gaudi_driver has registered its runtime in an engine.

    Another version of the package can have a known vulnerability, and without this the role would remove the runtime.
    """
    files = host["cri_files"]
    if HABANA.containerd_drop_in in files["containerd"] or HABANA.crio_drop_in in files["crio"]:
        return HABANA_PACKAGE in host["installed_packages"]
    try:
        return docker_runtime.is_registered(host, HABANA.role) and HABANA_PACKAGE in host["installed_packages"]
    except DaemonConfigError:  # role gaudi_driver reports it
        return False


def _registered(host: Host, node: KubernetesNode, *, has_runtime: bool) -> str | None:
    """Return the program of the runtime in the configuration that the distribution generated, if the program exists."""
    path = distribution_paths.GENERATED[node.distribution]
    program = registered_program(engine_file_parsing.parsed(path, host["cri_files"]["nodes"].get(path)), NAME)
    if program == PATH:
        return program if has_runtime else None
    return None if cri_runtime.is_missing(program, registered_runtimes.programs(host)) else program


def blocks_removal(host: Host) -> str | None:
    """Return why the toolkit cannot be removed from a node whose distribution has its own containerd."""
    node, texts = own_containerd(host), host["cri_files"]["nodes"]
    if node is None:
        return None
    ours = next(
        (path for path in (distribution_paths.K0S_DROP_IN, *distribution_paths.SETTINGS.values()) if path in texts),
        None,
    )
    if ours:
        return (
            f"NVIDIA's container toolkit cannot be removed: {ours} still lets {node.title} use runtime {NAME}. Nothing "
            f"was changed. Run role {NODE_ROLE} with {NODE_ROLE}_state=absent first."
        )
    try:
        program = _registered(host, node, has_runtime=True)
    except TomlError:
        return None
    number = coexistence.running(host, "k3s") + coexistence.running(host, "kubernetes")
    if program != PATH or not number:
        return None
    return (
        f"NVIDIA's container toolkit cannot be removed: containers of {node.title} are running ({number}), and those "
        f"with runtime {NAME} need it. Nothing was changed. Drain the node, stop {node.unit} and its containers first."
    )


def own_containerd(host: Host) -> KubernetesNode | None:
    """Return the node if its distribution has its own containerd, which uses the toolkit of the host."""
    node = recognize(host).node
    return node if node and placement(node, "nvidia").kind in (DROP_IN, FOUND) else None


def without_engine(host: Host) -> str | None:
    """Return why a host without an engine of its own needs no toolkit. None: its node of Kubernetes needs it."""
    if own_containerd(host):
        return None
    node = recognize(host).node
    return placement(node, "nvidia").reason if node else unrecognized(host) or "this host has no container engine"


def engine_removals(
    host: Host, engines: t.Mapping[str, str | None], restart_policy: str
) -> t.Iterator[cri_plan.CriPlan]:
    """Return the removal of NVIDIA's runtime from the engines of the host, and of Gaudi's as their default one.

    Role gaudi_driver would register Gaudi's again.
    """
    policy = _of_engines(restart_policy)
    first = cri_plan.removal(host, policy, NVIDIA, restart_variable=_POLICY)
    yield first
    host = cri_plan.after(host, first.engines)
    yield cri_plan.unset_default(host, engines, HABANA, restart_policy=policy, restart_variable=_POLICY)


def removal(host: Host, node: KubernetesNode | None, restart_policy: str) -> cri_plan.CriPlan:
    """Return the removal of the role's files of all distributions, also of one that has been uninstalled."""
    result = cri_plan.CriPlan()
    texts = host["cri_files"]["nodes"]
    for path in (distribution_paths.K0S_DROP_IN, *distribution_paths.SETTINGS.values()):
        if path in texts:
            unit = node.unit if node and placement(node, "nvidia").path == path else ""
            change = cri_plan.CriChange(unit, [cri_plan.CriFile(path, None, texts[path])])
            result.steps.append(steps.written(path, None))
            result.engines.append(change)
            if not node or not unit or not node.is_running:
                continue
            if path == distribution_paths.K0S_DROP_IN:
                reason = f"{node.title} restarts it when a drop-in changes; running containers stay"
                result.disruptions.append(Disruption(ENGINE_RESTART, reason, target="the containerd of k0s"))
            else:
                _restart(result, change, node, placement(node, "nvidia"), restart_policy)
    return result


def emptied(changes: t.Iterable[cri_plan.CriChange]) -> list[str]:
    """Return the directories that a removal can leave empty. That of k0s is not one: k0s creates and watches it."""
    removed = [file.path for change in changes for file in change.files if file.content is None]
    found = [posixpath.dirname(path) for path in removed if path in owned.CONTAINERD_DROP_INS]
    for path in removed:
        if path in distribution_paths.SETTINGS.values():
            # Agents without settings have none of these directories.
            parts = path.split("/")[:-1]
            found += ["/".join(parts[:length]) for length in range(len(parts), 2, -1)]
    return found


def _k0s(
    result: cri_plan.CriPlan,
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
        result.engines.append(cri_plan.CriChange("", [cri_plan.CriFile(distribution_paths.K0S_DROP_IN, text, mine)]))
        result.steps.append(steps.written(distribution_paths.K0S_DROP_IN, text))
        reason = f"{node.title} restarts it when a drop-in changes; running containers stay"
        result.disruptions.append(Disruption(ENGINE_RESTART, reason, target=place.restarts_itself or ""))


def _rancher(
    result: cri_plan.CriPlan,
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
    files = [cri_plan.CriFile(path, wanted, mine)] if wanted != mine else []
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
    change = cri_plan.CriChange(node.unit, files)
    result.steps += [steps.written(file.path, file.content) for file in files]
    if node.is_running:
        _restart(result, change, node, place, restart_policy)
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


def _restart(
    result: cri_plan.CriPlan,
    change: cri_plan.CriChange,
    node: KubernetesNode,
    place: RuntimePlacement,
    restart_policy: str,
) -> None:
    reason = f"{node.title} reads its runtimes only when it starts; interrupts {place.stops}; running containers stay"
    restart = Disruption(ENGINE_RESTART, reason, target=node.unit)
    if _may_restart(node.unit, restart_policy):
        change.action = "restarted"
        result.steps.append(steps.own(steps.RELOAD, f"restart {node.unit}"))
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
