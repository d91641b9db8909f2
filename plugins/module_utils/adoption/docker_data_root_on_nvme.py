# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether Docker's data-root moves to the local NVMe disks of a prepared image, and why it cannot. Pure functions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Container, Mapping
from typing import TYPE_CHECKING, Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import variable_fields
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.variable_fields import variable
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import prepared_image

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host


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


def missing_disk(host: Host, engine: str, options: Mapping[str, Any], *, on_nvme: bool) -> str | None:
    """Return why the data directory cannot be on the local NVMe disks.

    `engine`: container_engine_name. `options`: container_engine_docker_options. `on_nvme`: dlami_docker_on_nvme.
    """
    if on_nvme and engine != "docker":
        return (
            f"dlami_docker_on_nvme is true, but container_engine_name is {engine}. Remove dlami_docker_on_nvme, "
            "or set container_engine_name=docker."
        )
    root = str(options.get("data-root") or "")
    if host["image"]["nvme"] or not f"{root}/".startswith(f"{prepared_image.NVME}/"):
        return None
    return (
        f"Docker's data-root is set to {root}, but no disk is mounted at {prepared_image.NVME}, so Docker would fill "
        "the root disk. Use an instance type with local NVMe disks, mount them, or "
        + ("remove dlami_docker_on_nvme." if on_nvme else "set another data-root in container_engine_docker_options.")
    )
