# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan a change of daemon.json: from the current file, its record and the requested options to the new file."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config import managed_keys
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.docker_options import (
    config_problems,
    merge_policy,
    restart_required,
    value_problems,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.dockerd_flags import (
    DEFAULT_UNIT,
    Flag,
    conflicts,
    runtimes,
    without_options_set_by_flags,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.json_text import (
    DaemonConfigError,
    dump,
    parse,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.record import State
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.secret_masking import masked, masked_tree


class DaemonPlan(t.NamedTuple):
    """A planned change. `text` is None if the file must be removed or does not exist."""

    text: str | None
    config: dict[str, t.Any]
    state: State
    changed_keys: tuple[str, ...]
    restart_keys: list[str]
    edited: tuple[str, ...]
    revoked: tuple[str, ...]
    satisfied: list[str]
    conflicts: list[str]


def plan(
    before: str | None,
    state: State,
    manager: str,
    options: dict[str, t.Any] | None,
    *,
    present: bool,
    lists: str,
    purge: bool = False,
    flags: list[Flag],
    path: str,
    unit: str = DEFAULT_UNIT,
    in_swarm: bool = False,
) -> DaemonPlan:
    """Plan the change. Raise an error with all problems of the options and of the new file.

    `purge`: whether `options` are all options of `manager`. Otherwise, its other options stay.
    """
    current = {} if before is None else parse(before, path)
    problems = value_problems(masked_tree(options or {})) if present else []
    if problems:
        raise DaemonConfigError("options: " + " ".join(problems))
    rules = merge_policy(lists)
    satisfied: list[str] = []
    try:
        if present:
            requested = without_options_set_by_flags(options or {}, flags)
            satisfied = sorted(set(options or {}) - set(requested))
            by_flags = {key: value for key, value in (options or {}).items() if key in satisfied}
            result = managed_keys.merge(
                current, state.record, manager, requested, rules, purge=purge, elsewhere=by_flags
            )
        else:
            result = managed_keys.release(current, state.record, manager, options or None, rules)
    except managed_keys.MergeError as error:
        raise DaemonConfigError(f"{path}: {error}") from error

    new = state._replace(record=result.record)
    if not state.record.entries or before is None:  # None: somebody else has removed the file
        new = new._replace(original=before)
    text = before
    if result.changed:
        text = _text(result.tree, before, new)
    if not result.record.entries:
        new = new._replace(original=None)
    set_twice = [masked(text) for text in conflicts(masked_tree(result.tree), flags, path, unit)]
    if result.changed:
        problems = config_problems(masked_tree(result.tree), runtimes(flags)) + set_twice
        if in_swarm and result.tree.get("live-restore") is True:
            problems.append(
                "live-restore: this daemon is a swarm member, and dockerd does not start with live-restore in a swarm. "
                "Remove live-restore, set it to false, or remove the node from the swarm."
            )
        if problems:
            raise DaemonConfigError(f"{path}: the new file would be invalid. " + " ".join(problems))
    restart = restart_required(result.changed, result.tree, runtimes(flags))
    return DaemonPlan(
        text, result.tree, new, result.changed, restart, result.edited, result.revoked, satisfied, set_twice
    )


def _text(tree: dict[str, t.Any], before: str | None, state: State) -> str | None:
    if not state.record.entries:
        if state.original is None and not tree:
            return None
        if state.original is not None:
            try:
                original = parse(state.original, "")
            except DaemonConfigError:
                return dump(tree, before)
            if managed_keys.canonical(original) == managed_keys.canonical(tree):
                return state.original
    return dump(tree, before)
