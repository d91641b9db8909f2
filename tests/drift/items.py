# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Generate the list of everything that the roles manage on a converged host. Pure functions.

The list comes from the steps of plans of the same host in worse states: without packages, without settings, and so on.
So a new step becomes an item of the drift test. A step that keeps something that this file cannot break is an error,
and so is a text in the plan of a real bare host that names no item.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import vendor_names
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import (
    nvidia_group,
    with_nvidia_driver,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.installed_packages import is_installed
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts import steps
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.part_plan import Context, Values
from ansible_collections.gpufleet.hosts.plugins.module_utils.persistence import plan as persistence_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import plan_of_all_parts as site_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import registry
from ansible_collections.gpufleet.hosts.plugins.plugin_utils import cdi_program


class UnknownKind(Exception):
    """A plan contains something that the drift test cannot break yet."""


@dataclasses.dataclass(frozen=True, order=True)
class Item:
    """One thing that a part of the run keeps in place."""

    part: str
    # A key of VERBS.
    kind: str
    # The package, path, unit, module, dotted option, volume, engine, kernel release or address.
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


# How the texts of a plan name an item, by kind. Texts that begin with other verbs name no item.
VERBS = {
    "package": r"install ",
    "hold": r"hold ",
    "file": r"write ",
    "service": r"(unmask|enable|start|enable and start) ",
    "module": r"load ",
    "build": r"build the kernel modules for ",
    "option": rf"change .* in {re.escape(owned.DAEMON_JSON)}",
    "volume": r"(build volume|repair volume|create the driver volume) ",
    "registration": r"(register|create the driver volume .* register it with) ",
    "persistence_mode": r"turn on persistence mode of GPU ",
}
# The package of the persistence daemon, whose program is a part of the driver volume.
_DAEMON = "nvidia-persistenced"
# Texts that name no item: what the parts do on the way, and what they know only later.
_WITHOUT_ITEMS = (
    # They matter only while packages are missing: see NOT_REPAIRED.
    r"enable the components .+ in the archive's source entries",
    r"reload udev rules",
    r"rebuild the initramfs of .+",
    r"refresh the CDI specification .+",
    r"reload systemd( and restart .+)?",
    r"configure nvidia-persistenced\.service after .+ installed",
    r"prove that containers of .+ see the GPUs",
)
# Texts about items that come with a package, or are known only afterwards: part, kinds, pattern.
_LATER = (
    ("nvidia_driver", ("hold",), r"^hold .*\bnew dependencies$"),
    # The package's script builds the modules.
    ("nvidia_driver", ("build",), r"^install the driver "),
    ("nvidia_persistenced", ("file", "service"), r"^configure nvidia-persistenced\.service after .+ installed$"),
)
# Kinds of steps that can be part of a plan without an item: removals, and what happens on the way.
_KEEP_NOTHING = {
    *(steps.PACKAGES, steps.HOLD, steps.FILE, steps.MODULE, steps.SERVICE, steps.RELOAD, steps.USER, steps.VOLUME),
    *("repository", "installer", "udev", "initramfs", "reboot", "verification", "cdi", "runtime"),
    # Changes only the record of daemon.json, or compares passwords.
    steps.OPTION,
    # The hosts of the drift test have no users of Docker and nothing of nvidia-docker. Scenario migration tests it.
    *("group", "migration"),
}
# What the roles write but do not repair, and why. The drift test leaves it alone.
NOT_REPAIRED = {
    "archive_components": "apt needs the components only to install packages, and all packages are installed",
    "repositories": "the package manager needs the repository only to install packages, and all packages are installed",
    "records": f"files in {owned.STATE_DIRECTORY} say what the roles own, which nothing else knows",
}

# Parts without items: they check or prove the work of the others.
_WITHOUT_STEPS = ("container_proof", "verify")


def _holds(value: list[str], host: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the packages, and all held packages if a selector stands for the dependencies."""
    yield from (("hold", text) for text in value if not text.startswith("~"))
    for text in value:
        if text.startswith("~"):
            names, _equals, version = text[1:].partition("=")
            for name in host["held_packages"]:
                if re.search(names, name) and version in host["installed_packages"][name]:
                    yield "hold", name


def _of_step(step: Mapping[str, Any], host: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if not step["keeps"] and step["kind"] not in _KEEP_NOTHING:
        raise UnknownKind(f"A step of kind {step['kind']} keeps nothing ({step['text']}). Say what it keeps.")
    for kind, name in step["keeps"]:
        if kind not in VERBS:
            raise UnknownKind(f"A step keeps {kind} {name}, which the drift test cannot break. Add the kind here.")
        if kind == "hold":
            yield from _holds([name], host)
        else:
            yield kind, name


def in_plan(name: str, plan: Mapping[str, Any], host: Mapping[str, Any]) -> set[tuple[str, str]]:
    """Return kind and name of each item in the plan of a part, or in a part of that plan. `host` is converged."""
    declared = registry.BY_NAME.get(name)
    if declared and declared.vendor not in (None, vendor_names.NVIDIA):
        # The hosts of the drift test have accelerators of NVIDIA only.
        if plan["changes"]:
            raise UnknownKind(f"{name} has changes on a host of the drift test: {', '.join(plan['changes'])}")
        return set()
    if "steps" in plan:
        return {item for step in plan["steps"] for item in _of_step(step, host)}
    if name not in _WITHOUT_STEPS:
        raise UnknownKind(f"{name}: the plan has no steps, so the drift test does not know what it keeps.")
    return set()


# --- worse states of the converged host ---------------------------------------------------------------------------

NO_FILE = {"exists": False, "content": None, "mode": None}
NO_UNIT = {
    "load_state": "not-found",
    "active_state": "inactive",
    "sub_state": "dead",
    "unit_file_state": "",
    "fragment_path": None,
    "drop_in_paths": [],
    "need_daemon_reload": False,
    "active_since_us": 0,
}
NO_MODULE = {"on_disk": None, "on_disk_flavor": None, "on_disk_next": None, "on_disk_next_flavor": None}


def _unloaded(host: Mapping[str, Any]) -> dict[str, Any]:
    """Return the host without kernel modules, loaded or on disk, and without daemon.json."""
    unloaded = with_nvidia_driver(host, **NO_MODULE, loaded=None, kernel_module_flavor=None, in_use=0)
    kernels = [{**kernel, "nvidia_module": None} for kernel in host["kernel"]["kernels"]]
    docker = {**host["engines"]["docker"], "info": None}
    daemon_json = {**host["docker_daemon_json"], "exists": False, "content": None, "applied": True}
    return {
        **host,
        "accelerators": unloaded["accelerators"],
        "kernel": {**host["kernel"], "kernels": kernels},
        "modules_loaded": [],
        "module_users": {},
        "holders": [],
        "held_packages": [],
        "driver_volume": None,
        "docker_daemon_json": daemon_json,
        "engines": {**host["engines"], "docker": docker},
        "reboot_reasons": [],
        "reboot_required_reasons": [],
    }


def without_packages(host: Mapping[str, Any]) -> dict[str, Any]:
    """Return the host as it was before the first run, with only the packages of its kernels."""
    bare = _unloaded(host)
    kernels = {name: text for name, text in host["installed_packages"].items() if name.startswith("linux-image")}
    return {
        **bare,
        "installed_packages": kernels,
        "packages": {name: {**host["packages"][name], "held": False} for name in kernels if name in host["packages"]},
        "kernel": {
            **bare["kernel"],
            "kernels": [{**kernel, "headers": False} for kernel in bare["kernel"]["kernels"]],
        },
        "dkms": [],
        "accelerators": with_nvidia_driver(bare, library=None, library_path=None)["accelerators"],
        "services": {unit: dict(NO_UNIT) for unit in host["services"]},
        "daemon_users": [],
        "files": {path: dict(NO_FILE) for path in host["files"]},
        "foreign_drivers": {name: {**state, "blacklisted_by": []} for name, state in host["foreign_drivers"].items()},
        "engines": {
            name: {**dict.fromkeys(engine, None), "package": None, "version": None}
            for name, engine in host["engines"].items()
        },
        "cdi_specs": [],
        "keyrings": {},
    }


def without_settings(host: Mapping[str, Any]) -> dict[str, Any]:
    """Return the host with its packages, but without everything that the roles configured.

    The records stay: without them, the driver would be one that the role did not install.
    """
    bare = _unloaded(host)
    kept = (f"{owned.STATE_DIRECTORY}/", "/lib/", "/usr/lib/")
    return {
        **bare,
        "packages": {name: {**package, "held": False} for name, package in host["packages"].items()},
        "files": {path: dict(file if path.startswith(kept) else NO_FILE) for path, file in host["files"].items()},
        "services": {
            unit: {**state, "active_state": "inactive", "unit_file_state": "disabled", "drop_in_paths": []}
            for unit, state in host["services"].items()
        },
        "foreign_drivers": {
            name: {**state, "blacklisted_by": [path for path in state["blacklisted_by"] if path != owned.MODPROBE]}
            for name, state in host["foreign_drivers"].items()
        },
    }


def without_volume(host: Mapping[str, Any]) -> dict[str, Any]:
    """Return the host without its driver volume."""
    actions = ["build volume"]
    return {**host, "driver_volume": {**(host["driver_volume"] or {}), "changed": True, "actions": actions}}


def facts(host: Mapping[str, Any], off: Iterable[str]) -> dict[str, Any]:
    """Return the GPU facts of a host. Persistence mode is off on the GPUs with these addresses."""
    modes = {address: address not in off for address in nvidia_group(host)["gpus"]}
    gpus = [
        {"index": index, "pci_bus_id": address, "name": None, "persistence_mode": mode}
        for index, (address, mode) in enumerate(modes.items())
    ]
    return {"nvidia_gpus": gpus, "nvidia_gpu_state": "ready", "nvidia_gpu_state_reason": ""}


def offered(host: Mapping[str, Any], names: Iterable[str]) -> dict[str, list[str]]:
    """Return the available versions of packages: those that a converged host has."""
    texts = host["installed_packages"]
    return {name: [texts[name].split(" ")[0]] if name in texts else [] for name in names}


# --- the list -----------------------------------------------------------------------------------------------------


def items(host: Mapping[str, Any], values: Values, platforms: Mapping[str, Any]) -> list[Item]:
    """Return everything that the roles manage on a converged host, sorted.

    `values` are the user's variables by role, `platforms` the roles' data as `parts.part_plan.Context` describes it.
    """
    found: set[Item] = set()
    states: list[tuple[dict[str, Any], dict[str, Any] | None]] = [
        (without_packages(host), None),
        (without_settings(host), None),
        (without_volume(host), None),
        (dict(host), facts(host, nvidia_group(host)["gpus"])),
    ]
    for state, gpu_facts in states:
        for part, plan in _plans(host, state, values, platforms, gpu_facts).items():
            found.update(Item(part, kind, name) for kind, name in in_plan(part, plan, host))
    missing = sorted(item for item in found if not is_intact(item, host, host))
    if missing:
        raise UnknownKind(f"These items are not on the converged host: {', '.join(map(str, missing))}.")
    return sorted(found)


def _plans(
    host: Mapping[str, Any],
    state: Mapping[str, Any],
    values: Values,
    platforms: Mapping[str, Any],
    gpu_facts: dict[str, Any] | None,
) -> dict[str, dict[str, Any]]:
    """Plan all parts for a state of the host. The repositories offer what is installed on the converged host."""
    context = Context(
        host=state,  # type: ignore[arg-type]
        values=values,
        platforms=platforms,
        facts=gpu_facts,
        cdi_program=cdi_program.digest,
    )
    parts = site_plan.plan(context, registry.PARTS)
    question = site_plan.query(parts)
    if question:
        versions = offered(host, question["query"])
        parts = site_plan.plan(dataclasses.replace(context, versions=versions, streams={}), registry.PARTS)
    errors = [error for part in parts.values() for error in part.errors]
    if errors:
        raise UnknownKind(f"The drift test cannot plan the host: {' '.join(errors)}")
    return {name: part.plan for name, part in parts.items()}


# --- states of an item --------------------------------------------------------------------------------------------


def is_intact(item: Item, host: Mapping[str, Any], converged: Mapping[str, Any]) -> bool:
    """Return whether an item is on the host as it was on the converged host."""
    return _STATES[item.kind](item.name, host, converged)


def is_unknown(item: Item, host: Mapping[str, Any], converged: Mapping[str, Any]) -> bool:
    """Return whether the observation does not tell the state of an item."""
    if item.part == "driver_volume":
        # The volume consists of the files of the loaded driver and of the persistence daemon.
        sources = (name for name in (*converged["held_packages"], _DAEMON) if _is_installed(name, converged, converged))
        return host["driver_volume"] is None or not all(_is_installed(name, host, converged) for name in sources)
    # The mode ends with the daemon.
    return item.kind == "persistence_mode" and not _runs(persistence_plan.UNIT, host, converged)


def _is_installed(name: str, host: Mapping[str, Any], _converged: Mapping[str, Any]) -> bool:
    return is_installed(host, name)  # type: ignore[arg-type]


def _is_held(name: str, host: Mapping[str, Any], _converged: Mapping[str, Any]) -> bool:
    return name in host["held_packages"]


def _has_file(path: str, host: Mapping[str, Any], converged: Mapping[str, Any]) -> bool:
    return host["files"][path]["exists"] and host["files"][path] == converged["files"][path]


def _runs(unit: str, host: Mapping[str, Any], converged: Mapping[str, Any]) -> bool:
    keys = ("load_state", "active_state", "unit_file_state")
    before, now = converged["services"][unit], host["services"][unit]
    return now["active_state"] == "active" and all(before[key] == now[key] for key in keys)


def _is_loaded(name: str, host: Mapping[str, Any], _converged: Mapping[str, Any]) -> bool:
    return name in host["modules_loaded"]


def _is_built(release: str, host: Mapping[str, Any], _converged: Mapping[str, Any]) -> bool:
    return any(kernel["nvidia_module"] for kernel in host["kernel"]["kernels"] if kernel["release"] == release)


def _has_option(name: str, host: Mapping[str, Any], converged: Mapping[str, Any]) -> bool:
    values = [_value(name, there["docker_daemon_json"]["content"]) for there in (host, converged)]
    return values[0] is not None and values[0] == values[1]


def _value(name: str, content: Mapping[str, Any] | None) -> Any:
    found: Any = content
    for key in name.split("."):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def _has_volume(_name: str, host: Mapping[str, Any], _converged: Mapping[str, Any]) -> bool:
    return not _volume_actions("volume", host)


def _is_registered(engine: str, host: Mapping[str, Any], _converged: Mapping[str, Any]) -> bool:
    return not any(text.endswith(f" with {engine}") for text in _volume_actions("registration", host))


def _volume_actions(kind: str, host: Mapping[str, Any]) -> list[str]:
    """Return what the module would do. Without a driver, nobody knows the state of the volume."""
    prediction = host["driver_volume"]
    actions = prediction["actions"] if prediction else []
    return [text for text in actions if re.match(VERBS[kind], text)]


def _has_mode(_name: str, _host: Mapping[str, Any], _converged: Mapping[str, Any]) -> bool:
    # The observation does not contain the mode.
    return True


_STATES = {
    "package": _is_installed,
    "hold": _is_held,
    "file": _has_file,
    "service": _runs,
    "module": _is_loaded,
    "build": _is_built,
    "option": _has_option,
    "volume": _has_volume,
    "registration": _is_registered,
    "persistence_mode": _has_mode,
}


# --- names in the texts of a plan ---------------------------------------------------------------------------------


def names(item: Item, text: str) -> bool:
    """Return whether a text of a plan, such as `install docker.io`, is about an item."""
    subject = rf"(?<![\w./+-]){re.escape(item.name)}(?![\w/+-]|\.\w)"
    if item.kind == "volume":
        # Before it is loaded, only the driver's version is known.
        subject = re.escape(item.name.rpartition("_")[2])
    # A changed key of daemon.json may be an object around the option.
    if item.kind == "option":
        heads = item.name.split(".")
        keys = [".".join(heads[:count]) for count in range(1, len(heads) + 1)]
        subject = "|".join(rf"(?<![\w.-]){re.escape(key)}(?![\w-]|\.\w)" for key in keys)
    match = re.match(VERBS[item.kind], text)
    return bool(match and re.search(subject, text))


def may_name(item: Item, text: str) -> bool:
    """Return whether a text is about the package that an item comes with."""
    return any(item.kind in kinds and item.part == part and re.search(pattern, text) for part, kinds, pattern in _LATER)


def without_items(text: str, known: Iterable[Item]) -> bool:
    """Return whether a text of a plan is about nothing in the list, although it should be."""
    expected = not any(re.fullmatch(pattern, text) for pattern in _WITHOUT_ITEMS)
    return expected and not any(names(item, text) for item in known)
