# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write docs/platforms/: what role nvidia_driver installs by default on each platform, as its resolver chooses it.

platform_pages.py [--check] [--root DIRECTORY]
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / ".ansible" / "collections"))

from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import nvidia_driver_branches
from ansible_collections.gpufleet.hosts.tests.unit.plugins import driver_samples as samples

NOTE = "<!-- `make docs` writes this page from the data of role nvidia_driver and its resolver. -->"
PAGES = {
    "ubuntu": ("Ubuntu", ("ubuntu-22.04", "ubuntu-24.04", "ubuntu-26.04")),
    "debian": ("Debian", ("debian-12", "debian-13")),
    "enterprise-linux": (
        "Enterprise Linux (RHEL, Rocky Linux, AlmaLinux, CentOS Stream, Oracle Linux)",
        ("el-8", "el-9", "el-10"),
    ),
    "amazon-linux": ("Amazon Linux", ("amazon-2023",)),
    "sles": ("SUSE Linux Enterprise Server", ("sles-15",)),
}
GPUS = {"T4": samples.T4, "A100": samples.A100, "H100": samples.H100, "B200": samples.B200, "V100": samples.V100}
SWITCHES = {
    "NVSwitches, for example HGX H100": (samples.H100, {"nvswitches": ["0000:83:00.0"]}),
    "NVLink 5 switches, for example HGX B200": (samples.B200, {"nvlink5_switches": ["mlx5_0"]}),
}
# What a page says about all releases of the platform.
NOTES = {
    "debian": [
        "NVIDIA no longer supports the branches of Debian's archive. To begin with a supported one, see",
        "[Debian with a supported driver branch from day one](../debian-supported-branch.md).",
        "",
    ],
    "enterprise-linux": [
        "The repositories may not contain the headers of an outdated kernel (`kernel-devel-KERNEL`), for example after",
        "a new minor release of Rocky Linux. The role then fails before any change. Run `dnf upgrade`, reboot, and run",
        "the role again.",
        "",
    ],
}
COLUMNS = ("GPU", "Source", "Branch", "Kernel modules", "Build", "With Secure Boot")


def resolved(key: str, gpu: str, **changes):
    """Return what the role installs on a bare host without any variable."""
    return samples.resolve(samples.host(key, (gpu,), **changes), {}, samples.platform(key))


def choice(result) -> tuple[str, ...]:
    """Return the source, the branch, the flavor and the build of the modules."""
    return (result.source, result.branch, result.flavor, result.module_build)


PLACEHOLDERS = {
    "KERNEL": "the kernel release (`uname -r`)",
    "VERSION": "the kernel release without its variant (`-default`)",
    "ARCH": "the architecture",
    "DRIVER": "the version of the driver",
    "RELEASE": "the kernel release without its distribution and architecture (`.el10_1.x86_64`)",
}


def packages(result, release: str) -> list[str]:
    """Name the packages for a kernel release, with placeholders for the kernel and the architecture."""
    names = [*result.packages, *(f"{name} (if available)" for name in result.optional), *result.kernel_packages]
    names = [name.replace(release, "KERNEL").replace(release.rpartition("-")[0], "VERSION") for name in names]
    return [name.replace(".x86_64", ".ARCH") for name in names]


def described(result, release: str) -> str:
    """Render the packages, and what the role enables before it installs them."""
    return f"{origin(result)}: {code(packages(result, release))}"


def code(names: list[str]) -> str:
    """Render names as code."""
    return ", ".join(f"`{name}`" for name in names).replace(" (if available)`", "` (if available)")


def origin(result) -> str:
    """Render what the role enables before it installs the packages."""
    parts = (
        ("module stream", [result.stream] if result.stream else []),
        ("archive components", result.components),
        ("installed first if needed:", result.prerequisites),
    )
    found = [f"{what} {code(names)}" for what, names in parts if names]
    return f" ({'; '.join(found)})" if found else ""


def with_secure_boot(key: str, gpu: str, result) -> str:
    """Describe what changes on a host with Secure Boot and no enrolled key."""
    secure = resolved(key, gpu, secure_boot={"enabled": True})
    if secure.errors:
        is_signed = result.flavor == "open" and with_signed_modules(key)
        return f"fails until a key is enrolled{', except on the distributions below' if is_signed else ''}"
    return "works" if choice(secure) == choice(result) else ", ".join(choice(secure))


def with_signed_modules(key: str) -> dict[str, dict]:
    """Return the distributions of a family whose vendor signs modules, by ID, with the data of their source."""
    vendors = samples.platform(key).get("vendors", {})
    return {name: data for name, data in vendors.items() if "precompiled" in data["builds"]}


def system_of_vendor(key: str, name: str) -> dict[str, str]:
    """Return the first release of a distribution that has a driver of its vendor."""
    return {"key": key, "id": name, "version": samples.platform(key)["vendors"][name]["from"]}


def of_vendors(key: str) -> list[str]:
    """Render what the role installs from the distribution's vendor."""
    lines = []
    for name, data in samples.platform(key).get("vendors", {}).items():
        release = re.sub(r"-55\.el10_0", "-124.20.1.el10_1", samples.KERNELS[key])
        there = samples.host(key, (samples.H100,), os=system_of_vendor(key, name), kernel=release)
        result = samples.resolve(there, {"source": "distribution"}, samples.platform(key, there["os"]))
        base = release.partition(".el")[0]
        packages = [item.replace(f"*-{base}", "DRIVER-RELEASE") for item in result.packages]
        # The stream depends on what the vendor's repositories contain.
        result = result.but(stream=None, packages=packages)
        when = "with Secure Boot, or with" if "precompiled" in data["builds"] else "with"
        lines.append(
            f"- {data['vendor']}'s driver (release {data['from']} or newer, {', '.join(data['arches'])}), {when} "
            f"`nvidia_driver_source: distribution`{described(result, release)}."
        )
        how = re.sub(r"(?<!\w)'([^']+)'(?!\w)", r"`\1`", data["enable"])
        if data.get("prerequisites"):
            lines.append(f"  If the role cannot install these packages: {how}.")
            continue
        # The role cannot enable these repositories.
        lines += [
            "  With Secure Boot:",
            "",
            f"  1. {how[:1].upper()}{how[1:].partition(', or upgrade')[0]}.",
            "  2. Run playbook `plan`. It shows source `distribution`.",
            "  3. Run playbook `site`. The host needs neither EPEL nor a key.",
        ]
    if lines:
        lines.insert(0, "")
        lines.insert(0, "Source `distribution` is the driver of the distribution's own vendor:")
        lines.append("")
    return lines


def table(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    """Render a table."""
    return ["| " + " | ".join(cells) + " |" for cells in (columns, ("---",) * len(columns), *rows)]


def defaults(key: str) -> list[str]:
    """Render the default of each GPU, followed by the packages of each default."""
    rows, by_choice = [], {}
    release = samples.KERNELS[key]
    for name, gpu in GPUS.items():
        result = resolved(key, gpu)
        if result.errors:
            rows.append((name, result.errors[0], "", "", "", ""))
            continue
        rows.append((name, *choice(result), with_secure_boot(key, gpu, result)))
        by_choice.setdefault(described(result, release), []).append(name)
    lines = [*table(COLUMNS, rows), "", *with_newer_kernels(key, by_choice), *hints(key)]
    for text, gpus in by_choice.items():
        lines += [f"Packages for {', '.join(gpus)}{text}.", ""]
    return lines


def with_newer_kernels(key: str, by_choice: dict[str, list[str]]) -> list[str]:
    """Render the defaults for kernels for which some modules do not build."""
    lines = []
    for data in samples.platform(key)["sources"].values():
        for limit in data.get("build_limits", []):
            first = limit["kernel_from"]
            release = re.sub(r"^[\d.]+(-\d+)?", first, samples.KERNELS[key])
            changed = {}
            for name, gpu in GPUS.items():
                result = resolved(key, gpu, kernel=release)
                if choice(result) != choice(resolved(key, gpu)):
                    changed.setdefault((choice(result), described(result, release)), []).append(name)
            for ((source, branch, flavor, build), text), gpus in changed.items():
                like = f" The packages are those for {', '.join(by_choice[text])}." if text in by_choice else ""
                lines.append(
                    f"For kernel {first} and newer, {', '.join(gpus)} get the {flavor} modules (source {source}, "
                    f"branch {branch}, {build}), because {limit['reason']}.{like}"
                )
                lines += [] if like else [f"The packages{text}."]
    return [*lines, ""] if lines else []


def hints(key: str) -> list[str]:
    """Render what a user has to know or to do before the installation."""
    data = samples.platform(key)
    lines = []
    if any(source.get("module_version_from") for source in data["sources"].values()):
        lines += [
            "The kernel decides the driver version of precompiled modules, and the role holds the kernel: see",
            "[Ubuntu's precompiled modules](../driver.md#ubuntus-precompiled-modules). Unattended upgrades",
            "then install no new kernel: see [Kernel upgrades](../driver.md#kernel-upgrades).",
            "",
        ]
    epel = re.search(r"https://\S+epel\S+rpm", data.get("prerequisites_hint", ""))
    if epel:
        signed = " Red Hat's signed modules do not need EPEL." if "rhel" in data.get("vendors", {}) else ""
        lines += [
            "The role builds the modules of source `nvidia` with DKMS, which is in EPEL. On RHEL, install EPEL before",
            f"the first run: `dnf install {epel[0]}`.{signed}",
            "",
        ]
    lines += of_vendors(key)
    return lines


def companions(key: str) -> list[str]:
    """Render the packages of hosts with switches."""
    lines = []
    for name, (gpu, switches) in SWITCHES.items():
        bare, result = resolved(key, gpu), resolved(key, gpu, nvidia=switches)
        release = samples.KERNELS[key]
        names = packages(result, release)
        if choice(result) == choice(bare):
            what = f"also {code([item for item in names if item not in packages(bare, release)])}"
        else:
            source, branch, flavor, build = choice(result)
            what = f"the role selects source {source}, branch {branch}, {flavor} modules, build {build}"
            what += described(result, release)
        lines.append(f"- {name}: {what}.")
    return [*lines, ""]


def sources(key: str) -> list[tuple[str, dict]]:
    """Return the sources of a platform and those of its distributions' vendors, with their data."""
    found = list(samples.platform(key)["sources"].items())
    for name, vendor in samples.platform(key).get("vendors", {}).items():
        data = samples.platform(key, system_of_vendor(key, name))["sources"]["distribution"]
        found.append((f"distribution ({vendor['vendor']})", data))
    return found


def branches(key: str) -> list[str]:
    """Render the branches of each source."""
    rows = []
    for source, data in sources(key):
        supported = [name for name in data["branches"] if nvidia_driver_branches.end_of_life(name) is None]
        ended = {name: nvidia_driver_branches.end_of_life(name) for name in data["branches"] if name not in supported}
        on_request = [f"{name} (support ended{f' in {month}' if month else ''})" for name, month in ended.items()]
        default = data["branches"][0]
        others = [name for name in supported if name != default]
        if data.get("fixed"):
            default, on_request = (
                f"{default} (only branch; NVIDIA's {on_request[0].partition('(')[2]}",
                [],
            )
        transitional = [f"{old} → {new}" for old, new in data.get("transitional", {}).items()]
        rows.append((source, default, *(", ".join(cell) or "-" for cell in (others, on_request, transitional))))
    columns = ("If the default is missing", "Only on request", "Empty packages (the role refuses these branches)")
    return table(("Source", "Default", *columns), rows)


def page(name: str) -> str:
    """Render the page of a platform family."""
    title, keys = PAGES[name]
    sections = []
    for key in keys:
        sections += ["", f"## {samples.platform(key)['title']}", "", *defaults(key)]
        sections += ["Hosts with switches:", "", *companions(key)]
        sections += [
            "Branches of each source. If the default is missing, the role tries the other supported branches in this",
            "order (branches that do not support the GPU are skipped):",
            "",
            *branches(key),
        ]
    text = "\n".join(sections)
    used = [f"- `{name}`: {meaning}" for name, meaning in PLACEHOLDERS.items() if re.search(rf"\b{name}\b", text)]
    lines = [
        NOTE,
        "",
        f"# The driver on {title}",
        "",
        "This page shows what role `gpufleet.hosts.nvidia_driver` installs by default: on a host without a driver,",
        "with no role variable set. The defaults are the same on x86_64 and aarch64. The role keeps an installed",
        "driver.",
        "",
        "- [Request a version or a source](../driver.md#request-a-version-or-a-source) explains how to request another",
        "  source, branch or version.",
        "- [Kernel upgrades](../driver.md#kernel-upgrades) explains how the driver follows the kernel.",
        "- The [README of the role](../../roles/nvidia_driver/README.md#variables) lists the variables.",
        "",
        *NOTES.get(name, []),
        "Placeholders in the names of packages:",
        "",
        *used,
    ]
    return "\n".join([*lines, text, ""])


def main(arguments: list[str] | None = None) -> int:
    """Write or check the pages."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing, fail if a page is out of date")
    parser.add_argument("--root", type=Path, default=ROOT, help="the collection that contains the pages")
    options = parser.parse_args(arguments)
    status = 0
    for name in PAGES:
        path = options.root / "docs" / "platforms" / f"{name}.md"
        place, text = path.relative_to(options.root), page(name)
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        if options.check:
            print(f"{place}: The page is out of date. Run `make docs`.", file=sys.stderr)
            status = 1
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            print(f"{place}: updated")
    return status


if __name__ == "__main__":
    sys.exit(main())
