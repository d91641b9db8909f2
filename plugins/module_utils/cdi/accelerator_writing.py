# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write or remove the CDI specification of another vendor's accelerators.

Module accelerator_cdi_spec documents the parameters and the result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import (
    accelerator_specification,
    publish,
    specification_document,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import specification_files as cdi_file

MODULE = "accelerator_cdi_spec"
# The vendors whose device nodes are known, with the default kind. It is not the vendor's own kind, because engines
# reject a device that two specifications describe, and Intel's DRA driver deletes all files of intel.com/gaudi.
KINDS = {vendor: f"gpufleet-{vendor}/gpu" for vendor in owned.ACCELERATOR_CDI_SPECIFICATIONS}
ERRORS = (specification_document.CdiError, cdi_file.FileError, OSError)
error_text = publish.error_text


def kind_of(params: Mapping[str, Any]) -> str:
    return params["cdi_kind"] or KINDS[params["vendor"]]


def path_of(params: Mapping[str, Any]) -> str:
    return params["path"] or owned.ACCELERATOR_CDI_SPECIFICATIONS[params["vendor"]]


def apply_state(
    params: Mapping[str, Any], gather_facts: Callable[[], Mapping[str, Any]], check_mode: bool, root: str = "/"
) -> dict[str, Any]:
    """Apply the requested state. `gather_facts` returns the facts of accelerator_facts for the vendor."""
    place = publish.CdiPlace(kind_of(params), path_of(params), params["spec_dirs"], MODULE)
    if place.kind.count("/") != 1:
        raise cdi_file.FileError(f"cdi_kind={place.kind} is invalid. Use the form VENDOR/CLASS.")
    publish.check(place)

    def build() -> specification_document.CdiResult:
        facts = gather_facts()
        vendor = facts["accelerator_vendors"][params["vendor"]]
        if vendor["state"] != "ready":
            raise specification_document.CdiError(
                f"the devices cannot be described because their state is {vendor['state']}: {vendor['reason']}"
            )
        host = specification_document.CdiHost(root=root, groups=params["additional_gids"], kind=place.kind)
        devices = [one for one in facts["accelerators"] if one["vendor"] == params["vendor"]]
        return accelerator_specification.build(devices, host)

    return publish.apply(place, build if params["state"] == "present" else None, _warning, check_mode)


def _warning(other: cdi_file.OtherSpec, kind: str) -> str:
    text = f"{other.path} already describes {kind}, so no specification was written."
    if other.managed:
        return (
            f"{text} This collection created that file. Remove it with state=absent and path={other.path}, then run "
            "this module again."
        )
    text += (
        " This module did not create that file and leaves it unchanged. To get a second specification, set cdi_kind."
    )
    if other.stale:
        text += f" The file refers to missing files: {', '.join(other.stale[:3])}. Create it again with its own tool."
    return text
