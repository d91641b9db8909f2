# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether an unfinished drain of another owner or adapter forbids a new one. Pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.workload.drain_record import WorkloadRecord

# The name of its adapter.
_KUBERNETES = "kubernetes"


def problem(kept: WorkloadRecord | None, adapter: str, owner: str, *, prefix: str) -> str | None:
    """Return why a run cannot drain the host while an unfinished drain belongs to another owner or adapter, or None.

    `kept`: the drain that a run left on the host. `prefix`: of the variables that set adapter and owner.
    """
    # The record of this adapter is on the node. Its copy on the host would replace the record of another adapter.
    if adapter != _KUBERNETES or kept is None or (kept.owner, kept.adapter) == (owner, adapter):
        return None
    return (
        f"{kept.owner} drained this host with adapter {kept.adapter}, and that drain has not ended. End it first: "
        f"set {prefix}_adapter and {prefix}_owner to these values, or run the role of that name, and run again."
    )
