# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which GPUs of the present container fill the count that `gpus` requests, so that it keeps them."""

from __future__ import annotations

from dataclasses import replace

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.existing.existing_container import (
    ExistingContainer,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.existing.inspected_container import AssignedGpus


def gpus_kept_for_count(existing: ExistingContainer) -> AssignedGpus:
    """Return the GPUs that a count should keep."""
    if not existing.exists:
        return AssignedGpus()
    found = existing.assigned_gpus()
    ours = found.uuids & existing.labeled_gpus()
    # GPUs that come from the user's own devices do not fill the count.
    return replace(found, uuids=ours) if ours and existing.user_devices() else found
