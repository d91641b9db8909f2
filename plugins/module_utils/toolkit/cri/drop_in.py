# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A vendor's runtime in containerd and CRI-O: a drop-in, and for containerd one import in its root file.

Pure functions.
"""

from __future__ import annotations

import copy
import dataclasses
import fnmatch
import posixpath
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import version_key
from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes.distribution_paths import NODEADM_FILES
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import toml_editor
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri import engine_file_parsing
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.docker_runtime import MANAGER, NAME, PATH
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.toml_editor import TomlError

ROOT_FILE = "/etc/containerd/config.toml"
# Drop-ins that nvidia-ctk wrote where no engine reads them: containerd with 1.18.0, CRI-O with 1.18.0 to 1.19.0.
LEFTOVERS = ("/etc/containerd/config.d/99-nvidia.toml", "/etc/crio/conf.d/99-nvidia.toml")
_HEADER = "# Written by role gpufleet.hosts.{role}. Changes in this file are lost.\n"
_RUNC = "io.containerd.runc.v2"
# The plugin table of CRI by the version of the configuration, and the first containerd that reads this version:
# containerd/containerd, tags v1.3.0, v2.0.0 and v2.3.0.
_CRI = {2: "io.containerd.grpc.v1.cri", 3: "io.containerd.cri.v1.runtime", 4: "io.containerd.cri.v1.runtime"}
_FIRST = {2: "1.3", 3: "2.0", 4: "2.3"}
# The first containerd that merges the tables of imported files, and the first with CDI, which 2.0 enables by default:
# containerd/containerd, a21e379b6.
_MERGES = "2.0"
# Without a root file, this containerd imports all files in the directory of the drop-in: containerd/containerd, v2.2.0.
_IMPORTS_BY_DEFAULT = "2.2"
_DEFAULT_IMPORT = posixpath.dirname(owned.CONTAINERD_DROP_IN) + "/*.toml"
_CDI = "1.7"
# Where NVIDIA's runtime searches for the OCI runtime that it calls: NVIDIA/nvidia-container-toolkit,
# internal/oci/runtime_low_level.go and pkg/lookup (d34b304). CRI-O's own packages have theirs in /usr/libexec/crio:
# cri-o/packaging, templates/latest/cri-o (b111fe9).
_SEARCHED = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
# Files whose owners write them again: k3s and RKE2 have their own; nodeadm (awslabs/amazon-eks-ami, nodeadm/internal/
# containerd, 81fec2e) and Kubespray (roles/container-engine/containerd, 46dbdd3) name this specification of runtimes.
_OWN_FILES = {
    "k3s": "/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
    "RKE2": "/var/lib/rancher/rke2/agent/etc/containerd/config.toml",
}
_NODEADM = "nodeadm"
# The collection's own runtimes call the OCI runtime, so none of them is the base of another one.
_OWN_NAMES, _OWN_PROGRAMS = ("nvidia", "habana"), ("nvidia-container-runtime", "habana-container-runtime")
_SPECIFICATIONS = {
    "/etc/containerd/base-runtime-spec.json": _NODEADM,
    "/etc/containerd/cri-base.json": "Kubespray",
}


@dataclasses.dataclass(frozen=True)
class CriRuntime:
    """A runtime: the role that registers it, what the role installs, its name, its program, and the role's drop-ins.

    `uses_path`: the program searches for the OCI runtime only in its PATH, so CRI-O must set that.
    """

    role: str
    product: str
    name: str
    path: str
    containerd_drop_in: str
    crio_drop_in: str
    uses_path: bool = False

    @property
    def header(self) -> str:
        return _HEADER.format(role=self.role)


NVIDIA = CriRuntime(MANAGER, "NVIDIA's container toolkit", NAME, PATH, owned.CONTAINERD_DROP_IN, owned.CRIO_DROP_IN)
HABANA_PACKAGE = "habanalabs-container-runtime"
# HabanaAI/gaudi-container-runtime, cmd/habana-container-runtime/main.go (5e3298a): it calls the first runc in its PATH.
HABANA = CriRuntime(
    "gaudi_driver",
    "The vendor's container runtime of Gaudi",
    "habana",
    "/usr/bin/habana-container-runtime",
    owned.GAUDI_CONTAINERD_DROP_IN,
    owned.GAUDI_CRIO_DROP_IN,
    uses_path=True,
)


@dataclasses.dataclass
class CriRegistration:
    """The text of the drop-in, None without one, and the keys to set in the root file.

    `merges`: whether containerd merges the tables of imported files. Reasons and problems are sentences. With a
    drop-in, a reason is a note.
    """

    drop_in: str | None = None
    # The texts of the drop-ins of the other roles, by path, if containerd does not merge them.
    others: dict[str, str] = dataclasses.field(default_factory=dict)
    root: dict[str, t.Any] = dataclasses.field(default_factory=dict)
    merges: bool = True
    reasons: list[str] = dataclasses.field(default_factory=list)
    problems: list[str] = dataclasses.field(default_factory=list)


def owner(root_text: str | None, existing: t.Collection[str] = ()) -> str | None:
    """Return who else writes containerd's configuration, or None. `existing` names files of the host."""
    found = next((name for name, path in _OWN_FILES.items() if path in existing), None)
    # Before the first boot of an EKS node, nodeadm has not written the file yet.
    found = found or next((_NODEADM for path in NODEADM_FILES if path in existing), None)
    if found or not root_text:
        return found
    root = engine_file_parsing.parsed(ROOT_FILE, root_text)
    tables = (toml_editor.get(root, ("plugins", table, "containerd", "runtimes")) or {} for table in _CRI.values())
    runtimes = [runtime for table in tables for runtime in table.values()]
    specs = (runtime.get("base_runtime_spec") for runtime in runtimes if isinstance(runtime, dict))
    return next((_SPECIFICATIONS[spec] for spec in specs if spec in _SPECIFICATIONS), None)


def way_out(other: str, runtime: CriRuntime = NVIDIA) -> str:
    """Return what registers the runtime where somebody else writes containerd's configuration."""
    if other in _OWN_FILES and runtime == NVIDIA:
        return f"Role gpu_kubernetes_node registers runtime {runtime.name} in {other}"
    return f"Register runtime {runtime.name} with {other}"


def is_merging(version: str) -> bool:
    """Return whether containerd merges the tables of imported files."""
    return version_key(version) >= version_key(_MERGES)


def containerd(
    version: str,
    root_text: str | None,
    imported: t.Mapping[str, str] | None = None,
    *,
    runtime: CriRuntime = NVIDIA,
    default_runtime: bool = False,
    others: t.Sequence[CriRuntime] = (),
    existing: t.Collection[str] = (),
    programs: t.Collection[str] | None = (),
) -> CriRegistration:
    """Return the registration of a runtime in containerd.

    `root_text`: the text of its root file, None if the file does not exist. `imported`: the texts of imported files by
    path, in the order in which containerd reads them. `others`: the runtimes of other roles that have their drop-ins
    among them. `programs`: the existing programs that the files name, None if they are not observed.
    """
    result = CriRegistration()
    try:
        _containerd(
            result,
            version,
            root_text,
            dict(imported or {}),
            runtime,
            default_runtime=default_runtime,
            others=others,
            existing=existing,
            programs=programs,
        )
    except TomlError as error:
        result.problems.append(str(error))
    if result.problems:
        result.drop_in, result.others, result.root = None, {}, {}
    return result


def _containerd(
    result: CriRegistration,
    version: str,
    root_text: str | None,
    imported: dict[str, str],
    runtime: CriRuntime,
    *,
    default_runtime: bool,
    others: t.Sequence[CriRuntime],
    existing: t.Collection[str],
    programs: t.Collection[str] | None,
) -> None:
    drop_in = runtime.containerd_drop_in
    other = owner(root_text, existing)
    if other:
        result.reasons.append(
            f"{other} writes containerd's configuration, so it stays unchanged. {way_out(other, runtime)}."
        )
        return
    root = engine_file_parsing.parsed(ROOT_FILE, root_text)
    if {"cri", *_CRI.values()} & set(root.get("disabled_plugins") or []):
        result.reasons.append(
            f"{ROOT_FILE} disables CRI, so Kubernetes does not use this containerd. It stays unchanged."
        )
        return
    merges = result.merges = is_merging(version)
    number = _config_version(result, version, root_text, root, merges=merges)
    if number is None:
        return
    trees = {
        ROOT_FILE: root,
        **{path: engine_file_parsing.parsed(path, text) for path, text in imported.items() if path != drop_in},
    }
    table = _effective(_foreign(trees), _CRI[number], merges=merges)
    known = _program(table, runtime)
    if is_missing(known, programs, runtime):
        result.reasons.append(
            f"runtime {runtime.name} is registered in containerd as {known}, which does not exist. {drop_in} replaces "
            "it."
        )
    elif _is_registered(table, runtime, default_runtime=default_runtime):
        result.reasons.append(
            f"runtime {runtime.name} is already registered in containerd as {known}, and the configuration stays "
            "unchanged."
        )
        return
    result.reasons += _notes(table, version)
    # An old containerd uses only the last drop-in, so all of them get the same table.
    beside = [] if merges else [one for one in others if one.containerd_drop_in in trees]
    default = runtime.name if default_runtime else _default_of(trees, beside, _CRI[number])
    tree = {_CRI[number]: _with_runtimes(table, [runtime, *beside], version, default, merges=merges)}
    _set_drop_ins(result, trees, runtime, beside, {"version": number, "plugins": tree})
    if root_text is None and version_key(version) >= version_key(_IMPORTS_BY_DEFAULT):
        root["imports"] = [_DEFAULT_IMPORT]
    else:
        result.root = _root_keys(root, number, drop_in)
        root.update(result.root)
    _check_order(result, trees, _CRI[number], runtime, default_runtime=default_runtime)


def _notes(table: dict[str, t.Any], version: str) -> list[str]:
    if table.get("enable_cdi") is not False or version_key(version) < version_key(_CDI):
        return []
    return [
        "containerd's configuration has enable_cdi = false, so Kubernetes cannot use CDI. The role keeps the value."
    ]


def _foreign(trees: t.Mapping[str, dict[str, t.Any]]) -> list[dict[str, t.Any]]:
    """Return the files of others. Own drop-ins carry the whole table of an old containerd, so they show nothing."""
    return [tree for path, tree in trees.items() if path not in owned.CONTAINERD_DROP_INS]


def _default_of(trees: t.Mapping[str, dict[str, t.Any]], beside: t.Iterable[CriRuntime], table: str) -> str | None:
    """Return the runtime that its own drop-in makes the default one, or None."""
    key = ("plugins", table, "containerd", "default_runtime_name")
    return next((one.name for one in beside if toml_editor.get(trees[one.containerd_drop_in], key) == one.name), None)


def _set_drop_ins(
    result: CriRegistration,
    trees: dict[str, dict[str, t.Any]],
    runtime: CriRuntime,
    beside: t.Sequence[CriRuntime],
    tree: dict[str, t.Any],
) -> None:
    text = toml_editor.document(tree)
    trees.update(dict.fromkeys((runtime.containerd_drop_in, *(one.containerd_drop_in for one in beside)), tree))
    result.drop_in = runtime.header + text
    result.others = {one.containerd_drop_in: one.header + text for one in beside}


def _check_order(
    result: CriRegistration,
    trees: t.Mapping[str, dict[str, t.Any]],
    table: str,
    runtime: CriRuntime,
    *,
    default_runtime: bool,
) -> None:
    """Find files with a table of CRI that containerd reads after the drop-in, so that the drop-in has no effect."""
    order = _load_order(trees)
    effective = _effective((trees[path] for path in order), table, merges=result.merges)
    if _is_registered(effective, runtime, default_runtime=default_runtime):
        return
    later = order[order.index(runtime.containerd_drop_in) + 1 :]
    names = ", ".join(path for path in later if toml_editor.get(trees[path], ("plugins", table)) is not None)
    result.problems.append(
        f"{'The default runtime' if default_runtime else 'Runtime'} {runtime.name} would have no effect in containerd: "
        f"it reads {names} after {runtime.containerd_drop_in}, and uses the CRI settings of the last file. Rename the "
        "file or change the key imports so that containerd reads the file before the drop-in, or register the runtime "
        "in the file."
    )


def _config_version(
    result: CriRegistration, version: str, root_text: str | None, root: dict[str, t.Any], *, merges: bool
) -> int | None:
    """Return the version of the configuration. A missing file gets one, and a file without a version has version 1."""
    number = root.get("version", (3 if merges else 2) if root_text is None or not root else 1)
    if number == 1:
        result.problems.append(
            f"{ROOT_FILE} has version 1, for which drop-ins do not work. Migrate the file with 'containerd config "
            "migrate', or remove it."
        )
    elif number not in _CRI:
        result.problems.append(
            f"{ROOT_FILE} has version {number}, which is not known. Known versions: {', '.join(map(str, _CRI))}."
        )
    elif version_key(version) < version_key(_FIRST[number]):
        result.problems.append(
            f"{ROOT_FILE} has version {number}, which containerd {version} does not read. Version {number} "
            f"requires containerd {_FIRST[number]} or later."
        )
    else:
        return int(number)
    return None


def _effective(trees: t.Iterable[dict[str, t.Any]], table: str, *, merges: bool) -> dict[str, t.Any]:
    """Return the table of CRI that containerd uses: merged from all files, or that of the last file with one."""
    found: dict[str, t.Any] = {}
    for tree in trees:
        own = toml_editor.get(tree, ("plugins", table))
        if isinstance(own, dict):
            found = _merged(found, own) if merges else own
    return copy.deepcopy(found)


def _merged(one: dict[str, t.Any], other: dict[str, t.Any]) -> dict[str, t.Any]:
    result = dict(one)
    for key, item in other.items():
        both = isinstance(item, dict) and isinstance(result.get(key), dict)
        result[key] = _merged(result[key], item) if both else item
    return result


def _with_runtimes(
    table: dict[str, t.Any], added: t.Iterable[CriRuntime], version: str, default: str | None, *, merges: bool
) -> dict[str, t.Any]:
    """Return the table with runtimes, and with `default` as the default one, None if that stays."""
    carried = {} if merges else table
    containerd_table = dict(carried.get("containerd") or {})
    # A table of runtimes replaces the default one, and CRI does not start without its default runtime:
    # containerd/containerd, v1.7.27, pkg/cri/config.
    defaults = {} if merges else {"runc": {"runtime_type": _RUNC}}
    ours = {one.name: _entry(table, one) for one in sorted(added, key=lambda one: one.name)}
    containerd_table["runtimes"] = {**containerd_table.get("runtimes", defaults), **ours}
    if default:
        containerd_table["default_runtime_name"] = default
    cdi = {"enable_cdi": True} if not merges and version_key(version) >= version_key(_CDI) else {}
    return {**cdi, **carried, "containerd": containerd_table}


def _entry(table: dict[str, t.Any], runtime: CriRuntime) -> dict[str, t.Any]:
    """Return the entry of a runtime. It has the options of the default runtime, for example SystemdCgroup."""
    runtimes = toml_editor.get(table, ("containerd", "runtimes")) or {}
    default = toml_editor.get(table, ("containerd", "default_runtime_name"))
    base = next((name for name in (default, "runc", "crun") if name in runtimes and name != runtime.name), None)
    of_base = copy.deepcopy(runtimes[base]) if base else {}
    options = {**(of_base.get("options") or {}), "BinaryName": runtime.path}
    return {**of_base, "runtime_type": of_base.get("runtime_type") or _RUNC, "options": options}


def _is_registered(table: dict[str, t.Any], runtime: CriRuntime, *, default_runtime: bool) -> bool:
    """Return whether somebody else has registered the vendor's runtime."""
    binary = _program(table, runtime)
    is_default = toml_editor.get(table, ("containerd", "default_runtime_name")) == runtime.name
    return posixpath.basename(str(binary)) == posixpath.basename(runtime.path) and (is_default or not default_runtime)


def _program(table: dict[str, t.Any], runtime: CriRuntime) -> str | None:
    """Return the program of the runtime in a table of CRI."""
    binary = toml_editor.get(table, ("containerd", "runtimes", runtime.name, "options", "BinaryName"))
    return binary if isinstance(binary, str) else None


def is_missing(program: str | None, programs: t.Collection[str] | None, runtime: CriRuntime = NVIDIA) -> bool:
    """Return whether a registered program of the vendor is gone. The package installs the program at its usual path."""
    is_path = bool(program) and str(program).startswith("/") and program != runtime.path
    if not is_path or programs is None:
        return False
    return posixpath.basename(str(program)).startswith(posixpath.basename(runtime.path)) and program not in programs


def containerd_program(texts: t.Mapping[str, str], version: str) -> str | None:
    """Return the program of NVIDIA's runtime in containerd. `texts`: all its files by path, in the order of reading."""
    trees = {path: engine_file_parsing.parsed(path, text) for path, text in texts.items()}
    root = trees.get(ROOT_FILE, {})
    merges = is_merging(version)
    table = _CRI.get(root.get("version", 3 if merges else 2))
    order = _load_order(trees) if ROOT_FILE in trees else list(trees)
    return _program(_effective((trees[path] for path in order), table, merges=merges), NVIDIA) if table else None


def crio_program(texts: t.Mapping[str, str], runtime: CriRuntime = NVIDIA) -> str | None:
    """Return the program of the runtime in CRI-O. `texts`: see `crio`."""
    tree: dict[str, t.Any] = {}
    for path, text in texts.items():
        tree = _merged(tree, engine_file_parsing.parsed(path, text))
    found = toml_editor.get(tree, ("crio", "runtime", "runtimes", runtime.name, "runtime_path"))
    return found if isinstance(found, str) else None


def _root_keys(root: dict[str, t.Any], number: int, drop_in: str) -> dict[str, t.Any]:
    """Return the keys to set in the root file. Without its version, the file could not import the drop-in."""
    known = list(root.get("imports") or [])
    if selected(known, ROOT_FILE, [drop_in]):
        return {}
    return {**({} if "version" in root else {"version": number}), "imports": [*known, drop_in]}


def imports(path: str, text: str) -> list[str]:
    """Return the key imports of a file."""
    return list(engine_file_parsing.parsed(path, text).get("imports") or [])


def _load_order(trees: t.Mapping[str, dict[str, t.Any]]) -> list[str]:
    """Return the paths in the order in which containerd reads them: the imports of a file after all pending files."""
    found: list[str] = []
    pending = [ROOT_FILE]
    while pending:
        path = pending.pop(0)
        if path not in found:
            found.append(path)
            pending += selected(trees[path].get("imports") or [], path, trees)
    return found


def selected(patterns: t.Iterable[str], path: str, paths: t.Iterable[str]) -> list[str]:
    """Return which paths the imports of a file select.

    A star does not cross a directory, and without a star, nothing is a pattern. The rule is that of resolveImports in
    containerd/containerd, v1.7.27, services/server/config/config.go.
    """
    result = []
    for text in patterns:
        pattern = posixpath.normpath(posixpath.join(posixpath.dirname(path), text)).split("/")
        for parts in sorted(name.split("/") for name in paths):
            is_glob = "*" in text and len(parts) == len(pattern)
            if parts == pattern or (is_glob and all(map(fnmatch.fnmatchcase, parts, pattern))):
                result.append("/".join(parts))
    return result


def _is_own(name: str, entry: dict[str, t.Any], runtime: CriRuntime) -> bool:
    program = posixpath.basename(entry.get("runtime_path") or "")
    return name in (*_OWN_NAMES, runtime.name) or program.startswith(_OWN_PROGRAMS)


def crio(
    texts: t.Mapping[str, str],
    *,
    runtime: CriRuntime = NVIDIA,
    default_runtime: bool = False,
    programs: t.Collection[str] | None = (),
) -> tuple[str | None, str | None]:
    """Return the drop-in for CRI-O, and the OCI runtime that the vendor's runtime does not find by its name.

    None: somebody else has registered the runtime, or it finds the OCI runtime. `texts`: CRI-O's configuration files by
    path, in the order in which it reads them. `programs`: see `containerd`. Raise TomlError
    with a whole message if one cannot be read.
    """
    tree: dict[str, t.Any] = {}
    for path, text in texts.items():
        tree = _merged(tree, engine_file_parsing.parsed(path, text))
    section = toml_editor.get(tree, ("crio", "runtime")) or {}
    runtimes = section.get("runtimes") or {}
    known = str((runtimes.get(runtime.name) or {}).get("runtime_path"))
    is_ours = posixpath.basename(known) == posixpath.basename(runtime.path) and not is_missing(known, programs, runtime)
    if is_ours and (section.get("default_runtime") == runtime.name or not default_runtime):
        return None, None
    names = (section.get("default_runtime"), "crun", "runc")
    base = next((name for name in names if name in runtimes and not _is_own(name, runtimes[name], runtime)), None)
    options = runtimes[base] if base else {}
    ours = {**options, "runtime_path": runtime.path, "runtime_type": "oci"}
    own: dict[str, t.Any] = {"runtimes": {runtime.name: ours}}
    if default_runtime:
        own["default_runtime"] = runtime.name
    called = str(options.get("runtime_path") or "")
    is_found = not called or posixpath.dirname(called) in _SEARCHED
    if not is_found and runtime.uses_path:
        # crio.conf(5): this reaches conmon and the runtime.
        others = [text for text in options.get("monitor_env") or [] if not text.startswith("PATH=")]
        ours["monitor_env"] = [*others, f"PATH={':'.join((*_SEARCHED, posixpath.dirname(called)))}"]
    return runtime.header + toml_editor.document({"crio": {"runtime": own}}), None if is_found else called
