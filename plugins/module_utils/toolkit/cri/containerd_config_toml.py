# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which keys of containerd's config.toml are set, stay as another role needs them, or revert. Pure functions."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import observed_files, owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import (
    config_toml,
    record_of_changed_keys,
    toml_editor,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri import engine_file_parsing
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri.containerd_versions import ROOT_FILE
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri.cri_changes import CriFile, file_of
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.toml_editor import TomlError

if t.TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host
    from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri.vendor_runtimes import CriRuntime

_RECORD = owned.CONTAINERD_CONFIG_RECORD


def files(host: Host, runtime: CriRuntime, wanted: t.Mapping[str, t.Any], *, is_imported: bool) -> list[CriFile]:
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
    found = [file_of(host, _RECORD, change.record), CriFile(ROOT_FILE, new, text, seen["mode"] or "0644")]
    return found if wanted else found[::-1]


def recorded_keys(host: Host) -> dict[str, t.Any]:
    """Return the keys of the root file that an earlier run set, with their present values."""
    root = engine_file_parsing.content(host["cri_files"]["containerd"].get(ROOT_FILE) or "")
    known = record_of_changed_keys.read(observed_files.content(host, _RECORD), _RECORD)["keys"]
    return {key: root[key] for key in known if key in root}


def _of_other_roles(host: Host, runtime: CriRuntime) -> dict[str, t.Any]:
    """Return the recorded keys of the root file that the drop-in of another role still needs."""
    root = engine_file_parsing.content(host["cri_files"]["containerd"].get(ROOT_FILE) or "")
    rest = [path for path in root.get("imports") or [] if path != runtime.containerd_drop_in]
    if not set(owned.CONTAINERD_DROP_INS) & set(rest):
        return {}
    known = recorded_keys(host)
    return {**known, "imports": rest} if "imports" in known else known
