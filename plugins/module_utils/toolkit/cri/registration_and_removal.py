# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the registration of a vendor's runtime in containerd and CRI-O, and its removal. Pure functions."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import observed_files, owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import coexistence
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts import steps
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import registered_runtimes
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri import (
    becomes_default_runtime,
    containerd_config_toml,
    containerd_drop_in,
    containerd_versions,
    crio_drop_in,
    gone_program,
    other_configuration_owners,
    unread_imports,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri import (
    containerd_and_crio_restart as engine_restart,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri.containerd_versions import ROOT_FILE
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri.cri_changes import (
    CONTAINERD,
    CRIO,
    CriFile,
    CriPlan,
    file_of,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri.vendor_runtimes import (
    HABANA,
    NVIDIA,
    CriRuntime,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.toml_editor import TomlError

if t.TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host

_RECORD = owned.CONTAINERD_CONFIG_RECORD
_POLICY = "container_engine_restart_policy"


@dataclasses.dataclass(frozen=True)
class _CriPolicy:
    """What the user allows and asks for. `asked` and `by_node`: see `becomes_default_runtime.decide`.

    `variable`: the one that says `restart`.
    """

    restart: str
    variable: str = _POLICY
    asked: bool = False
    by_node: bool | None = None

    def of(self, former: str | None, runtime: CriRuntime) -> tuple[bool, bool]:
        return becomes_default_runtime.decide(former, runtime.name, asked=self.asked, by_node=self.by_node)


def plan(
    host: Host,
    engines: t.Mapping[str, str | None],
    runtime: CriRuntime = NVIDIA,
    *,
    default_runtime: bool,
    restart_policy: str,
    restart_variable: str = _POLICY,
    by_node: bool | None = None,
) -> CriPlan:
    """Return the registration. `engines`: the versions of the engines that are installed or will be.

    `restart_variable`: the name of the variable with `restart_policy`. `by_node`: see `becomes_default_runtime.decide`.
    Docker's containerd does not need the runtime. Its CRI is only for Kubernetes.
    """
    result = CriPlan()
    policy = _CriPolicy(restart_policy, restart_variable, default_runtime, by_node)
    used = [name for name in ("containerd", "crio") if name in engines]
    if "docker" in engines and not coexistence.kubernetes(host):
        used = [name for name in used if name != "containerd"]
    for name in used:
        version = engines[name] or ""
        is_installed = bool(host["engines"][name]["package"])
        if not is_installed and version == "" and other_configuration_owners.has_unpackaged_containerd(host):
            result.reasons.append(other_configuration_owners.without_package(host, runtime))
        elif not is_installed:
            result.later = True
            later = f"register runtime {runtime.name} in {name} after it is installed"
            result.steps.append(steps.own("runtime", later))
        elif name == "containerd":
            _containerd(result, host, version, runtime, policy)
        else:
            _crio(result, host, version, runtime, policy)
    leftovers = containerd_drop_in.LEFTOVERS if runtime == NVIDIA else ()
    result.reasons += [
        f"{path} is a drop-in of nvidia-ctk that no engine reads. Remove it."
        for path in leftovers
        if path in host["cri_files"]["others"] and path not in host["cri_files"]["containerd"]
    ]
    return result


def _programs(host: Host, runtime: CriRuntime) -> t.Collection[str] | None:
    """Return the existing programs of the runtime. Only those of NVIDIA are observed."""
    return registered_runtimes.programs(host) if runtime == NVIDIA else None


def _containerd(result: CriPlan, host: Host, version: str, runtime: CriRuntime, policy: _CriPolicy) -> None:
    seen, texts = host["cri_files"], host["cri_files"]["containerd"]
    root = texts.get(ROOT_FILE)
    is_default, is_marked = policy.of(file_of(host, runtime.containerd_drop_in, None).former, runtime)
    imported = {path: text for path, text in texts.items() if path != ROOT_FILE}
    found = containerd_drop_in.containerd(
        version,
        root,
        imported,
        runtime=runtime,
        default_runtime=is_default,
        others=_beside(host, runtime),
        existing=other_configuration_owners.existing_files(host),
        programs=_programs(host, runtime),
    )
    found.drop_in = becomes_default_runtime.marked(found.drop_in) if is_marked else found.drop_in
    result.problems += found.problems
    result.reasons += [text.rstrip(".") for text in found.reasons]
    if found.problems:
        return
    problem = unread_imports.problem(host) if found.drop_in is not None else None
    if problem:
        result.problems.append(problem)
        return
    if found.drop_in is not None and seen["masked"] and (found.root or not found.merges):
        result.reasons.append(
            f"{', '.join(seen['masked'])} contains logins, so the role does not rewrite containerd's configuration. "
            f"Move the logins to the files of config_path, or register runtime {runtime.name} by hand"
        )
        return
    try:
        wanted = found.root
        if found.drop_in is not None:
            wanted = {**containerd_config_toml.recorded_keys(host), **found.root}
        others = [_other(host, path, text) for path, text in found.others.items()]
        files = [file_of(host, runtime.containerd_drop_in, found.drop_in), *others]
        # A table that replaces that of the root file can have its secrets.
        files[0].mode = files[0].mode if found.merges else seen["mode"] or files[0].mode
        roots = containerd_config_toml.files(host, runtime, wanted, is_imported=found.drop_in is not None)
    except TomlError as error:
        result.problems.append(f"{ROOT_FILE} cannot be changed: {error}. Nothing was changed.")
        return
    ordered = [*files, *roots] if found.drop_in else [*roots, *files]
    change = engine_restart.change_of(host, CONTAINERD, ordered, "restarted")
    engine_restart.add(result, "containerd", runtime, change, restart_policy=policy.restart, variable=policy.variable)


def _beside(host: Host, runtime: CriRuntime) -> list[CriRuntime]:
    """Return the runtimes of other roles that have a drop-in of containerd."""
    texts = host["cri_files"]["containerd"]
    return [one for one in (NVIDIA, HABANA) if one.name != runtime.name and one.containerd_drop_in in texts]


def _other(host: Host, path: str, text: str) -> CriFile:
    """Return the drop-in of another role with a new whole table. The mark about its default runtime stays."""
    file = file_of(host, path, text)
    file.mode = host["cri_files"]["mode"] or file.mode
    if becomes_default_runtime.is_marked(file.former):
        file.content = becomes_default_runtime.marked(text)
    return file


def _without(host: Host, runtime: CriRuntime) -> list[CriFile]:
    """Return the drop-ins of other roles without the runtime, for a containerd in which each has the whole table."""
    version = host["engines"]["containerd"]["version"] or ""
    if not host["engines"]["containerd"]["package"] or containerd_versions.is_merging(version):
        return []
    texts, found = host["cri_files"]["containerd"], []
    imported = {path: text for path, text in texts.items() if path not in (ROOT_FILE, runtime.containerd_drop_in)}
    beside = _beside(host, runtime)
    for one in beside:
        former = texts[one.containerd_drop_in]
        has_mark = becomes_default_runtime.is_marked(former)
        is_default, _mark = becomes_default_runtime.decide(former, one.name, asked=False, by_node=has_mark)
        new = containerd_drop_in.containerd(
            version,
            texts.get(ROOT_FILE),
            imported,
            runtime=one,
            default_runtime=is_default,
            others=[other for other in beside if other != one],
            existing=other_configuration_owners.existing_files(host),
            programs=_programs(host, one),
        )
        if new.problems:
            raise TomlError(" ".join(new.problems))
        if new.drop_in is not None and host["cri_files"]["masked"]:
            raise TomlError(
                f"{one.containerd_drop_in} must lose runtime {runtime.name}, but it carries logins of "
                f"{', '.join(host['cri_files']['masked'])}, which the role does not read. Change it by hand"
            )
        found += [_other(host, one.containerd_drop_in, new.drop_in)] if new.drop_in is not None else []
    return found


def _crio(result: CriPlan, host: Host, version: str, runtime: CriRuntime, policy: _CriPolicy) -> None:
    is_default, is_marked = policy.of(file_of(host, runtime.crio_drop_in, None).former, runtime)
    try:
        texts, programs = _crio_texts(host, runtime), _programs(host, runtime)
        drop_in, _oci_runtime = crio_drop_in.crio(texts, runtime=runtime, default_runtime=is_default, programs=programs)
        drop_in = becomes_default_runtime.marked(drop_in) if is_marked else drop_in
        known = crio_drop_in.crio_program(texts, runtime)
    except TomlError as error:
        result.problems.append(str(error))
        return
    if drop_in is None:
        result.reasons.append(
            f"runtime {runtime.name} is already registered in CRI-O as {known}, and the configuration stays unchanged"
        )
    elif gone_program.is_missing(known, programs, runtime):
        result.reasons.append(
            f"runtime {runtime.name} is registered in CRI-O as {known}, which does not exist. {runtime.crio_drop_in} "
            "replaces it"
        )
    files = [file_of(host, runtime.crio_drop_in, drop_in)]
    change = engine_restart.change_of(host, CRIO, files, engine_restart.action_of_crio(version))
    engine_restart.add(result, "CRI-O", runtime, change, restart_policy=policy.restart, variable=policy.variable)


def _crio_texts(host: Host, runtime: CriRuntime) -> dict[str, str]:
    return {path: text for path, text in host["cri_files"]["crio"].items() if path != runtime.crio_drop_in}


def oci_runtime(
    host: Host, engines: t.Collection[str], runtime: CriRuntime = NVIDIA, *, default_runtime: bool
) -> str | None:
    """Return the path of CRI-O's OCI runtime, if the vendor's runtime calls it but does not find it by its name."""
    if "crio" not in engines:
        return None
    try:
        return crio_drop_in.crio(
            _crio_texts(host, runtime),
            runtime=runtime,
            default_runtime=default_runtime,
            programs=_programs(host, runtime),
        )[1]
    except TomlError:  # the plan reports it
        return None


def unset_default(
    host: Host,
    engines: t.Mapping[str, str | None],
    runtime: CriRuntime,
    *,
    restart_policy: str,
    restart_variable: str,
) -> CriPlan:
    """Return what undoes the default runtime of gpu_kubernetes_node. The registration, of another role, stays."""
    paths_by_engine = {"containerd": runtime.containerd_drop_in, "crio": runtime.crio_drop_in}
    former = {name: file_of(host, path, None).former for name, path in paths_by_engine.items() if name in engines}
    return plan(
        host,
        {name: engines[name] for name, text in former.items() if becomes_default_runtime.is_marked(text)},
        runtime,
        default_runtime=False,
        restart_policy=restart_policy,
        restart_variable=restart_variable,
        by_node=False,
    )


def removal(
    host: Host, restart_policy: str, runtime: CriRuntime = NVIDIA, *, restart_variable: str = _POLICY
) -> CriPlan:
    """Return the removal of the registration."""
    result, policy = CriPlan(), _CriPolicy(restart_policy, restart_variable)
    files = [file_of(host, runtime.containerd_drop_in, None)]
    try:
        if files[0].former is not None or observed_files.content(host, _RECORD) is not None:
            others = _without(host, runtime) if files[0].former is not None else []
            files = [*containerd_config_toml.files(host, runtime, {}, is_imported=False), *files, *others]
    except TomlError as error:
        result.problems.append(f"{ROOT_FILE} cannot be restored: {error}. Nothing was changed.")
        return result
    containerd = engine_restart.change_of(host, CONTAINERD, files, "restarted")
    crio = engine_restart.change_of(host, CRIO, [file_of(host, runtime.crio_drop_in, None)], "restarted")
    if crio.action:
        crio.action = engine_restart.action_of_crio(host["engines"]["crio"]["version"])
    for title, names, change in (("containerd", ("kubernetes", "containerd"), containerd), ("CRI-O", ("crio",), crio)):
        number = sum(coexistence.running(host, name) for name in names)
        if change.files and number:
            result.problems.append(
                f"{runtime.product} cannot be removed: containers of {title} are running ({number}), and those with "
                f"runtime {runtime.name} need it. Nothing was changed. Stop the containers first."
            )
        if change.files:
            kept = engine_restart.kept_loaded(title, change, restart_policy=restart_policy, variable=restart_variable)
            result.reasons += [kept] if kept else []
            engine_restart.add(result, title, runtime, change, restart_policy=policy.restart, variable=policy.variable)
    return result
