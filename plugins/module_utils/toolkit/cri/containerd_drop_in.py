# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The drop-in of containerd with a vendor's runtime, and its import in containerd's root file. Pure functions."""

from __future__ import annotations

import copy
import dataclasses
import posixpath
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import version_key
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import toml_editor
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri import (
    containerd_imports,
    containerd_versions,
    engine_file_parsing,
    gone_program,
    options_copied_from_default_runtime,
    other_configuration_owners,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri.containerd_versions import ROOT_FILE, TABLES
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri.vendor_runtimes import NVIDIA, CriRuntime
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.toml_editor import TomlError

# Drop-ins that nvidia-ctk wrote where no engine reads them: containerd with 1.18.0, CRI-O with 1.18.0 to 1.19.0.
LEFTOVERS = ("/etc/containerd/config.d/99-nvidia.toml", "/etc/crio/conf.d/99-nvidia.toml")
_RUNC = "io.containerd.runc.v2"
_DEFAULT_IMPORT = posixpath.dirname(owned.CONTAINERD_DROP_IN) + "/*.toml"


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
    other = other_configuration_owners.owner(root_text, existing)
    if other:
        way_out = other_configuration_owners.way_out(other, runtime)
        result.reasons.append(f"{other} writes containerd's configuration, so it stays unchanged. {way_out}.")
        return
    root = engine_file_parsing.parsed(ROOT_FILE, root_text)
    if {"cri", *TABLES.values()} & set(root.get("disabled_plugins") or []):
        result.reasons.append(
            f"{ROOT_FILE} disables CRI, so Kubernetes does not use this containerd. It stays unchanged."
        )
        return
    merges = result.merges = containerd_versions.is_merging(version)
    number, problem = containerd_versions.of_configuration(version, root_text, root)
    if number is None:
        result.problems.append(problem)
        return
    trees = {
        ROOT_FILE: root,
        **{path: engine_file_parsing.parsed(path, text) for path, text in imported.items() if path != drop_in},
    }
    table = _effective(_foreign(trees), TABLES[number], merges=merges)
    known = _program(table, runtime)
    if gone_program.is_missing(known, programs, runtime):
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
    default = runtime.name if default_runtime else _default_of(trees, beside, TABLES[number])
    tree = {TABLES[number]: _with_runtimes(table, [runtime, *beside], version, default, merges=merges)}
    _set_drop_ins(result, trees, runtime, beside, {"version": number, "plugins": tree})
    if root_text is None and version_key(version) >= version_key(containerd_versions.IMPORTS_BY_DEFAULT):
        root["imports"] = [_DEFAULT_IMPORT]
    else:
        result.root = _root_keys(root, number, drop_in)
        root.update(result.root)
    _check_order(result, trees, TABLES[number], runtime, default_runtime=default_runtime)


def _notes(table: dict[str, t.Any], version: str) -> list[str]:
    if table.get("enable_cdi") is not False or version_key(version) < version_key(containerd_versions.CDI):
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
    order = containerd_imports.load_order(trees)
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


def _effective(trees: t.Iterable[dict[str, t.Any]], table: str, *, merges: bool) -> dict[str, t.Any]:
    """Return the table of CRI that containerd uses: merged from all files, or that of the last file with one."""
    found: dict[str, t.Any] = {}
    for tree in trees:
        own = toml_editor.get(tree, ("plugins", table))
        if isinstance(own, dict):
            found = engine_file_parsing.merged(found, own) if merges else own
    return copy.deepcopy(found)


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
    cdi = {"enable_cdi": True} if not merges and version_key(version) >= version_key(containerd_versions.CDI) else {}
    return {**cdi, **carried, "containerd": containerd_table}


def _entry(table: dict[str, t.Any], runtime: CriRuntime) -> dict[str, t.Any]:
    """Return the entry of a runtime. It has the options of the default runtime, for example SystemdCgroup."""
    of_base = options_copied_from_default_runtime.copied_entry(table, runtime.name)
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


def containerd_program(texts: t.Mapping[str, str], version: str) -> str | None:
    """Return the program of NVIDIA's runtime in containerd. `texts`: all its files by path, in the order of reading."""
    trees = {path: engine_file_parsing.parsed(path, text) for path, text in texts.items()}
    root = trees.get(ROOT_FILE, {})
    merges = containerd_versions.is_merging(version)
    table = TABLES.get(root.get("version", 3 if merges else 2))
    order = containerd_imports.load_order(trees) if ROOT_FILE in trees else list(trees)
    return _program(_effective((trees[path] for path in order), table, merges=merges), NVIDIA) if table else None


def _root_keys(root: dict[str, t.Any], number: int, drop_in: str) -> dict[str, t.Any]:
    """Return the keys to set in the root file. Without its version, the file could not import the drop-in."""
    known = list(root.get("imports") or [])
    if containerd_imports.selected(known, ROOT_FILE, [drop_in]):
        return {}
    return {**({} if "version" in root else {"version": number}), "imports": [*known, drop_in]}
