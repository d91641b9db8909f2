# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan all parts of a run for one host. Pure functions of its observation and of the user's variables.

A part is a role, or a step of playbook `site`. Each has a function here that returns its `Part`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import variables
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.disruptions import Disruption
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.privileges import needs_root
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.variables import plain
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import request as driver_request
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import plan as engine_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import removal as engine_removal
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import request as engine_request
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import vendors
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import holds
from ansible_collections.gpufleet.hosts.plugins.module_utils.persistence import plan as persistence_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.persistence.request import Request
from ansible_collections.gpufleet.hosts.plugins.module_utils.proof import plan as proof_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import driver as site_driver
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import new_volume
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import cdi_refresh
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import cri_plan as toolkit_cri
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import plan as toolkit_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import removal as toolkit_removal
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import request as toolkit_request
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.compatibility import ENGINES

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.types import Host

Values = Mapping[str, Mapping[str, Any]]
# Seconds to wait for another package manager, for roles that have no variable for it.
LOCK_TIMEOUT = 300


@dataclasses.dataclass
class Part:
    """What a part of the run does on the host, and why."""

    # What the role reads.
    plan: dict[str, Any] = dataclasses.field(default_factory=dict)
    acts: bool = False
    # Imperative texts, in the order of the steps. Empty if the part does nothing.
    changes: list[str] = dataclasses.field(default_factory=list)
    reasons: list[str] = dataclasses.field(default_factory=list)
    # Why the part cannot do its work. They prevent every change on the host.
    errors: list[str] = dataclasses.field(default_factory=list)
    # Options of module package_transaction that query the available versions before the part can be planned.
    query: dict[str, Any] | None = None
    # The options of module package_transaction that remove the packages of the part.
    removal: dict[str, Any] | None = None
    # The variable that the role sets when it has finished.
    report: dict[str, Any] | None = None
    has_secrets: bool = False
    # What the part interrupts on the host.
    disruptions: list[Disruption] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Context:
    """What the plan depends on."""

    host: Host
    # The user's variables by role, without the role's prefix.
    values: Values
    # The roles' data for the platforms: `nvidia_driver` (of this host's platform, or None), `nvidia_persistenced`,
    # `container_engine` and `nvidia_container_toolkit` (of all platforms).
    platforms: Mapping[str, Any]
    is_controller: bool = False
    # The answer of the package manager: available versions by package, streams by dnf module, dependencies by package.
    versions: dict[str, list[str]] | None = None
    streams: dict[str, Any] | None = None
    dependencies: dict[str, dict[str, str]] | None = None
    # The sources of the driver whose repositories have no suitable version, with the reasons.
    rejected_sources: Mapping[str, str] = dataclasses.field(default_factory=dict)
    # Why the query of a part failed, by part.
    unanswered: Mapping[str, str] = dataclasses.field(default_factory=dict)
    # The GPU facts of this run. They are read only if the driver stays as it is.
    facts: dict[str, Any] | None = None
    # The GPU facts before a planned reload of the driver, with the settings that it drops.
    settings: dict[str, Any] | None = None
    # Returns the digest of the program that writes the CDI specification. The controller builds it only if needed.
    cdi_program: Callable[[], str | None] = lambda: None


_Planner = Callable[[Context, Mapping[str, Part]], Part]


def plan(context: Context, parts: Collection[str]) -> dict[str, Part]:
    """Return the plans of the selected parts by name, in the order in which they act."""
    found: dict[str, Part] = {}
    for name, planner in _PLANNERS.items():
        if name in context.unanswered and name in parts:
            found[name] = _unanswered(planner, context, found, context.unanswered[name])
        elif name in parts:
            found[name] = planner(context, found)
    driver = _plan_of(found, "nvidia_driver")
    if driver.get("action") == "adopt" and "nvidia_driver" not in context.unanswered:
        _hold_adopted_driver(context, found)
    return found


def _unanswered(planner: _Planner, context: Context, parts: Mapping[str, Part], error: str) -> Part:
    """Return a part whose query failed. Parts that depend on it are planned as if it had not been asked yet."""
    part = planner(dataclasses.replace(context, versions=None, streams=None, dependencies=None), parts)
    return dataclasses.replace(part, changes=[], reasons=[], errors=[error], query=None, report=None, disruptions=[])


def _hold_adopted_driver(context: Context, parts: dict[str, Part]) -> None:
    """Hold the packages of the adopted driver if another part installs dnf's plugin for holds."""
    if not installs_versionlock(context.host, parts):
        return
    with_plugin = dataclasses.replace(context, host=holds.with_versionlock(context.host))
    driver = _driver(with_plugin, {})
    todo = driver.plan["todo"]
    if todo["transaction"]["hold"] or todo["transaction"]["release"]:
        # The role of the driver runs first, so it installs the plugin, as for a driver that it installs itself.
        needs = [holds.VERSIONLOCK]
        driver.plan = {**driver.plan, "hold_needs": needs, "todo": {**todo, "prerequisites": needs}}
    parts["nvidia_driver"] = driver


def installs_versionlock(host: Host, parts: Mapping[str, Part]) -> bool:
    """Return whether a part installs the plugin without which dnf cannot hold packages."""
    if holds.can_hold(host):
        return False
    return any(
        holds.VERSIONLOCK
        in [
            *(part.plan.get("transaction") or {}).get("install", []),
            *(part.plan.get("todo") or {}).get("prerequisites", []),
        ]
        for part in parts.values()
    )


def is_driver_wanted(host: Host, values: Values) -> bool:
    """Return whether the host has GPUs for this system, and the driver is not to be removed."""
    state = driver_request.read(values.get("nvidia_driver", {})).state
    return bool(vendors.nvidia_group(host)["gpus"]) and state == "present"


# Parts whose plans depend on the GPU facts of a loaded driver.
_WITH_FACTS = frozenset({"nvidia_persistenced", "nvidia_container_toolkit", "container_proof"})


def needs_facts(host: Host, values: Values, parts: Mapping[str, Part]) -> bool:
    """Return whether the plan depends on the GPU facts. A driver that is to be loaded makes them worthless."""
    driver = _plan_of(parts, "nvidia_driver")
    loaded = vendors.nvidia_driver(host)["loaded"]
    if not is_driver_wanted(host, values) or driver.get("installs") or driver.get("next_loaded", loaded) != loaded:
        return False
    return (bool(_WITH_FACTS & {*parts}) and bool(loaded)) or bool(_plan_of(parts, "verify").get("applies"))


def reloads_driver(parts: Mapping[str, Part]) -> bool:
    """Return whether the run reloads the driver, so that the plan depends on the settings of the GPUs."""
    return bool(_plan_of(parts, "nvidia_driver").get("reloads"))


def can_need_facts(parts: Iterable[str]) -> bool:
    """Return whether a plan of these parts can depend on the GPU facts."""
    return bool({*_WITH_FACTS, "verify"} & {*parts})


def query(parts: Mapping[str, Part]) -> dict[str, Any] | None:
    """Return the options of one query for all parts."""
    wanted = [part.query for part in parts.values() if part.query]
    if not wanted:
        return None
    merged = dict(wanted[0])
    for options in wanted[1:]:
        for name, value in options.items():
            if isinstance(value, list):
                known = merged.get(name) or []
                merged[name] = [*known, *(item for item in value if item not in known)]
    for name in ("lock_timeout", "download_timeout"):
        merged[name] = max(options.get(name, 0) for options in wanted)
    return merged


def rejected_sources(parts: Mapping[str, Part]) -> dict[str, str]:
    """Return the sources of the driver that have no suitable version. The next source needs another query."""
    return _plan_of(parts, "nvidia_driver").get("rejected_sources", {})


def errors(host: Host, parts: Mapping[str, Part], requires_root: bool) -> list[str]:
    """Return what prevents the run, each cause once."""
    found = [error for part in parts.values() for error in part.errors]
    if requires_root and host["uid"] != 0:
        found.insert(0, needs_root(host["uid"]))
    return list(dict.fromkeys(found))


def _plan_of(parts: Mapping[str, Part], name: str) -> dict[str, Any]:
    return parts[name].plan if name in parts else {}


def _after_driver(host: Host, driver: Mapping[str, Any]) -> Host:
    """Return the host as it will be when the driver of the plan is loaded."""
    loaded = driver.get("next_loaded", vendors.nvidia_driver(host)["loaded"])
    return cast("Host", vendors.with_nvidia_driver(host, loaded=loaded))


def _driver(context: Context, _parts: Mapping[str, Part]) -> Part:
    values, platform = context.values["nvidia_driver"], context.platforms.get("nvidia_driver")
    request = driver_request.read(values)
    if request.state == "absent":
        removal = site_driver.removal(context.host, platform)
        return Part(
            plan=removal,
            acts=removal["acts"],
            changes=removal["summary"],
            reasons=removal["reasons"],
            errors=removal["errors"],
            removal=_removal(
                "nvidia_driver",
                removal["packages"],
                exists=removal["record"] or removal["together_with"],
                keep=removal["keep"],
                together_with=removal["together_with"],
            ),
            report=removal["report"],
        )
    return Part(
        **site_driver.present(
            context.host,
            request,
            values,
            platform,
            versions=context.versions,
            streams=context.streams,
            dependencies=context.dependencies,
            rejected_sources=context.rejected_sources,
            is_controller=context.is_controller,
            settings=context.settings,
        )
    )


def _persistenced(context: Context, parts: Mapping[str, Part]) -> Part:
    if not is_driver_wanted(context.host, context.values):
        reason = (
            "nvidia_driver_state is absent"
            if vendors.nvidia_group(context.host)["gpus"]
            else "this host has no NVIDIA GPU, or all are assigned to virtual machines"
        )
        return Part(plan=plain(persistence_plan.Plan(wanted=False, retries=0, reason=reason)), reasons=[reason])
    driver = _plan_of(parts, "nvidia_driver")
    installs = bool(driver.get("installs"))
    brought = driver["todo"]["transaction"]["install"] if installs else []
    request = variables.read(Request, "nvidia_persistenced", context.values["nvidia_persistenced"])
    result = persistence_plan.plan(
        _after_driver(context.host, driver),
        request,
        context.platforms["nvidia_persistenced"],
        context.versions,
        persistence_plan.gpus_with_mode_off(context.facts or {}),
        driver_brings=[name.partition("=")[0] for name in brought],
    )
    changes = result.changes
    if installs and not changes and not vendors.nvidia_driver(context.host)["loaded"]:
        # On some platforms, the driver's packages bring the daemon, whose unit is known only afterwards.
        changes = ["configure nvidia-persistenced.service after the driver is installed"]
        result.reason = "the packages of the driver can contain the daemon"
    report = {"state": None, "gpus_off": result.turn_on, "reason": result.reason}
    if context.facts:
        report["state"] = context.facts["nvidia_gpu_state"]
    # Ask also if the driver is to be installed: its versions may show that nothing is.
    asks = result.query and context.versions is None
    return Part(
        plan={**plain(result), "changes": changes, "report": report},
        # The role plans again after the driver's packages have changed.
        acts=result.acts or installs,
        changes=changes,
        reasons=[result.reason],
        errors=[] if installs else result.problems,
        query=_query("nvidia_persistenced", {"query": result.query}, request.download_timeout) if asks else None,
        report=report if context.facts else None,
    )


def _engine(context: Context, _parts: Mapping[str, Part]) -> Part:
    request = engine_request.read(context.values["container_engine"])
    platforms = context.platforms["container_engine"]
    if request.state == "absent":
        removal = engine_removal.plan(context.host, request, platforms)
        return _removal_part("container_engine", removal)
    return _role_part(
        "container_engine",
        engine_plan.plan(context.host, request, platforms, context.versions),
        request.download_timeout,
    )


def _query(role: str, options: Mapping[str, Any], download_timeout: int) -> dict[str, Any]:
    return {"record": role, **options, "lock_timeout": LOCK_TIMEOUT, "download_timeout": download_timeout}


def _role_part(role: str, result: engine_plan.Plan | toolkit_plan.Plan, download_timeout: int) -> Part:
    query = _query(role, result.query, download_timeout) if result.query else None
    return Part(
        plan=plain(result),
        acts=result.acts,
        changes=result.changes,
        reasons=[result.reason],
        errors=result.problems,
        query=None if result.problems else query,
        has_secrets=result.has_secrets,
        disruptions=result.disruptions,
    )


def _removal_part(role: str, removal: engine_removal.Removal | toolkit_removal.Removal) -> Part:
    return Part(
        plan=plain(removal),
        acts=removal.acts,
        changes=removal.changes,
        reasons=removal.reasons,
        errors=removal.problems,
        removal=_removal(role, removal.packages, exists=removal.record),
    )


def _removal(
    record: str, packages: list[str], *, exists: bool, keep: Iterable[str] = (), together_with: Iterable[str] = ()
) -> dict[str, Any] | None:
    if not exists:
        return None
    return {"record": record, "together_with": [*together_with], "remove": packages, "keep": [*keep]}


def _toolkit(context: Context, parts: Mapping[str, Part]) -> Part:
    host, request = context.host, toolkit_request.read(context.values["nvidia_container_toolkit"])
    engine = engine_request.read(context.values["container_engine"])
    is_managed = request.source != "none"
    if request.state == "absent":
        # The removal follows the records, so the source does not matter.
        removal = toolkit_removal.plan(host, engine.restart_policy)
        return dataclasses.replace(
            _removal_part("nvidia_container_toolkit", removal), disruptions=removal.cri.disruptions
        )
    if not is_managed and "cdi" not in request.isolations and not request.wrapper:
        result = toolkit_plan.without_toolkit(host, request, engines={})
        return _role_part("nvidia_container_toolkit", result, request.download_timeout)
    if not is_driver_wanted(host, context.values):
        return _idle_toolkit(host, "this host needs no NVIDIA driver")
    engines = _engine_versions(host, engine, _plan_of(parts, "container_engine"))
    if toolkit_cri.has_unpackaged_containerd(host):
        engines.setdefault("containerd", None)
    if not engines:
        return _idle_toolkit(host, "this host has no container engine")
    driver = _plan_of(parts, "nvidia_driver")
    upcoming = driver.get("next_loaded", vendors.nvidia_driver(host)["loaded"])
    common: dict[str, Any] = {
        "engines": engines,
        "driver": upcoming,
        "cdi_waits": cdi_refresh.waits(host, context.facts, upcoming),
        "cdi_changed": cdi_refresh.changed(host, context.facts),
        # Without activation, the old driver stays loaded, whose libraries are gone.
        "has_new_driver": bool(driver.get("installs"))
        and driver_request.read(context.values["nvidia_driver"]).activate,
        "cdi_program": context.cdi_program,
    }
    if not is_managed:
        result = toolkit_plan.without_toolkit(host, request, **common)
        return _role_part("nvidia_container_toolkit", result, request.download_timeout)
    return _role_part(
        "nvidia_container_toolkit",
        toolkit_plan.plan(
            host,
            request,
            context.platforms["nvidia_container_toolkit"],
            context.versions,
            restart_policy=engine.restart_policy,
            **common,
        ),
        request.download_timeout,
    )


def _idle_toolkit(host: Host, reason: str) -> Part:
    idle = toolkit_plan.idle(host, reason)
    return _role_part("nvidia_container_toolkit", idle, LOCK_TIMEOUT) if idle.acts else Part(reasons=[reason])


def _engine_versions(host: Host, engine: engine_request.Request, planned: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the versions of the engines that are installed or that the plan of part container_engine installs."""
    seen: Mapping[str, Any] = host["engines"]
    found = {name: seen[name]["version"] for name in ENGINES if seen[name]["package"]}
    if (host["services"].get("docker.service") or {}).get("load_state") == "loaded":
        found.setdefault("docker", None)
    if engine.state == "absent":
        found.pop(engine.name, None)
    elif planned.get("engine") in ENGINES:
        found[planned["engine"]] = planned["version"]
    return found


def volume_engines(values: Values, parts: Collection[str]) -> dict[str, list[str]]:
    """Return the options of module nvidia_driver_volume: the engines, and those that this run installs.

    containerd has no volumes.
    """
    request = engine_request.read(values.get("container_engine", {}))
    has_volumes = request.name in ("docker", "podman") and request.state == "present"
    installed = [request.name] if has_volumes and "container_engine" in parts else []
    return {"engine": ["auto"] if has_volumes else ["none"], "expected_engines": installed}


def _volume(context: Context, parts: Mapping[str, Part]) -> Part:
    host, options = context.host, volume_engines(context.values, parts)
    if not is_driver_wanted(host, context.values):
        return Part(plan=options)
    driver = _plan_of(parts, "nvidia_driver")
    upcoming = driver.get("next_loaded", vendors.nvidia_driver(host)["loaded"])
    prediction = host["driver_volume"]
    # The volume of nvidia-docker 1.0 has the same name.
    migrates = (
        prediction
        and prediction["error"]
        and _plan_of(parts, "nvidia_container_toolkit").get("migration", {}).get("volumes")
    )
    if upcoming and (
        migrates or upcoming != (vendors.nvidia_driver(host)["loaded"] or vendors.nvidia_driver(host)["on_disk"])
    ):
        # The prediction is for another version or another volume.
        changes = [new_volume.text(host, options, upcoming)]
        return Part(plan={**options, "changes": changes}, acts=True, changes=changes)
    if prediction is None or not upcoming:
        return Part(plan=options, reasons=["no NVIDIA driver is loaded"])
    library = vendors.nvidia_driver(host)["library"]
    if library and library != upcoming and not driver.get("installs"):
        waits = (
            f"the driver volume waits for a reboot: module {upcoming} is loaded, but the libraries have version "
            f"{library}. Reboot the host, or set nvidia_driver_reboot_policy to when_required"
        )
        return Part(plan=options, reasons=[waits])
    # Packages of the same version can add files. An engine that this run installs or starts responds afterwards.
    # The daemon's program is part of the volume, too.
    installs = bool(driver.get("installs") or _plan_of(parts, "nvidia_persistenced").get("packages"))
    has_engine_changes = "container_engine" in parts and parts["container_engine"].acts
    error = None if installs or has_engine_changes else prediction["error"]
    # The packages bring the files back that the volume has and the host lacks.
    changes = [name for name in prediction["actions"] if not installs or name not in prediction["surplus"]]
    return Part(
        plan={**options, "changes": changes},
        acts=bool(prediction["changed"] or prediction["error"] or installs),
        changes=changes,
        errors=[error] if error else [],
    )


def _proof(context: Context, parts: Mapping[str, Part]) -> Part:
    host, request = context.host, toolkit_request.read(context.values["nvidia_container_toolkit"])
    if request.state == "absent":
        return Part(reasons=["nvidia_container_toolkit_state is absent"])
    if request.source == "none" and "cdi" not in request.isolations:
        return Part(reasons=["nvidia_container_toolkit_source is none"])
    if not is_driver_wanted(host, context.values):
        return Part(reasons=["this host needs no NVIDIA driver"])
    driver, engine = _plan_of(parts, "nvidia_driver"), _plan_of(parts, "container_engine")
    obstacle = None if driver.get("installs") else proof_plan.obstacle(_after_driver(host, driver), context.facts)
    installed = _engine_versions(host, engine_request.read(context.values["container_engine"]), engine)
    engines = proof_plan.engines(host, installed, engine.get("engine"))
    if not engines:
        obstacle = obstacle or "no container engine is running"
    # Another part may remove the obstacle, so the host is planned again before the proof.
    changing = [name for name in _BEFORE_PROOF if name in parts and parts[name].acts]
    if obstacle:
        return Part(acts=bool(changing), reasons=[obstacle])
    result = proof_plan.plan(
        host, engines, request.proof_image, request.isolations, upcoming=_changes_of_proof(host, parts)
    )
    return Part(
        plan=plain(result), acts=bool(result.changes or changing), changes=result.changes, reasons=[result.reason]
    )


def _changes_of_proof(host: Host, parts: Mapping[str, Part]) -> str | None:
    """Return what the run changes that the last proof depends on, or None."""
    driver, toolkit = _plan_of(parts, "nvidia_driver"), _plan_of(parts, "nvidia_container_toolkit")
    loaded = vendors.nvidia_driver(host)["loaded"]
    if driver.get("installs") or driver.get("next_loaded", loaded) != loaded:
        return "the run changes the driver"
    if _plan_of(parts, "container_engine").get("packages"):
        return "the run changes the container engine"
    if any(toolkit.get(name) for name in ("transaction", "config_needed", "config")):
        return "the run changes NVIDIA's container toolkit"
    refresh = toolkit.get("cdi") or {}
    own = toolkit.get("own_cdi") or {}
    if any(units.get(name) for units in (refresh, own) for name in ("restart", "remove")):
        return "the run changes a CDI specification"
    return None


def _verify(context: Context, _parts: Mapping[str, Part]) -> Part:
    activate = driver_request.read(context.values["nvidia_driver"]).activate
    return Part(plan={"applies": is_driver_wanted(context.host, context.values) and activate})


_PLANNERS = {
    "nvidia_driver": _driver,
    "nvidia_persistenced": _persistenced,
    "container_engine": _engine,
    "nvidia_container_toolkit": _toolkit,
    "driver_volume": _volume,
    "container_proof": _proof,
    "verify": _verify,
}
# The parts after which the result of a proof can differ.
_BEFORE_PROOF = ("nvidia_driver", "container_engine", "nvidia_container_toolkit", "driver_volume")
PARTS = tuple(_PLANNERS)
# The roles whose variables a part depends on.
NEEDED_ROLES = {
    "nvidia_driver": ("nvidia_driver",),
    "nvidia_persistenced": ("nvidia_driver", "nvidia_persistenced"),
    "container_engine": ("container_engine",),
    "nvidia_container_toolkit": ("nvidia_driver", "container_engine", "nvidia_container_toolkit"),
    "driver_volume": ("nvidia_driver", "container_engine"),
    "container_proof": ("nvidia_driver", "container_engine", "nvidia_container_toolkit"),
    "verify": ("nvidia_driver",),
}
