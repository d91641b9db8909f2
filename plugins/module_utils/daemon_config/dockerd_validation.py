# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Validate a file with dockerd, and check with systemd whether the daemon has applied the last change."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.versions import whole_number
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.docker_options import (
    KNOWN_OPTIONS,
    PROXIES,
    unknown_option,
    version_problems,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.json_text import DaemonConfigError

Run = t.Callable[..., tuple[int, str, str]]
_UNKNOWN = re.compile(r"the following directives don't match any configuration option: ([\w., -]+)")


def version_of(run: Run, dockerd: str) -> tuple[int, ...]:
    """Return the version of dockerd, () if it does not print one."""
    _rc, out, _err = run([dockerd, "--version"])
    match = re.search(r"\b(\d+)\.(\d+)(?:\.(\d+))?", out)
    return tuple(whole_number(part or "0") for part in match.groups()) if match else ()


def validate(
    run: Run, run_unprivileged: Run, dockerd: str, file: str, requested: dict[str, t.Any] | None = None
) -> str:
    """Validate a new file with dockerd. Return dockerd's path and version, or raise its message.

    `requested`: the options that the user requests, of which dockerd may ignore some without a message.

    dockerd 23.0 and later have a flag for this. dockerd 19.03 to 20.10 runs as an unprivileged user instead: it checks
    the whole file, then it requires root and exits before it changes anything.
    """
    version = version_of(run, dockerd)
    shown = f"{dockerd} {'.'.join(str(part) for part in version)}"
    ignored = version_problems(requested or {}, version) if version else []
    if ignored:
        raise DaemonConfigError(" ".join(ignored))
    if version >= (23,):
        rc, out, err = run([dockerd, "--validate", "--config-file", file])
        accepted = rc == 0
    elif version >= (19, 3):
        rc, out, err = run_unprivileged([dockerd, "--config-file", file])
        accepted = rc != 0 and bool(re.search(r"dockerd needs to be started with root", out + err))
    else:
        return ""
    if not accepted:
        unknown = _UNKNOWN.search(out + err)
        if unknown:
            raise DaemonConfigError(
                " ".join(_unsupported_option(shown, key.strip()) for key in unknown.group(1).split(","))
            )
        output = " ".join(
            line for line in (err + "\n" + out).replace(f"with file {file}", "with it").split("\n") if line.strip()
        )
        raise DaemonConfigError(
            f"{shown} rejects the new file: {output.rstrip('.') or f'exit status {rc}'}. The file was not changed. "
            "Correct the options."
        )
    return shown


def _unsupported_option(shown: str, key: str) -> str:
    """Report an option that this dockerd does not have. dockerd names the options in `proxies` without that key."""
    known = f"proxies.{key}" if key in PROXIES else key
    if known.partition(".")[0] in KNOWN_OPTIONS:
        return f"{known}: {shown} has no such option, but other versions do. Remove it, or use another Docker version."
    return unknown_option(f"{key}: {shown}", key)


def pending(written: dict[str, t.Any] | None, boot_id: str, run: Run, unit: str) -> dict[str, list[str]]:
    """Return the keys in the file that the running daemon has not applied yet, by the required action."""
    daemon = _daemon(run, unit) if written and written.get("boot_id") == boot_id else None
    return _not_applied(written, daemon) if written and daemon else {"reload": [], "restart": []}


def _not_applied(written: dict[str, t.Any], daemon: _Daemon) -> dict[str, list[str]]:
    return {
        "reload": [] if daemon.read_config > written["at"] else list(written["reload"]),
        "restart": [] if daemon.started > written["at"] else list(written["restart"]),
    }


def has_applied(written: dict[str, t.Any], boot_id: str, run: Run, unit: str) -> bool:
    """Return whether the daemon runs with the last change. A daemon that is still starting does not count."""
    daemon = _daemon(run, unit)
    if daemon is None or not daemon.is_ready:
        return False
    return written.get("boot_id") != boot_id or not any(_not_applied(written, daemon).values())


class _Daemon(t.NamedTuple):
    """When the daemon's process started and last read its file, and whether it has finished starting."""

    started: int
    read_config: int
    is_ready: bool


def _daemon(run: Run, unit: str) -> _Daemon | None:
    names = "MainPID,ActiveState,ExecMainStartTimestampMonotonic,StateChangeTimestampMonotonic,ReloadResult"
    rc, out, _err = run(["systemctl", "show", unit, "-p", names])
    shown = dict(line.split("=", 1) for line in out.splitlines() if "=" in line)
    if rc != 0 or shown.get("MainPID", "0") == "0":
        return None
    started = int(shown.get("ExecMainStartTimestampMonotonic") or 0)
    # A failed reload changes the unit's state, too.
    is_reloaded = shown.get("ReloadResult", "success") == "success"
    read_config = max(started, int(shown.get("StateChangeTimestampMonotonic") or 0) if is_reloaded else 0)
    return _Daemon(started, read_config, shown.get("ActiveState") in ("active", "reloading"))
