# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The state of systemd units, from one call of systemctl."""

from __future__ import annotations

from typing import Callable

Run = Callable[["list[str]"], "tuple[int, str, str]"]

_PROPERTIES = {
    "LoadState": "load_state",
    "ActiveState": "active_state",
    "SubState": "sub_state",
    "UnitFileState": "unit_file_state",
    "FragmentPath": "fragment_path",
    "DropInPaths": "drop_in_paths",
    "NeedDaemonReload": "need_daemon_reload",
    "ActiveEnterTimestampMonotonic": "active_since_us",
}


def read(units: list[str], run: Run) -> dict[str, dict]:
    """Return the state of each unit, or an empty result if systemd does not answer."""
    if not units:
        return {}
    names = ",".join(["Id", *_PROPERTIES])
    rc, out, _err = run(["systemctl", "show", f"--property={names}", "--", *units])
    if rc != 0:
        return {}
    blocks = [block for block in out.split("\n\n") if block.strip()]
    if len(blocks) != len(units):
        return {}
    return {unit: _unit(block) for unit, block in zip(units, blocks)}


def _unit(block: str) -> dict:
    fields = dict(line.partition("=")[::2] for line in block.splitlines() if "=" in line)
    state: dict = {name: fields.get(key) or None for key, name in _PROPERTIES.items()}
    state["drop_in_paths"] = (fields.get("DropInPaths") or "").split()
    state["need_daemon_reload"] = fields.get("NeedDaemonReload") == "yes"
    state["active_since_us"] = int(fields.get("ActiveEnterTimestampMonotonic") or 0)
    return state
