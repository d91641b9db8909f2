# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read installed, held and incomplete packages from the database of the package manager."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Callable

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import listing, read_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.name_value_lines import shell_assignments
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.nvidia_names import DRIVER_PACKAGES
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.untrusted_text import (
    PACKAGE,
    PACKAGE_VERSION,
    is_like,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.host.reboot_reasons import AT_BOOT_ONLY
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers import dpkg_state
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.holds import held_packages

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host

Run = Callable[["list[str]"], "tuple[int, str, str]"]

# Packages that belong to no part: kernels, signing, and the tools of the package managers. The parts declare the rest.
GENERAL = (
    r"dkms|^linux-(headers|image|modules)|^kernel(-|\d|$)|^unattended-upgrades$|^needrestart$|^dnf5?$|^dnf-automatic$|"
    r"versionlock|^mokutil$|^shim-|^python3-(apt|dnf)|^ca-certificates$|^epel-release$|^initramfs-tools$|^dracut$"
)
_SIGNATURE = r"%|DSAHEADER?{%{DSAHEADER:pgpsig}}:{%|RSAHEADER?{%{RSAHEADER:pgpsig}}:{%{SIGPGP:pgpsig}}|}|"
_RPM_FORMAT = (
    r"%{NAME}\t%|EPOCH?{%{EPOCH}:}:{}|%{VERSION}-%{RELEASE}\t%{ARCH}\t%{INSTALLTIME}\t%{VENDOR}\t" + _SIGNATURE + r"\n"
)
# The command that prints name, version and architecture of a package file.
RPM_FILE = [
    "rpm",
    "--query",
    "--queryformat",
    r"%{NAME}\t%|EPOCH?{%{EPOCH}:}:{}|%{VERSION}-%{RELEASE}\t%{ARCH}\n",
    "--package",
]


def read(root: str, manager: str | None, run: Run, patterns: Iterable[str] = ()) -> dict:
    """Return the installed packages and the state of the package manager.

    `patterns`: regular expressions for names of packages to describe, besides those that belong to no part.

    `all`: all installed packages by name, each as text of its version and architecture. Packages that are installed
    more than once have several, separated by commas.
    `details`: version, held and arch of each package of a GPU host.
    `held`: the names of all held packages. `held_patterns`: the version locks.
    `config_files`: with apt, removed packages of a GPU host whose configuration files remain in /etc.
    `unfinished`: incompletely installed packages of a GPU host. `interrupted`: dpkg was killed and its journal remains.
    `busy`: with apt, another process uses dpkg, so `unfinished` can change.
    `installed_at`: with dnf, the installation time of packages that only take effect at a boot, in seconds since 1970.
    `signed`: with rpm, the vendor of packages with names of the driver, and a text about their signature.
    """
    state: dict = {
        "unfinished": [],
        "interrupted": False,
        "installed_at": {},
        "signed": {},
        "config_files": [],
        "busy": False,
        "held_patterns": held_packages.locks(root, manager),
    }
    interesting = re.compile("|".join([GENERAL, *patterns]))
    copies: dict[str, list[tuple[str, str]]] = {}
    held: set[str] = set()
    if manager == "apt":
        copies, held = _dpkg(root, state, interesting)
    elif manager in ("dnf", "zypper"):
        copies = _rpm(run, state)
        held = held_packages.locked(state["held_patterns"], copies)
        if manager == "zypper":
            # SUSE has a file that requests a reboot.
            state["installed_at"] = {}
    # Of several copies, `details` describes the first that dpkg lists, or the last that rpm lists.
    position = 0 if manager == "apt" else -1
    state["all"] = texts(copies)
    state["held"] = sorted(held)
    state["details"] = {
        name: {"version": entries[position][0], "held": name in held, "arch": entries[position][1]}
        for name, entries in copies.items()
        if interesting.search(name)
    }
    return state


def streams(root: str) -> dict[str, str]:
    """Return the enabled stream of each dnf module."""
    found = {}
    for name in listing(root, "/etc/dnf/modules.d"):
        fields = shell_assignments(read_text(root, f"/etc/dnf/modules.d/{name}"))
        if name.endswith(".module") and fields.get("state") == "enabled" and fields.get("stream"):
            found[name[: -len(".module")]] = fields["stream"]
    return found


def is_installed(host: Host, name: str) -> bool:
    """Return whether a package is installed on an observed host, or provides a virtual name that was observed.

    The name has the form that the package manager accepts: with apt name[:arch], else
    name[-[epoch:]version[-release]][.arch].
    """
    known = host["installed_packages"]
    if host.get("provided", {}).get(name):
        return True
    if host["os"]["package_manager"] == "apt":
        native = next((copy[1] for copy in _copies(known, "dpkg")), "")
        return bool(versions(name, known, native))
    ends = (position for position, character in enumerate(name) if character in "-.")
    return name in known or any(
        name in _names_for_rpm(base, version, arch)
        for base in {name[:end] for end in ends}
        for version, arch in _copies(known, base)
    )


def providers(root: str, manager: str | None, names: list[str], run: Run) -> dict[str, list[str]]:
    """Return the installed packages that provide the names. Names that no installed package provides are left out."""
    found: dict[str, list[str]] = {}
    if manager == "apt" and names:
        found = dpkg_state.providers(read_text(root, dpkg_state.STATUS) or "")
    elif manager in ("dnf", "zypper"):
        for name in names:
            rc, out, _err = run(["rpm", "--query", "--whatprovides", "--queryformat", r"%{NAME}\n", name])
            found[name] = [one for one in out.split() if is_like(PACKAGE, one)] if rc == 0 else []
    return {name: sorted({*found[name]}) for name in names if found.get(name)}


def _copies(known: dict[str, str], name: str) -> list[list[str]]:
    """Return version and architecture of each installed copy of a package."""
    return [copy.split(" ") for copy in known[name].split(", ")] if name in known else []


def texts(copies: dict[str, list[tuple[str, str]]]) -> dict[str, str]:
    """Describe all installed packages as `read` returns them in `all`."""
    return {name: ", ".join(map(" ".join, copies[name])) for name in sorted(copies)}


def dpkg_copies(packages: list[dpkg_state.DpkgPackage]) -> tuple[dict[str, list[tuple[str, str]]], set[str]]:
    """Return version and architecture of each installed copy by name, and the held names."""
    copies: dict[str, list[tuple[str, str]]] = {}
    held = set()
    for package in packages:
        if package.is_usable:
            if package.want == "hold" and package.bare not in copies:
                held.add(package.bare)
            copies.setdefault(package.bare, []).append((package.version, package.arch))
    return copies, held


def _dpkg(root: str, state: dict, interesting: re.Pattern[str]) -> tuple[dict[str, list[tuple[str, str]]], set[str]]:
    # dpkg may end while its database is read, so `busy` covers the time before and after.
    was_busy = dpkg_state.is_busy(root)
    packages = dpkg_state.parse(read_text(root, dpkg_state.STATUS) or "")
    copies, held = dpkg_copies(packages)
    others = [p for p in packages if not p.is_usable and interesting.search(p.bare)]
    removed = {p.bare for p in others if p.state == dpkg_state.CONFIG_FILES}
    finished = (dpkg_state.CONFIG_FILES, dpkg_state.NOT_INSTALLED)
    state["unfinished"] = sorted({p.bare for p in others if p.state not in finished})
    state["interrupted"] = dpkg_state.is_interrupted(root)
    state["busy"] = was_busy or dpkg_state.is_busy(root)
    state["config_files"] = sorted(removed - set(copies))
    return copies, held


def lacks_files(package: str, run: Run) -> bool:
    """Return whether files of rpm's package are missing that are not configuration, documentation or ghost files."""
    _rc, out, _err = run(["rpm", "--verify", "--nodeps", "--noscripts", "--nofiledigest", package])
    return bool(re.search(r"^missing +/", out, re.MULTILINE))


def versions(name: str, known: dict[str, str], native: str = "") -> list[str]:
    """Return the installed versions of a package, which may be named with its architecture.

    With apt, `native` is the architecture of the host. It is the default, and includes packages of all architectures.
    """
    name, _colon, arch = name.partition(":")
    arch = native or "any" if arch in ("", "native", "all") else arch
    selected = {arch, "all"} if arch == (native or arch) else {arch}
    return [version for version, of_arch in _copies(known, name) if arch == "any" or of_arch in selected]


def _rpm(run: Run, state: dict) -> dict[str, list[tuple[str, str]]]:
    copies: dict[str, list[tuple[str, str]]] = {}
    installed_at = state["installed_at"]
    _rc, out, _err = run(["rpm", "-qa", "--qf", _RPM_FORMAT])
    for line in out.splitlines():
        name, version, arch, time_installed, vendor, signature = [*line.split("\t"), "", "", "", "", ""][:6]
        if not (is_like(PACKAGE, name) and is_like(PACKAGE_VERSION, version)):
            continue
        if name in AT_BOOT_ONLY and time_installed.isdigit():
            installed_at[name] = max(int(time_installed), installed_at.get(name, 0))
        if name == "gpg-pubkey":
            # All keys are packages with the same name. Their versions differ.
            name = f"{name}-{version.partition('-')[0]}"
        elif re.search(DRIVER_PACKAGES, name):
            state["signed"][name] = (vendor, signature)
        copies.setdefault(name, []).append((version, arch))
    return copies


def _names_for_rpm(name: str, version: str, arch: str) -> set[str]:
    """Return all names that dnf and zypper accept for an installed package."""
    epoch, _colon, full = version.rpartition(":")
    versions = [full, full.rpartition("-")[0]]
    with_version = [f"{name}-{before}{text}" for text in versions for before in ("", f"{epoch or '0'}:")]
    return {text + end for text in [name, *with_version] for end in ("", f".{arch}")}
