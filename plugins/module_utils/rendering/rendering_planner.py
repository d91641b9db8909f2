# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan state=rendered: select GPUs, and return the engines' arguments instead of a call of an engine's module."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.container import (
    access_as_engine_options,
    engine_module_options,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.granted_access import Access, Assignment
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.isolation_choice import IsolationError
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.plan_result import PlanError
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.planner import Planner
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.vendor_protocol import (
    ContainerTask,
    RequirementError,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import Docker, Image, Podman
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.named_volumes import EngineError
from ansible_collections.gpufleet.hosts.plugins.module_utils.rendering import compose_file, engine_command_arguments

_KEYS = ("docker_args", "podman_args", "compose")


class RenderingPlanner(Planner):
    """Plan one run with state=rendered. It reserves nothing, because nobody knows when the container starts."""

    def plan(self) -> dict[str, Any]:
        """Return the plan. Its key `rendered` has the engines' arguments."""
        if self._params["exclusive"]:
            raise PlanError(
                "state=rendered cannot be combined with exclusive: nothing reserves the GPUs until you start the "
                "container. Remove exclusive, or use state=started."
            )
        return super().plan()

    def _plan_stopped_engine(self) -> dict[str, Any]:
        raise PlanError(f"state=rendered requires a running engine, but {self._engine.REASON}.")

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        yield

    def _plan_container(self, image: Image | None, assignment: Assignment) -> dict[str, Any]:
        env = {**(image.env if image else {}), **(self._user_options.get("env") or {})}
        accesses = {self._engine.name: assignment.access}
        if self._params["engine"] == "auto":
            for name, engine in self._engines.items():
                if name != self._engine.name and engine.unavailable_reason() is None:
                    access = self._other_access(engine, assignment, image, env)
                    accesses.update({} if access is None else {name: access})
        before = self._existing.summary()
        result = self._build_plan({}, assignment, before, before)
        result["nothing_to_do"] = True
        result["image_id"] = image.id if image else None
        result["driver_volume"] = self._accelerator.driver_volume(
            [(self._engines[name], access) for name, access in accesses.items()],
            ContainerTask(self._params, self._user_options),
        )
        # Without the image, its PATH is unknown, and the arguments would replace it.
        result["rendered"] = self._render(accesses, env) if image else dict.fromkeys(_KEYS)
        return result

    def _other_access(
        self, engine: Docker | Podman, assignment: Assignment, image: Image | None, env: Mapping[str, str]
    ) -> Access | None:
        """Return how an engine other than the chosen one gives access to the same GPUs, or None if it cannot."""
        if not assignment.units:
            return assignment.access
        options = engine_module_options.user_options(engine.name, self._params, {})
        try:
            task = ContainerTask(self._params, options, image, env)
            _choice, access = self._give_access(engine, assignment.units, task)
        except (EngineError, IsolationError, RequirementError) as error:
            self._warnings.append(f"{engine.name}_args is not available: {error}")
            return None
        assignment.warnings += [f"{engine.name}: {one}" for one in access.warnings if one not in assignment.warnings]
        return access

    def _render(self, accesses: Mapping[str, Access], env: Mapping[str, str]) -> dict[str, Any]:
        options = {name: self._access_options(name, access, env) for name, access in accesses.items()}
        docker, podman = options.get("docker"), options.get("podman")
        return {
            "docker_args": None if docker is None else engine_command_arguments.docker_args(docker),
            "podman_args": None if podman is None else engine_command_arguments.podman_args(podman),
            "compose": None if docker is None else compose_file.compose(self._name, docker),
        }

    def _access_options(self, engine: str, access: Access, env: Mapping[str, str]) -> dict[str, Any]:
        """Return the options of the engine's module that give access to the GPUs and to the optional features."""
        extras = access_as_engine_options.extra_options(engine_module_options.NAMES[engine], {}, self._extras)
        options = engine_module_options.module_arguments(
            engine, extras, access, name=self._name, image=None, state="started", labels={}, image_env=env
        )
        return {key: value for key, value in options.items() if key not in ("name", "state")}
