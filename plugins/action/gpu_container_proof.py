# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action plugin of gpu_container_proof: run the module, and report what it does meanwhile."""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.plugin_utils import kept_bytecode

kept_bytecode.use()

from ansible_collections.gpufleet.hosts.plugins.plugin_utils.progress import ReportedModule


class ActionModule(ReportedModule):
    """See the module's documentation."""

    TEXT = "starting containers to compare their GPUs with those of the host"
