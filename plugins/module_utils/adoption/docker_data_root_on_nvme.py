# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether an adoption moves Docker's data-root to the local NVMe disks of a prepared image. Pure functions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Container
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import variable_fields
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.variable_fields import variable
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import prepared_image


@dataclasses.dataclass(frozen=True)
class SiteModeRequest:
    """The mode of playbook site. The prefix is `site`."""

    adopt: bool = variable(False)


@dataclasses.dataclass(frozen=True)
class SiteImageRequest:
    """What every plan of an adoption needs. The prefix is `dlami`."""

    docker_on_nvme: bool = variable(False)


def docker_options(names: Container[str], value: Callable[[str], Any]) -> dict[str, Any]:
    """Return the options of dockerd that an adoption adds to the user's. `value` returns a variable of the user.

    Raise VariableError for an invalid value. Playbook site without its mode ignores the variables of playbook dlami.
    """

    def given(prefix: str, request: type) -> Any:
        full = {name: f"{prefix}_{name}" for name in variable_fields.table(request)}
        return variable_fields.read(request, prefix, {name: value(one) for name, one in full.items() if one in names})

    if given("site", SiteModeRequest).adopt and given("dlami", SiteImageRequest).docker_on_nvme:
        return {"data-root": f"{prepared_image.NVME}/docker"}
    return {}
