# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run another action plugin as part of one of this collection."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase


def load(action: ActionBase, name: str, options: dict[str, Any]) -> ActionBase:
    """Return the action plugin `name` for a task with these options, with the objects of `action`."""
    task = action._task.copy()
    task.action, task.args = name, options
    return action._shared_loader_obj.action_loader.get(
        name,
        task=task,
        connection=action._connection,
        play_context=action._play_context,
        loader=action._loader,
        templar=action._templar,
        shared_loader_obj=action._shared_loader_obj,
    )
