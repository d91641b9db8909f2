# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans how to make NVIDIA's persistence daemon effective: pure functions of the observed host."""

from __future__ import annotations

import dataclasses
import re
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import observed_files, owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.root_required import needs_root
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.versions import upstream_version
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import nvidia_driver, nvidia_group
from ansible_collections.gpufleet.hosts.plugins.module_utils.host.lxc_guest import VARIANT
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.installed_packages import is_installed
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts import steps
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.steps import Step

if t.TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host
    from ansible_collections.gpufleet.hosts.plugins.module_utils.persistence.variables import PersistenceRequest

UNIT = "nvidia-persistenced.service"
UNIT_FILE = owned.PERSISTENCED_UNIT
DROP_IN_FILE = owned.PERSISTENCED_DROP_IN
PROGRAM = "/usr/bin/nvidia-persistenced"
# The system user for the unit that this role writes. Packages create their own.
USER = "nvidia-persistenced"
# Debian's package of a library that every driver includes.
_LIBRARY = "libnvidia-ml1"
# NVIDIA's package of it for Ubuntu. From branch 590 on, the names of NVIDIA's packages contain no branch.
_NVIDIA_LIBRARY = "libnvidia-compute"
# Seconds between two queries of the GPUs.
QUERY_INTERVAL = 2

_PACKAGE_UNITS = (f"/usr/lib/systemd/system/{UNIT}", f"/lib/systemd/system/{UNIT}")
# As separate words, with or without quotes.
_MODE_OFF = re.compile(r"""\s+(["']?)--no-persistence-mode\1(?!\S)""")
_MODE_ON = re.compile(r"""\s+(["']?)--persistence-mode\1(?!\S)""")
# The short form may have the name attached.
_USER_OPTION = re.compile(r"""\s["']?(--user(?=[\s="'])|-u)""")
_HEADER = "# Written by role gpufleet.hosts.nvidia_persistenced, which overwrites changes.\n"
_OWN_UNIT = f"""{_HEADER}[Unit]
Description=NVIDIA Persistence Daemon
After=systemd-modules-load.service

[Service]
Type=forking
PIDFile=/run/nvidia-persistenced/nvidia-persistenced.pid
Restart=on-failure
RestartSec=2
ExecStart={PROGRAM} --user {USER} --persistence-mode --verbose
ExecStopPost=/bin/rm -rf /run/nvidia-persistenced

[Install]
WantedBy=multi-user.target
"""


@dataclasses.dataclass
class PersistencePlan:
    """What the role does on a host, and why."""

    wanted: bool
    # How many queries of the GPUs fit into the timeout.
    retries: int
    problems: list[str] = dataclasses.field(default_factory=list)
    packages: list[str] = dataclasses.field(default_factory=list)
    # Packages whose available versions the plan needs.
    query: list[str] = dataclasses.field(default_factory=list)
    # The user of the daemon to create.
    user: str | None = None
    # Unit files to write, by path. None removes a file.
    files: dict[str, str | None] = dataclasses.field(default_factory=dict)
    unmask: bool = False
    # Reload systemd's unit files and restart the daemon.
    reload: bool = False
    enable: bool = False
    start: bool = False
    verify: bool = False
    # The GPUs whose persistence mode is off.
    turn_on: list[str] = dataclasses.field(default_factory=list)
    reason: str = ""
    # What the role does. `acts` and `changes` are derived from it.
    steps: list[Step] = dataclasses.field(default_factory=list)
    acts: bool = False
    changes: list[str] = dataclasses.field(default_factory=list)


def plan(
    host: Host,
    request: PersistenceRequest,
    packages: t.Mapping[str, list[str]],
    offered: t.Mapping[str, list[str]] | None = None,
    gpus_off: t.Collection[str] | None = None,
    *,
    driver_brings: t.Collection[str] = (),
) -> PersistencePlan:
    """Return the actions for this host, and the reason. `packages` names the daemon's packages by platform.

    `offered` has the available versions of the packages in `query`, once they are known. `gpus_off` names the GPUs
    whose persistence mode is off. `driver_brings` names packages that role nvidia_driver installs in the same run.
    """
    is_guest = host["os"].get("variant") == VARIANT
    result = PersistencePlan(
        wanted=bool(nvidia_group(host)["gpus"]) and not is_guest,
        retries=-(-request.timeout // QUERY_INTERVAL),
    )
    if not result.wanted:
        excluded, assigned = (nvidia_group(host).get(name) for name in ("gpus_excluded", "gpus_of_guests"))
        result.reason = "all GPUs are assigned to virtual machines" if assigned else "this host has no NVIDIA GPU"
        result.reason = "NVreg_ExcludedGpus excludes all GPUs" if excluded else result.reason
        result.reason = "this host is an LXC guest, and the daemon runs on its node" if is_guest else result.reason
        return result
    service = host["services"].get(UNIT, {})
    is_masked = service.get("load_state") == "masked"
    if is_masked:
        # systemd reports the mask instead of the unit's file.
        service = {**service, "fragment_path": None}
    missing = _missing_packages(host, packages, driver_brings)
    result.packages = [name for name in missing if name not in driver_brings]
    _versions(host, result, offered)
    result.files = _files(host, service, result)
    # An interrupted run may have written the files but not reloaded systemd.
    unread = bool(service.get("need_daemon_reload")) and _has_own_files(host, service)
    result.reload = bool(result.files) or unread
    loaded = bool(nvidia_driver(host)["loaded"])
    has_file = UNIT_FILE in result.files or (is_masked and _has_unit_file(host))
    has_unit = service.get("load_state") == "loaded" or bool(missing) or has_file
    has_systemd = bool(host["services"]) and has_unit
    result.unmask = has_systemd and is_masked
    result.enable = has_systemd and not _is_enabled(service, result)
    result.start = has_systemd and loaded and service.get("active_state") != "active"
    result.verify = loaded
    result.turn_on = list(gpus_off or []) if loaded else []
    result.steps = _steps(result, host)
    result.changes = steps.texts(result.steps)
    result.acts = bool(result.steps)
    if result.acts and host["uid"] != 0:
        result.problems.append(needs_root(host["uid"]))
    result.reason = _reason(result, host, service, brought=[name for name in missing if name in driver_brings])
    return result


def _is_enabled(service: dict[str, t.Any], result: PersistencePlan) -> bool:
    """Return whether the unit is enabled. systemd cannot enable a user's own unit that has no [Install] section."""
    fragment = service.get("fragment_path")
    is_own = bool(fragment) and fragment not in _PACKAGE_UNITS and not result.files
    return service.get("unit_file_state") in ("enabled", *(("static", "generated", "indirect") if is_own else ()))


def _steps(result: PersistencePlan, host: Host) -> list[Step]:
    restarted = UNIT if nvidia_driver(host)["loaded"] else None
    return [
        *([steps.install(result.packages, may_upgrade=True)] if result.packages else []),
        *(steps.service(UNIT, unmask=True) if result.unmask else []),
        *([steps.user(result.user)] if result.user else []),
        *(steps.file(path, content) for path, content in result.files.items()),
        *([steps.reload(restarted)] if result.reload else []),
        *steps.service(UNIT, enable=result.enable, start=result.start),
        *(
            steps.setting(gpu.partition(" ")[0], f"turn on persistence mode of GPU {gpu}", "persistence_mode")
            for gpu in result.turn_on
        ),
    ]


def _missing_packages(host: Host, packages: t.Mapping[str, list[str]], driver_brings: t.Collection[str]) -> list[str]:
    """Return the missing packages of the daemon; none if the driver did not come from packages or has its own unit."""
    driver = nvidia_driver(host)
    if driver["runfile"] or driver.get("prefix"):
        return []
    wanted = list(packages.get(host["os"]["key"] or "", []))
    if not wanted and host["os"]["family"] == "ubuntu":
        # The package of the daemon has the driver's branch in its name.
        branches = _branches(driver_brings) or _branches(host["packages"])
        wanted = [f"nvidia-compute-utils-{branch}" for branch in branches]
        if not branches and is_installed(host, _NVIDIA_LIBRARY) and not _has_unit_file(host):
            wanted = ["nvidia-persistenced"]
    return [name for name in wanted if not is_installed(host, name)]


def _branches(names: t.Iterable[str]) -> list[str]:
    found = [re.fullmatch(r"nvidia-utils-(\d+(?:-server)?)", name) for name in names]
    return [match.group(1) for match in found if match]


def _versions(host: Host, result: PersistencePlan, offered: t.Mapping[str, list[str]] | None) -> None:
    """Choose package versions that match the driver.

    If a host has the distribution's driver and NVIDIA's repository, the newest version does not match. On hosts with
    role nvidia_driver's pin, apt already chooses a matching one.
    """
    utilities = [f"nvidia-utils-{branch}" for branch in _branches(host["packages"])]
    installed = [host["packages"].get(name, {}).get("version") for name in (_LIBRARY, _NVIDIA_LIBRARY, *utilities)]
    driver = next((version for version in installed if version), None)
    if driver is None or (host["files"].get(owned.DRIVER_APT_PREFERENCES) or {}).get("exists"):
        return
    result.query = result.packages
    if offered is None:
        return
    chosen = []
    for name in result.packages:
        version = _matching(name, driver, offered.get(name, []))
        if version is None:
            result.problems.append(
                f"The package sources have no {name} that matches driver {upstream_version(driver)}. Available: "
                f"{', '.join(offered.get(name, [])) or 'none'}. Enable the source that the driver came from."
            )
        chosen.append(f"{name}={version}")
    result.packages = chosen


def _matching(name: str, driver: str, versions: list[str]) -> str | None:
    """Return the driver's package version, else its upstream version, else the newest version of its branch.

    Distributions build the daemon separately, at another version of the branch. Libraries must have the same version.
    """
    upstream = upstream_version(driver)
    branch = upstream.partition(".")[0]
    equal = [version for version in versions if upstream_version(version) == upstream]
    same_branch = [version for version in versions if upstream_version(version).partition(".")[0] == branch]
    exact = [driver] if driver in versions else []
    return next(iter([*exact, *equal, *([] if name.startswith("lib") else same_branch)]), None)


def _files(host: Host, service: dict[str, t.Any], result: PersistencePlan) -> dict[str, str | None]:
    """Return the unit files to write, by path; None removes one that is no longer needed."""
    wanted: dict[str, str | None] = {}
    text = _packaged_unit(host, service)
    if text is not None:
        wanted[DROP_IN_FILE] = drop_in(text, USER if USER in (host.get("daemon_users") or []) else None)
    elif service.get("load_state") in (None, "not-found", "masked") or service.get("fragment_path") == UNIT_FILE:
        is_own = (observed_files.content(host, UNIT_FILE) or "").startswith(_HEADER)
        has_program = nvidia_driver(host)["runfile"] or is_own
        # A mask is a link to an empty file.
        is_free = observed_files.content(host, UNIT_FILE) is None or _is_mask(host)
        if has_program and (is_own or is_free):
            wanted[UNIT_FILE] = _OWN_UNIT
            result.user = None if USER in (host.get("daemon_users") or []) else USER
    return {path: content for path, content in wanted.items() if content != observed_files.content(host, path)}


def _has_own_files(host: Host, service: dict[str, t.Any]) -> bool:
    """Return whether this role's unit files exist, or systemd still uses one that was removed."""
    written = [(observed_files.content(host, path) or "").startswith(_HEADER) for path in (DROP_IN_FILE, UNIT_FILE)]
    return any(written) or DROP_IN_FILE in (service.get("drop_in_paths") or [])


def _has_unit_file(host: Host) -> bool:
    """Return whether there is a unit behind a mask."""
    return any(observed_files.content(host, path) for path in (*_PACKAGE_UNITS, UNIT_FILE))


def _is_mask(host: Host) -> bool:
    return (
        observed_files.content(host, UNIT_FILE) == "" and host["services"].get(UNIT, {}).get("load_state") == "masked"
    )


def _packaged_unit(host: Host, service: dict[str, t.Any]) -> str | None:
    """Return the packaged unit. A unit in /etc is the user's own, so it stays unchanged and the result is None."""
    fragment = service.get("fragment_path")
    if fragment and fragment not in _PACKAGE_UNITS:
        return None
    return next((text for path in _PACKAGE_UNITS if (text := observed_files.content(host, path)) is not None), None)


def _logical_lines(unit: str) -> str:
    """Return a unit with continued lines joined and comments removed, including those within a continued line."""
    lines = [line for line in unit.splitlines() if not line.lstrip().startswith(("#", ";"))]
    return re.sub(r"[ \t]*\\\n[ \t]*", " ", "\n".join([*lines, ""]))


def drop_in(unit: str, user: str | None = None) -> str | None:
    """Return the drop-in that makes a packaged unit effective, or None if the unit already is.

    `user` is the user to run the daemon as if the unit does not name one.
    """
    text = _logical_lines(unit)
    settings = dict(re.findall(r"^[ \t]*(\w+)[ \t]*=[ \t]*(.*?)[ \t]*$", text, re.MULTILINE))
    lines = []
    if settings.get("StopWhenUnneeded", "").lower() in ("true", "t", "yes", "y", "on", "1"):
        lines += ["[Unit]", "StopWhenUnneeded=false", ""]
    # Keep the command as written: systemd parses the quotes.
    kept, off = _MODE_OFF.subn("", settings.get("ExecStart", ""))
    options = []
    if off:
        kept = _MODE_ON.sub("", kept)
        options.append(" --persistence-mode")
    if user and kept and not settings.get("User") and not _USER_OPTION.search(kept):
        options.append(f" --user {user}")
    if options:
        lines += ["[Service]", "ExecStart=", f"ExecStart={kept}{''.join(options)}", ""]
    if not re.search(r"^[ \t]*\[Install\]", text, re.MULTILINE):
        lines += ["[Install]", "WantedBy=multi-user.target", ""]
    return _HEADER + "\n".join(lines) if lines else None


def _reason(result: PersistencePlan, host: Host, service: dict[str, t.Any], brought: list[str]) -> str:
    if brought:
        return f"role nvidia_driver installs the daemon with the driver ({', '.join(brought)})"
    if not nvidia_driver(host)["loaded"]:
        return "no NVIDIA driver is loaded, so the daemon is not started"
    if result.unmask:
        return "the unit of the daemon is masked"
    if DROP_IN_FILE in result.files:
        return (
            "the packaged unit starts the daemon without persistence mode or as root, stops it when no other unit "
            "needs it, or cannot be enabled"
        )
    if UNIT_FILE in result.files:
        return "the driver has no unit for the daemon"
    if result.reload:
        return "systemd has not reloaded the changed unit"
    if not (service.get("load_state") == "loaded" or result.packages):
        return "this host has no known package, unit or installer of the daemon; NVML reports the mode of each GPU"
    if result.start:
        return f"the daemon is {service.get('active_state') or 'not installed'}"
    if result.turn_on:
        count = len(result.turn_on)
        return f"the daemon runs, but persistence mode is off on {count} GPU{'' if count == 1 else 's'}"
    return "the daemon runs; NVML reports the mode of each GPU"


def gpus_with_mode_off(facts: dict[str, t.Any]) -> list[str]:
    """Name the GPUs whose persistence mode is off. GPUs that do not support the mode are not included."""
    return [
        f"{gpu['pci_bus_id'] or gpu['index']} ({gpu['name'] or 'unknown'})"
        for gpu in facts.get("nvidia_gpus", [])
        if gpu["persistence_mode"] is False
    ]
