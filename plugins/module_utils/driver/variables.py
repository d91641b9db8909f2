# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables of role nvidia_driver, with their types and accepted values."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import variable_fields
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.variable_fields import VariableError, variable
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import vendor_names
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import repository_variables

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host
    from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.outcomes import DriverOutcome

_PACKAGE = r"[A-Za-z0-9][\w.+:-]*"
_PACKAGE_SAMPLE = "nvtop (only the name, without a version, an option or a pattern)"
_OPTION_VALUE = r"(?:[^\s\"\\\x00-\x1f\x7f]|\"[^\"\\\x00-\x1f\x7f]*\")*"
_OPTIONS_SAMPLE = "{nvidia: {NVreg_RestrictProfilingToAdminUsers: 0}}"


@dataclasses.dataclass(frozen=True)
class DriverRequest(repository_variables.RepositoryVariables):
    """The variables of the role, without the prefix `nvidia_driver_`. Empty text means that a variable is not set."""

    state: str = variable("present", choices=("present", "absent"))
    source: str = variable("auto", choices=("auto", "distribution", "nvidia", "runfile", "preinstalled"))
    branch: str = variable("", form=r"\d{3}", sample="580")
    version: str = variable("", form=r"(\d+:)?\d{3}\.\d{2,3}(\.\d{2,3})?", sample="580.95.05")
    minimum_version: str = variable("", form=r"\d{3}(\.\d+)*", sample="570.86")
    flavor: str = variable("auto", choices=("auto", "open", "proprietary"))
    module_build: str = variable("auto", choices=("auto", "dkms", "precompiled"))
    components: list[str] = variable(["compute"], choices=("compute", "video", "opencl"))
    extra_packages: list[str] = variable([], form=_PACKAGE, sample=_PACKAGE_SAMPLE)
    kernel_packages: list[str] = variable([], form=_PACKAGE, sample=_PACKAGE_SAMPLE)
    module_options: dict[str, dict[str, Any]] = variable({}, sample=_OPTIONS_SAMPLE)
    hold: bool = variable(True)
    fabric_manager: str = variable("auto", choices=("auto", "enabled", "disabled"))
    imex: bool | str = variable("auto", kind="bool or auto")
    peermem: bool = variable(False)
    memory_hotadd_override: bool = variable(False)
    runfile_url: str = variable(
        "", form=repository_variables.URL, sample="https://mirror.example/NVIDIA-Linux-x86_64-580.95.05.run"
    )
    runfile_checksum: str = variable(
        "",
        form=r"sha256:[0-9A-Fa-f]{64}|sha384:[0-9A-Fa-f]{96}|sha512:[0-9A-Fa-f]{128}",
        sample="sha256:0123... (64 hexadecimal digits)",
    )
    secure_boot_key_enrolled: bool = variable(False)
    activate: bool = variable(True)
    reload_loses_settings: bool = variable(False)
    reboot_policy: str = variable("never", choices=("never", "when_required"))
    reboot_timeout: int = variable(900, minimum=1)
    lock_timeout: int = variable(600, minimum=0)


def read(values: Mapping[str, Any]) -> DriverRequest:
    """Return the request with the user's values, converted and checked."""
    request = repository_variables.read(DriverRequest, "nvidia_driver", values)
    for module, options in request.module_options.items():
        _check_options(module, options)
    # The role always installs component compute.
    return dataclasses.replace(request, components=list(dict.fromkeys(["compute", *request.components])))


def _check_options(module: Any, options: Any) -> None:
    place = "nvidia_driver_module_options"
    if not re.fullmatch(r"[A-Za-z0-9_-]+", str(module)):
        raise VariableError(f"{place} contains {module!r}, which is not a module name. Use the form {_OPTIONS_SAMPLE}.")
    if not isinstance(options, dict):
        raise VariableError(
            f"{place}.{module} is {variable_fields.shown(options)}, but must be a dictionary of options. Use the form "
            f"{_OPTIONS_SAMPLE}."
        )
    for name, value in options.items():
        if not re.fullmatch(r"[A-Za-z0-9_.-]+", str(name)):
            raise VariableError(
                f"{place}.{module} contains {name!r}, which is not an option name. Use the form {_OPTIONS_SAMPLE}."
            )
        if not isinstance(value, (str, int, float)) or not re.fullmatch(_OPTION_VALUE, str(value)):
            raise VariableError(
                f"{place}.{module}.{name} is {value!r}, but must be a single value on one line. Use the form "
                f"{_OPTIONS_SAMPLE}; put text with spaces in double quotes inside the value."
            )


def is_driver_wanted(host: Host, values: Mapping[str, Mapping[str, Any]]) -> bool:
    """Return whether the host has GPUs for this system, and the driver is not to be removed."""
    return bool(vendor_names.nvidia_group(host)["gpus"]) and read(values.get("nvidia_driver", {})).state == "present"


def after_driver(host: Host, driver: DriverOutcome) -> Host:
    """Return the host as it will be when the driver of the plan is loaded."""
    loaded = driver.loaded_after(vendor_names.nvidia_driver(host)["loaded"])
    return cast("Host", vendor_names.with_nvidia_driver(host, loaded=loaded))
