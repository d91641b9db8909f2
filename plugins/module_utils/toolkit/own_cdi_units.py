# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the program and the unit that keep the CDI specification up to date if the toolkit has no unit."""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import observed_files, owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import directories
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi.nvidia import (
    specification,
    specification_kinds,
    stale_driver_version,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi.nvidia.rewrite_command import REFRESH_UNIT as UNIT
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import root_python
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts import steps
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.steps import Step
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import toolkit_cdi_units
from ansible_collections.gpufleet.hosts.plugins.module_utils.volume import driver_files

if t.TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host

# The options of the program: those of module nvidia_cdi_spec, the root directory, and the units that come first.
OPTIONS: dict[str, t.Any] = {
    "state": "present",
    "mode": specification_kinds.GPU,
    "vendor": specification_kinds.VENDOR,
    "class": None,
    "device_names": list(specification.DEFAULT_NAMES),
    "path": owned.CDI_REFRESHED,
    "take_over": False,
    "spec_dirs": ["/etc/cdi", "/run/cdi"],
    "sets": list(driver_files.SETS),
    "driver_root": None,
    "device_numbers": False,
    "additional_gids": False,
    # Without the persistence daemon, the driver initializes the GPUs first.
    "timeout": 60,
    "root": "/",
    "vendor_units": list(toolkit_cdi_units.UNITS),
}
# Option -u of nvidia-modprobe loads nvidia-uvm, and with it nvidia, and -c 0 makes its nodes: NVIDIA/nvidia-modprobe,
# nvidia-modprobe.c (149440ca). Some driver packages lack this program. The unit has no order after
# nvidia-fabricmanager.service and the refresh unit of the toolkit: they can start after multi-user.target, which starts
# after the engines (NVIDIA/nvidia-container-toolkit, deployments/systemd/nvidia-cdi-refresh.service at v1.19.0).
_UNIT = """\
# Written by role gpufleet.hosts.nvidia_container_toolkit. Changes in this file are lost.
# After a change of MIG devices: systemctl restart {unit}
[Unit]
Description=Write the CDI specification of the NVIDIA GPUs
After=systemd-modules-load.service nvidia-persistenced.service
Before=docker.service containerd.service crio.service kubelet.service podman.service podman-restart.service

[Service]
Type=oneshot
RemainAfterExit=yes
TimeoutStartSec=300
ExecStartPre=-/sbin/modprobe nvidia-uvm
ExecStartPre=-/usr/bin/nvidia-modprobe -c 0 -u
ExecStart={python} -I {program}

[Install]
WantedBy=multi-user.target
"""


@dataclasses.dataclass
class OwnCdi:
    """What the role does with the program and its unit.

    `specification`: the file that the program writes. `options`: those of the program to write, None if it stays.
    `files`: the text of the unit to write; None removes a file. `is_known`: the unit exists. `disable`: the units to
    disable first. `remove`: specifications of this collection. `reload`: systemd has to read a changed unit. `enable`:
    the units to enable. `restart`: the program has to write the specification. Changes, reasons and problems are texts
    of the plan.
    """

    specification: str = owned.CDI_REFRESHED
    service: str = UNIT
    program: str = owned.CDI_PROGRAM
    options: dict[str, t.Any] | None = None
    files: dict[str, str | None] = dataclasses.field(default_factory=dict)
    is_known: bool = False
    disable: list[str] = dataclasses.field(default_factory=list)
    remove: list[str] = dataclasses.field(default_factory=list)
    reload: bool = False
    enable: list[str] = dataclasses.field(default_factory=list)
    restart: bool = False
    steps: list[Step] = dataclasses.field(default_factory=list)
    # The texts of the steps.
    changes: list[str] = dataclasses.field(default_factory=list)
    reasons: list[str] = dataclasses.field(default_factory=list)
    problems: list[str] = dataclasses.field(default_factory=list)


def plan(
    host: Host,
    driver: str | None,
    digest: t.Callable[[], str | None],
    *,
    has_new_driver: bool = False,
    waits: str | None = None,
    changed: t.Collection[str] = (),
) -> OwnCdi:
    """Return how the role installs the program and the unit.

    `driver`: the version that is loaded or will be. `digest` returns that of the program, or None if the controller
    cannot build it. `has_new_driver`: its files change in this run. `waits` and `changed`: see
    `toolkit_cdi_units`.
    """
    state = host["services"].get(UNIT) or {}
    if state.get("load_state") == "masked":
        return OwnCdi(reasons=[f"{UNIT} is masked, so the role does not use it"])
    obstacle = _obstacle(host)
    if obstacle:
        result = removal(host)
        result.reasons.append(obstacle)
        return result
    wanted = digest()
    problem = _problem(host, wanted)
    if problem:
        return OwnCdi(problems=[problem])
    result = OwnCdi(is_known=state.get("load_state") == "loaded")
    if observed_files.content(host, owned.CDI_PROGRAM) != wanted:
        result.options = dict(OPTIONS)
    unit = _UNIT.format(unit=UNIT, python=host["root_python"], program=owned.CDI_PROGRAM)
    if observed_files.content(host, owned.CDI_UNIT) != unit:
        result.files[owned.CDI_UNIT] = unit
    # An interrupted run may have written the unit but not reloaded systemd.
    result.reload = bool(result.files) or bool(state.get("need_daemon_reload"))
    result.enable = [] if state.get("unit_file_state") == "enabled" else [UNIT]
    specs = {directories.real(spec["path"]): spec for spec in host["cdi_specs"]}
    result.remove = sorted(spec["path"] for path, spec in specs.items() if path != owned.CDI_REFRESHED)
    named = specs[owned.CDI_REFRESHED]["driver_versions"] if owned.CDI_REFRESHED in specs else []
    is_stale = stale_driver_version.stale_message(owned.CDI_REFRESHED, named, driver, ours=True) is not None
    is_new = bool(result.options or result.files) or owned.CDI_REFRESHED in changed
    # Without a driver, the program cannot describe the GPUs.
    result.restart = bool(driver) and (owned.CDI_REFRESHED not in specs or is_stale or has_new_driver or is_new)
    if waits and result.restart:
        result.restart = False
        result.reasons.append(waits)
    refresh = f"refresh the CDI specification {owned.CDI_REFRESHED} for driver {driver}"
    result.steps = [
        *(steps.written(path, None) for path in result.remove),
        *steps.listed(steps.FILE, "write {}", [owned.CDI_PROGRAM] if result.options else [], item=steps.FILE),
        *(steps.written(path, content) for path, content in result.files.items()),
        *([steps.reload()] if result.reload else []),
        *(step for name in result.enable for step in steps.service(name, enable=True)),
        *([steps.own("cdi", refresh)] if result.restart else []),
    ]
    result.changes = steps.texts(result.steps)
    return result


def _problem(host: Host, digest: str | None) -> str | None:
    """Return what the program lacks on the controller or on the host."""
    if digest is None:
        return (
            "nvidia_container_toolkit_isolations contains cdi. Without NVIDIA's container toolkit, the role writes "
            "the CDI specification with a program that contains pynvml, but the controller has no pynvml. Install "
            "the Python package nvidia-ml-py for the Python that runs Ansible."
        )
    if host["root_python"] is None:
        otherwise = ", or remove cdi from nvidia_container_toolkit_isolations"
        return root_python.missing(f"{UNIT} runs as root", host["python"], otherwise)
    return None


def removal(host: Host, besides: t.Collection[str] = ()) -> OwnCdi:
    """Return how the role removes the program, the unit and the specification. `besides`: files that it removes anyway.

    If neither the program nor the unit exists, the specification belongs to somebody else and stays.
    """
    found = [path for path in (owned.CDI_UNIT, owned.CDI_PROGRAM) if (host["files"].get(path) or {}).get("exists")]
    if not found:
        return OwnCdi()
    state = host["services"].get(UNIT) or {}
    result = OwnCdi(files=dict.fromkeys(found), reload=True, is_known=state.get("load_state") == "loaded")
    is_on = state.get("unit_file_state") == "enabled" or state.get("active_state") in ("active", "failed")
    result.disable = [UNIT] if result.is_known and is_on else []
    result.remove = [
        spec["path"]
        for spec in host["cdi_specs"]
        if spec["ours"] and directories.real(spec["path"]) == owned.CDI_REFRESHED and spec["path"] not in besides
    ]
    result.steps = [
        *(steps.own(steps.SERVICE, f"disable {name}") for name in result.disable),
        *steps.listed(steps.FILE, "remove {}", [*result.remove, *found]),
        steps.reload(),
    ]
    result.changes = steps.texts(result.steps)
    return result


def _obstacle(host: Host) -> str | None:
    """Return why the role does not keep the specification up to date on this host."""
    if not host["services"]:
        return "systemd is not running, so nothing keeps a CDI specification up to date"
    for unit in toolkit_cdi_units.UNITS:
        if (host["services"].get(unit) or {}).get("unit_file_state") in ("enabled", "enabled-runtime"):
            return f"{unit} of NVIDIA's container toolkit is enabled, so it writes the CDI specification"
    others = sorted(spec["path"] for spec in host["cdi_specs"] if not spec["ours"])
    if others:
        return (
            f"other programs have written CDI specifications of the GPUs ({', '.join(others)}), so the role writes "
            "none; remove these files to change this"
        )
    return None
