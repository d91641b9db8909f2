# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write or remove the CDI specification of the host's GPUs, or predict this in check mode.

Module nvidia_cdi_spec documents the parameters and the result.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import options as base_options
from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import file as cdi_file
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import reader, specification, staleness
from ansible_collections.gpufleet.hosts.plugins.module_utils.volume import driver_files

ERRORS = (specification.CdiError, cdi_file.FileError, driver_files.DriverFilesError, OSError)
# CDI allows a dot in a class only since version 0.6.0, which old engines cannot read.
_KIND_PARTS = {
    "vendor": re.compile(r"[A-Za-z](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?"),
    "class": re.compile(r"[A-Za-z](?:[A-Za-z0-9_-]*[A-Za-z0-9])?"),
}


def error_text(error: Exception, path: str) -> str:
    """Return the message for one of `ERRORS`. `path` is the specification."""
    if isinstance(error, OSError):
        return f"{error.filename or path}: {error.strerror or error}"
    return str(error)


def kind_of(params: Mapping[str, Any]) -> str:
    """Return the kind of the specification that the options describe."""
    return f"{params['vendor']}/{params['class'] or specification.CLASSES[params['mode']]}"


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
    params = {**params, "path": path}
    _validate(params)
    before = cdi_file.read(path)
    foreign = None if params["take_over"] else _foreign_file(path, before)
    if foreign and params["state"] == "absent":
        raise cdi_file.FileError(f"{foreign} Set take_over=true to remove the file anyway.")
    result = {
        "path": path,
        "kind": kind,
        "cdi_version": None,
        "devices": [],
        "skipped": [],
        "maintained_by": [],
        "warnings": [],
    }
    after = ""
    if params["state"] == "present":
        _refuse_other_kind(path, before, kind)
        built = _build(params, gather_facts, root)
        result["skipped"] = built.skipped
        devices = [device["name"] for device in built.spec["devices"]]
        others, errors = cdi_file.other_specs(params["spec_dirs"], kind, path)
        result["warnings"] = built.warnings + errors + [_warning(other, kind) for other in others]
        result["maintained_by"] = [
            {
                "path": other.path,
                "devices": list(other.devices),
                "missing_devices": [name for name in devices if name not in other.devices],
                "stale": list(other.stale),
            }
            for other in others
        ]
        if not others:
            after = cdi_file.serialize(built.spec)
            result.update(cdi_version=built.spec["cdiVersion"], devices=devices)
    changed = not cdi_file.is_current(path, after) if after else os.path.lexists(path)
    if foreign and changed:
        raise cdi_file.FileError(f"{foreign} Set another `path`, or set take_over=true to replace the file.")
    if not check:
        if not after:
            cdi_file.remove(path)
        elif changed or not cdi_file.is_managed(path):
            cdi_file.write(path, after)
    diff = {"before_header": path, "after_header": path, "before": before, "after": after}
    return {**result, "changed": changed, "diff": diff}


def _refuse_other_kind(path: str, text: str, kind: str) -> None:
    """Raise FileError if this module wrote a specification of another kind to the file at `path`."""
    try:
        present = reader.load(text)["kind"] if cdi_file.is_managed(path) else kind
    except reader.SpecError:
        return
    if present != kind:
        raise cdi_file.FileError(
            f"path={path} is the specification of {present}, but this task would replace it with a specification of "
            f"{kind}. Set another `path`, or remove the option."
        )


def _foreign_file(path: str, text: str) -> str | None:
    """Describe the file at `path` if this module did not create it."""
    if cdi_file.is_from_toolkit(text):
        return (
            f"{path} was not created by this module: it calls nvidia-cdi-hook or nvidia-ctk, so it comes from NVIDIA's "
            "toolkit."
        )
    if os.path.lexists(path) and not cdi_file.is_managed(path):
        return f"{path} was not created by this module: its marker {cdi_file.marker_path(path)} does not exist."
    return None


def _validate(params: dict) -> None:
    path = params["path"]
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
    for name, value in zip(("vendor", "class"), kind_of(params).split("/", 1)):
        if not _KIND_PARTS[name].fullmatch(value):
            raise cdi_file.FileError(
                f"{name}={value} is not a valid {name} of a CDI kind. Use letters, digits, _ and -"
                f"{', and dots' if name == 'vendor' else ''}; start with a letter, and end with a letter or a digit."
            )
    if not os.path.isabs(path) or not path.endswith(cdi_file.SUFFIXES):
        raise cdi_file.FileError(f"path={path} is not an absolute path that ends with .json or .yaml")
    directories = [os.path.realpath(directory) for directory in params["spec_dirs"]]
    if os.path.realpath(os.path.dirname(path)) not in directories:
        raise cdi_file.FileError(
            f"path={path} is not in spec_dirs={','.join(params['spec_dirs'])}, so no engine would read the file. Set a "
            "`path` in one of these directories."
        )


def _build(params: dict, gather_facts: Callable[[], dict], root: str) -> specification.Result:
    host = specification.Host(
        root=root,
        numbers=params["device_numbers"],
        groups=params["additional_gids"],
        kind=kind_of(params),
        names=tuple(params["device_names"]),
    )
    if params["mode"] != specification.GPU:
        return specification.build_feature(params["mode"], host)
    facts = gather_facts()
    if facts["nvidia_gpu_state"] != "ready":
        raise specification.CdiError(
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


def _files(host: specification.Host, sets: Iterable[str]) -> list[driver_files.DriverFile]:
    search_path = os.environ.get("PATH", "").split(":") if host.driver_root == "/" else []
    return driver_files.find(host.version, host.machine, host.driver_root, sets=sets, search_path=search_path)


def _warning(other: cdi_file.OtherSpec, kind: str) -> str:
    if other.managed and staleness.real(other.path) == owned.CDI_REFRESHED:
        return (
            f"{other.path} already describes {kind}, so no specification was written. "
            f"{staleness.REFRESH_UNIT} writes that file. After a change of the GPUs, run `systemctl restart "
            f"{staleness.REFRESH_UNIT}`."
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
