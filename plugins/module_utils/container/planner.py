# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan one run of gpu_container: read the host, choose GPUs and isolation, and build the engine module's arguments.

Planning changes nothing on the host except the reservations.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.container import (
    access_as_engine_options,
    container_name,
    engine_choice,
    engine_module_options,
    gpu_holders,
    image_pull,
    isolation_bypass_warnings,
    other_engine_containers,
    reservations,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.device_inventory import (
    Inventory,
    Unit,
    describe_unit,
    unit_indexes,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.existing import (
    avoided_recreation,
    container_labels,
    inspected_container,
    recreate_reasons,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.existing.existing_container import (
    ExistingContainer,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.existing.gpus_kept_for_count import (
    gpus_kept_for_count,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.gpu_holders import (
    GpuUse,
    Holder,
    sharing_warnings,
    without_repetitions,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.granted_access import Access, Assignment
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.image_pull import unpulled_warning
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.isolation_choice import NONE, Choice
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.plan_result import (
    PlanError,
    build_plan,
    existence,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.reservations import Reservations
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection.conditions_option import Conditions
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection.free_gpus import describe_unusable
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection.gpus_option import (
    Request,
    SelectionError,
    parse_request,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection.required_readings import (
    required_readings,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection.selected_gpus import select_units
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.slurm_jobs import JobsUnknown
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.vendor_protocol import (
    ContainerTask,
    ContainerVendor,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import (
    Docker,
    EngineState,
    Image,
    Podman,
    StoppedDocker,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml.missing_pynvml import BindingMissing

_USER_SCOPE = "exclusive_scope is user: only containers of this user's engines count as holders"


class Planner:
    """Plan one run of the module."""

    def __init__(
        self,
        params: Mapping[str, Any],
        engines: Mapping[str, Docker | Podman],
        accelerator: ContainerVendor,
        reservations: Reservations,
        *,
        check_mode: bool,
        root_user: bool = True,
        docker_host: str | None = None,
        jobs: Callable[[Inventory], list[Holder]] = lambda _inventory: [],
    ) -> None:
        """`jobs` returns the jobs of a scheduler that hold GPUs, or raises JobsUnknown."""
        self._jobs = jobs
        self._params = params
        self._engines = engines
        self._accelerator = accelerator
        self._reservations = reservations
        self._check_mode = check_mode
        self._root_user = root_user
        self._docker_host = docker_host
        self._name: str = params["name"]
        self._exclusive: bool = params["exclusive"]
        self._is_host_scope = params["exclusive_scope"] == "host"
        self._capabilities: list[str] | None = params["capabilities"] or None
        self._conditions = Conditions(**(params["conditions"] or {}))
        self._warnings: list[str] = []

    def plan(self) -> dict[str, Any]:
        """Return the plan: the call of the engine's module, the assigned GPUs and the diff."""
        self._engine = engine_choice.choose_engine(self._params["engine"], self._engines, self._name)
        container_name.validate_name(self._engine.name, self._name)
        self._user_options = engine_module_options.user_options(
            self._engine.name, self._params, self._params["engine_options"] or {}
        )
        if self._engine.name == "docker" and self._docker_host:
            # Some of the called modules do not read DOCKER_HOST.
            self._user_options["docker_host"] = self._docker_host
        if isinstance(self._engine, StoppedDocker):
            self._set_existing(None)
            return self._plan_stopped_engine()
        self._set_existing(self._engine.container(self._name))
        state = self._params["state"]
        if state == "absent":
            return self._plan_absent()
        if state == "stopped" and self._existing.exists:
            return self._plan_stopped()
        return self._plan_present()

    # -- states ------------------------------------------------------------------------------------------------

    def _plan_absent(self) -> dict[str, Any]:
        if self._existing.exists:
            container_name.refuse_ambiguous(self._engine, self._name)
        before = self._existing.summary()
        after = {"exists": False, "running": False, "gpus": [], "isolation": NONE, "exclusive": False}
        result = self._build_plan(
            {**self._removal_options(), "name": self._name, "state": "absent"},
            Assignment(reason="state is absent"),
            before,
            {**before, **after},
        )
        result["nothing_to_do"] = not self._existing.exists
        return result

    def _plan_stopped(self) -> dict[str, Any]:
        """Stop the container without comparing its options."""
        container_name.refuse_ambiguous(self._engine, self._name)
        # The driver only maps the container's devices to UUIDs. Stopping must work without a driver.
        with contextlib.suppress(SelectionError, BindingMissing):
            self._accelerator.observe()
        before = self._existing.summary()
        options = {**self._removal_options(), "name": self._name, "state": "stopped"}
        if self._engine.name == "docker":
            # Otherwise Docker's module would compare the environment and recreate the container.
            options["comparisons"] = {"*": "ignore"}
        result = self._build_plan(
            options,
            Assignment(reason="state is stopped, which leaves the GPUs of the container unchanged"),
            before,
            {**before, "running": False},
        )
        known = self._accelerator.inventory.by_uuid()
        uuids = self._existing.uuids()
        units = sorted((known[uuid] for uuid in uuids if uuid in known), key=lambda unit: unit.order)
        result["gpu_assignment"].update(
            uuids=[unit.uuid for unit in units] + sorted(uuids - set(known)),
            indexes=unit_indexes(units),
            isolation=before["isolation"],
            exclusive=before["exclusive"],
        )
        return result

    def _plan_stopped_engine(self) -> dict[str, Any]:
        """Predict for a Docker that is stopped and that check mode must not start."""
        found, state = self._engine.container(self._name), self._params["state"]
        if found is None and state != "absent":
            self._require_image()
        self._warnings.append(
            f"{self._engine.REASON}. The prediction only considers whether the container exists and runs."
        )
        is_running = found is not None and inspected_container.is_running(found)
        before, after = existence(self._existing.summary(), found is not None, is_running, state)
        result = self._build_plan({}, Assignment(reason=self._engine.REASON), before, after)
        result.update(predicted=True, nothing_to_do=before == after)
        return result

    def _plan_present(self) -> dict[str, Any]:
        reference = self._require_image()
        given = self._params["gpus"]
        if given is None or parse_request(given).kind != "none":
            self._refuse_exclusive_without_root()
        self._add_features()
        image = self._engine.image(reference)
        if image is not None and self._existing.uses_image(image):
            self._existing.image_labels = image.labels
        pull = self._plan_pull(reference, image)
        if pull:
            self._refuse_unavailable_gpus()
            container_name.refuse_ambiguous(self._engine, self._name)
            return {"engine": self._engine.name, "pull": pull, "image_id": image.id if image else None}
        env = {**(image.env if image else {}), **(self._user_options.get("env") or {})}
        request, reason = self._request(image, env)
        if request.kind == "none":
            return self._plan_container(image, self._without_gpus(reason, env))
        self._accelerator.observe(required_readings(request, self._conditions, exclusive=self._exclusive))
        with self._locked():
            assignment = self._assign(request, reason, image, env, self._use(request))
            return self._plan_container(image, assignment)

    def _without_gpus(self, reason: str, env: Mapping[str, str]) -> Assignment:
        task = ContainerTask(self._params, self._user_options, env=env)
        return Assignment(reason=reason, access=self._accelerator.access(NONE, self._engine, (), task))

    def _add_features(self) -> None:
        """Add what the optional features need to the user's options."""
        names, channels = self._params["features"] or (), self._params["imex_channels"] or ()
        extras = self._accelerator.extras(names, channels, self._user_options.get("env") or {})
        # ExistingContainer has the same dictionary.
        names_of_options = engine_module_options.NAMES[self._engine.name]
        self._user_options.update(access_as_engine_options.extra_options(names_of_options, self._user_options, extras))
        self._extras = extras
        self._features = ",".join([*sorted(set(names)), *(f"imex{channel}" for channel in sorted(set(channels)))])

    # -- image ---------------------------------------------------------------------------------------------------

    def _require_image(self) -> str:
        if not self._params["image"]:
            raise PlanError(f"state={self._params['state']} requires image for container {self._name}. Set image.")
        return self._params["image"]

    def _plan_pull(self, reference: str, image: Image | None) -> dict[str, Any] | None:
        """Return the call that pulls the image, or None if no pull is required or allowed."""
        policy, name = self._params["pull"], self._engine.name
        is_pulled = bool(self._params.get("_pulled"))
        if not image_pull.is_required(name, reference, image, policy, is_pulled=is_pulled):
            return None
        if self._check_mode:
            self._warnings.append(unpulled_warning(reference, is_local=image is not None))
            return None
        return image_pull.pull_call(name, self._user_options, reference, always=policy == "always")

    # -- GPUs ----------------------------------------------------------------------------------------------------

    def _request(self, image: Image | None, env: Mapping[str, str]) -> tuple[Request, str]:
        """Return the request of the user, else the request of the image, and its origin for the reason."""
        gpus = self._params["gpus"]
        if gpus is not None:
            request = parse_request(gpus)
            if request.kind == "none" and isinstance(gpus, (int, float)):
                return request, "gpus is a count of 0 (for GPU 0, write gpus: [0])"
            return request, "gpus requests no GPU" if request.kind == "none" else ""
        requested = self._accelerator.image_request(image, env) if image else None
        return requested or (Request("none"), "gpus is not set, and the image requests no GPU")

    def _refuse_unavailable_gpus(self) -> None:
        """Raise the error of a request that fails with every image. Otherwise, the task would first pull the image."""
        if self._params["gpus"] is None or (request := parse_request(self._params["gpus"])).kind == "none":
            return
        self._accelerator.observe(required_readings(request, self._conditions, exclusive=self._exclusive))
        units = self._select(request, self._use(request))
        task = ContainerTask(self._params, self._user_options)
        self._accelerator.choose_isolation(self._engine.state(), units, task)

    def _refuse_exclusive_without_root(self) -> None:
        if self._exclusive and self._is_host_scope and not self._root_user:
            raise PlanError(
                "exclusive=true requires root, because other users cannot see all containers and processes. "
                "Set become: true, or set exclusive_scope: user to count only the containers of this user's engines."
            )

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        # Check mode writes nothing, not even a lock file.
        if self._check_mode:
            yield
        else:
            with self._reservations.locked():
                yield

    def _use(self, request: Request) -> GpuUse:
        """Return what holds the GPUs, without this container.

        The engines are read inside the lock. Otherwise, the list could lack a container that started after its run
        released the reservation.
        """
        listed = []
        everything = self._exclusive or request.kind == "count" or bool(self._conditions.idle)
        # Its own engine first, because a container of an engine behind the socket of another one is listed twice.
        for name, engine in sorted(self._engines.items(), key=lambda item: item[0] != self._engine.name):
            other = name != self._engine.name
            if other and (not everything or engine.unavailable_reason()):
                continue
            if other:
                containers, warnings = other_engine_containers.containers_of_other_engine(
                    engine, must_answer=self._exclusive and self._root_user
                )
                self._warnings += warnings
            else:
                containers = engine.containers()
            containers = [container_labels.with_image_labels(engine, container) for container in containers]
            listed += [self._holder(container, engine.state()) for container in containers]
        own = (self._engine.name, self._name)
        # A container that is being recreated holds both its present GPUs and its reserved ones.
        listed = without_repetitions(listed) + self._reservations.holders(exclude=own)
        if everything and self._is_host_scope:
            listed += self._scheduled()
        return self._accelerator.use(
            listed,
            whole_host=everything and self._root_user and self._is_host_scope,
            ignored=[*(self._params["exclusive_ignore"] or ()), *self._extras.ignored],
            own=own,
        )

    def _scheduled(self) -> list[Holder]:
        """Return the jobs of a scheduler that hold GPUs. Without its answer, no GPU is exclusive."""
        try:
            return self._jobs(self._accelerator.inventory)
        except JobsUnknown as error:
            if self._exclusive:
                raise PlanError(f"{error} A job may hold any GPU, so exclusive=true is not possible.") from error
            self._warnings.append(f"{error} A job may hold the assigned GPUs.")
            return []

    def _holder(self, container: Mapping[str, Any], state: EngineState) -> Holder:
        return gpu_holders.as_holder(container, state, self._accelerator.assigned_gpus(container, state).held)

    def _select(self, request: Request, use: GpuUse) -> list[Unit]:
        return select_units(
            request,
            self._accelerator.inventory,
            self._conditions,
            exclusive=self._exclusive,
            holders=use.holders,
            current=gpus_kept_for_count(self._existing).uuids,
            running=self._existing.is_running,
            busy=use.busy,
            topology=self._accelerator.topology,
        )

    def _assign(
        self,
        request: Request,
        reason: str,
        image: Image | None,
        env: Mapping[str, str],
        use: GpuUse,
    ) -> Assignment:
        """Select the units and the isolation."""
        inventory = self._accelerator.inventory
        units = self._select(request, use)
        current = gpus_kept_for_count(self._existing).isolation
        task = ContainerTask(self._params, self._user_options, image, env, current)
        choice, access = self._give_access(self._engine, units, task)
        warnings = list(access.warnings)
        if not self._exclusive:
            warnings += sharing_warnings(units, use.holders)
        elif self._is_host_scope:
            warnings += [f"exclusive: {limit}" for limit in use.limits(units)]
        description = f"{', '.join(str(unit) for unit in units)}: {choice.reason}"
        unusable = describe_unusable(inventory) if request.kind == "count" else ""
        skipped = f"Unusable GPUs were skipped: {unusable}" if unusable else ""
        scope = "" if not self._exclusive or self._is_host_scope else _USER_SCOPE
        return Assignment(
            units=units,
            isolation=choice.name,
            reason=". ".join(part for part in (reason, description, skipped, scope) if part),
            access=access,
            capabilities=self._capabilities,
            exclusive=bool(units) and self._exclusive,
            warnings=warnings,
        )

    def _give_access(
        self, engine: Docker | Podman, units: Sequence[Unit], task: ContainerTask
    ) -> tuple[Choice, Access]:
        """Choose the isolation of the units in an engine. Return it with the access."""
        choice = self._accelerator.choose_isolation(engine.state(), units, task)
        return choice, self._accelerator.access(choice.name, engine, units, task)

    # -- container -----------------------------------------------------------------------------------------------

    def _set_existing(self, inspected: Mapping[str, Any] | None) -> None:
        self._existing = ExistingContainer(inspected, self._engine, self._accelerator, self._user_options)

    def _plan_container(self, image: Image | None, assignment: Assignment) -> dict[str, Any]:
        existing = self._existing
        state = self._params["state"]
        assignment.features = self._features
        before = existing.summary()
        reasons = recreate_reasons.recreate_reasons(existing, assignment, image)
        recreate = bool(reasons)
        # For state=present, Docker's module does not start a container that it recreates. Podman's module does.
        keeps_running = before["running"] and not (recreate and self._engine.name == "docker")
        after = {
            **before,
            "exists": True,
            "running": state == "started" or (state == "present" and keeps_running),
            "gpus": sorted(describe_unit(uuid, self._accelerator.inventory) for uuid in assignment.uuids),
            "isolation": assignment.isolation,
            "exclusive": assignment.exclusive,
            "recreate": reasons,
        }
        allowed = (*assignment.access.devices, *self._extras.devices)
        assignment.warnings += isolation_bypass_warnings.isolation_bypass_warnings(
            self._user_options,
            self._engine.state(),
            assignment.access,
            assignment.uuids,
            allowed,
            vendor=self._accelerator.name,
            by_option=self._params["gpus"] is not None,
        )
        options, complete = avoided_recreation.module_arguments(
            existing, assignment, self._params, image, recreate=recreate
        )
        if recreate:
            options["recreate"] = True
            # With both options, Podman's module restarts the container instead of recreating it.
            options.pop("force_restart", None)
        result = self._build_plan(options, assignment, before, after)
        result["complete_args"] = complete
        result["gpu_changed"] = recreate
        result["image_id"] = image.id if image else None
        result["gpu_assignment"]["changes"] = reasons
        # The engine's module would have to pull a missing image to predict the change.
        result["predicted"] = self._check_mode and image is None
        result["driver_volume"] = self._accelerator.driver_volume(
            [(self._engine, assignment.access)], ContainerTask(self._params, self._user_options)
        )
        container_name.refuse_ambiguous(self._engine, self._name)
        result["token"] = self._reserve(assignment)
        return result

    def _reserve(self, assignment: Assignment) -> str | None:
        """Reserve the assigned GPUs, including those that the container already holds.

        The engine's module may recreate the container for other reasons. Between removal and creation, only the
        reservation holds the GPUs.
        """
        if self._check_mode or not assignment.units:
            return None
        lifetime = reservations.lifetime(self._user_options, self._existing.stop_timeout)
        return self._reservations.reserve(self._engine.name, self._name, assignment.uuids, self._exclusive, lifetime)

    def _removal_options(self) -> dict[str, Any]:
        return engine_module_options.removal_options(self._engine.name, self._user_options)

    def _build_plan(
        self, module_args: dict[str, Any], assignment: Assignment, before: dict[str, Any], after: dict[str, Any]
    ) -> dict[str, Any]:
        return build_plan(
            engine=self._engine.name,
            name=self._name,
            module_args=module_args,
            assignment=assignment,
            before=before,
            after=after,
            container_id=self._existing.identifier,
            warnings=self._warnings,
        )
