# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From "this container, these GPUs" to what the engine's own module is called with. Reads the host, changes nothing
on it but the reservations.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils import container_options, gpu_holders
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine_volume import EngineError
from ansible_collections.gpufleet.hosts.plugins.module_utils.engines import Docker, EngineState, Image, Podman
from ansible_collections.gpufleet.hosts.plugins.module_utils.gpu_accelerators import Accelerator
from ansible_collections.gpufleet.hosts.plugins.module_utils.gpu_holders import Held
from ansible_collections.gpufleet.hosts.plugins.module_utils.gpu_isolation import DEFAULT_CAPABILITIES, NONE, Access
from ansible_collections.gpufleet.hosts.plugins.module_utils.gpu_reservations import Reservations
from ansible_collections.gpufleet.hosts.plugins.module_utils.gpu_selection import (
    Conditions,
    Holder,
    Request,
    Unit,
    holders_of,
    parse,
    resolve,
)


class PlanError(Exception):
    """A request that cannot be planned, for a reason that is neither the GPUs' nor the engine's."""


@dataclass
class _Assignment:
    """What a container shall have."""

    units: list[Unit] = field(default_factory=list)
    isolation: str = NONE
    reason: str = ""
    access: Access = field(default_factory=Access)
    capabilities: list[str] | None = None
    warnings: list[str] = field(default_factory=list)

    @property
    def uuids(self) -> list[str]:
        return [unit.uuid for unit in self.units]


class Planner:
    """One run of the module's plan."""

    def __init__(
        self,
        params: Mapping[str, Any],
        engines: Mapping[str, Docker | Podman],
        accelerator: Accelerator,
        reservations: Reservations,
        *,
        check_mode: bool,
        root_user: bool = True,
    ) -> None:
        self._params = params
        self._engines = engines
        self._accelerator = accelerator
        self._reservations = reservations
        self._check_mode = check_mode
        self._root_user = root_user
        self._name: str = params["name"]
        self._warnings: list[str] = []

    def plan(self) -> dict[str, Any]:
        """Say what to call the engine's module with, and what that means for the GPUs."""
        self._engine = self._choose_engine()
        self._own = container_options.own_options(self._engine.name, self._params, self._params["engine_options"] or {})
        self._existing = self._engine.container(self._name)
        state = self._params["state"]
        if state == "absent":
            return self._plan_absent()
        if state == "stopped" and self._existing is not None:
            return self._plan_stopped()
        return self._plan_present()

    # -- which engine ------------------------------------------------------------------------------------------

    def _choose_engine(self) -> Docker | Podman:
        wanted = self._params["engine"]
        if wanted != "auto":
            self._require(self._engines[wanted])
            return self._engines[wanted]
        absences = {name: engine.absence() for name, engine in self._engines.items()}
        there = [engine for name, engine in self._engines.items() if absences[name] is None]
        if not there:
            reasons = "; ".join(f"{name}: {absence}" for name, absence in absences.items())
            raise EngineError(
                f"No container engine answers ({reasons}). Install and start one (role container_engine)."
            )
        having = [engine for engine in there if engine.container(self._name) is not None] if len(there) > 1 else []
        return having[0] if len(having) == 1 else there[0]

    def _require(self, engine: Docker | Podman) -> None:
        absence = engine.absence()
        if absence:
            raise EngineError(
                f"engine={engine.name}: {absence}. Install and start it (role container_engine), or use another engine."
            )

    # -- states ------------------------------------------------------------------------------------------------

    def _plan_absent(self) -> dict[str, Any]:
        before = self._before()
        options = {**self._passed_on(), "name": self._name, "state": "absent"}
        return self._result(
            options=options,
            assignment=_Assignment(reason="the container shall not be there"),
            before=before,
            after={**before, "exists": False, "running": False, "gpus": [], "isolation": NONE},
            needless=self._existing is None,
        )

    def _plan_stopped(self) -> dict[str, Any]:
        """Stop a container as it is: what it should be like is looked at when it is to run again."""
        before = self._before()
        options = {**self._passed_on(), "name": self._name, "state": "stopped"}
        if self._engine.name == "docker":
            # Docker's module would take what we added to the image's environment for a difference and recreate.
            options["comparisons"] = {"*": "ignore"}
        result = self._result(
            options=options,
            assignment=_Assignment(reason="the container is stopped as it is"),
            before=before,
            after={**before, "running": False},
        )
        uuids = gpu_holders.labelled(self._existing or {})
        result["gpu_assignment"].update(uuids=sorted(uuids), isolation=before["isolation"])
        return result

    def _plan_present(self) -> dict[str, Any]:
        reference = self._params["image"]
        if not reference:
            raise PlanError(f"state={self._params['state']} needs an image for container {self._name}.")
        image = self._engine.image(reference)
        pull = self._pull_needed(reference, image)
        if pull:
            return {"engine": self._engine.name, "pull": pull}
        env = {**(image.env if image else {}), **(self._own.get("env") or {})}
        request, cause = self._request(image, env)
        if request.kind == "none":
            return self._finish(image, _Assignment(reason=cause, access=self._accelerator.no_access(env)))
        self._accelerator.observe(with_topology=request.kind == "count")
        with self._locked():
            holders = self._holders(request)
            assignment = self._assign(request, cause, image, env, holders)
            return self._finish(image, assignment)

    # -- steps -------------------------------------------------------------------------------------------------

    @property
    def _state(self) -> EngineState:
        return self._engine.state()

    def _pull_needed(self, reference: str, image: Image | None) -> dict[str, Any] | None:
        policy = self._params["pull"]
        name = self._engine.name
        if image is None and policy == "never":
            raise PlanError(f"image {reference} is not on this host's {name} and pull=never. Load or pull it first.")
        if self._params["_pulled"]:
            if image is None:
                raise PlanError(f"image {reference} was pulled, but {name} does not have it under that name.")
            return None
        if image is not None and policy != "always":
            return None
        if self._check_mode and image is None:
            self._warnings.append(f"image {reference} is not here yet: what it requires is checked once it is pulled.")
            return None
        connection = container_options.connection_options(name, self._params["engine_options"] or {})
        always = policy == "always"
        arguments: dict[str, Any] = {"force": always}
        if name == "docker":
            arguments = {"pull": "always" if always else "not_present"}
            if self._own.get("platform"):
                arguments["platform"] = self._own["platform"]
        return {
            "module": container_options.PULL_MODULES[name],
            "args": {**connection, "name": reference, **arguments},
        }

    def _request(self, image: Image | None, env: Mapping[str, str]) -> tuple[Request, str]:
        if self._params["gpus"] is not None:
            request = parse(self._params["gpus"])
            return request, "no GPU was asked for" if request.kind == "none" else ""
        wanted = self._accelerator.wanted_by_image(image, env) if image else None
        if wanted is None:
            return Request("none"), "the image needs no GPU and none was asked for"
        return parse(wanted[0]), f"GPUs are given as {wanted[1]} asks ({wanted[0]})"

    @contextlib.contextmanager
    def _locked(self):
        # Check mode writes nothing, not even a lock file; what it predicts may be taken by another run anyway.
        if self._check_mode:
            yield
        else:
            with self._reservations.locked():
                yield

    def _holders(self, request: Request) -> list[Holder]:
        """List who holds GPUs besides this container. The engines are read inside the lock, or a container that came
        into being since its run gave its reservation up would be overlooked.
        """
        found = []
        ignored = set(self._params["exclusive_ignore"] or ())
        thorough = self._params["exclusive"] or request.kind == "count"
        for name, engine in self._engines.items():
            if name != self._engine.name and (not thorough or engine.absence()):
                continue
            for container in engine.containers():
                container_name = gpu_holders.name_of(container)
                if container_name in ignored or (name, container_name) == (self._engine.name, self._name):
                    continue
                holder = self._accelerator.holder(container, engine.state())
                if holder is not None:
                    found.append(holder)
        reserved = self._reservations.holders(besides=(self._engine.name, self._name))
        known = {(holder.engine, holder.name) for holder in found}
        return found + [
            holder for holder in reserved if (holder.engine, holder.name) not in known and holder.name not in ignored
        ]

    def _assign(
        self,
        request: Request,
        cause: str,
        image: Image | None,
        env: Mapping[str, str],
        holders: Sequence[Holder],
    ) -> _Assignment:
        conditions = Conditions(**(self._params["conditions"] or {}))
        current = self._accelerator.held(self._existing, self._state) if self._existing else Held()
        exclusive = self._params["exclusive"]
        units = resolve(
            request,
            self._accelerator.inventory,
            conditions,
            exclusive=exclusive,
            holders=holders,
            current=current.uuids,
            topology=self._accelerator.topology,
        )
        capabilities = self._params["capabilities"]
        meant = capabilities or _capabilities_of(env)
        choice = self._accelerator.choose_isolation(
            self._params["isolation"], self._state, units, meant, current.isolation
        )
        warnings = self._accelerator.risks(choice.name, self._state, units, self._params)
        if image is not None:
            warnings += self._accelerator.check_image(image, env, units, choice.name)
        if not exclusive:
            warnings += _shared(units, holders)
        elif not self._root_user:
            warnings.append("exclusive: only this user's containers are known; run as root to see everybody's.")
        given = self._accelerator.access(
            choice.name, self._state, units, meant if choice.name == "volume" else capabilities, env=env
        )
        names = ", ".join(str(unit) for unit in units)
        return _Assignment(
            units=units,
            isolation=choice.name,
            reason=". ".join(part for part in (cause, f"{names}: {choice.reason}") if part),
            access=given,
            capabilities=capabilities,
            warnings=warnings,
        )

    def _finish(self, image: Image | None, assignment: _Assignment) -> dict[str, Any]:
        before = self._before()
        differs = self._existing is not None and self._differs(assignment)
        # Docker's module does not start what it recreates for state=present, podman's does.
        goes_on = before["running"] and not (differs and self._engine.name == "docker")
        after = {
            **before,
            "exists": True,
            "running": self._params["state"] == "started" or (self._params["state"] == "present" and goes_on),
            "gpus": sorted(self._named(uuid) for uuid in assignment.uuids),
            "isolation": assignment.isolation,
        }
        assignment.warnings += container_options.undone_isolation(
            self._engine.name, self._own, self._state, assignment.uuids, assignment.access.devices
        )
        options = container_options.composed(
            self._engine.name,
            self._own,
            assignment.access,
            name=self._name,
            image=self._params["image"],
            state=self._params["state"],
            labels=self._labels(assignment, image, differs),
            image_env=image.env if image else {},
            kept_requests=gpu_holders.gpu_requests(self._existing) if self._existing and not differs else (),
        )
        if differs:
            options["recreate"] = True
            # Podman's module restarts instead of recreating when it is asked for both.
            options.pop("force_restart", None)
        result = self._result(options=options, assignment=assignment, before=before, after=after)
        result["gpu_changed"] = differs
        # Without the image the engine's module could only predict by pulling it.
        result["predicted"] = self._check_mode and image is None
        result["driver_volume"] = self._driver_volume(assignment)
        result["token"] = self._reserve(assignment, differs)
        return result

    def _reserve(self, assignment: _Assignment, differs: bool) -> str | None:
        if self._check_mode or not assignment.units:
            return None
        settled = self._existing is not None and gpu_holders.is_running(self._existing) and not differs
        if settled and not self._params["exclusive"]:
            return None
        return self._reservations.reserve(self._engine.name, self._name, assignment.uuids, self._params["exclusive"])

    def _differs(self, assignment: _Assignment) -> bool:
        """Tell whether the container has other GPUs than it shall have, or has them in another way."""
        existing = self._existing or {}
        held = self._accelerator.held(existing, self._state)
        if held.uuids != frozenset(assignment.uuids):
            return True
        if not assignment.units:
            return False
        if held.isolation != assignment.isolation:
            return True
        access = assignment.access
        if any(not gpu_holders.has_mount(existing, mount) for mount in access.volumes):
            return True
        own = {str(device).partition(":")[0] for device in self._params["devices"] or ()}
        return bool(access.devices) and gpu_holders.gpu_nodes(existing) - own != set(access.devices) - own

    def _labels(self, assignment: _Assignment, image: Image | None, differs: bool) -> dict[str, str]:
        """Label a container with what it was given. One that stays as it is keeps its labels: they are no reason to
        recreate it.
        """
        ours = (
            gpu_holders.LABEL_GPUS,
            gpu_holders.LABEL_ISOLATION,
            gpu_holders.LABEL_CAPABILITIES,
            gpu_holders.LABEL_EXCLUSIVE,
        )
        if self._existing is not None and not differs and image is not None and _runs(self._existing, image):
            there = gpu_holders.labels_of(self._existing)
            return {key: there[key] for key in ours if key in there}
        if not assignment.units:
            return {}
        labels = {
            gpu_holders.LABEL_GPUS: ",".join(sorted(assignment.uuids)),
            gpu_holders.LABEL_ISOLATION: assignment.isolation,
        }
        if assignment.capabilities is not None:
            labels[gpu_holders.LABEL_CAPABILITIES] = ",".join(sorted(assignment.capabilities))
        if self._params["exclusive"]:
            labels[gpu_holders.LABEL_EXCLUSIVE] = "true"
        return labels

    def _driver_volume(self, assignment: _Assignment) -> dict[str, Any] | None:
        """Say how to make the driver volume where it is missing or empty; None where it is there or not needed."""
        name = assignment.access.driver_volume
        if name is None:
            return None
        volume = self._engine.volume(name)
        if volume is not None and volume.device and self._accelerator.serves(volume.device):
            return None
        arguments: dict[str, Any] = {"engine": [self._engine.name], "path": self._params["driver_volume_path"]}
        host = (self._params["engine_options"] or {}).get("docker_host")
        if self._engine.name == "docker" and host:
            arguments["docker_host"] = host
        return arguments

    # -- what is said ------------------------------------------------------------------------------------------

    def _before(self) -> dict[str, Any]:
        if self._existing is None:
            return {"exists": False, "running": False, "gpus": [], "isolation": NONE}
        held = self._accelerator.held(self._existing, self._state)
        uuids = held.uuids
        if uuids and not self._accelerator.inventory.gpus:
            # The driver was not asked: the label says which GPUs the nodes meant.
            uuids = gpu_holders.labelled(self._existing) or uuids
        return {
            "exists": True,
            "running": gpu_holders.is_running(self._existing),
            "gpus": sorted(self._named(uuid) for uuid in uuids),
            "isolation": held.isolation,
        }

    def _named(self, uuid: str) -> str:
        unit = self._accelerator.inventory.by_uuid().get(uuid)
        if unit is None:
            return uuid
        return f"{uuid} ({'MIG ' if unit.is_mig else 'GPU '}{unit.index}, {unit.profile or unit.gpu.name})"

    def _passed_on(self) -> dict[str, Any]:
        """Keep of the user's options what also counts for a container that is only stopped or removed."""
        keys = {*container_options.CONNECTION[self._engine.name], *container_options.ENDING[self._engine.name]}
        return {key: value for key, value in self._own.items() if key in keys}

    def _result(
        self,
        options: dict[str, Any],
        assignment: _Assignment,
        before: dict[str, Any],
        after: dict[str, Any],
        needless: bool = False,
    ) -> dict[str, Any]:
        return {
            "engine": self._engine.name,
            "module": container_options.MODULES[self._engine.name],
            "module_args": options,
            "needless": needless,
            "predicted": False,
            "gpu_changed": False,
            "driver_volume": None,
            "token": None,
            "gpu_diff": {"before": before, "after": after},
            "gpu_assignment": {
                "uuids": assignment.uuids,
                "indexes": [unit.index if unit.is_mig else unit.gpu.index for unit in assignment.units],
                "isolation": assignment.isolation,
                "engine": self._engine.name,
                "exclusive": bool(assignment.units) and self._params["exclusive"],
                "reason": assignment.reason,
                "warnings": [*self._warnings, *assignment.warnings],
            },
        }


def _capabilities_of(env: Mapping[str, str]) -> list[str]:
    """Take the driver capabilities from a container's environment, as the vendor's runtime does."""
    named = [part.strip() for part in env.get("NVIDIA_DRIVER_CAPABILITIES", "").split(",") if part.strip()]
    if "all" in named:
        return ["compat32", "compute", "display", "graphics", "ngx", "utility", "video"]
    return named or list(DEFAULT_CAPABILITIES)


def _shared(units: Sequence[Unit], holders: Sequence[Holder]) -> list[str]:
    return [
        f"{unit} is shared with {holder}, which was promised it for itself alone."
        for unit in units
        for holder in holders_of(unit, holders)
        if holder.exclusive
    ]


def _runs(container: Mapping[str, Any], image: Image) -> bool:
    """Tell whether a container was made from an image. Podman leaves the algorithm out of identifiers."""
    return str(container.get("Image") or "").rpartition(":")[2] == image.id.rpartition(":")[2]
