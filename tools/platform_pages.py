# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Write docs/platforms/: what role nvidia_driver installs by default on each platform, as its resolver chooses it.

platform_pages.py [--check] [--root DIRECTORY]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / ".ansible" / "collections"))

from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import generations
from ansible_collections.gpufleet.hosts.tests.unit.plugins import driver_samples as samples

NOTE = "<!-- `make docs` writes this page from the data of role nvidia_driver and its resolver. -->"
PAGES = {
    "ubuntu": ("Ubuntu", ("ubuntu-22.04", "ubuntu-24.04", "ubuntu-26.04")),
    "debian": ("Debian", ("debian-12", "debian-13")),
    "enterprise-linux": ("Enterprise Linux (RHEL, Rocky Linux, AlmaLinux)", ("el-8", "el-9", "el-10")),
    "amazon-linux": ("Amazon Linux", ("amazon-2023",)),
    "sles": ("SUSE Linux Enterprise Server", ("sles-15",)),
}
GPUS = {"T4": samples.T4, "A100": samples.A100, "H100": samples.H100, "B200": samples.B200, "V100": samples.V100}
SWITCHES = {
    "NVSwitches, for example HGX H100": (samples.H100, {"nvswitches": ["0000:83:00.0"]}),
    "NVLink 5 switches, for example HGX B200": (samples.B200, {"nvlink5_switches": ["mlx5_0"]}),
}
COLUMNS = ("GPU", "Source", "Branch", "Kernel modules", "Build", "With Secure Boot")


def resolved(key: str, gpu: str, **changes):
    """Return what the role installs on a bare host without any variable."""
    return samples.resolve(samples.host(key, (gpu,), **changes), {}, samples.platform(key))


def choice(result) -> tuple[str, ...]:
    """Return the source, the branch, the flavor and the build of the modules."""
    return (result.source, result.branch, result.flavor, result.module_build)


def packages(key: str, result) -> list[str]:
    """Name the packages, with KERNEL and VERSION for the kernel's release and version."""
    release = samples.KERNELS[key]
    names = [*result.packages, *(f"{name} (if available)" for name in result.optional), *result.kernel_packages]
    return [name.replace(release, "KERNEL").replace(release.rpartition("-")[0], "VERSION") for name in names]


def code(names: list[str]) -> str:
    """Render names as code."""
    return ", ".join(f"`{name}`" for name in names).replace(" (if available)`", "` (if available)")


def origin(result) -> str:
    """Render what the role enables before it installs the packages."""
    parts = (
        ("module stream", [result.stream] if result.stream else []),
        ("components of the archive", result.components),
        ("installed first if needed:", result.prerequisites),
    )
    found = [f"{what} {code(names)}" for what, names in parts if names]
    return f" ({'; '.join(found)})" if found else ""


def with_secure_boot(key: str, gpu: str, result) -> str:
    """Describe what changes on a host with Secure Boot and no enrolled key."""
    secure = resolved(key, gpu, secure_boot={"enabled": True})
    if secure.errors:
        return "refused until a key is enrolled"
    return "the modules load" if choice(secure) == choice(result) else ", ".join(choice(secure))


def table(columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    """Render a table."""
    return ["| " + " | ".join(cells) + " |" for cells in (columns, ("---",) * len(columns), *rows)]


def defaults(key: str) -> list[str]:
    """Render the default of each GPU, followed by the packages of each default."""
    rows, by_choice = [], {}
    for name, gpu in GPUS.items():
        result = resolved(key, gpu)
        if result.errors:
            rows.append((name, result.errors[0], "", "", "", ""))
            continue
        rows.append((name, *choice(result), with_secure_boot(key, gpu, result)))
        by_choice.setdefault(f"{origin(result)}: {code(packages(key, result))}", []).append(name)
    lines = [*table(COLUMNS, rows), ""]
    for text, gpus in by_choice.items():
        lines += [f"Packages for {', '.join(gpus)}{text}.", ""]
    return lines


def companions(key: str) -> list[str]:
    """Render the packages of hosts with switches."""
    lines = []
    for name, (gpu, switches) in SWITCHES.items():
        bare, result = resolved(key, gpu), resolved(key, gpu, nvidia=switches)
        names = packages(key, result)
        if choice(result) == choice(bare):
            what = f"also {code([item for item in names if item not in packages(key, bare)])}"
        else:
            source, branch, flavor, build = choice(result)
            what = f"source {source}, branch {branch}, {flavor} modules, {build}{origin(result)}: {code(names)}"
        lines.append(f"- {name}: {what}.")
    return [*lines, ""]


def branches(key: str) -> list[str]:
    """Render the branches of each source."""
    rows = []
    for source, data in samples.platform(key)["sources"].items():
        supported = [name for name in data["branches"] if generations.end_of_life(name) is None]
        ended = {name: generations.end_of_life(name) for name in data["branches"] if name not in supported}
        on_request = [f"{name} (ended in {month})" if month else f"{name} (ended)" for name, month in ended.items()]
        default = data["branches"][0]
        others = [name for name in supported if name != default]
        if data.get("fixed"):
            default, on_request = (
                f"{default}, the only one; NVIDIA's support {on_request[0].partition('(')[2][:-1]}",
                [],
            )
        transitional = [f"{old} → {new}" for old, new in data.get("transitional", {}).items()]
        rows.append((source, default, *(", ".join(cell) or "-" for cell in (others, on_request, transitional))))
    return table(("Source", "Default", "If the default is missing", "Only on request", "Refused: empty packages"), rows)


def page(name: str) -> str:
    """Render the page of a platform family."""
    title, keys = PAGES[name]
    lines = [
        NOTE,
        "",
        f"# The driver on {title}",
        "",
        "What role `gpufleet.hosts.nvidia_driver` installs on a host without a driver if no variable of the role is",
        "set, on x86_64 and aarch64. An installed driver is kept. `KERNEL` is the release of the kernel.",
        "[The driver](../driver.md#request-a-version-or-a-source) explains how to request something else, and the",
        "[README of the role](../../roles/nvidia_driver/README.md#variables) lists the variables.",
    ]
    for key in keys:
        lines += ["", f"## {samples.platform(key)['title']}", "", *defaults(key)]
        lines += ["Hosts with switches:", "", *companions(key), "Branches of each source:", ""]
        lines += branches(key)
    return "\n".join([*lines, ""])


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
