# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the program and the units that keep the CDI specification of a vendor's accelerators current. Pure functions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import observed_files, owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import directories
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import vendor_names as hardware_vendors
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import root_python
from ansible_collections.gpufleet.hosts.plugins.module_utils.vendor_driver import cdi_specification_check
from ansible_collections.gpufleet.hosts.plugins.module_utils.vendor_driver.vendor_differences import VendorDriver

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host

# The directories whose changes systemd watches, by vendor. The nodes of Neuron change only when the driver is loaded,
# and systemd loads it before it starts the service. A reset changes the status of a Gaudi accelerator, but not its
# nodes.
_WATCHED = {hardware_vendors.AMD: ("/dev/dri",), hardware_vendors.GAUDI: ("/dev/accel",), hardware_vendors.NEURON: ()}
_HEADER = "# Written by role gpufleet.hosts.{role}. Changes in this file are lost.\n"
# The service is of type oneshot and does not remain active, so that the other units can start it again. Several changes
# at once are no reason to refuse a start. At boot, udev loads the drivers. LogLevelMax drops systemd's own lines about
# each start.
_SERVICE = """\
[Unit]
Description=Write the CDI specification of the {title}
After=systemd-modules-load.service
Before=docker.service containerd.service crio.service kubelet.service podman.service podman-restart.service
StartLimitIntervalSec=0

[Service]
Type=oneshot
TimeoutStartSec=300
LogLevelMax=notice
SyslogLevel=notice
ExecStartPre=-/usr/bin/udevadm settle --timeout=60
ExecStart={python} -I {program}

[Install]
WantedBy=multi-user.target
"""
_PATH = """\
[Unit]
Description=Watch the device nodes of the {title}

[Path]
{watch}

[Install]
WantedBy=multi-user.target
"""
_TIMER = """\
[Unit]
Description=Check the partitions of the {title}

[Timer]
OnActiveSec=60
OnUnitInactiveSec=60
AccuracySec=30

[Install]
WantedBy=timers.target
"""


@dataclasses.dataclass
class VendorRefresh:
    """What a role does with the program and its units.

    `options`: those of the program to write, None if it stays. `files`: the texts of the units to write; None removes a
    file. `is_known`: the service exists. `disable`: units to disable first. `remove`: the specification to remove.
    `reload`: systemd has to read changed units. `enable`: units to enable. `restart`: the program has to write the
    specification. Changes, reasons and problems are texts of the plan.
    """

    specification: str = ""
    service: str = ""
    program: str = ""
    options: dict[str, Any] | None = None
    files: dict[str, str | None] = dataclasses.field(default_factory=dict)
    is_known: bool = False
    disable: list[str] = dataclasses.field(default_factory=list)
    remove: list[str] = dataclasses.field(default_factory=list)
    reload: bool = False
    enable: list[str] = dataclasses.field(default_factory=list)
    restart: bool = False
    changes: list[str] = dataclasses.field(default_factory=list)
    reasons: list[str] = dataclasses.field(default_factory=list)
    problems: list[str] = dataclasses.field(default_factory=list)


def program_options(vendor: VendorDriver, kind: str) -> dict[str, Any]:
    """Return the options of the program: those of module accelerator_cdi_spec, and the root directory."""
    return {
        "vendor": vendor.name,
        "state": "present",
        "cdi_kind": kind,
        "path": owned.ACCELERATOR_CDI_SPECIFICATIONS[vendor.name],
        "spec_dirs": list(directories.DIRECTORIES),
        "additional_gids": False,
        "root": "/",
    }


def plan(
    host: Host,
    vendor: VendorDriver,
    devices: Sequence[Mapping[str, Any]],
    kind: str,
    digest: Callable[[dict[str, Any]], str],
    *,
    is_ready: bool,
) -> VendorRefresh:
    """Return how the role installs the program and the units.

    `digest` returns that of the program for given options. `is_ready`: the devices can be described now, or after
    changes of this run.
    """
    result = _empty(host, vendor)
    if not host["services"]:
        result.reasons.append("systemd is not running, so nothing keeps a CDI specification current")
        return result
    if (host["services"].get(vendor.service) or {}).get("load_state") == "masked":
        result.reasons.append(f"{vendor.service} is masked, so the role does not use it")
        return result
    if host["root_python"] is None:
        result.problems.append(root_python.missing(f"{vendor.service} runs as root", host["python"]))
        return result
    options = program_options(vendor, kind)
    if observed_files.content(host, result.program) != digest(options):
        result.options = options
    wanted = _units(host, vendor, devices)
    for path, text in wanted.items():
        present = (host["files"].get(path) or {}).get("exists")
        if text != observed_files.content(host, path) and (text is not None or present):
            result.files[path] = text
    units = {path.rpartition("/")[2]: text for path, text in wanted.items()}
    states = {name: host["services"].get(name) or {} for name in units}
    result.reload = bool(result.files) or any(state.get("need_daemon_reload") for state in states.values())
    result.enable = [name for name, text in units.items() if text is not None and not _is_on(name, states[name])]
    result.disable = [
        name for name, text in units.items() if text is None and states[name].get("load_state") == "loaded"
    ]
    verb = _specification(result, host, vendor, devices, kind, is_ready=is_ready)
    result.changes = [
        *(f"remove {path}" for path in result.remove),
        *(f"disable {name}" for name in result.disable),
        *([f"write {result.program}"] if result.options else []),
        *(f"{'remove' if text is None else 'write'} {path}" for path, text in result.files.items()),
        *(["reload systemd"] if result.reload else []),
        *(f"enable {name}" for name in result.enable),
        *([f"{verb} the CDI specification {result.specification}"] if result.restart else []),
    ]
    return result


def _specification(
    result: VendorRefresh,
    host: Host,
    vendor: VendorDriver,
    devices: Sequence[Mapping[str, Any]],
    kind: str,
    *,
    is_ready: bool,
) -> str:
    """Plan whether the program runs, and return what it does: refresh the specification, or remove it."""
    spec = cdi_specification_check.own(host["accelerator_specs"], vendor)
    other = cdi_specification_check.other(host["accelerator_specs"], vendor, kind)
    result.remove = [spec["path"]] if spec and spec["kind"] != kind else []
    if other:
        result.reasons.append(
            f"{other['path']} already describes {kind}, so {result.specification} is not written; to get a second "
            f"specification, set another {vendor.role}_cdi_kind"
        )
        result.restart = spec is not None
        return "remove" if spec else "refresh"
    is_outdated = spec is None or spec["kind"] != kind or bool(cdi_specification_check.differences(spec, devices))
    # A changed program may write another specification.
    result.restart = is_ready and (is_outdated or bool(result.options))
    return "refresh"


def removal(host: Host, vendor: VendorDriver) -> VendorRefresh:
    """Return how the role removes the program, the units and the specification."""
    result = _empty(host, vendor)
    paths = (*owned.ACCELERATOR_CDI_UNITS[vendor.name], result.program)
    found = [path for path in paths if (host["files"].get(path) or {}).get("exists")]
    spec = cdi_specification_check.own(host["accelerator_specs"], vendor)
    result.remove = [spec["path"]] if spec else []
    result.files = dict.fromkeys(found)
    names = [path.rpartition("/")[2] for path in found if path != result.program]
    result.disable = [
        name for name in names if (host["services"].get(name) or {}).get("load_state") in ("loaded", "bad-setting")
    ]
    result.reload = bool(names) and bool(host["services"])
    gone = [*result.remove, *found]
    result.changes = [
        *(f"disable {name}" for name in result.disable),
        *([f"remove {', '.join(gone)}"] if gone else []),
        *(["reload systemd"] if result.reload else []),
    ]
    return result


def _empty(host: Host, vendor: VendorDriver) -> VendorRefresh:
    return VendorRefresh(
        specification=owned.ACCELERATOR_CDI_SPECIFICATIONS[vendor.name],
        service=vendor.service,
        program=owned.ACCELERATOR_CDI_PROGRAMS[vendor.name],
        is_known=(host["services"].get(vendor.service) or {}).get("load_state") == "loaded",
    )


def _units(host: Host, vendor: VendorDriver, devices: Sequence[Mapping[str, Any]]) -> dict[str, str | None]:
    """Return the text of each unit file; None if the host does not need it."""
    header = _HEADER.format(role=vendor.role)
    program = owned.ACCELERATOR_CDI_PROGRAMS[vendor.name]
    service = _SERVICE.format(title=vendor.title, python=host["root_python"], program=program)
    watched = _WATCHED[vendor.name]
    watch = "\n".join(f"PathChanged={path}" for path in watched)
    path = _PATH.format(title=vendor.title, watch=watch) if watched else None
    units = owned.ACCELERATOR_CDI_UNITS[vendor.name]
    # While the driver is not loaded, it is not known whether the devices have partitions.
    is_unknown = not any(one["index"] is not None for one in devices)
    keeps = is_unknown and observed_files.content(host, units[2]) is not None
    timer = _TIMER.format(title=vendor.title) if _needs_timer(vendor, devices) or keeps else None
    texts = (service, path, timer)
    return {name: None if text is None else header + text for name, text in zip(units, texts)}


def _needs_timer(vendor: VendorDriver, devices: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the devices can change without an event that systemd could watch.

    AMD's driver creates the nodes of all possible partitions when it is loaded, and switching the mode creates none
    (drivers/gpu/drm/amd/amdxcp). The kernel refuses to show the mode while a GPU is reset.
    """
    if vendor.name != hardware_vendors.AMD:
        return False
    return any(one["partition"]["mode"] or "partition" in one["unread"] for one in devices)


def _is_on(name: str, state: Mapping[str, Any]) -> bool:
    """Return whether a unit is enabled. The service is never active for long."""
    is_enabled = state.get("unit_file_state") == "enabled"
    return is_enabled and (name.endswith(".service") or state.get("active_state") == "active")
