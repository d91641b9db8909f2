# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Package archives as data: expand `archives/*.yml` to packages, and write the indexes that package managers read.

A file has `format` (deb or rpm), `origin`, `variants` with the rows of each platform, and `groups` of packages. A
group is expanded once for each combination of the rows that `each` names. `match` keeps only combinations whose rows
have equal values under these keys, and `where` only those with these values. Texts contain placeholders such as
{branch}.

A row with `gone: true` describes packages that the archive has removed. A host may still have them installed. The
indexes are enough for a solver: they describe packages that do not exist.
"""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import itertools
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, quoteattr

import yaml

DIRECTORY = Path(__file__).resolve().parent / "archives"
# Keys of a package in the data files, and its fields in apt's indexes.
_FIELDS = {
    "depends": "Depends",
    "pre_depends": "Pre-Depends",
    "provides": "Provides",
    "conflicts": "Conflicts",
    "breaks": "Breaks",
    "replaces": "Replaces",
    "recommends": "Recommends",
}
# The same keys, and their elements in rpm's metadata.
_RPM = {
    "provides": "provides",
    "depends": "requires",
    "conflicts": "conflicts",
    "obsoletes": "obsoletes",
    "recommends": "recommends",
}
_SIGNS = {"=": "EQ", "<": "LT", ">": "GT", "<=": "LE", ">=": "GE"}


@dataclasses.dataclass(frozen=True)
class Package:
    """A package of an archive. `driver` is the driver version that its files belong to, if any."""

    name: str
    version: str
    arch: str
    depends: tuple[str, ...] = ()
    pre_depends: tuple[str, ...] = ()
    provides: tuple[str, ...] = ()
    conflicts: tuple[str, ...] = ()
    breaks: tuple[str, ...] = ()
    replaces: tuple[str, ...] = ()
    obsoletes: tuple[str, ...] = ()
    recommends: tuple[str, ...] = ()
    driver: str = ""
    # open or proprietary, of packages with kernel modules or their source.
    flavor: str = ""
    # The kernel of a prebuilt module, of an image or of headers.
    release: str = ""
    # base: on every host. kernel: with each installed kernel. meta: with the newest installed kernel.
    installed: str = ""
    suite: str = "main"
    component: str = "main"
    stream: str = ""
    gone: bool = False
    vendor: str = ""
    # Files that packages of other archives contain, too. The indexes do not have them.
    files: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, str, str]:
        """Name, version and architecture."""
        return self.name, self.version, self.arch


@dataclasses.dataclass(frozen=True)
class Archive:
    """The packages of one archive for one platform."""

    format: str
    origin: str
    values: dict[str, Any]
    packages: tuple[Package, ...]

    @property
    def offered(self) -> list[Package]:
        """The packages that the archive still has."""
        return [package for package in self.packages if not package.gone]

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Return rows of the variant, for example its kernels."""
        return list(self.values.get(name, []))


def read(name: str, directory: Path = DIRECTORY) -> dict[str, Any]:
    """Return the data file `name`."""
    return yaml.safe_load((directory / f"{name}.yml").read_text(encoding="utf-8"))


def load(name: str, variant: str, directory: Path = DIRECTORY) -> Archive:
    """Expand the data file `name` for a platform."""
    return expand(read(name, directory), variant)


def expand(data: dict[str, Any], variant: str) -> Archive:
    """Expand the data of an archive for one of its variants."""
    values = data["variants"][variant]
    scalars = {key: value for key, value in values.items() if not isinstance(value, (list, dict))}
    found: dict[tuple[str, str, str], Package] = {}
    for group in data["groups"]:
        if variant not in group.get("variants", [variant]):
            continue
        for row in _combinations(group, values, scalars):
            for name, rule in group["packages"].items():
                package = _package(name, {**group.get("common", {}), **(rule or {})}, row, data)
                if package is not None:
                    found.setdefault(package.key, package)
    return Archive(data["format"], data["origin"], values, tuple(found.values()))


def _combinations(group: dict[str, Any], values: dict[str, Any], scalars: dict[str, Any]) -> Iterable[dict[str, Any]]:
    lists = [values.get(name, []) for name in group.get("each", [])]
    for rows in itertools.product(*lists):
        if any(len({row.get(key) for row in rows}) > 1 for key in group.get("match", [])):
            continue
        merged = {**scalars}
        for row in rows:
            merged.update(row)
        merged["gone"] = _is_gone(group, rows)
        if all(_holds(merged, key, wanted) for key, wanted in group.get("where", {}).items()):
            yield merged


def _is_gone(group: dict[str, Any], rows: tuple[dict[str, Any], ...]) -> bool:
    """Archives keep the modules of old kernels although the driver that these need is gone."""
    return False if group.get("kept") else any(row.get("gone", False) for row in rows)


def _holds(row: dict[str, Any], key: str, wanted: Any) -> bool:
    """Return whether a row has the wanted value, or one of a list. `from` and `until` are branches."""
    if key in ("from", "until"):
        branch = int(row["branch"])
        return branch >= int(wanted) if key == "from" else branch <= int(wanted)
    return row.get(key) in wanted if isinstance(wanted, list) else row.get(key) == wanted


def _package(name: str, rule: dict[str, Any], row: dict[str, Any], data: dict[str, Any]) -> Package | None:
    if not all(_holds(row, key, wanted) for key, wanted in rule.get("where", {}).items()):
        return None
    texts = {
        key: str(rule[key]).format(**row)
        for key in ("version", "driver", "flavor", "release", "suite", "component", "stream", "installed", "vendor")
        if key in rule
    }
    lists = {
        key: tuple(text for text in (str(item).format(**row) for item in rule.get(key, [])) if text)
        for key in (*_FIELDS, "obsoletes", "files")
    }
    # The archive has only the newest version of some packages.
    gone = row["gone"] or (bool(rule.get("newest_only")) and not row.get("newest", False))
    arch = rule.get("arch", "amd64" if data["format"] == "deb" else "x86_64")
    return Package(name=name.format(**row), arch=arch, gone=gone, **texts, **lists)


# --- the installed system -----------------------------------------------------------------------------------------


def system(archive: Archive, kernels: list[str], driver: Iterable[str] = ()) -> list[Package]:
    """Return the packages of a host with these kernels, the newest one last, and those of a driver (name=version)."""
    wanted = {tuple(item.split("=", 1)) for item in driver}
    return [
        package
        for package in archive.packages
        if package.installed == "base"
        or (package.installed == "kernel" and package.release in kernels)
        or (package.installed == "meta" and package.release == kernels[-1])
        or (package.name, package.version) in wanted
    ]


# --- apt ----------------------------------------------------------------------------------------------------------


def _stanza(package: Package, extra: dict[str, str]) -> str:
    fields = {
        "Package": package.name,
        "Version": package.version,
        "Architecture": package.arch,
        "Maintainer": "gpufleet sandbox",
        "Description": "stand-in",
    }
    for key, field in _FIELDS.items():
        if getattr(package, key):
            fields[field] = ", ".join(getattr(package, key))
    return "".join(f"{field}: {value}\n" for field, value in {**fields, **extra}.items())


def apt_packages(packages: Iterable[Package]) -> str:
    """Return the index `Packages`."""
    stanzas = []
    for package in packages:
        digest = hashlib.sha256("_".join(package.key).encode()).hexdigest()
        path = f"pool/{package.name}_{package.version.rpartition(':')[2]}_{package.arch}.deb"
        stanzas.append(_stanza(package, {"Filename": path, "Size": "1000", "SHA256": digest}))
    return "\n".join(stanzas)


def apt_tree(archive: Archive) -> dict[str, str]:
    """Return the files of a repository by path, as apt reads them: dists/SUITE/COMPONENT/binary-amd64/Packages."""
    files: dict[str, str] = {}
    suites = sorted({package.suite for package in archive.offered})
    for suite in suites:
        members = [package for package in archive.offered if package.suite == suite]
        components = sorted({package.component for package in members})
        lines = [f"Origin: {archive.origin}", f"Label: {archive.origin}", f"Suite: {suite}", f"Codename: {suite}"]
        lines += ["Architectures: amd64", f"Components: {' '.join(components)}", "SHA256:"]
        for component in components:
            path = f"{component}/binary-amd64/Packages"
            text = apt_packages(package for package in members if package.component == component)
            files[f"dists/{suite}/{path}"] = text
            content = text.encode()
            lines.append(f" {hashlib.sha256(content).hexdigest()} {len(content)} {path}")
        files[f"dists/{suite}/Release"] = "\n".join([*lines, ""])
    return files


def apt_sources(archive: Archive, url: str) -> str:
    """Return the entries of a repository in the one-line format."""
    suites = sorted({package.suite for package in archive.offered})
    lines = []
    for suite in suites:
        components = sorted({package.component for package in archive.offered if package.suite == suite})
        lines.append(f"deb [trusted=yes] {url} {suite} {' '.join(components)}\n")
    return "".join(lines)


def dpkg_status(packages: Iterable[Package], held: Iterable[str] = ()) -> str:
    """Return dpkg's database of a system. `held` names the packages with a hold."""
    holds = {*held}
    states = ((package, "hold" if package.name in holds else "install") for package in packages)
    return "\n".join(_stanza(package, {"Status": f"{want} ok installed"}) for package, want in states) + "\n"


# --- rpm ----------------------------------------------------------------------------------------------------------


def evr(version: str) -> tuple[str, str, str]:
    """Split a version of rpm into epoch, version and release."""
    epoch, _colon, rest = version.rpartition(":")
    upstream, _dash, release = rest.partition("-")
    return epoch or "0", upstream, release


def _entry(text: str) -> str:
    """Return the element for one relation. A rich dependency, in parentheses, is a name."""
    if text.startswith("("):
        return f"<rpm:entry name={quoteattr(text)}/>"
    name, *rest = text.split(" ")
    if not rest:
        return f"<rpm:entry name={quoteattr(name)}/>"
    sign, version = rest
    epoch, upstream, release = evr(version)
    shown = f" rel={quoteattr(release)}" if release else ""
    return (
        f"<rpm:entry name={quoteattr(name)} flags={quoteattr(_SIGNS[sign])} epoch={quoteattr(epoch)} "
        f"ver={quoteattr(upstream)}{shown}/>"
    )


def own_provides(package: Package) -> list[str]:
    """Return what rpmbuild adds to the provides of a package."""
    names = [package.name] + ([f"{package.name}(x86-64)"] if package.arch == "x86_64" else [])
    return [f"{name} = {package.version}" for name in names]


def _primary(packages: list[Package]) -> str:
    parts = []
    for package in packages:
        epoch, version, release = evr(package.version)
        relations = ""
        for key, element in _RPM.items():
            texts = list(getattr(package, key)) + (own_provides(package) if key == "provides" else [])
            if texts:
                relations += f"<rpm:{element}>{''.join(map(_entry, texts))}</rpm:{element}>"
        digest = hashlib.sha256("_".join(package.key).encode()).hexdigest()
        parts.append(
            f'<package type="rpm"><name>{escape(package.name)}</name><arch>{package.arch}</arch>'
            f'<version epoch="{epoch}" ver="{version}" rel="{release}"/>'
            f'<checksum type="sha256" pkgid="YES">{digest}</checksum><summary>stand-in</summary>'
            "<description>stand-in</description><packager/><url/>"
            '<time file="1" build="1"/><size package="1000" installed="1000" archive="1000"/>'
            f'<location href="{package.name}-{version}-{release}.{package.arch}.rpm"/><format>'
            f"<rpm:license>GPL-3.0-or-later</rpm:license><rpm:vendor>{escape(package.vendor)}</rpm:vendor>"
            "<rpm:group>Unspecified</rpm:group><rpm:buildhost>sandbox</rpm:buildhost><rpm:sourcerpm/>"
            f'<rpm:header-range start="1" end="2"/>{relations}</format></package>'
        )
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<metadata xmlns="http://linux.duke.edu/metadata/common" '
        f'xmlns:rpm="http://linux.duke.edu/metadata/rpm" packages="{len(packages)}">'
        + "\n".join(parts)
        + "</metadata>\n"
    )


def _listing(packages: list[Package], element: str) -> str:
    parts = []
    for package in packages:
        digest = hashlib.sha256("_".join(package.key).encode()).hexdigest()
        epoch, version, release = evr(package.version)
        parts.append(
            f'<package pkgid="{digest}" name="{package.name}" arch="{package.arch}">'
            f'<version epoch="{epoch}" ver="{version}" rel="{release}"/></package>'
        )
    kind = {"filelists": "filelists", "otherdata": "other"}[element]
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<{element} xmlns="http://linux.duke.edu/metadata/{kind}" '
        f'packages="{len(packages)}">' + "".join(parts) + f"</{element}>\n"
    )


def modules(packages: list[Package], module: str = "nvidia-driver") -> str:
    """Return the module metadata for the streams of the packages, separated by spaces in `stream`."""
    streams: dict[str, list[Package]] = {}
    for package in packages:
        for stream in package.stream.split():
            streams.setdefault(stream, []).append(package)
    documents = []
    for stream, members in sorted(streams.items()):
        artifacts = "".join(f"      - {_nevra(package)}\n" for package in members)
        documents.append(
            f"---\ndocument: modulemd\nversion: 2\ndata:\n  name: {module}\n  stream: '{stream}'\n  version: 1\n"
            "  context: sandbox\n  arch: x86_64\n  summary: stand-in\n  description: stand-in\n  license:\n"
            f"    module: [GPL-3.0-or-later]\n  artifacts:\n    rpms:\n{artifacts}...\n"
        )
    return "".join(documents)


def _nevra(package: Package) -> str:
    epoch, version, release = evr(package.version)
    return f"{package.name}-{epoch}:{version}-{release}.{package.arch}"


def rpm_tree(archive: Archive, packages: list[Package] | None = None) -> dict[str, bytes]:
    """Return the files of a repository for dnf and zypper by path."""
    members = archive.offered if packages is None else packages
    texts = {
        "primary": _primary(members),
        "filelists": _listing(members, "filelists"),
        "other": _listing(members, "otherdata"),
    }
    streams = modules(members)
    if streams:
        texts["modules"] = streams
    files: dict[str, bytes] = {}
    lines = ['<?xml version="1.0" encoding="UTF-8"?>\n<repomd xmlns="http://linux.duke.edu/metadata/repo">']
    lines.append("<revision>1</revision>")
    for kind, text in texts.items():
        name = f"repodata/{kind}.{'yaml' if kind == 'modules' else 'xml'}.gz"
        content = text.encode()
        files[name] = gzip.compress(content, mtime=0)
        lines.append(
            f'<data type="{kind}"><checksum type="sha256">{hashlib.sha256(files[name]).hexdigest()}</checksum>'
            f'<open-checksum type="sha256">{hashlib.sha256(content).hexdigest()}</open-checksum>'
            f'<location href="{name}"/><timestamp>1</timestamp><size>{len(files[name])}</size>'
            f"<open-size>{len(content)}</open-size></data>"
        )
    files["repodata/repomd.xml"] = ("\n".join(lines) + "</repomd>\n").encode()
    return files


def spec(packages: list[Package]) -> str:
    """Return a specification from which rpmbuild makes these packages, without files."""
    lines = ["Name: source", "Version: 1", "Release: 1", "Summary: stand-in", "License: GPL-3.0-or-later", ""]
    lines += ["%description", "stand-in", ""]
    for package in packages:
        epoch, version, release = evr(package.version)
        lines += [f"%package -n {package.name}", f"Version: {version}", f"Release: {release}", "Summary: stand-in"]
        lines += [f"Epoch: {epoch}"] if epoch != "0" else []
        lines += [f"Vendor: {package.vendor}"] if package.vendor else []
        lines += ["BuildArch: noarch"] if package.arch == "noarch" else []
        for key, tag in (("depends", "Requires"), *((name, name.capitalize()) for name in _RPM if name != "depends")):
            lines += [f"{tag}: {text}" for text in getattr(package, key)]
        lines += [f"%description -n {package.name}", "stand-in", f"%files -n {package.name}", ""]
    return "\n".join(lines)


def upstream(version: str) -> str:
    """Return the upstream part of a version of dpkg or rpm."""
    return re.sub(r"[-_].*", "", version.rpartition(":")[2])
