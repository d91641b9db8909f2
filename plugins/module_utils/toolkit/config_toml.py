# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the role's keys in the toolkit's config.toml, with a record of what they replaced. Pure functions."""

from __future__ import annotations

import dataclasses
import difflib
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import record_of_changed_keys, toml_editor

if t.TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host

PATH = "/etc/nvidia-container-runtime/config.toml"
# The keys with their types or values: NVIDIA/nvidia-container-toolkit, api/config/v1, for mode internal/info (d34b304).
_RUNTIME, _CLI = "nvidia-container-runtime", "nvidia-container-cli"
RUNTIMES = f"{_RUNTIME}.runtimes"
# The default value of this key: api/config/v1/config.go.
_DEFAULT_RUNTIMES = ["runc", "crun"]
_LEVELS = ("trace", "debug", "info", "warning", "error", "fatal", "panic")
KEYS: dict[str, t.Any] = {
    "accept-nvidia-visible-devices-as-volume-mounts": bool,
    "accept-nvidia-visible-devices-envvar-when-unprivileged": bool,
    "disable-require": bool,
    "supported-driver-capabilities": str,
    "swarm-resource": str,
    **{f"{_CLI}.{key}": str for key in ("debug", "ldcache", "ldconfig", "path", "root", "user")},
    **{f"{_CLI}.{key}": bool for key in ("load-kmods", "no-cgroups", "no-pivot")},
    f"{_CLI}.environment": list,
    f"{_RUNTIME}.debug": str,
    f"{_RUNTIME}.log-level": _LEVELS,
    f"{_RUNTIME}.mode": ("auto", "legacy", "cdi", "csv", "jit-cdi"),
    RUNTIMES: list,
    f"{_RUNTIME}.modes.cdi.annotation-prefixes": list,
    f"{_RUNTIME}.modes.cdi.default-kind": str,
    f"{_RUNTIME}.modes.cdi.spec-dirs": list,
    f"{_RUNTIME}.modes.csv.mount-spec-path": str,
    f"{_RUNTIME}.modes.csv.compat-container-root": str,
    f"{_RUNTIME}.modes.jit-cdi.nvcdi-feature-flags": list,
    f"{_RUNTIME}.modes.jit-cdi.nvcdi-disable-hooks": list,
    f"{_RUNTIME}.modes.legacy.cuda-compat-mode": ("disabled", "hook", "ldconfig", "mount"),
    "nvidia-container-runtime-hook.path": str,
    "nvidia-container-runtime-hook.skip-mode-detection": bool,
    "nvidia-ctk.path": str,
    **{
        f"features.{key}": bool
        for key in (
            *("allow-cuda-compat-libs-from-container", "allow-ldconfig-from-container"),
            *("allow-unknown-oci-spec-fields", "disable-cuda-compat-lib-hook", "disable-imex-channel-creation"),
            *("ignore-imex-channel-requests", "no-additional-gids-for-device-nodes"),
        )
    },
}
_TITLES = {bool: "true or false", str: "text", list: "a list of strings"}


@dataclasses.dataclass
class ConfigChange:
    """The new text of the file and of the record. None: the file must not exist."""

    text: str | None
    record: str | None
    keys: list[str] = dataclasses.field(default_factory=list)


def flat(config: t.Mapping[str, t.Any], above: str = "") -> dict[str, t.Any]:
    """Return the values by the dotted names of their keys. Names with dots and nested names are equal."""
    found: dict[str, t.Any] = {}
    for key, item in config.items():
        if isinstance(item, t.Mapping):
            found |= flat(item, f"{above}{key}.")
        else:
            found[f"{above}{key}"] = item
    return found


def value_problems(config: t.Mapping[str, t.Any]) -> list[str]:
    """Return what is wrong with the user's keys and values. None is valid: it removes the key from the file."""
    found = []
    for key, item in flat(config).items():
        kind = KEYS.get(key)
        if kind is None:
            near = difflib.get_close_matches(key, KEYS, 1) or difflib.get_close_matches(
                key.rpartition(".")[2], [name.rpartition(".")[2] for name in KEYS], 1
            )
            hint = f" Did you mean {near[0]}?" if near else ""
            found.append(f"{key} is not a key of {PATH}.{hint}")
        elif item is not None and not _is_valid(kind, item):
            title = _TITLES.get(kind) or f"one of {', '.join(kind)}"
            found.append(f"{key} is {item!r}, but must be {title}.")
    return found


def _is_valid(kind: t.Any, item: t.Any) -> bool:
    if kind is list:
        return isinstance(item, list) and all(isinstance(part, str) for part in item)
    return isinstance(item, kind) if isinstance(kind, type) else item in kind


def plan(
    text: str | None,
    record: str | None,
    config: t.Mapping[str, t.Any],
    record_path: str = owned.CONTAINER_TOOLKIT_CONFIG_RECORD,
) -> ConfigChange:
    """Return the change of a file. `config` has all keys of the role. Raise TomlError if the file cannot be changed.

    A key that the role no longer has gets its former lines back, unless somebody has edited its value.
    """
    known, wanted = record_of_changed_keys.read(record, record_path), flat(config)
    keys, tables = dict(known["keys"]), set(known["tables"])
    new, changed = text or "", []
    for name in [name for name in keys if name not in wanted]:
        former, path = keys.pop(name), tuple(name.split("."))
        if toml_editor.get(toml_editor.parse(new), path) == former["value"]:
            new = toml_editor.restored(new, path, former["before"], table=name.rpartition(".")[0] in tables)
            changed.append(name)
    for name, item in sorted(wanted.items()):
        path = tuple(name.split("."))
        if toml_editor.get(toml_editor.parse(new), path) == item:
            continue
        tables |= set() if toml_editor.has_table(new, path[:-1]) else {name.rpartition(".")[0]}
        before = keys[name]["before"] if name in keys else toml_editor.lines_of(new, path)
        keys[name] = {"value": item, "before": before}
        new = toml_editor.changed(new, path, item)
        changed.append(name)
    made = known["made"] or text is None
    return ConfigChange(
        text=None if made and not keys and not new.strip() else new,
        record=record_of_changed_keys.text_of(keys, tables, made=made),
        keys=sorted(changed),
    )


def observed(host: Host, config: t.Mapping[str, t.Any], oci_runtime: str | None = None) -> ConfigChange:
    """Return the change on an observed host.

    `oci_runtime`: the path of an OCI runtime that NVIDIA's runtime must also try, unless `config` has its own list.
    """
    files = host["files"]
    texts = [(files.get(path) or {}).get("content") for path in (PATH, owned.CONTAINER_TOOLKIT_CONFIG_RECORD)]
    change = plan(*texts, config)
    if not oci_runtime or RUNTIMES in flat(config):
        return change
    # The list of the administrator or of the package, without the addition of an earlier run.
    known = toml_editor.get(toml_editor.parse(change.text or ""), tuple(RUNTIMES.split(".")))
    names = known if isinstance(known, list) else _DEFAULT_RUNTIMES
    return change if oci_runtime in names else plan(*texts, {**flat(config), RUNTIMES: [*names, oci_runtime]})
