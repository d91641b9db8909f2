# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the files that register a vendor's runtime in containerd and CRI-O, and their removal. Pure functions."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import observed_files, owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.disruptions import (
    ENGINE_RESTART,
    FORBIDDEN,
    Disruption,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import coexistence
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import version_key
from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes import distribution_paths
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts import steps
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.steps import Step
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import (
    config_toml,
    registered_runtimes,
    toml_editor,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri import (
    default_runtime as default_runtime_of_roles,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri import drop_in as cri_runtime
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri import engine_file_parsing, unread_imports
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri.drop_in import (
    HABANA,
    NVIDIA,
    ROOT_FILE,
    CriRuntime,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.toml_editor import TomlError

if t.TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host

CONTAINERD, CRIO = "containerd.service", "crio.service"
_RECORD = owned.CONTAINERD_CONFIG_RECORD
_MARKERS = {CONTAINERD: owned.CONTAINERD_RESTART_MARKER, CRIO: owned.CRIO_RESTART_MARKER}
# The first CRI-O that applies changed runtimes with a reload: cri-o/cri-o, a3fb007fb1, which is in v1.26.0.
_RELOADS = "1.26"
_POLICY = "container_engine_restart_policy"


@dataclasses.dataclass
class CriFile:
    """A file to write. `content` is None: to remove it. `former`: its text before, None if it does not exist."""

    path: str
    content: str | None
    former: str | None
    mode: str = "0644"


@dataclasses.dataclass
class CriChange:
    """The files of one engine in the order of the steps, and what then applies them.

    `action`: restarted or reloaded, as state of the unit, None if nothing has to apply the files. `marker`: when the
    unit started, for `marker_file`, which exists until the action is done.
    """

    unit: str
    files: list[CriFile] = dataclasses.field(default_factory=list)
    action: str | None = None
    marker: int | None = None
    marker_file: str | None = None


@dataclasses.dataclass
class CriPlan:
    """The changes by engine. `later`: an engine that this run installs is yet to be planned."""

    engines: list[CriChange] = dataclasses.field(default_factory=list)
    later: bool = False
    steps: list[Step] = dataclasses.field(default_factory=list)
    reasons: list[str] = dataclasses.field(default_factory=list)
    problems: list[str] = dataclasses.field(default_factory=list)
    disruptions: list[Disruption] = dataclasses.field(default_factory=list)

    @property
    def changes(self) -> list[str]:
        """Return the texts of the steps."""
        return steps.texts(self.steps)


@dataclasses.dataclass(frozen=True)
class _CriPolicy:
    """What the user allows and asks for. `asked` and `by_node`: see `default_runtime.decide`.

    `variable`: the one that says `restart`.
    """

    restart: str
    variable: str = _POLICY
    asked: bool = False
    by_node: bool | None = None

    def of(self, former: str | None, runtime: CriRuntime) -> tuple[bool, bool]:
        return default_runtime_of_roles.decide(former, runtime.name, asked=self.asked, by_node=self.by_node)


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

    `restart_variable`: the name of the variable with `restart_policy`. `by_node`: see `default_runtime.decide`.
    Docker's containerd does not need the runtime. Its CRI is only for Kubernetes.
    """
    result = CriPlan()
    policy = _CriPolicy(restart_policy, restart_variable, default_runtime, by_node)
    used = [name for name in ("containerd", "crio") if name in engines]
    if "docker" in engines and not coexistence.kubernetes(host):
        used = [name for name in used if name != "containerd"]
    for name in used:
        version = engines[name] or ""
        if not host["engines"][name]["package"] and version == "" and has_unpackaged_containerd(host):
            result.reasons.append(_unpackaged(host, runtime))
        elif not host["engines"][name]["package"]:
            result.later = True
            later = f"register runtime {runtime.name} in {name} after it is installed"
            result.steps.append(steps.own("runtime", later))
        elif name == "containerd":
            _containerd(result, host, version, runtime, policy)
        else:
            _crio(result, host, version, runtime, policy)
    leftovers = cri_runtime.LEFTOVERS if runtime == NVIDIA else ()
    result.reasons += [
        f"{path} is a drop-in of nvidia-ctk that no engine reads. Remove it."
        for path in leftovers
        if path in host["cri_files"]["others"] and path not in host["cri_files"]["containerd"]
    ]
    return result


def has_unpackaged_containerd(host: Host) -> bool:
    """Return whether somebody has installed containerd without a package, as Kubespray does."""
    service = host["services"].get(CONTAINERD) or {}
    return not host["engines"]["containerd"]["package"] and service.get("load_state") == "loaded"


def _existing(host: Host) -> list[str]:
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


def _unpackaged(host: Host, runtime: CriRuntime) -> str:
    """Say who has to register the runtime. Without a package, the version is unknown, and so is what it merges."""
    seen = host["cri_files"]
    try:
        other = cri_runtime.owner(seen["containerd"].get(ROOT_FILE), _existing(host))
    except TomlError:
        other = None
    if other:
        return (
            f"{other} writes containerd's configuration, so it stays unchanged. {cri_runtime.way_out(other, runtime)}"
        )
    return (
        "containerd is installed without a package, so its configuration stays unchanged. Register runtime "
        f"{runtime.name} with the tool that installed it"
    )


def _programs(host: Host, runtime: CriRuntime) -> t.Collection[str] | None:
    """Return the existing programs of the runtime. Only those of NVIDIA are observed."""
    return registered_runtimes.programs(host) if runtime == NVIDIA else None


def _containerd(result: CriPlan, host: Host, version: str, runtime: CriRuntime, policy: _CriPolicy) -> None:
    seen, texts = host["cri_files"], host["cri_files"]["containerd"]
    root = texts.get(ROOT_FILE)
    is_default, is_marked = policy.of(_file(host, runtime.containerd_drop_in, None).former, runtime)
    imported = {path: text for path, text in texts.items() if path != ROOT_FILE}
    found = cri_runtime.containerd(
        version,
        root,
        imported,
        runtime=runtime,
        default_runtime=is_default,
        others=_beside(host, runtime),
        existing=_existing(host),
        programs=_programs(host, runtime),
    )
    found.drop_in = default_runtime_of_roles.marked(found.drop_in) if is_marked else found.drop_in
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
            known = config_toml.read_record(observed_files.content(host, _RECORD), _RECORD)["keys"]
            now = engine_file_parsing.content(root or "")
            wanted = {**{key: now[key] for key in known if key in now}, **found.root}
        others = [_other(host, path, text) for path, text in found.others.items()]
        files = [_file(host, runtime.containerd_drop_in, found.drop_in), *others]
        # A table that replaces that of the root file can have its secrets.
        files[0].mode = files[0].mode if found.merges else seen["mode"] or files[0].mode
        roots = _root_files(host, runtime, wanted, is_imported=found.drop_in is not None)
    except TomlError as error:
        result.problems.append(f"{ROOT_FILE} cannot be changed: {error}. Nothing was changed.")
        return
    change = _change(host, CONTAINERD, [*files, *roots] if found.drop_in else [*roots, *files], "restarted")
    _add(result, "containerd", runtime, change, policy)


def _beside(host: Host, runtime: CriRuntime) -> list[CriRuntime]:
    """Return the runtimes of other roles that have a drop-in of containerd."""
    texts = host["cri_files"]["containerd"]
    return [one for one in (NVIDIA, HABANA) if one.name != runtime.name and one.containerd_drop_in in texts]


def _other(host: Host, path: str, text: str) -> CriFile:
    """Return the drop-in of another role with a new whole table. The mark about its default runtime stays."""
    file = _file(host, path, text)
    file.mode = host["cri_files"]["mode"] or file.mode
    if default_runtime_of_roles.is_marked(file.former):
        file.content = default_runtime_of_roles.marked(text)
    return file


def _without(host: Host, runtime: CriRuntime) -> list[CriFile]:
    """Return the drop-ins of other roles without the runtime, for a containerd in which each has the whole table."""
    version = host["engines"]["containerd"]["version"] or ""
    if not host["engines"]["containerd"]["package"] or cri_runtime.is_merging(version):
        return []
    texts, found = host["cri_files"]["containerd"], []
    imported = {path: text for path, text in texts.items() if path not in (ROOT_FILE, runtime.containerd_drop_in)}
    beside = _beside(host, runtime)
    for one in beside:
        former = texts[one.containerd_drop_in]
        has_mark = default_runtime_of_roles.is_marked(former)
        is_default, _mark = default_runtime_of_roles.decide(former, one.name, asked=False, by_node=has_mark)
        new = cri_runtime.containerd(
            version,
            texts.get(ROOT_FILE),
            imported,
            runtime=one,
            default_runtime=is_default,
            others=[other for other in beside if other != one],
            existing=_existing(host),
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
    is_default, is_marked = policy.of(_file(host, runtime.crio_drop_in, None).former, runtime)
    try:
        texts, programs = _crio_texts(host, runtime), _programs(host, runtime)
        drop_in, _oci_runtime = cri_runtime.crio(texts, runtime=runtime, default_runtime=is_default, programs=programs)
        drop_in = default_runtime_of_roles.marked(drop_in) if is_marked else drop_in
        known = cri_runtime.crio_program(texts, runtime)
    except TomlError as error:
        result.problems.append(str(error))
        return
    if drop_in is None:
        result.reasons.append(
            f"runtime {runtime.name} is already registered in CRI-O as {known}, and the configuration stays unchanged"
        )
    elif cri_runtime.is_missing(known, programs, runtime):
        result.reasons.append(
            f"runtime {runtime.name} is registered in CRI-O as {known}, which does not exist. {runtime.crio_drop_in} "
            "replaces it"
        )
    is_reloadable = version_key(version) >= version_key(_RELOADS)
    change = _change(
        host, CRIO, [_file(host, runtime.crio_drop_in, drop_in)], "reloaded" if is_reloadable else "restarted"
    )
    _add(result, "CRI-O", runtime, change, policy)


def _crio_texts(host: Host, runtime: CriRuntime) -> dict[str, str]:
    return {path: text for path, text in host["cri_files"]["crio"].items() if path != runtime.crio_drop_in}


def oci_runtime(
    host: Host, engines: t.Collection[str], runtime: CriRuntime = NVIDIA, *, default_runtime: bool
) -> str | None:
    """Return the path of CRI-O's OCI runtime, if the vendor's runtime calls it but does not find it by its name."""
    if "crio" not in engines:
        return None
    try:
        return cri_runtime.crio(
            _crio_texts(host, runtime),
            runtime=runtime,
            default_runtime=default_runtime,
            programs=_programs(host, runtime),
        )[1]
    except TomlError:  # the plan reports it
        return None


def _add(result: CriPlan, title: str, runtime: CriRuntime, change: CriChange, policy: _CriPolicy) -> None:
    if not change.files and not change.action:
        return
    restart = Disruption(
        ENGINE_RESTART, f"the registration of runtime {runtime.name}; running containers stay", target=change.unit
    )
    if change.action == "restarted" and policy.restart == "never":
        result.disruptions.append(dataclasses.replace(restart, state=FORBIDDEN, forbidden_by=policy.variable))
        result.reasons.append(
            f"the registration of runtime {runtime.name} in {title} was not changed: it needs a restart of "
            f"{change.unit}, but {policy.variable} is never. Set it to when_safe"
        )
        return
    result.engines.append(change)
    restarts = (restart,) if change.action == "restarted" else ()
    result.disruptions += restarts
    result.steps += [steps.written(file.path, file.content) for file in change.files]
    text = f"{(change.action or '').removesuffix('ed')} {change.unit}"
    result.steps += [steps.own(steps.RELOAD, text, disrupts=restarts)] if change.action else []


def _change(host: Host, unit: str, files: list[CriFile], action: str) -> CriChange:
    """Return the change without the files that are as they must be."""
    result = CriChange(unit, [file for file in files if file.content != file.former])
    service = host["services"].get(unit) or {}
    if service.get("active_state") != "active":
        return result
    since = service.get("active_since_us")
    is_pending = (observed_files.content(host, _MARKERS[unit]) or "").strip() == str(since)
    if is_pending or any(_has_effect(file) for file in result.files):
        result.action, result.marker, result.marker_file = action, since, _MARKERS[unit]
    return result


def _has_effect(file: CriFile) -> bool:
    """Return whether the engine reads anything else afterwards. It does not read the record, nor comments."""
    if file.path == _RECORD:
        return False
    if file.content is None or file.former is None:
        return True
    try:
        return toml_editor.parse(file.content) != toml_editor.parse(file.former)
    except TomlError:
        return True


def after(host: Host, changes: t.Iterable[CriChange]) -> Host:
    """Return the host with the files of changes, for what is planned after them: two runtimes share the root file."""
    texts = {CONTAINERD: dict(host["cri_files"]["containerd"]), CRIO: dict(host["cri_files"]["crio"])}
    files: dict[str, t.Any] = dict(host["files"])
    for change in changes:
        for file in change.files if change.unit in texts else ():
            if file.path == _RECORD:
                files[_RECORD] = {"exists": file.content is not None, "content": file.content}
            elif file.content is None:
                texts[change.unit].pop(file.path, None)
            else:
                texts[change.unit][file.path] = file.content
    seen = {**host["cri_files"], "containerd": texts[CONTAINERD], "crio": texts[CRIO]}
    return t.cast("Host", {**host, "cri_files": seen, "files": files})


def _root_files(host: Host, runtime: CriRuntime, wanted: t.Mapping[str, t.Any], *, is_imported: bool) -> list[CriFile]:
    """Return containerd's root file with the wanted keys, and the record of what they replaced."""
    seen = host["cri_files"]
    text = seen["containerd"].get(ROOT_FILE)
    if not is_imported:
        wanted = {**_of_other_roles(host, runtime), **wanted}
    change = config_toml.plan(text, observed_files.content(host, _RECORD), wanted, _RECORD)
    new = change.text
    if not is_imported and new is not None:
        # containerd does not start if an imported file does not exist.
        imports = engine_file_parsing.content(new).get("imports") or []
        rest = [path for path in imports if path != runtime.containerd_drop_in]
        new = toml_editor.changed(new, ("imports",), rest or None) if rest != imports else new
    if text is None and not wanted:
        new = None
    if new != text and ROOT_FILE in seen["masked"]:
        raise TomlError("it contains logins, which the role does not read. Change its key imports by hand")
    files = [_file(host, _RECORD, change.record), CriFile(ROOT_FILE, new, text, seen["mode"] or "0644")]
    return files if wanted else files[::-1]


def _of_other_roles(host: Host, runtime: CriRuntime) -> dict[str, t.Any]:
    """Return the recorded keys of the root file that the drop-in of another role still needs."""
    root = engine_file_parsing.content(host["cri_files"]["containerd"].get(ROOT_FILE) or "")
    rest = [path for path in root.get("imports") or [] if path != runtime.containerd_drop_in]
    if not set(owned.CONTAINERD_DROP_INS) & set(rest):
        return {}
    known = config_toml.read_record(observed_files.content(host, _RECORD), _RECORD)["keys"]
    return {**{key: root[key] for key in known if key in root}, **({"imports": rest} if "imports" in known else {})}


def _file(host: Host, path: str, content: str | None) -> CriFile:
    texts = {**host["cri_files"]["containerd"], **host["cri_files"]["crio"]}
    return CriFile(path, content, texts.get(path, observed_files.content(host, path)))


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
    former = {name: _file(host, path, None).former for name, path in paths_by_engine.items() if name in engines}
    return plan(
        host,
        {name: engines[name] for name, text in former.items() if default_runtime_of_roles.is_marked(text)},
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
    files = [_file(host, runtime.containerd_drop_in, None)]
    try:
        if files[0].former is not None or observed_files.content(host, _RECORD) is not None:
            others = _without(host, runtime) if files[0].former is not None else []
            files = [*_root_files(host, runtime, {}, is_imported=False), *files, *others]
    except TomlError as error:
        result.problems.append(f"{ROOT_FILE} cannot be restored: {error}. Nothing was changed.")
        return result
    containerd = _change(host, CONTAINERD, files, "restarted")
    crio = _change(host, CRIO, [_file(host, runtime.crio_drop_in, None)], "restarted")
    if crio.action and version_key(host["engines"]["crio"]["version"]) >= version_key(_RELOADS):
        crio.action = "reloaded"
    for title, names, change in (("containerd", ("kubernetes", "containerd"), containerd), ("CRI-O", ("crio",), crio)):
        number = sum(coexistence.running(host, name) for name in names)
        if change.files and number:
            result.problems.append(
                f"{runtime.product} cannot be removed: containers of {title} are running ({number}), and those with "
                f"runtime {runtime.name} need it. Nothing was changed. Stop the containers first."
            )
        if change.files and change.action == "restarted" and restart_policy == "never":
            change.action = change.marker = None
            result.reasons.append(
                f"{title} keeps the removed runtime loaded until its next restart, because {restart_variable} is never"
            )
        if change.files:
            _add(result, title, runtime, change, policy)
    return result
