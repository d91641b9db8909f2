# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ways to break an item, as scripts for a shell on a simulated host. Pure functions."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.kernel_modules import kernel_module_loading
from ansible_collections.gpufleet.hosts.tests.drift.items import Item, UnknownKind

# Changes an option in daemon.json like an administrator, or removes it: PATH OPTION changed|removed
_OPTION = """\
import json, sys
path, option, way = sys.argv[1:]
content = json.load(open(path))
*above, last = option.split(".")
there = content
for key in above:
    there = there[key]
if way == "removed":
    del there[last]
elif isinstance(there[last], bool):
    there[last] = not there[last]
elif isinstance(there[last], int):
    there[last] += 1
elif isinstance(there[last], list):
    there[last] = []
else:
    there[last] = "7" + str(there[last])
open(path, "w").write(json.dumps(content, indent=2))
"""
# Files that an administrator may edit contain comments of one of these forms.
_COMMENTS = {"/etc/apt/apt.conf.d/": "//"}


@dataclasses.dataclass(frozen=True)
class Case:
    """An item, and one way to break it."""

    item: Item
    way: str
    script: str
    # The kinds of other items that break with it.
    others: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.item} {self.way}"


def cases(items: Iterable[Item], host: Mapping[str, Any]) -> list[Case]:
    """Return every way to break every item. `host` is the observation of the converged host."""
    found = []
    for item in items:
        if item.kind not in _WAYS:
            raise UnknownKind(
                f"{item}: the drift test cannot break an item of this kind. Add it to tests/drift/ways.py."
            )
        found += _WAYS[item.kind](item, host)
    return found


def removed_with(simulation: str) -> list[str]:
    """Return the packages that `apt-get --simulate remove` would remove."""
    return [line.split()[1] for line in simulation.splitlines() if line.startswith(("Remv ", "Purg "))]


def without_rebuilds(found: list[Case], removals: Mapping[str, list[str]], modules: Iterable[str]) -> list[Case]:
    """Keep one of the cases that remove a package of the kernel modules, because each rebuild takes minutes.

    `removals` has the packages that are removed with a package, `modules` the packages that build the modules. The
    case with most removed packages stays.
    """
    rebuilding = [
        case for case in found if case.item.kind == "package" and set(modules) & set(removals[case.item.name])
    ]
    kept = max(rebuilding, key=lambda case: (len(removals[case.item.name]), case.item.name), default=None)
    return [case for case in found if case not in rebuilding or case is kept]


# The resolver keeps held dependents unless it ignores holds. With package sources, it would install alternatives, such
# as libnvidia-tesla-535-cfg1 in place of libnvidia-cfg1.
REMOVE = (
    "apt-get remove --quiet --allow-change-held-packages --option=APT::Ignore-Hold=true "
    "--option=Dir::Etc::SourceList=/dev/null --option=Dir::Etc::SourceParts=/dev/null --option=Dir::Cache::pkgcache= "
    "--option=Dir::Cache::srcpkgcache="
)
_WITH_PACKAGE = ("package", "hold", "build", "service", "volume")


def _package(item: Item, _host: Mapping[str, Any]) -> list[Case]:
    # apt also removes the dependents. The kernel module and the services are in packages.
    return [Case(item, "removed", f"DEBIAN_FRONTEND=noninteractive {REMOVE} --yes {item.name}", others=_WITH_PACKAGE)]


def _hold(item: Item, _host: Mapping[str, Any]) -> list[Case]:
    return [Case(item, "lifted", f"apt-mark unhold {item.name}")]


def _file(item: Item, _host: Mapping[str, Any]) -> list[Case]:
    comment = next((mark for directory, mark in _COMMENTS.items() if item.name.startswith(directory)), "#")
    path = shlex.quote(item.name)
    return [Case(item, "edited", f"echo '{comment} edited' >>{path}"), Case(item, "deleted", f"rm {path}")]


def _service(item: Item, _host: Mapping[str, Any]) -> list[Case]:
    return [
        Case(item, "stopped", f"systemctl stop {item.name}"),
        Case(item, "disabled", f"systemctl disable {item.name}"),
        Case(item, "masked", f"systemctl mask {item.name}"),
        Case(item, "masked and stopped", f"systemctl mask --now {item.name}"),
    ]


def _module(item: Item, host: Mapping[str, Any]) -> list[Case]:
    loaded = kernel_module_loading.loaded_in_order(host)  # type: ignore[arg-type]
    needed_by = {item.name, *host["module_users"].get(item.name, [])}
    unload = f"rmmod {' '.join(name for name in loaded if name in needed_by)}"
    if item.name != "nvidia":
        return [Case(item, "unloaded", unload, others=("module",))]
    # The daemon holds module nvidia, and stays stopped.
    stop = [f"systemctl stop {unit}" for unit in kernel_module_loading.daemons(host)]  # type: ignore[arg-type]
    return [Case(item, "unloaded", "\n".join([*stop, unload]), others=("module", "service"))]


def _build(item: Item, host: Mapping[str, Any]) -> list[Case]:
    built = [entry for entry in host["dkms"] if entry["kernels"].get(item.name) == "installed"]
    return [
        Case(item, "uninstalled", f"dkms uninstall {entry['name']}/{entry['version']} -k {item.name}")
        for entry in built
    ]


def _option(item: Item, _host: Mapping[str, Any]) -> list[Case]:
    def script(way: str) -> str:
        return shlex.join(["python3", "-c", _OPTION, owned.DAEMON_JSON, item.name, way])

    return [Case(item, way, script(way)) for way in ("changed", "removed")]


def _volume(item: Item, host: Mapping[str, Any]) -> list[Case]:
    """Return a case for a file of each subdirectory, and others for the directory.

    Files of a volume are hard links to the driver's files. So they are replaced, but never written to.
    """
    volume = host["driver_volume"]["volume"]
    subdirectories = {"lib64": "libraries", "lib": "libraries_compat32", "bin": "binaries"}
    files = [f"{name}/{volume[key][-1]}" for name, key in subdirectories.items() if volume[key]]
    cd = f"cd {volume['path']}"
    other = [
        Case(item, "without a link", f'{cd}; rm "$(find . -type l | sort | head -n 1)"'),
        Case(item, "with another file", f"{cd}; echo text >lib64/other.so"),
        Case(item, "with a replaced file", f"{cd}; echo text >new; mv new {files[0]}"),
        Case(item, "deleted", f"rm -r {volume['path']}"),
    ]
    return [*(Case(item, f"without {name}", f"{cd}; rm {name}") for name in files), *other]


def _registration(item: Item, host: Mapping[str, Any]) -> list[Case]:
    return [Case(item, "removed", f"{item.name} volume rm {host['driver_volume']['volume']['name']}")]


def _persistence_mode(item: Item, _host: Mapping[str, Any]) -> list[Case]:
    # Like `nvidia-smi -pm 0`, which asks the daemon: the simulator then reports no daemon that holds the GPU.
    return [Case(item, "off", f"rm \"$(find /run/gpusim/held -iname '*{item.name}')\"")]


_WAYS: dict[str, Callable[[Item, Mapping[str, Any]], list[Case]]] = {
    "package": _package,
    "hold": _hold,
    "file": _file,
    "service": _service,
    "module": _module,
    "build": _build,
    "option": _option,
    "volume": _volume,
    "registration": _registration,
    "persistence_mode": _persistence_mode,
}
