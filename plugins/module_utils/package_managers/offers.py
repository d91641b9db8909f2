# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The package versions and dnf module streams that repositories offer."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable
from typing import Callable

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import url_logins
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.versions import natural_key
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers import version_order
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.backend import PackageManagerError

_INSTALLED = "(System Packages)"
_ARCHES = "noarch|x86_64|aarch64|i686"

Run = Callable[["list[str]"], "tuple[int, str, str]"]


def read(manager: str, names: list[str], run: Run, options: Iterable[str] = ()) -> dict[str, list[str]]:
    """Return the available versions by package, newest first.

    A name with wildcards selects all packages that it matches. `options` are those of a view.
    """
    offers: dict[str, set[str]] = {name: set() for name in names if not _is_pattern(name)}
    for name, version in _QUERIES[manager](names, run, list(options)) if names else ():
        for requested in names:
            if _selects(requested, name, version):
                offers[requested].add(version)
            elif _is_pattern(requested) and fnmatch.fnmatchcase(name, requested):
                offers.setdefault(name, set()).add(version)
    return {name: sorted(versions, key=version_order.rpm, reverse=True) for name, versions in offers.items()}


def apt(names: list[str], run: Run, options: Iterable[str] = ()) -> dict[str, list[str]]:
    """Return the available versions by package as `read` does. A name may have an architecture."""

    def query(command: str, *names: str) -> str:
        rc, out, err = run(["apt-cache", *options, command, *names])
        if rc and not _are_unknown(rc, err):
            raise _error(f"apt-cache {command}", rc, out, err)
        return out

    patterns = [name for name in names if _is_pattern(name)]
    known = query("pkgnames").split() if patterns else []
    matches = [name for name in known if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]
    found: dict[str, set[str]] = {name: set() for name in [*names, *matches] if name not in patterns}
    # A name with an architecture gets a query of its own.
    plain = [name for name in found if ":" not in name]
    for group in [plain, *([name] for name in found if ":" in name)]:
        rows = _madison(query("madison", *group)) if group else []
        for name, version in rows:
            # apt prints the architecture only of foreign packages.
            found[group[0] if ":" in group[0] else name.partition(":")[0]].add(version)
    return {name: sorted(versions, key=version_order.debian, reverse=True) for name, versions in found.items()}


def dependencies(names: list[str], run: Run, options: Iterable[str] = ()) -> dict[str, dict[str, str]]:
    """Return the field Depends of each available or installed version, by package. Only with apt."""
    found: dict[str, dict[str, str]] = {name: {} for name in names}
    if not names:
        return found
    rc, out, err = run(["apt-cache", *options, "show", *names])
    if rc and not _are_unknown(rc, err):
        raise _error("apt-cache show", rc, out, err)
    for stanza in out.split("\n\n"):
        fields = dict(re.findall(r"^(Package|Version|Depends): (.+)$", stanza, re.MULTILINE))
        if fields.get("Package") in found and "Version" in fields:
            found[fields["Package"]][fields["Version"]] = fields.get("Depends", "")
    return found


def _are_unknown(rc: int, err: str) -> bool:
    """Return whether apt-cache only did not find some of the names. It lists the other packages, but fails."""
    expected = ("E: Unable to locate package", "E: No packages found", "N:", "W:")
    return rc == 100 and all(line.startswith(expected) for line in err.splitlines())


def _madison(text: str) -> list[tuple[str, str]]:
    rows = ([cell.strip() for cell in line.split("|")] for line in text.splitlines())
    return [(row[0], row[1]) for row in rows if len(row) == 3 and not row[2].endswith(" Sources")]


def providers(manager: str, names: list[str], run: Run, options: Iterable[str] = ()) -> dict[str, list[str]]:
    """Return the available packages that provide each virtual name."""
    return {name: sorted({*_PROVIDERS[manager](name, run, list(options))}) for name in names}


def _apt_providers(name: str, run: Run, options: list[str]) -> list[str]:
    rc, out, err = run(["apt-cache", *options, "showpkg", name])
    if rc:
        raise _error("apt-cache showpkg", rc, out, err)
    rows = (line.split() for line in out.partition("Reverse Provides:")[2].splitlines())
    return [row[0] for row in rows if row]


def _dnf_providers(name: str, run: Run, options: list[str]) -> list[str]:
    query = ["--available", "--queryformat", "%{name}\n", "--whatprovides", name]
    rc, out, err = run(["dnf", "--quiet", *options, "repoquery", *query])
    if rc:
        raise _error("dnf repoquery", rc, out, err)
    return out.split()


def _zypper_providers(name: str, run: Run, options: list[str]) -> list[str]:
    query = ["search", "--provides", "--match-exact", "--type", "package", name]
    rc, out, err = run(["zypper", *options, "--non-interactive", "--quiet", *query])
    if rc not in (0, 6, 104):
        raise _error("zypper search", rc, out, err)
    rows = ([cell.strip() for cell in line.split("|")] for line in out.splitlines())
    return [row[1] for row in rows if len(row) == 4 and row[3] == "package"]


_PROVIDERS = {"apt": _apt_providers, "dnf": _dnf_providers, "zypper": _zypper_providers}


def streams(modules: list[str], run: Run, options: Iterable[str] = ()) -> dict[str, list[str]]:
    """Return the streams of each dnf module."""
    found: dict[str, set[str]] = {name: set() for name in modules}
    if not modules:
        return {}
    rc, out, err = run(["dnf", "--quiet", *options, "module", "list", *modules])
    # dnf exits with status 1 if it does not find the module.
    if rc not in (0, 1) or (rc == 1 and "No matching" not in out + err):
        raise _error("dnf module list", rc, out, err)
    for words in (line.split() for line in out.splitlines()):
        if len(words) > 1 and words[0] in found:
            found[words[0]].add(words[1])
    return {name: sorted(names, key=natural_key) for name, names in found.items()}


def _error(command: str, rc: int, out: str, err: str) -> PackageManagerError:
    output = url_logins.masked(err.strip() or out.strip())
    return PackageManagerError(f"{command} failed with exit status {rc}: {output}")


def _selects(requested: str, name: str, version: str) -> bool:
    """Return whether `requested` is the package's name, optionally with a version or an architecture."""
    versions = "|".join(re.escape(text) for text in (version, version.rpartition(":")[2]))
    # Accept known architectures only: "python3.12" has no architecture.
    return bool(re.fullmatch(rf"{re.escape(name)}(-({versions})(\.\w+)?|\.({_ARCHES}))?", requested))


def _is_pattern(name: str) -> bool:
    return any(sign in name for sign in "*?[")


def _dnf(names: list[str], run: Run, options: list[str]) -> list[tuple[str, str]]:
    form = "%{name}\t%{epoch}:%{version}-%{release}\n"
    query = ["--available", "--showduplicates", "--queryformat", form, *names]
    rc, out, err = run(["dnf", "--quiet", *options, "--setopt=*.module_hotfixes=true", "repoquery", *query])
    if rc != 0:
        raise _error("dnf repoquery", rc, out, err)
    rows = (line.partition("\t") for line in out.splitlines())
    return [(name, version.removeprefix("0:")) for name, tab, version in rows if tab]


def _zypper(names: list[str], run: Run, options: list[str]) -> list[tuple[str, str]]:
    # --match-exact disables wildcards. Without it, zypper also lists partial matches, which `read` ignores.
    exact = [] if any(_is_pattern(name) for name in names) else ["--match-exact"]
    rc, out, err = run(["zypper", *options, "--non-interactive", "--quiet", "search", "--details", *exact, *names])
    # Exit status 104: no package found. 6: no repositories are defined.
    if rc not in (0, 6, 104):
        raise _error("zypper search", rc, out, err)
    rows = ([cell.strip() for cell in line.split("|")] for line in out.splitlines())
    # zypper also lists installed versions that no repository has.
    return [(row[1], row[3]) for row in rows if len(row) >= 6 and row[2] == "package" and row[5] != _INSTALLED]


def zypper_sources(out: str) -> list[tuple[str, str]]:
    """Return packages and the repositories that offer them, from the output of `zypper search --details`."""
    rows = ([cell.strip() for cell in line.split("|")] for line in out.splitlines())
    return [(row[1], row[5]) for row in rows if len(row) >= 6 and row[2] == "package" and row[5] != _INSTALLED]


_QUERIES = {"dnf": _dnf, "zypper": _zypper}
