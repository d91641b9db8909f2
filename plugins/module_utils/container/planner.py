# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From "this container, these GPUs" to what the engine's own module is called with. Reads the host, changes nothing
on it but the reservations.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.container import holders as container_holders
from ansible_collections.gpufleet.hosts.plugins.module_utils.container import options as container_options
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.holders import Held
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.isolation import (
    CDI,
    DEFAULT_CAPABILITIES,
    DEVICE_REQUESTS,
    NONE,
    OPTIONAL_NODES,
    RUNTIME,
    VOLUME,
    Access,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.reservations import LIFETIME, Reservations
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection import (
    Conditions,
    Holder,
    Request,
    SelectionError,
    Unit,
    holders_of,
    left_out,
    merged,
    parse,
    resolve,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.vendors import Accelerator
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engines import (
    Docker,
    EngineState,
    Image,
    Podman,
    StoppedDocker,
    environment,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.volumes import EngineError
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml.session import BindingMissing


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
        docker_host: str | None = None,
    ) -> None:
        self._params = params
        self._engines = engines
        self._accelerator = accelerator
        self._reservations = reservations
        self._check_mode = check_mode
        self._root_user = root_user
        self._docker_host = docker_host
        self._name: str = params["name"]
        self._existing: dict | None = None
        self._warnings: list[str] = []

    def plan(self) -> dict[str, Any]:
        """Say what to call the engine's module with, and what that means for the GPUs."""
        self._engine = self._choose_engine()
        container_options.refuse_name(self._engine.name, self._name)
        self._own = container_options.own_options(self._engine.name, self._params, self._params["engine_options"] or {})
        if self._engine.name == "docker" and self._docker_host:
            # Every module is told: not all of them look into the environment.
            self._own["docker_host"] = self._docker_host
        if isinstance(self._engine, StoppedDocker):
            return self._plan_sleeping()
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
        absences = {name: engine.unavailable_reason() for name, engine in self._engines.items()}
        there = [engine for name, engine in self._engines.items() if absences[name] is None]
        if not there:
            reasons = "; ".join(f"{name}: {absence}" for name, absence in absences.items())
            raise EngineError(
                f"No container engine answers ({reasons}). Install and start one (role container_engine)."
            )
        having = [engine for engine in there if self._has(engine)] if len(there) > 1 else []
        return having[0] if len(having) == 1 else there[0]

    def _has(self, engine: Docker | Podman) -> bool:
        try:
            return engine.container(self._name) is not None
        except EngineError:
            return False  # It is there and does not work. Where it is the only one, that comes out later.

    def _require(self, engine: Docker | Podman) -> None:
        absence = engine.unavailable_reason()
        if absence:
            raise EngineError(
                f"engine={engine.name}: {absence}. Install and start it (role container_engine), or use another engine."
            )

    def _refuse_match_by_id(self) -> None:
        """The engine's module finds a container by the beginning of its identifier, too, and would change that one.

        Asked last of all, so that it hides nothing that is wrong with the request, and before anything is touched.
        """
        stranger = self._engine.matched_by_id(self._name)
        if stranger is not None:
            raise PlanError(
                f"name={self._name}: {self._engine.name}'s module would take it for the container {stranger}, whose "
                "identifier begins so. Give the container a name that is no beginning of an identifier, one with a "
                "letter after f or a dash in it, or remove and make that one again."
            )

    # -- states ------------------------------------------------------------------------------------------------

    def _plan_absent(self) -> dict[str, Any]:
        if self._existing is not None:
            self._refuse_match_by_id()
        before = self._before()
        options = {**self._passed_on(), "name": self._name, "state": "absent"}
        after = {"exists": False, "running": False, "gpus": [], "isolation": NONE, "exclusive": False}
        return self._result(
            options=options,
            assignment=_Assignment(reason="the container shall not be there"),
            before=before,
            after={**before, **after},
            needless=self._existing is None,
        )

    def _plan_stopped(self) -> dict[str, Any]:
        """Stop a container as it is: what it should be like is looked at when it is to run again."""
        self._refuse_match_by_id()
        # The driver is asked only to say which GPUs these are: a container can be stopped without it.
        with contextlib.suppress(SelectionError, BindingMissing):
            self._accelerator.observe(with_topology=False)
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
        known = self._accelerator.inventory.by_uuid()
        uuids = self._uuids_of_existing()
        units = sorted((known[uuid] for uuid in uuids if uuid in known), key=lambda unit: unit.order)
        result["gpu_assignment"].update(
            uuids=[unit.uuid for unit in units] + sorted(uuids - set(known)),
            indexes=_indexes(units),
            isolation=before["isolation"],
            exclusive=before["exclusive"],
        )
        return result

    def _plan_sleeping(self) -> dict[str, Any]:
        """Say what can be told of a Docker that is not asked: whether the container is there, and runs."""
        found = self._engine.container(self._name)
        runs = found is not None and container_holders.is_running(found)
        before = {**self._before(), "exists": found is not None, "running": runs}
        state = self._params["state"]
        if not before["exists"] and state != "absent":
            self._wanted_image()
        self._warnings.append(
            f"{self._engine.REASON}: only whether the container is there and runs is known, not whether it differs."
        )
        runs = {"started": True, "present": runs}.get(state, False)
        after = {**before, "exists": state != "absent", "running": runs}
        assignment = _Assignment(reason=self._engine.REASON)
        result = self._result({}, assignment, before, after, needless=before == after)
        result["predicted"] = True
        return result

    def _wanted_image(self) -> str:
        if not self._params["image"]:
            raise PlanError(f"state={self._params['state']} needs an image for container {self._name}.")
        return self._params["image"]

    def _plan_present(self) -> dict[str, Any]:
        reference = self._wanted_image()
        if self._params["gpus"] is not None:
            parse(self._params["gpus"])
        image = self._engine.image(reference)
        pull = self._pull_needed(reference, image)
        if pull:
            self._refuse_match_by_id()
            return {"engine": self._engine.name, "pull": pull, "image_id": image.id if image else None}
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
        if self._check_mode:
            self._warnings.append(
                f"image {reference} is not here yet: what it requires is checked once it is pulled."
                if image is None
                else f"pull=always: check mode pulls nothing, so this is predicted with the image {reference} that is "
                "here. A newer one recreates the container."
            )
            return None
        connection = container_options.connection_options(name, self._own)
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
            if request.kind == "none" and isinstance(self._params["gpus"], (int, float)):
                return request, "a count of 0 was asked for (GPU 0 is gpus: [0])"
            return request, "no GPU was asked for" if request.kind == "none" else ""
        wanted = self._accelerator.wanted_by_image(image, env) if image else None
        return wanted or (Request("none"), "the image needs no GPU and none was asked for")

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
            other = name != self._engine.name
            if other and (not thorough or engine.unavailable_reason()):
                continue
            for container in self._containers_of_other(engine) if other else engine.containers():
                container_name = container_holders.name_of(container)
                if container_name in ignored or (name, container_name) == (self._engine.name, self._name):
                    continue
                holder = self._accelerator.holder(container, engine.state())
                if holder is not None:
                    found.append(holder)
        reserved = self._reservations.holders(besides=(self._engine.name, self._name))
        # A container that is being recreated has what it runs with, and what it is about to get.
        return merged([*found, *(holder for holder in reserved if holder.name not in ignored)])

    def _containers_of_other(self, engine: Docker | Podman) -> list[dict]:
        """List the containers of the engine that is not asked to run this one. It may be there and not work, as
        Podman for a user without subordinate ids: that is only in the way of what it could have vetoed.
        """
        try:
            engine.state()
            return engine.containers()
        except EngineError as error:
            reason = str(error).strip().splitlines()[-1]
            if self._params["exclusive"] and self._root_user and not isinstance(engine, StoppedDocker):
                raise EngineError(
                    f"exclusive: which GPUs {engine.name}'s containers hold cannot be found out ({reason}). Mend or "
                    f"remove {engine.name}, or leave exclusive out."
                ) from error
            self._warnings.append(f"Which GPUs {engine.name}'s containers hold is not known: {reason}")
            return []

    def _assign(
        self,
        request: Request,
        cause: str,
        image: Image | None,
        env: Mapping[str, str],
        holders: Sequence[Holder],
    ) -> _Assignment:
        conditions = Conditions(**(self._params["conditions"] or {}))
        current = self._current()
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
        warnings = self._accelerator.risks(choice.name, self._state, units, self._risked())
        if image is not None:
            warnings += self._accelerator.check_image(image, env, units, choice.name)
        if not exclusive:
            warnings += _shared(units, holders)
        elif not self._root_user:
            warnings.append(
                "exclusive: other users' Podman containers, and what runs of theirs have reserved, are not known. "
                "Run as root to see everybody's."
            )
        given = self._accelerator.access(
            choice.name, self._state, units, meant if choice.name == "volume" else capabilities, env=env
        )
        names = ", ".join(str(unit) for unit in units)
        unusable = left_out(self._accelerator.inventory) if request.kind == "count" else ""
        not_used = f"Left out as not usable: {unusable}" if unusable else ""
        return _Assignment(
            units=units,
            isolation=choice.name,
            reason=". ".join(part for part in (cause, f"{names}: {choice.reason}", not_used) if part),
            access=given,
            capabilities=capabilities,
            warnings=warnings,
        )

    def _finish(self, image: Image | None, assignment: _Assignment) -> dict[str, Any]:
        before = self._before()
        changes = self._changes(assignment, image) if self._existing is not None else []
        differs = bool(changes)
        # Docker's module does not start what it recreates for state=present, podman's does.
        goes_on = before["running"] and not (differs and self._engine.name == "docker")
        after = {
            **before,
            "exists": True,
            "running": self._params["state"] == "started" or (self._params["state"] == "present" and goes_on),
            "gpus": sorted(self._named(uuid) for uuid in assignment.uuids),
            "isolation": assignment.isolation,
            "exclusive": bool(assignment.units) and self._params["exclusive"],
            "recreate": changes,
        }
        assignment.warnings += container_options.undone_isolation(
            self._engine.name, self._own, self._state, assignment.uuids, assignment.access.devices
        )
        options = container_options.composed(
            self._engine.name,
            self._own,
            self._compared(assignment.access, image, differs),
            name=self._name,
            image=self._params["image"],
            state=self._params["state"],
            labels=self._labels(assignment, image, differs),
            image_env=image.env if image else {},
            kept_requests=container_holders.gpu_requests(self._existing) if self._existing and not differs else (),
        )
        if differs:
            options["recreate"] = True
            # Podman's module restarts instead of recreating when it is asked for both.
            options.pop("force_restart", None)
        result = self._result(options=options, assignment=assignment, before=before, after=after)
        result["gpu_changed"] = differs
        result["image_id"] = image.id if image else None
        result["gpu_assignment"]["changes"] = changes
        # Without the image the engine's module could only predict by pulling it.
        result["predicted"] = self._check_mode and image is None
        result["driver_volume"] = self._driver_volume(assignment)
        self._refuse_match_by_id()
        result["token"] = self._reserve(assignment)
        return result

    def _reserve(self, assignment: _Assignment) -> str | None:
        """Reserve what is to be given, whatever the container has: its engine's module may recreate it for a reason
        that is not the GPUs', and while the old one is away nobody else holds them.
        """
        if self._check_mode or not assignment.units:
            return None
        return self._reservations.reserve(
            self._engine.name,
            self._name,
            assignment.uuids,
            self._params["exclusive"],
            LIFETIME + self._stop_timeout(),
        )

    def _stop_timeout(self) -> int:
        """Tell how long the container may take to stop, in seconds."""
        texts = (
            self._own.get("stop_timeout"),
            self._own.get("stop_time"),
            ((self._existing or {}).get("Config") or {}).get("StopTimeout"),
        )
        return max((int(text) for text in texts if str(text).isdigit()), default=0)

    # -- the container that is there -----------------------------------------------------------------------------

    def _own_devices(self) -> set[str]:
        """Name what the user gives past `gpus`: devices as they are written, and the host's part of each."""
        devices = self._own.get(container_options.NAMES[self._engine.name]["devices"]) or ()
        return {one for device in devices for one in (str(device), container_holders.host_path(str(device)))}

    def _current(self) -> Held:
        """Tell what the container has, for a choice that keeps it."""
        if self._existing is None:
            return Held()
        found = self._accelerator.held(self._existing, self._state)
        given = found.uuids & container_holders.labelled(self._existing)
        # A GPU of the user's own devices is not one that this module gave.
        return replace(found, uuids=given) if given and self._own_devices() else found

    def _changes(self, assignment: _Assignment, image: Image | None) -> list[str]:
        """Say for which reasons the container must be recreated. What its engine's module compares is not here."""
        existing = self._existing or {}
        access = assignment.access
        wanted = {node for path in access.devices for node in self._accelerator.nodes(path)}
        past = {one for one in self._own_devices() if not wanted & set(self._accelerator.nodes(one))}
        held = self._accelerator.held(existing, self._state, past)
        changes = []
        if self._engine.name == "podman" and image is not None and not _runs(existing, image):
            # Podman's module takes an image for the same as long as its name is.
            changes.append(f"image: {_short(existing.get('Image'))} → {_short(image.id)}")
        less, more = held.uuids - set(assignment.uuids), set(assignment.uuids) - held.uuids
        changes += [f"GPU taken away: {self._named(uuid)}" for uuid in sorted(less)]
        changes += [f"GPU given: {self._named(uuid)}" for uuid in sorted(more)]
        if less or more or not assignment.units:
            return changes
        if held.isolation != assignment.isolation:
            return [*changes, f"isolation: {held.isolation} → {assignment.isolation}"]
        exclusive = container_holders.is_exclusive(existing)
        if exclusive != self._params["exclusive"]:
            changes.append(f"exclusive: {str(exclusive).lower()} → {str(self._params['exclusive']).lower()}")
        capabilities = self._capabilities_of_existing(assignment.isolation)
        if None not in (capabilities, assignment.capabilities) and set(capabilities) != set(assignment.capabilities):
            changes.append(f"capabilities: {_listed(capabilities)} → {_listed(assignment.capabilities)}")
        changes += [
            f"driver volume: {mount} is not mounted"
            for mount in access.volumes
            if not container_holders.has_mount(existing, mount)
        ]
        if self._engine.name == "docker":
            # Docker's module cannot be told of a path with a colon.
            paths = [
                device.get("PathOnHost") or "" for device in (existing.get("HostConfig") or {}).get("Devices") or ()
            ]
            changes += [f"device node by another name: {path}" for path in paths if ":" in path and wanted]
        if wanted:
            own = {node for one in past for node in self._accelerator.nodes(one)}
            have = container_holders.gpu_nodes(existing, self._accelerator.nodes) - own
            changes += [f"device node missing: {node}" for node in sorted(wanted - have - own - OPTIONAL_NODES)]
            changes += [
                f"device node too many: {node}" for node in sorted(have - wanted) if container_holders.opens_gpu(node)
            ]
        return changes

    def _capabilities_of_existing(self, isolation: str) -> list[str] | None:
        """Tell which capabilities the container has; None where they depend on nothing that it was given."""
        existing = self._existing or {}
        if isolation == CDI:
            return None
        if isolation == DEVICE_REQUESTS and (requested := container_holders.requested_capabilities(existing)):
            return sorted(requested)
        label = container_holders.labels_of(existing).get(container_holders.LABEL_CAPABILITIES)
        if isolation == VOLUME and label is not None:
            return [word for word in label.split(",") if word]
        return _capabilities_of(environment((existing.get("Config") or {}).get("Env")))

    def _compared(self, access: Access, image: Image | None, differs: bool) -> Access:
        """Say the access of a container that stays as it is in the words in which it was given, or its engine's module
        would take the difference in words for a difference. One that is recreated gets all anew.
        """
        if self._existing is None or differs or image is None or not _runs(self._existing, image):
            return access
        kept = tuple(container_holders.kept_devices(self._existing, self._accelerator.nodes, self._own_devices()))
        if access.isolation == CDI:
            ours = container_holders.LABEL_ISOLATION in container_holders.labels_of(self._existing)
            return replace(
                access,
                cdi_devices=kept if self._engine.name == "podman" else access.cdi_devices,
                # A comfort for what `exec` starts; not worth recreating somebody else's container.
                needs_library_path=access.needs_library_path and ours,
            )
        if access.isolation == RUNTIME:
            env = environment((self._existing.get("Config") or {}).get("Env"))
            return replace(access, env={name: env.get(name) or value for name, value in access.env.items()})
        return replace(access, devices=kept) if access.devices else access

    def _risked(self) -> dict[str, Any]:
        """Pick the options that put access at risk, by the names that they have here."""
        names = container_options.NAMES[self._engine.name]
        return {key: self._own.get(names[key]) for key in ("restart_policy", "security_opts")}

    def _labels(self, assignment: _Assignment, image: Image | None, differs: bool) -> dict[str, str]:
        """Label a container with what it was given. One that stays as it is keeps its labels: they are no reason to
        recreate it.
        """
        ours = (
            container_holders.LABEL_GPUS,
            container_holders.LABEL_ISOLATION,
            container_holders.LABEL_CAPABILITIES,
            container_holders.LABEL_EXCLUSIVE,
        )
        if self._existing is not None and not differs and image is not None and _runs(self._existing, image):
            there = container_holders.labels_of(self._existing)
            return {key: there[key] for key in ours if key in there}
        if not assignment.units:
            return {}
        labels = {
            container_holders.LABEL_GPUS: ",".join(sorted(assignment.uuids)),
            container_holders.LABEL_ISOLATION: assignment.isolation,
        }
        if assignment.capabilities is not None:
            labels[container_holders.LABEL_CAPABILITIES] = ",".join(sorted(assignment.capabilities))
        if self._params["exclusive"]:
            labels[container_holders.LABEL_EXCLUSIVE] = "true"
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
        if self._own.get("docker_host"):
            arguments["docker_host"] = self._own["docker_host"]
        return arguments

    # -- what is said ------------------------------------------------------------------------------------------

    def _before(self) -> dict[str, Any]:
        if self._existing is None:
            return {
                "exists": False,
                "running": False,
                "gpus": [],
                "isolation": NONE,
                "exclusive": False,
                "recreate": [],
            }
        uuids = self._uuids_of_existing()
        return {
            "exists": True,
            "running": container_holders.is_running(self._existing),
            "gpus": sorted(self._named(uuid) for uuid in uuids),
            "isolation": self._accelerator.held(self._existing, self._state).isolation,
            "exclusive": bool(uuids) and container_holders.is_exclusive(self._existing),
            "recreate": [],
        }

    def _uuids_of_existing(self) -> frozenset[str]:
        existing = self._existing or {}
        uuids = self._accelerator.held(existing, self._state).uuids
        if uuids and not self._accelerator.inventory.gpus:
            # The driver was not asked: the label says which GPUs the nodes meant.
            return container_holders.labelled(existing) or uuids
        return uuids

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
            "image_id": None,
            "container_id": (self._existing or {}).get("Id"),
            "driver_volume": None,
            "token": None,
            "gpu_diff": {"before": before, "after": after},
            "gpu_assignment": {
                "uuids": assignment.uuids,
                "indexes": _indexes(assignment.units),
                "isolation": assignment.isolation,
                "engine": self._engine.name,
                "exclusive": bool(assignment.units) and self._params["exclusive"],
                "reason": assignment.reason,
                "changes": [],
                # A play has many containers, and a warning stands apart from its task.
                "warnings": [f"container {self._name}: {text}" for text in (*self._warnings, *assignment.warnings)],
            },
        }


def _indexes(units: Sequence[Unit]) -> list[int | str]:
    return [unit.index if unit.is_mig else unit.gpu.index for unit in units]


def _listed(words: Sequence[str]) -> str:
    return ", ".join(sorted(words)) or "none"


def _short(image_id: Any) -> str:
    return str(image_id or "none").rpartition(":")[2][:12]


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
