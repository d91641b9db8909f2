# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check the packages of a test host, take snapshots of the host, and reset the host after a problem."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

HOME = Path("/srv/packages")
SCRIPTS = Path("/var/log/packages.log")
OURS = ("app", "app-library", "app-data", "plugin", "slow", "big", "agent-old", "agent-new", "notes", "memo")
# The programs of each package manager.
MANAGERS = {
    "apt": ("apt-get", "apt-mark", "dpkg"),
    "dnf": ("dnf", "dnf-3", "rpm"),
    "zypper": ("zypper", "rpm"),
}


class Problem(Exception):
    """The host is not as it must be."""


def descendants(pid: int) -> list[int]:
    """Return the processes that a process started, directly or not."""
    parents: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                stat = Path(f"/proc/{name}/stat").read_text(encoding="utf-8", errors="replace")
                parents.setdefault(int(stat.rpartition(")")[2].split()[1]), []).append(int(name))
    found, rest = [], [pid]
    while rest:
        children = parents.get(rest.pop(), [])
        found += children
        rest += children
    return found


def command(pid: int) -> str:
    """Return the command line of a process."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def tail(path: Path, size: int) -> str:
    """Return what was added to a file since it had a size."""
    with contextlib.suppress(FileNotFoundError), path.open("rb") as stream:
        stream.seek(size)
        return stream.read().decode()
    return ""


def size(path: Path) -> int:
    """Return the size of a file, which may not exist."""
    return path.stat().st_size if path.exists() else 0


def output(*argv: str) -> str:
    """Return what a program prints. Raise Problem if it fails."""
    done = subprocess.run(argv, check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        raise Problem(f"{' '.join(argv)} failed: {done.stdout.strip()}")
    return done.stdout


def installed(manager: str) -> list[tuple[str, str]]:
    """Return the names and versions of the installed packages."""
    if manager == "apt":
        rows = output(
            "dpkg-query", "--show", "--showformat", "${Package} ${Version} ${db:Status-Status}\n"
        ).splitlines()
        return [(row.split()[0], row.split()[1]) for row in rows if row.endswith(" installed")]
    rows = output("rpm", "-qa", "--queryformat", "%{NAME} %{VERSION}-%{RELEASE}\n").splitlines()
    return [(row.split()[0], row.split()[1]) for row in rows]


def check_packages(manager: str) -> None:
    """Check that the package manager finds nothing to repair."""
    if manager == "apt":
        audit = output("dpkg", "--audit") + output("apt-get", "check", "--quiet=2")
        if audit.strip():
            raise Problem(f"dpkg --audit: {audit.strip()}")
    else:
        names = [name for name, _version in installed(manager) if not name.startswith("gpg-pubkey")]
        double = sorted({name for name in names if names.count(name) > 1})
        if double:
            raise Problem(f"installed twice: {double}")
        ours = [name for name in names if name in OURS]
        if ours:
            output("rpm", "--verify", *ours)
    page = Path("/usr/share/paper/page")
    owners = [name for name, _version in installed(manager) if name in ("notes", "memo")]
    content = page.read_text(encoding="utf-8") if page.exists() else ""
    if content != "".join(f"from {name}\n" for name in owners):
        raise Problem(f"{page} contains {content!r}, but {owners} are installed")


def check_scripts(manager: str) -> None:
    """Check that every package ran its scripts to the end after its last installation or removal."""
    last: dict[tuple[str, str], int] = {}
    lines = [line.split() for line in tail(SCRIPTS, 0).splitlines()]
    present = installed(manager)
    for number, (name, version, script, step, *arguments) in enumerate(lines):
        # Where rpm installs a version again, it then removes the former installation. The argument counts what is left.
        is_replaced = script.endswith("_removal") and arguments != ["0"] and (name, version) in present
        if step == "begin" and not (is_replaced and manager != "apt"):
            last[name, version] = number
    for (name, version), number in last.items():
        expected = "after_install" if (name, version) in present else "after_removal"
        _name, _version, script, _begin, *arguments = lines[number]
        ended = [name, version, script, "end", *arguments] in lines[number:]
        if script != expected or not ended:
            shown = [" ".join(line) for line in lines if line[:2] == [name, version]][-8:]
            raise Problem(f"{name} {version} must have run {expected} last, but it ran {shown}")


def check_request(manager: str, wanted: dict[str, Any]) -> None:
    """Check the packages and holds after a request with these options."""
    found = dict(installed(manager))
    if wanted.get("state") == "absent":
        left = sorted({*found} & {"app", "app-library", "app-data", "plugin", "slow", "big", "agent-new", "memo"})
        if left:
            raise Problem(f"these packages are left: {left}")
        return
    for item in wanted["install"]:
        name, _equals, version = item.partition("=")
        if not found.get(name, "").startswith(version or "1.0"):
            raise Problem(f"{item} is not installed, but {found.get(name)}")
    present = [name for name in wanted.get("remove", []) if name in found]
    if present:
        raise Problem(f"{present} must be removed")
    if manager == "apt":
        held = output("apt-mark", "showhold").split()
    elif manager == "dnf":
        held = output("dnf", "--quiet", "versionlock", "list").split()
    else:
        held = Path("/etc/zypp/locks").read_text(encoding="utf-8").split()
    for name in wanted["hold"]:
        if not any(re.match(rf"{name}(-\d|$)", entry) for entry in held):
            raise Problem(f"{name} is not held: {held}")


def snapshot(manager: str) -> list[str]:
    """Return everything that a transaction can leave on the host."""
    lines = output("/srv/vendor/snapshot").splitlines()
    if manager == "apt":
        lines += [f"requested {name}" for name in output("apt-mark", "showmanual").split()]
    lines += [f"list {name}" for name in os.listdir("/var/lib/apt/lists") if "127.0.0.1" in name]
    lines += [f"temporary {name}" for name in os.listdir("/var/tmp") if name.startswith("gpufleet-")]
    lines += [f"ours {path}" for name in OURS for path in Path("/usr/share").glob(f"{name}/*")]
    return sorted(lines)


def check_end(manager: str) -> None:
    """Install the user's packages again, and compare the host with the snapshot from before."""
    reinstall(manager)
    before = json.loads((HOME / "before.json").read_text(encoding="utf-8"))
    now = snapshot(manager)
    if now != before:
        lost = sorted(set(before) - set(now))
        left = sorted(set(now) - set(before))
        raise Problem(f"state=absent did not leave the host as before. Missing: {lost}. New: {left}")


def reinstall(manager: str) -> None:
    """Install the user's packages that the change removed."""
    names = dict(installed(manager))
    files = [str(path) for path in (HOME / "user").iterdir() if re.split(r"[_-]1", path.name)[0] not in names]
    if files:
        output(*(["dpkg", "--install"] if manager == "apt" else ["rpm", "--install", "--nosignature"]), *files)


def reset(manager: str) -> None:
    """Remove everything after a problem, so that the next round begins on a clean host."""
    for pid in descendants(1):
        words = command(pid).split()[:2]
        if any(os.path.basename(word) in MANAGERS[manager] for word in words):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    if manager == "apt":
        commands = [["dpkg", "--purge", "--force-all", *OURS]]
    else:
        commands = [["rpm", "--erase", "--nodeps", "--allmatches", name] for name in (*OURS, "gpg-pubkey")]
    for argv in commands:
        subprocess.run(argv, check=False, capture_output=True)
    for place in (
        "/etc/apt",
        "/etc/yum.repos.d",
        "/etc/zypp",
        "/etc/pki",
        "/usr/share/keyrings",
        "/usr/share/pki",
        "/var/lib/gpufleet",
        "/var/lib/apt/lists",
    ):
        for path in Path(place).rglob("*"):
            if path.is_file() and ("application" in path.name or "127.0.0.1" in path.name):
                path.unlink()
    Path("/etc/zypp/locks").unlink(missing_ok=True)
    locks = Path("/etc/dnf/plugins/versionlock.list")
    if locks.exists():
        locks.write_text("", encoding="utf-8")
    for path in (Path("/var/lib/gpufleet"), Path("/var/cache/gpufleet"), *Path("/var/tmp").glob("gpufleet-*")):
        shutil.rmtree(path, ignore_errors=True)
    reinstall(manager)
    SCRIPTS.unlink(missing_ok=True)
    (HOME / "before.json").write_text(json.dumps(snapshot(manager)), encoding="utf-8")
