# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read installed, held and incomplete packages from the database of the package manager."""

from __future__ import annotations

import fcntl
import os
import re
import struct
import time
from typing import Callable

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.files import listing, read_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.host.reboot import AT_BOOT_ONLY

Run = Callable[["list[str]"], "tuple[int, str, str]"]

# Packages of a GPU host: drivers, kernels, headers, engines, toolkits, and tools for unattended upgrades.
INTERESTING = re.compile(
    r"nvidia|cuda|^libnv|^libcud|^nvlsm|datacenter-gpu-manager|^docker|containerd|^podman|^moby|^cri-o$|^crun$|^runc$|"
    r"dkms|^linux-(headers|image|modules)|^kernel(-|\d|$)|neuron|habana|rocm|amdgpu|^unattended-upgrades$|^needrestart$|"
    r"^dnf5?$|^dnf-automatic$|versionlock|^mokutil$|^shim-|^python3-(pynvml|docker|requests|apt|dnf)|gdrcopy|^infiniband-diags$|"
    r"^iptables$|^ca-certificates$|^g\+\+$|^netavark$|^aardvark-dns$|^catatonit$|^libibumad|^epel-release$|^nouveau|^initramfs-tools$|^dracut$"
)
_RPM_FORMAT = r"%{NAME}\t%|EPOCH?{%{EPOCH}:}:{}|%{VERSION}-%{RELEASE}\t%{ARCH}\t%{INSTALLTIME}\n"
_FIELD = {
    name: re.compile(rf"^{name}: (.*)$", re.MULTILINE) for name in ("Package", "Status", "Version", "Architecture")
}
# A frontend such as apt holds the first lock during its whole run. dpkg holds the second lock.
_DPKG_LOCKS = ("/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock")
_FLOCK = "hhqqi4x"
_GOOD_STATES = ("installed", "not-installed", "config-files", "triggers-pending", "triggers-awaited")


def read(root: str, manager: str | None, run: Run, extra: list[str] | None = None) -> dict:
    """Return the installed packages and the state of the package manager.

    `installed`: version, held and arch of each package. `held_patterns`: the version locks.
    `asked`: whether each of the `extra` names is installed. A name has the form that the package manager accepts: with
    apt name[:arch], else name[-[epoch:]version[-release]][.arch].
    `config_files`: with apt, removed packages whose configuration files remain in /etc.
    `unfinished`: incompletely installed packages. `interrupted`: dpkg was killed and its journal remains.
    `busy`: with apt, another process uses dpkg, so `unfinished` can change.
    `installed_at`: with dnf, the installation time of packages that only take effect at a boot, in seconds since 1970.
    """
    wanted = set(extra or [])
    if manager == "apt":
        state = _dpkg(root, wanted)
    elif manager in ("dnf", "zypper"):
        state = _rpm(run, wanted)
        if manager == "zypper":
            # SUSE has a file that requests a reboot.
            del state["installed_at"]
    else:
        state = {"installed": {}, "asked": dict.fromkeys(wanted, False), "unfinished": [], "interrupted": False}
    state.setdefault("installed_at", {})
    state.setdefault("config_files", [])
    state.setdefault("busy", False)
    patterns = _locks(root, manager)
    for name, package in state["installed"].items():
        package["held"] = package["held"] or any(locks(pattern, name, package["version"]) for pattern in patterns)
    state["held_patterns"] = patterns
    return state


def is_installed(host: dict, name: str) -> bool:
    """Return whether a package is installed on an observed host. The name may have a version or an architecture."""
    asked = host["packages_asked"].get(name)
    return name in host["packages"] if asked is None else asked


def names(root: str, manager: str | None, run: Run) -> list[str]:
    """Return the names of all installed packages."""
    if manager == "apt":
        text = read_text(root, "/var/lib/dpkg/status") or ""
        installed = [
            stanza for stanza in text.split("\n\n") if re.search(r"^Status: \S+ \S+ installed$", stanza, re.MULTILINE)
        ]
        return sorted({_first(_FIELD["Package"], stanza) for stanza in installed})
    if manager in ("dnf", "zypper"):
        # All keys are packages with the same name. Their versions differ.
        _rc, out, _err = run(["rpm", "-qa", "--qf", r"%{NAME} %{VERSION}\n"])
        pairs = (line.split(" ", 1) for line in out.splitlines() if " " in line)
        return sorted({f"{name}-{version}" if name == "gpg-pubkey" else name for name, version in pairs})
    return []


def _dpkg(root: str, wanted: set[str]) -> dict:
    installed: dict[str, dict] = {}
    architectures: dict[str, set[str]] = {name.partition(":")[0]: set() for name in [*wanted, "dpkg"]}
    unfinished, removed = [], set()
    # dpkg may end while its database is read, so `busy` covers the time before and after.
    was_busy = is_busy(root)
    text = read_text(root, "/var/lib/dpkg/status") or ""
    for stanza in text.split("\n\n"):
        match = _FIELD["Package"].search(stanza)
        name = match.group(1) if match else ""
        if name not in architectures and not INTERESTING.search(name):
            continue
        status, version, arch = (_first(_FIELD[field], stanza) for field in ("Status", "Version", "Architecture"))
        want, _flag, state = [*status.split(), "", "", ""][:3]
        if state not in _GOOD_STATES:
            unfinished.append(name)
        if state == "config-files":
            removed.add(name)
        if state in ("installed", "triggers-pending", "triggers-awaited"):
            architectures.setdefault(name, set()).add(arch)
            if name not in installed and (name in wanted or INTERESTING.search(name)):
                installed[name] = {"version": version, "held": want == "hold", "arch": arch}
    native = next(iter(architectures["dpkg"]), None)
    asked = {name: _is_installed_dpkg(name, architectures, native) for name in wanted}
    return {
        "installed": installed,
        "asked": asked,
        "unfinished": sorted(set(unfinished)),
        "interrupted": _is_interrupted(root),
        "busy": was_busy or is_busy(root),
        "config_files": sorted(removed - set(installed)),
    }


def is_busy(root: str) -> bool:
    """Return whether a process holds one of dpkg's locks. This does not take a lock."""
    return any(_is_locked(os.path.join(root, path.lstrip("/"))) for path in _DPKG_LOCKS)


def wait_until_free(root: str, seconds: float) -> None:
    """Wait until no process holds dpkg's locks, or the time is over."""
    end = time.monotonic() + seconds
    while is_busy(root) and time.monotonic() < end:
        time.sleep(min(1.0, max(0.0, end - time.monotonic())))


def _is_locked(path: str) -> bool:
    wanted = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    try:
        with open(path, "rb") as file:
            found = fcntl.fcntl(file, fcntl.F_GETLK, wanted)
        return bool(struct.unpack(_FLOCK, found)[0] != fcntl.F_UNLCK)
    except PermissionError:
        # Only root can open the file, but all users can read the kernel's list of locks.
        inode = os.stat(path).st_ino
        return re.search(rf"^\d+: POSIX .*:{inode} ", read_text("/", "/proc/locks") or "", re.MULTILINE) is not None
    except OSError:
        return False


def _is_interrupted(root: str) -> bool:
    """Return whether dpkg was killed: its journal remains, but no dpkg runs.

    Both are checked twice, because dpkg may start or end between two checks.
    """
    return all(not is_busy(root) and _has_journal(root) for _attempt in range(2))


def _has_journal(root: str) -> bool:
    return any(name.isdigit() for name in listing(root, "/var/lib/dpkg/updates"))


def _is_installed_dpkg(asked: str, architectures: dict[str, set[str]], native: str | None) -> bool:
    """Return whether apt considers the package installed. The default architecture is that of the host."""
    name, _colon, arch = asked.partition(":")
    found = architectures[name]
    arch = native or "any" if arch in ("", "native", "all") else arch
    return bool(found) if arch == "any" else arch in found or ("all" in found and arch == (native or arch))


def _rpm(run: Run, wanted: set[str]) -> dict:
    installed: dict[str, dict] = {}
    found: set[str] = set()
    installed_at: dict[str, int] = {}
    _rc, out, _err = run(["rpm", "-qa", "--qf", _RPM_FORMAT])
    for line in out.splitlines():
        name, version, arch, time_installed = [*line.split("\t"), "", "", ""][:4]
        if name in AT_BOOT_ONLY and time_installed.isdigit():
            installed_at[name] = max(int(time_installed), installed_at.get(name, 0))
        if name in wanted or INTERESTING.search(name):
            installed[name] = {"version": version, "held": False, "arch": arch}
        # A package such as kernel headers can be installed in several versions.
        if any(asked.startswith(name) for asked in wanted):
            found |= wanted & _names_for_rpm(name, version, arch)
    return {
        "installed": installed,
        "asked": {name: name in found for name in wanted},
        "unfinished": [],
        "interrupted": False,
        "installed_at": installed_at,
    }


def _names_for_rpm(name: str, version: str, arch: str) -> set[str]:
    """Return all names that dnf and zypper accept for an installed package."""
    epoch, _colon, full = version.rpartition(":")
    versions = [full, full.rpartition("-")[0]]
    with_version = [f"{name}-{before}{text}" for text in versions for before in ("", f"{epoch or '0'}:")]
    return {text + end for text in [name, *with_version] for end in ("", f".{arch}")}


def _locks(root: str, manager: str | None) -> list[str]:
    if manager == "dnf":
        lines = (read_text(root, "/etc/dnf/plugins/versionlock.list") or "").splitlines()
        locks = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith(("#", "!"))]
        toml = read_text(root, "/etc/dnf/versionlock.toml") or ""
        return locks + re.findall(r'^\s*name\s*=\s*"([^"]+)"', toml, re.MULTILINE)
    if manager == "zypper":
        return re.findall(r"^solvable_name:\s*(\S+)", read_text(root, "/etc/zypp/locks") or "", re.MULTILINE)
    return []


def locks(pattern: str, name: str, version: str) -> bool:
    """Return whether a lock covers a package: `name`, `name*`, or `name-[epoch:]version-release[.arch]` with globs."""
    bare = re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".")
    epoch, _colon, rest = version.rpartition(":")
    candidates = (name, f"{name}-{rest}", f"{name}-{epoch or '0'}:{rest}")
    return any(re.fullmatch(bare + r"(\.\w+)?", candidate) for candidate in candidates) or any(
        re.fullmatch(bare, f"{candidate}.") for candidate in candidates
    )


def _first(pattern: re.Pattern, stanza: str) -> str:
    match = pattern.search(stanza)
    return match.group(1).strip() if match else ""
