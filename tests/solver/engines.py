# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The cases of the container engines on all platforms: hosts, the user's variables, and what is right."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ansible_collections.gpufleet.hosts.tests.sandbox.vendor import archives
from ansible_collections.gpufleet.hosts.tests.sandbox.vendor.archives import Archive, Package, upstream
from ansible_collections.gpufleet.hosts.tests.solver import hosts
from ansible_collections.gpufleet.hosts.tests.solver.engine_cases import Case, Expected
from ansible_collections.gpufleet.hosts.tests.solver.managers import Apt, Rpm

ENGINES = ("docker", "podman", "containerd")
# The package of the kernel modules that dockerd needs on Enterprise Linux 10.
MODULES = "kernel-modules-extra"
SOURCES = ("auto", "distribution", "docker")
# Microsoft builds no packages for the other platforms.
_MOBY = ("debian-12", "ubuntu-22.04", "ubuntu-24.04")
_RUNTIMES = ("containerd", "runc")
# Docker's guide for Debian and Ubuntu also removes a package that conflicts with none: version 1 of Compose.
_GUIDE = ("docker-compose",)
# Names of the engines' packages, the engine first. The runtime and the plugins have versions of their own.
_DOCKER_CE = ("docker-ce", "docker-ce-cli", "containerd.io", "docker-buildx-plugin", "docker-compose-plugin")
_DISTRIBUTION = {
    "debian-12": {"docker": ("docker.io",), "podman": ("podman",), "containerd": ("containerd",)},
    "debian-13": {"docker": ("docker.io", "docker-cli"), "podman": ("podman",), "containerd": ("containerd",)},
    "ubuntu": {"docker": ("docker.io",), "podman": ("podman",), "containerd": ("containerd",)},
    "el": {"podman": ("podman",)},
    "amazon": {"docker": ("docker",), "podman": ("podman",), "containerd": ("containerd",)},
    "sles": {"docker": ("docker",), "podman": ("podman",), "containerd": ("containerd",)},
}
# Requests: (variable, value).
_REQUESTS = {
    "docker": (
        (),
        (("minimum_version", "25.0"),),
        (("minimum_version", "29.5"),),
        (("version", "28.5.1"),),
        (("version", "29.1"),),
        (("version", "26.0.99"),),
    ),
    "podman": ((), (("minimum_version", "4.4"),), (("version", "3.4.4"),), (("minimum_version", "9.0"),)),
    "containerd": ((), (("minimum_version", "1.7.25"),), (("version", "2.2"),), (("version", "1.7.28"),)),
}


def manager(place: Path, platform: str) -> Apt | Rpm:
    """Return the package manager of a platform with its archives."""
    family = platform.partition("-")[0]
    if family in ("debian", "ubuntu"):
        found = {"base": archives.load(f"engines-{family}", platform), "docker": archives.load("docker-deb", platform)}
        if platform in _MOBY:
            found["moby"] = archives.load("moby-deb", platform)
        return Apt(place, found, {name: later(archive) for name, archive in found.items()})
    found = split(archives.load(f"engines-{family}", platform))
    if family == "el":
        found["docker"] = archives.load("docker-rpm", platform)
    return Rpm(place, found, "zypper" if family == "sles" else "dnf")


def split(whole: Archive) -> dict[str, Archive]:
    """Return an archive as two, if it has packages that are not in the repositories of every host.

    SPAL and the Containers Module are repositories that an administrator enables. Mirrors and images may lack the
    package of the running kernel's modules.
    """
    optional = tuple(package for package in whole.packages if package.suite != "main")
    if not optional:
        return {"base": whole}
    base = tuple(package for package in whole.packages if package.suite == "main")
    return {
        "base": dataclasses.replace(whole, packages=base),
        "more": dataclasses.replace(whole, packages=optional),
    }


def later(archive: Archive) -> Archive:
    """Return an archive that also has a newer version of each package. The numbers are examples."""
    newer = tuple(
        dataclasses.replace(package, version=f"9:{package.version.rpartition(':')[2]}.1")
        for package in archive.packages
        if not package.installed
    )
    return dataclasses.replace(archive, packages=(*archive.packages, *newer))


# --- hosts --------------------------------------------------------------------------------------------------------


def systems(tool: Apt | Rpm, platform: str) -> Iterator[hosts.System]:
    """Return the hosts of a platform: bare ones, and ones with an engine or parts of one."""
    base, family = tool.archives["base"], platform.partition("-")[0]
    addable = ("docker",) if "docker" in tool.archives else ()
    more = ("base", "more") if "more" in tool.archives else ("base",)

    def host(
        title: str, *names: str, repositories: tuple[str, ...] = more, held: tuple[str, ...] = (), old: bool = False
    ) -> hosts.System:
        installed = [package for package in base.packages if package.installed]
        known = [p for name in repositories for p in tool.archives[name].packages]
        for name in names:
            versions = [package for package in known if package.name == name]
            if not versions:
                raise ValueError(f"no archive of {platform} has {name}")
            # The archives list the oldest version first.
            installed.append(versions[0] if old else versions[-1])
        return hosts.System(
            f"{platform}/{title}", platform, "", "", tuple(installed), repositories, addable=addable, held=held
        )

    yield host("bare")
    if "more" in tool.archives:
        yield host("without-optional-repository", repositories=("base",))
    docker = _distribution(platform).get("docker", ())
    runtime = [*_RUNTIMES, *_NEEDED[family]]
    if docker:
        yield host("distribution", *docker, *runtime)
    if family in ("debian", "ubuntu"):
        yield host("distribution-held", *docker, *runtime, held=docker[:1])
        plugins = [n for n in ("docker-buildx", "docker-compose", "docker-compose-v2") if _has(base, n)]
        yield host("distribution-plugins", *docker, *runtime, *plugins)
    if addable:
        both = (*more, "docker")
        needs = _NEEDED["docker", platform]
        yield host("repository", repositories=both)
        yield host("docker-ce-outdated", *_DOCKER_CE, *needs, repositories=both, old=True)
        yield host("docker-ce-cli", "docker-ce-cli", repositories=both)
        if family != "el":
            yield host("docker-ce-held", *_DOCKER_CE, *needs, repositories=both, old=True, held=_DOCKER_CE[:3])
    podman = _NEEDED["podman", platform]
    yield host("podman", "podman", *podman)
    if _has(base, "runc") and "runc" not in podman:
        yield host("podman-runc", "podman", *podman, "runc", *_NEEDED["runc", platform])
    yield host("podman-docker", "podman", *podman, "podman-docker")
    if family == "sles":
        yield host("docker-stable", "docker-stable", *runtime)
    if platform in _MOBY:
        names = ("moby-engine", "moby-cli", "moby-containerd", "moby-runc", "moby-tini")
        yield host("moby", *names, repositories=("base", "moby"))


class _Needed(dict):
    """The dependencies of an engine's packages that are not on every host, by family, or by package and platform."""

    def __missing__(self, key: Any) -> tuple[str, ...]:
        return self.get((key[0], key[1].partition("-")[0]), ()) if isinstance(key, tuple) else ()


_STACK = ("conmon", "crun", "golang-github-containers-common")
_EL = ("containers-common", "crun", "iptables-nft", "nftables", "conmon", "container-selinux", "slirp4netns")
_NEEDED = _Needed(
    {
        "debian": ("iptables", "tini"),
        "ubuntu": ("iptables",),
        "amazon": ("container-selinux", "iptables-nft", "libcgroup", "pigz"),
        "sles": ("iptables", "catatonit"),
        ("docker", "debian"): ("iptables", "nftables"),
        ("docker", "ubuntu"): ("iptables", "nftables"),
        ("docker", "el-8"): ("container-selinux", "iptables", "nftables", "libcgroup"),
        ("docker", "el"): ("container-selinux", "iptables-nft", "nftables"),
        ("podman", "debian"): (*_STACK, "golang-github-containers-image", "netavark"),
        ("podman", "ubuntu-22.04"): (*_STACK, "containernetworking-plugins", "iptables"),
        ("podman", "ubuntu"): (*_STACK, "netavark"),
        ("podman", "el-8"): (
            *(
                "containers-common",
                "containernetworking-plugins",
                "iptables",
                "nftables",
                "conmon",
                "container-selinux",
            ),
            *("slirp4netns", "runc", "criu", "fuse-overlayfs", "podman-plugins", "podman-catatonit", "dnsmasq"),
        ),
        ("podman", "el"): (*_EL, "netavark", "fuse-overlayfs"),
        ("podman", "amazon"): ("conmon", "containers-common", "crun", "netavark", "iptables-nft"),
        ("podman", "sles"): (
            *("catatonit", "netavark", "conmon", "fuse-overlayfs", "iptables", "libcontainers-common", "runc"),
            "slirp4netns",
        ),
        ("runc", "el"): ("criu",),
    }
)


def _distribution(platform: str) -> dict[str, tuple[str, ...]]:
    return _DISTRIBUTION.get(platform) or _DISTRIBUTION[platform.partition("-")[0]]


def _has(archive: Archive, name: str) -> bool:
    return any(package.name == name for package in archive.packages)


# --- cases --------------------------------------------------------------------------------------------------------


def cases(tool: Apt | Rpm, platform: str) -> Iterator[Case]:
    """Return the cases of a platform."""
    for host in systems(tool, platform):
        for engine, source in itertools.product(ENGINES, SOURCES):
            for request, replace in itertools.product(_REQUESTS[engine], (False, True)):
                values: dict[str, Any] = {"name": engine, "source": source, **dict(request)}
                values.update({"replace": True} if replace else {})
                values.update({"hold": True} if replace and not request else {})
                shown = tuple((name, value) for name, value in values.items() if value != "auto")
                yield Case(host, shown, expected(tool, host, values))


def expected(tool: Apt | Rpm, host: hosts.System, values: dict[str, Any]) -> Expected:
    """Return what is right for a host with these variables."""
    model = _Model(tool, host, values)
    found = model.found()
    if found and values["source"] in ("auto", found[1]):
        return model.keep_or_move(*found)
    if found and not values.get("replace") and values["source"] in model.candidates():
        return Expected(refusals=(rf"package {re.escape(found[0])}\b",))
    return model.install(found)


@dataclasses.dataclass
class _Model:
    tool: Apt | Rpm
    host: hosts.System
    values: dict[str, Any]

    @property
    def engine(self) -> str:
        return self.values["name"]

    def names(self, source: str) -> tuple[str, ...]:
        """Return the packages of a source that have the version of the engine."""
        if source == "distribution":
            return _distribution(self.host.platform).get(self.engine, ())
        has_repository = "docker" in self.tool.archives
        return (
            {"docker": _DOCKER_CE[:2], "containerd": ("containerd.io",)}.get(self.engine, ()) if has_repository else ()
        )

    def candidates(self) -> list[str]:
        """Return the sources that have the engine for this platform."""
        wanted = SOURCES[1:] if self.values["source"] == "auto" else (self.values["source"],)
        if "docker" in self.host.repositories:
            # A host that uses Docker's repository gets the engine from there.
            wanted = tuple(reversed(wanted))
        return [source for source in wanted if self.names(source)]

    def offers(self, source: str) -> list[Package]:
        """Return the engine's suitable packages in the repositories, the newest first."""
        names = [*self.host.repositories, *(["docker"] if source == "docker" else [])]
        archives_ = [self.tool.archives[name] for name in dict.fromkeys(names)]
        found = [p for archive in archives_ for p in archive.offered if p.name == self.names(source)[0]]
        return sorted((p for p in found if self.suits(p.version)), key=lambda p: _numbers(p.version), reverse=True)

    def suits(self, version: str) -> bool:
        """Return whether a version satisfies the request."""
        exact, least = (_numbers(self.values.get(name, "")) for name in ("version", "minimum_version"))
        return _numbers(version)[: len(exact)] == exact and _numbers(version) >= least

    def found(self) -> tuple[str, str, str] | None:
        """Return the installed engine: its package, its source or "", and its version."""
        known = {self.names(source)[0]: source for source in SOURCES[1:] if self.names(source)}
        others = {"docker": ("moby-engine", "docker-stable"), "containerd": ("moby-containerd",)}.get(self.engine, ())
        for package in self.host.packages:
            if package.name in known or package.name in others:
                return package.name, known.get(package.name, ""), package.version
        return None

    def keep_or_move(self, package: str, source: str, version: str) -> Expected:
        """Return what is right for an engine that stays, perhaps in another version."""
        if self.suits(version):
            return Expected(kept=True)
        # The role does not change the version of packages of others.
        if not source:
            return Expected(refusals=(rf"\(package {package}\) is installed",))
        if not self.offers(source):
            return Expected(refusals=("no such version of",))
        if package in self.host.held:
            return Expected(refusals=(rf"{re.escape(package)}.*\bheld\b",))
        return self._installed(source, frozenset())

    def install(self, found: tuple[str, str, str] | None) -> Expected:
        """Return what is right for an engine that is missing or replaced."""
        candidates = self.candidates()
        if not candidates:
            return Expected(refusals=("Docker's repository does not have it|distribution has none|has no package",))
        usable = [source for source in candidates if self.offers(source)]
        if not usable:
            return Expected(refusals=("no such version of", "[Nn]o repository of this host has"))
        source = usable[0]
        if self.engine == "docker" and not self.has_network_modules():
            return Expected(refusals=(rf"do not have {MODULES} for kernel",))
        rivals = self.rivals(source)
        if found and found[0] not in self.names(source):
            rivals.add(found[0])
        if not rivals:
            return self._installed(source, frozenset())
        if not self.values.get("replace"):
            return Expected(refusals=tuple(rf"\b{re.escape(name)}\b" for name in rivals))
        held = rivals & {*self.host.held}
        if held:
            return Expected(refusals=tuple(rf"{re.escape(name)}.*\bheld\b" for name in held))
        dependents = self.dependents(rivals, source)
        # The role removes what conflicts with the engine. On Enterprise Linux 8, Podman needs runc, which containerd.io
        # replaces, so the role also removes Podman for Docker, and Docker for Podman.
        if dependents and self.host.platform != "el-8":
            return Expected(refusals=tuple(rf"remove {re.escape(name)}\b" for name in dependents))
        return self._installed(source, frozenset(rivals | dependents))

    def has_network_modules(self) -> bool:
        """Return whether the repositories have the modules without which dockerd does not start."""
        is_needed = any(_has(archive, MODULES) for archive in self.tool.archives.values())
        return not is_needed or any(_has(self.tool.archives[name], MODULES) for name in self.host.repositories)

    def _installed(self, source: str, removes: frozenset[str]) -> Expected:
        version = upstream(self.offers(source)[0].version)
        names = dict.fromkeys(self.names(source), version)
        if source == "docker" and self.engine == "docker":
            names.update(dict.fromkeys(_DOCKER_CE[2:], "") if not self.found() or removes else {"containerd.io": ""})
        return Expected(tuple(names.items()), source, removes)

    def targets(self, source: str) -> list[Package]:
        """Return the packages that the engine of a source consists of."""
        names = {*self.names(source)}
        if self.engine == "docker":
            names |= {*_DOCKER_CE} if source == "docker" else {*_RUNTIMES}
        if self.engine == "containerd" and source == "distribution":
            names |= {*_RUNTIMES}
        if self.engine == "podman" and self.host.platform == "el-8":
            # Podman has no other runtime there.
            names |= {"runc"}
        repositories = [*self.host.repositories, *(["docker"] if source == "docker" else [])]
        packages = [
            p for name in dict.fromkeys(repositories) for p in self.tool.archives[name].offered if p.name in names
        ]
        # Versions of Docker differ in conflicts with packages that no supported release has.
        return list({package.name: package for package in packages}.values())

    def rivals(self, source: str) -> set[str]:
        """Return the installed packages that conflict with the engine, or contain its files."""
        targets = self.targets(source)
        own = {target.name for target in targets}
        guide = _GUIDE if source == "docker" and self.engine == "docker" else ()
        return {p.name for p in self.host.packages if p.name in guide} | {
            p.name for p in self.host.packages if p.name not in own and any(_exclude(p, t) for t in targets)
        }

    def dependents(self, removed: set[str], source: str) -> set[str]:
        """Return the installed packages that need removed ones."""
        targets, found = self.targets(source), set(removed)
        while True:
            left = [p for p in self.host.packages if p.name not in found]
            has = {name for p in (*left, *targets) for name in _provided(p)}
            new = {p.name for p in left if any(_is_unmet(text, found, has, (*left, *targets)) for text in p.depends)}
            # This part of Podman needs only dnsmasq, and is of no use without Podman.
            new |= {p.name for p in left if p.name == "podman-plugins" and "podman" in found}
            if not new:
                return found - removed
            found |= new


def _numbers(version: str) -> tuple[int, ...]:
    match = re.match(r"(?:\d+:)?(\d+(?:\.\d+)*)", version)
    return tuple(int(part) for part in match.group(1).split(".")) if match else ()


def _provided(package: Package) -> set[str]:
    return {package.name, *(text.split(" ")[0] for text in package.provides)}


def _exclude(one: Package, other: Package) -> bool:
    """Return whether two packages conflict. Conflicts with bounds are about versions that no archive has."""
    if {*one.files} & {*other.files}:
        return True
    return any(
        {text for text in (*a.conflicts, *a.obsoletes) if " " not in text} & _provided(b)
        for a, b in ((one, other), (other, one))
    )


def _is_unmet(text: str, removed: set[str], has: set[str], packages: Iterable[Package]) -> bool:
    """Return whether a dependency was met by a removed package, and is not met any longer."""
    if text.startswith("("):
        return False
    alternatives = [alternative.split(" ") for alternative in text.split(" | ")]
    if not any(words[0] in removed for words in alternatives):
        return False
    # A virtual package has no version, so it does not meet a dependency with a bound.
    names = {package.name for package in packages}
    return not any(words[0] in (names if len(words) > 1 else has) for words in alternatives)
