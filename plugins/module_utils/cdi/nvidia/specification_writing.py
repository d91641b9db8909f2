# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write or remove the CDI specification of the host's GPUs, or predict this in check mode.

Module nvidia_cdi_spec documents the parameters and the result.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import option_limits as base_options
from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import directories, publish, specification_document
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import specification_files as cdi_file
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi.nvidia import (
    rewrite_command,
    specification,
    specification_kinds,
    written_by_toolkit,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.volume import driver_files

ERRORS = (specification_document.CdiError, cdi_file.FileError, driver_files.DriverFilesError, OSError)
error_text = publish.error_text


def kind_of(params: Mapping[str, Any]) -> str:
    """Return the kind of the specification that the options describe."""
    return f"{params['vendor']}/{params['class'] or specification_kinds.CLASSES[params['mode']]}"


def path_of(params: Mapping[str, Any]) -> str:
    """Return the path of the specification. Each kind has its own default."""
    if params["path"]:
        return params["path"]
    kind = kind_of(params)
    if kind == specification.KIND:
        return owned.CDI_SPECIFICATION
    return owned.CDI_SPECIFICATION_OF_KIND.format(*kind.split("/", 1))


def apply_state(params: dict, gather_facts: Callable[[], dict], check: bool, root: str = "/") -> dict:
    """Apply the requested state. In check mode, only predict the result."""
    kind, path = kind_of(params), path_of(params)
    place = publish.CdiPlace(
        kind,
        path,
        params["spec_dirs"],
        "nvidia_cdi_spec",
        True,
        params["take_over"],
        written_by_toolkit.toolkit_origin,
    )
    _validate(params, place)
    build = (lambda: _build(params, gather_facts, root)) if params["state"] == "present" else None
    return publish.apply(place, build, _warning, check)


def _validate(params: dict, place: publish.CdiPlace) -> None:
    fault = base_options.timeout_fault(params["timeout"])
    if params["state"] == "present":
        # Removing the file needs no driver.
        fault = fault or base_options.driver_root_fault(params["driver_root"])
    if fault:
        raise cdi_file.FileError(fault)
    driver_files.check_sets(params["sets"])
    if not params["device_names"]:
        raise cdi_file.FileError(
            f"device_names is empty, so no GPU would have a name. Set at least one of {', '.join(specification.NAMES)}."
        )
    publish.check(place)


def _build(params: dict, gather_facts: Callable[[], dict], root: str) -> specification_document.CdiResult:
    host = specification.NvidiaCdiHost(
        root=root,
        numbers=params["device_numbers"],
        groups=params["additional_gids"],
        kind=kind_of(params),
        names=tuple(params["device_names"]),
    )
    if params["mode"] != specification_kinds.GPU:
        return specification.build_feature(params["mode"], host)
    facts = gather_facts()
    if facts["nvidia_gpu_state"] != "ready":
        raise specification_document.CdiError(
            f"the GPUs cannot be described because their state is {facts['nvidia_gpu_state']}: "
            f"{facts['nvidia_gpu_state_reason']}"
        )
    driver_root = params["driver_root"] or "/"
    host = host._replace(
        version=facts["nvidia_driver"]["version"],
        machine=driver_files.normal_machine(platform.machine()),
        driver_root=driver_root,
    )
    edits = specification.file_edits(_files(host, params["sets"]), host.machine)
    return specification.build(facts["nvidia_gpus"], host, edits)


def _files(host: specification.NvidiaCdiHost, sets: Iterable[str]) -> list[driver_files.DriverFile]:
    search_path = os.environ.get("PATH", "").split(":") if host.driver_root == "/" else []
    return driver_files.find(host.version, host.machine, host.driver_root, sets=sets, search_path=search_path)


def _warning(other: cdi_file.OtherSpec, kind: str) -> str:
    if other.managed and directories.real(other.path) == owned.CDI_REFRESHED:
        return (
            f"{other.path} already describes {kind}, so no specification was written. "
            f"{rewrite_command.REFRESH_UNIT} writes that file. After a change of the GPUs, run `systemctl restart "
            f"{rewrite_command.REFRESH_UNIT}`."
        )
    if other.managed:
        return (
            f"{other.path} already describes {kind}, so no specification was written. This module "
            f"created that file. Remove it with state=absent and path={other.path}, then run this module again."
        )
    text = (
        f"{other.path} already describes {kind}, so no specification was written. This module did not "
        "create that file and leaves it unchanged."
    )
    if other.stale:
        text += (
            f" The file refers to missing files: {', '.join(other.stale[:3])}. Regenerate it (systemctl restart "
            "nvidia-cdi-refresh) or remove it."
        )
    return text
