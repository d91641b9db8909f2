# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Internal filters of the playbooks for AWS."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.gpufleet.hosts.plugins.plugin_utils import kept_bytecode

kept_bytecode.use()

from ansible_collections.gpufleet.hosts.plugins.module_utils.aws import instance_variables
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.variable_fields import plain


def aws_instance(variables: dict[str, t.Any], only_identity: bool = False) -> dict[str, t.Any]:
    """Validate the variables of an instance. `only_identity`: region, name and filters, for its termination."""
    values = {name: value for name, value in plain(variables).items() if name.startswith("aws_instance_")}
    try:
        return dict(instance_variables.identity(values) if only_identity else instance_variables.read(values))
    except instance_variables.RequestError as error:
        raise AnsibleFilterError(str(error)) from error


class FilterModule:
    """Jinja filters."""

    def filters(self) -> dict[str, t.Any]:
        return {"_aws_instance": aws_instance}
