# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is to be done so that the persistence daemon is effective: pure functions over what was observed of the host.

This file is private to the collection: it may change in any release.
"""

from __future__ import annotations

import re
import typing as t

from ansible.module_utils.common.validation import check_type_int

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.files import upstream_version
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.plan import PIN_FILE

UNIT = "nvidia-persistenced.service"
UNIT_FILE = f"/etc/systemd/system/{UNIT}"
DROP_IN_FILE = f"/etc/systemd/system/{UNIT}.d/gpufleet.conf"
PROGRAM = "/usr/bin/nvidia-persistenced"
# The user that is made for a unit of ours. Packages bring their own.
USER = "nvidia-persistenced"
# Debian's package of a library that every driver has.
_LIBRARY = "libnvidia-ml1"
# Seconds between two times that the role asks the GPUs.
ASKED_EVERY = 2

_PACKAGE_UNITS = (f"/usr/lib/systemd/system/{UNIT}", f"/lib/systemd/system/{UNIT}")
# As words of their own, in quotes or not.
_MODE_OFF = re.compile(r"""\s+(["']?)--no-persistence-mode\1(?!\S)""")
_MODE_ON = re.compile(r"""\s+(["']?)--persistence-mode\1(?!\S)""")
# Of its two forms the short one may have the name behind it.
_USER_NAMED = re.compile(r"""\s["']?(--user(?=[\s="'])|-u)""")
_HEADER = "# Written by role gpufleet.hosts.nvidia_persistenced, which writes it anew.\n"
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


def plan(
    host: dict[str, t.Any],
    packages: dict[str, list[str]],
    timeout: int | str = 30,
    offered: dict[str, list[str]] | None = None,
) -> dict[str, t.Any]:
    """Resolve what the role is to do on this host, and why. `packages` names the daemon's packages by platform.

    `offered` are the versions on offer of what `query` names, once the package manager has been asked. Argument
    validation leaves a text that stands for a number a text.
    """
    timeout = check_type_int(timeout)
    result: dict[str, t.Any] = {
        "wanted": bool(host["nvidia"]["gpus"]),
        "problems": [],
        "packages": [],
        "query": [],
        "user": None,
        "files": {},
        # systemd is to read its files again, and the daemon to start anew with what they say.
        "reload": False,
        "enable": False,
        "start": False,
        "verify": False,
        "retries": -(-timeout // ASKED_EVERY),
        "reason": "",
    }
    if not result["wanted"]:
        handed_over = host["nvidia"].get("gpus_of_guests")
        result["reason"] = "all GPUs are handed to virtual machines" if handed_over else "there is no NVIDIA GPU"
        return result
    service = host["services"].get(UNIT, {})
    result["packages"] = _missing_packages(host, packages, service)
    _versions(host, result, offered)
    result["files"] = _files(host, service, result)
    # A run that was cut off may have written them, and not have come to it.
    unread = bool(service.get("need_daemon_reload")) and _is_ours(host, service)
    result["reload"] = bool(result["files"]) or unread
    loaded = host["driver"]["loaded"]
    has_unit = service.get("load_state") == "loaded" or bool(result["packages"]) or UNIT_FILE in result["files"]
    has_systemd = bool(host["services"]) and has_unit
    result["enable"] = has_systemd and service.get("unit_file_state") != "enabled"
    result["start"] = has_systemd and bool(loaded) and service.get("active_state") != "active"
    result["verify"] = bool(loaded)
    if timeout < 1:
        result["problems"].append(
            f"nvidia_persistenced_timeout: {timeout} is not a number of seconds to wait. Set 1 or more."
        )
    if service.get("load_state") == "masked":
        result["problems"].append(f"{UNIT} is masked on this host, so somebody wants it off. Unmask it first.")
    works = result["packages"] or result["reload"] or result["enable"] or result["start"]
    if works and host["uid"] != 0:
        result["problems"].append(f"this needs root, and the host was seen as user {host['uid']}. Set become: true.")
    result["reason"] = _reason(result, host, service)
    return result


def _missing_packages(host: dict[str, t.Any], packages: dict[str, list[str]], service: dict[str, t.Any]) -> list[str]:
    """What the platform calls the daemon; nothing where a driver from elsewhere brought its own, or has a unit."""
    driver = host["driver"]
    if driver["runfile"] or driver.get("prefix"):
        return []
    wanted = list(packages.get(host["os"]["key"] or "", []))
    if not wanted and host["os"]["family"] == "ubuntu":
        # The daemon lies in a package of the driver's branch, and only that one goes with it.
        branches = [re.fullmatch(r"nvidia-utils-(\d+(?:-server)?)", name) for name in host["packages"]]
        wanted = [f"nvidia-compute-utils-{match.group(1)}" for match in branches if match]
    if not wanted and service.get("load_state") != "loaded" and driver["library"]:
        return []
    return [name for name in wanted if name not in host["packages"]]


def _versions(host: dict[str, t.Any], result: dict[str, t.Any], offered: dict[str, list[str]] | None) -> None:
    """Have the packages come at versions that go with the driver.

    Where NVIDIA's repository is beside the distribution's driver, the newest does not. Role nvidia_driver's pin sees to
    it on hosts that have it.
    """
    there = [host["packages"].get(name, {}).get("version") for name in (_LIBRARY, *_utilities(host))]
    driver = next((version for version in there if version), None)
    if driver is None or (host["files"].get(PIN_FILE) or {}).get("exists"):
        return
    result["query"] = result["packages"]
    if offered is None:
        return
    chosen = []
    for name in result["packages"]:
        version = _fitting(name, driver, offered.get(name, []))
        if version is None:
            result["problems"].append(
                f"the package sources have no {name} that goes with driver {upstream_version(driver)}. They have "
                f"{', '.join(offered.get(name, [])) or 'none at all'}. Enable the source that the driver came from."
            )
        chosen.append(f"{name}={version}")
    result["packages"] = chosen


def _utilities(host: dict[str, t.Any]) -> list[str]:
    return [name for name in host["packages"] if re.fullmatch(r"nvidia-utils-\d+(-server)?", name)]


def _fitting(name: str, driver: str, versions: list[str]) -> str | None:
    """Of the versions, newest first: the driver's package version, its own version, or the newest of its branch.

    Distributions have the daemon from a source of its own, at another version of the branch. Libraries must be equal.
    """
    upstream = upstream_version(driver)
    branch = upstream.partition(".")[0]
    equal = [version for version in versions if upstream_version(version) == upstream]
    kin = [version for version in versions if upstream_version(version).partition(".")[0] == branch]
    exact = [driver] if driver in versions else []
    return next(iter([*exact, *equal, *([] if name.startswith("lib") else kin)]), None)


def _files(host: dict[str, t.Any], service: dict[str, t.Any], result: dict[str, t.Any]) -> dict[str, str | None]:
    """Unit files to write, by path; None removes one of ours that is no longer needed."""
    wanted: dict[str, str | None] = {}
    text = _packaged_unit(host, service)
    if text is not None:
        wanted[DROP_IN_FILE] = drop_in(text, USER if USER in (host.get("daemon_users") or []) else None)
    elif service.get("load_state") in (None, "not-found") or service.get("fragment_path") == UNIT_FILE:
        mine = (_content(host, UNIT_FILE) or "").startswith(_HEADER)
        has_program = host["driver"]["runfile"] or mine
        if has_program and (mine or _content(host, UNIT_FILE) is None):
            wanted[UNIT_FILE] = _OWN_UNIT
            result["user"] = USER
    return {path: content for path, content in wanted.items() if content != _content(host, path)}


def _is_ours(host: dict[str, t.Any], service: dict[str, t.Any]) -> bool:
    """Tell whether there is a file of ours that systemd may not know, or one that it knows and that has gone."""
    written = [(_content(host, path) or "").startswith(_HEADER) for path in (DROP_IN_FILE, UNIT_FILE)]
    return any(written) or DROP_IN_FILE in (service.get("drop_in_paths") or [])


def _content(host: dict[str, t.Any], path: str) -> str | None:
    return (host["files"].get(path) or {}).get("content")


def _packaged_unit(host: dict[str, t.Any], service: dict[str, t.Any]) -> str | None:
    """The text of the unit as a package brought it. A unit in /etc is somebody's own and is left as it is."""
    fragment = service.get("fragment_path")
    if fragment and fragment not in _PACKAGE_UNITS:
        return None
    return next((text for path in _PACKAGE_UNITS if (text := _content(host, path)) is not None), None)


def _logical_lines(unit: str) -> str:
    """A unit's text without its comments, which may lie within a continued line, and with such lines in one."""
    lines = [line for line in unit.splitlines() if not line.lstrip().startswith(("#", ";"))]
    return re.sub(r"[ \t]*\\\n[ \t]*", " ", "\n".join([*lines, ""]))


def drop_in(unit: str, user: str | None = None) -> str | None:
    """The drop-in that makes a packaged unit effective, None where it is as it stands.

    `user`: whom the daemon is to run as where the unit names nobody.
    """
    text = _logical_lines(unit)
    settings = dict(re.findall(r"^[ \t]*(\w+)[ \t]*=[ \t]*(.*?)[ \t]*$", text, re.MULTILINE))
    lines = []
    if settings.get("StopWhenUnneeded", "").lower() in ("true", "t", "yes", "y", "on", "1"):
        lines += ["[Unit]", "StopWhenUnneeded=false", ""]
    # The command is kept as it is written, with whatever systemd makes of its quotes.
    kept, off = _MODE_OFF.subn("", settings.get("ExecStart", ""))
    options = []
    if off:
        kept = _MODE_ON.sub("", kept)
        options.append(" --persistence-mode")
    if user and kept and not settings.get("User") and not _USER_NAMED.search(kept):
        options.append(f" --user {user}")
    if options:
        lines += ["[Service]", "ExecStart=", f"ExecStart={kept}{''.join(options)}", ""]
    if not re.search(r"^[ \t]*\[Install\]", text, re.MULTILINE):
        lines += ["[Install]", "WantedBy=multi-user.target", ""]
    return _HEADER + "\n".join(lines) if lines else None


def _reason(result: dict[str, t.Any], host: dict[str, t.Any], service: dict[str, t.Any]) -> str:
    if not host["driver"]["loaded"]:
        return "no NVIDIA driver is loaded, so the daemon is not started"
    if DROP_IN_FILE in result["files"]:
        return "the packaged unit starts the daemon with persistence mode off, as root, or only for a moment"
    if UNIT_FILE in result["files"]:
        return "the driver came without a unit"
    if result["reload"]:
        return "systemd has not read the unit as it is now"
    if not (service.get("load_state") == "loaded" or result["packages"]):
        return "no package, unit or installer of the daemon is known here; what counts is what NVML says of each GPU"
    if result["start"]:
        return f"the daemon is {service.get('active_state') or 'not there'}"
    return "the daemon runs; what counts is what NVML says of each GPU"


def gpus_without(facts: dict[str, t.Any]) -> list[str]:
    """The GPUs whose persistence mode is off, as NVML says. A GPU that does not know the mode is none of them."""
    return [
        f"{gpu['pci_bus_id'] or gpu['index']} ({gpu['name'] or 'unknown'})"
        for gpu in facts.get("nvidia_gpus", [])
        if gpu["persistence_mode"] is False
    ]
