# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action plugin of gpu_container: plan on the host, then call the engine's module.

The module of the same name reads the host and returns a plan (phase "plan"). Existing modules pull the image, create
the driver volume and manage the container. If the engine's module creates a container that it cannot start, the phase
"clear" removes it. At the end, the phase "release" always releases the reservation of the GPUs.
"""

from __future__ import annotations

from typing import Any

from ansible.module_utils.common.validation import check_type_dict

from ansible_collections.gpufleet.hosts.plugins.plugin_utils import kept_bytecode

kept_bytecode.use()

from ansible_collections.gpufleet.hosts.plugins.module_utils.container import engine_module_options, start_failures
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config import secret_masking
from ansible_collections.gpufleet.hosts.plugins.plugin_utils import module_options
from ansible_collections.gpufleet.hosts.plugins.plugin_utils.nvml_binding import (
    NvmlAction,
    controller_binding,
    no_binding_anywhere,
)

PLANNER = "gpufleet.hosts.gpu_container"
DRIVER_VOLUME = "gpufleet.hosts.nvidia_driver_volume"
# The module's option for what only this plugin sets, and its keys. In this file, they are options of their own.
_PRIVATE_OPTION = "x_private"
_PRIVATE = ("_before", "_keep", "_phase", "_pulled", "_token", "_nvml_binding_path")
# Keys of the engine module's result that are not part of this task's result.
_INTERNAL_KEYS = ("invocation", "diff", "warnings", "deprecations", "container", "changed", "_ansible_parsed")


class ContainerFailure(Exception):
    """A step failed. Its result becomes the result of the task."""

    def __init__(self, result: dict[str, Any]) -> None:
        super().__init__(result.get("msg"))
        self.result = result


class ActionModule(NvmlAction):
    """See the module's documentation."""

    _supports_async = False

    def run(self, tmp=None, task_vars=None):
        super(NvmlAction, self).run(tmp, task_vars)
        self._task_vars = task_vars
        self._arguments = {
            key: value for key, value in self._task.args.items() if key not in (_PRIVATE_OPTION, *_PRIVATE)
        }
        self._warnings: list[str] = []
        self._changed = False
        try:
            return self._execute_plan(self._plan_with_image())
        except ContainerFailure as failure:
            # The invocation is that of another module, with passwords in the environment of the container.
            result = {key: value for key, value in failure.result.items() if key != "invocation"}
            return {**result, "failed": True, "changed": self._changed}

    def _plan_with_image(self) -> dict[str, Any]:
        """Plan. If the image must be pulled first, pull it and plan again with its requirements."""
        plan = self._plan()
        self._refuse_unknown_options(plan)
        if "pull" in plan:
            previous = plan["image_id"]
            pulled = self._pull(plan["pull"])
            self._changed |= bool(pulled.get("changed"))
            plan = self._plan(_pulled=True)
            if previous is not None and previous == plan["image_id"]:
                # Podman's module reports a change for every pull.
                self._changed = False
        return plan

    def _refuse_unknown_options(self, plan: dict[str, Any]) -> None:
        """Refuse options that the engine's module does not have, before the first change."""
        engine = plan["engine"]
        module = engine_module_options.MODULES[engine]
        faults = []
        for name in module_options.unknown(module, self._engine_options()):
            others = [
                f" It is an option of {other_module}."
                for other, other_module in engine_module_options.MODULES.items()
                if other != engine and name in module_options.options(other_module)
            ]
            advice = module_options.suggestion(module, name)
            faults.append(f"engine_options.{name} is not an option of {module}.{''.join(others)}{advice}")
        if faults:
            if plan.get("token"):
                self._release(plan["token"])
            raise ContainerFailure({"msg": " ".join(faults)})

    def _engine_options(self) -> list[str]:
        try:
            return [str(name) for name in check_type_dict(self._arguments.get("engine_options") or {})]
        except TypeError:
            return []  # The module reports this error.

    def _pull(self, pull: dict[str, Any]) -> dict[str, Any]:
        try:
            return self._call(pull["module"], pull["args"])
        except ContainerFailure as failure:
            message = start_failures.describe(failure.result)
            name = pull["args"]["name"]
            message = message if name in message else f"image {name}: {message}"
            raise ContainerFailure({**failure.result, "msg": message}) from failure

    def _plan(self, **more: Any) -> dict[str, Any]:
        arguments = {**self._arguments, **more, "_phase": "plan"}
        result = self._execute(PLANNER, arguments)
        if result.get("nvml_binding_missing"):
            binding = controller_binding()
            if binding is None:
                raise ContainerFailure(no_binding_anywhere())
            self._arguments["_nvml_binding_path"] = arguments["_nvml_binding_path"] = self._send(binding)
            result = self._execute(PLANNER, arguments)
        if str(result.get("msg")).startswith("Unsupported parameters"):
            result = {**result, "msg": self._unknown_options() or result["msg"]}
        return self._checked(result)["plan"]

    def _unknown_options(self) -> str:
        """Describe unknown options of the task and suggest similar names.

        The module's own message would list its private options first.
        """
        faults = []
        given = [name for name in self._arguments if name not in _PRIVATE]
        for name in module_options.unknown(PLANNER, given):
            modules = [
                module for module in engine_module_options.MODULES.values() if name in module_options.options(module)
            ]
            advice = f" It is an option of {' and '.join(modules)}. Set it in engine_options." if modules else ""
            faults.append(f"gpu_container has no option {name}.{advice or module_options.suggestion(PLANNER, name)}")
        return " ".join(faults)

    def _execute_plan(self, plan: dict[str, Any]) -> dict[str, Any]:
        assignment = plan["gpu_assignment"]
        self._warnings += assignment["warnings"]
        outcome: dict[str, Any] = {"gpu_assignment": assignment, **(plan.get("rendered") or {})}
        try:
            if plan["driver_volume"]:
                volume = self._call(DRIVER_VOLUME, plan["driver_volume"])
                self._changed |= bool(volume.get("changed"))
                outcome["driver_volume"] = volume.get("volume")
            engine = self._engine(plan)
        except ContainerFailure as failure:
            raise ContainerFailure({**failure.result, **outcome}) from failure
        finally:
            if plan["token"]:
                self._release(plan["token"])
        self._changed |= bool(engine.get("changed"))
        return {
            **{key: value for key, value in engine.items() if key not in _INTERNAL_KEYS},
            **outcome,
            "changed": self._changed,
            "container": engine.get("container") or {},
            "diff": self._diff(plan, engine, outcome.get("driver_volume")),
            "warnings": list(dict.fromkeys(self._warnings)),
        }

    def _engine(self, plan: dict[str, Any]) -> dict[str, Any]:
        if plan["nothing_to_do"]:
            return {"changed": False}
        if plan["predicted"]:
            return {"changed": True}
        try:
            return self._call_engine(plan)
        except ContainerFailure as failure:
            raise self._engine_failure(plan, failure.result) from failure

    def _call_engine(self, plan: dict[str, Any]) -> dict[str, Any]:
        """Call the engine's module.

        A container that lacks labels or variables of this module, for example that of another tool, keeps its own until
        the engine's module changes it for another reason. Then it gets the complete ones.
        """
        module, complete = plan["module"], plan.get("complete_args")
        if not complete or self._task.check_mode:
            return self._call(module, plan["module_args"])
        self._task.check_mode = True
        try:
            predicted = self._call(module, plan["module_args"])
        finally:
            self._task.check_mode = False
        return self._call(module, complete) if predicted.get("changed") else predicted

    def _engine_failure(self, plan: dict[str, Any], result: dict[str, Any]) -> ContainerFailure:
        """Remove the container that the engine's module could not start, and describe the failure and the result."""
        engine, name = plan["engine"], plan["module_args"]["name"]
        parts = [start_failures.message(engine, name, result)]
        if not self._task.check_mode:
            keep = start_failures.is_name_conflict(result)
            arguments = {**self._arguments, "engine": engine, "_before": plan["container_id"], "_keep": keep}
            answer = self._execute(PLANNER, {**arguments, "_phase": "clear"})
            if answer.get("failed"):
                parts.append(f"The state of the container could not be determined: {answer.get('msg')}")
            else:
                self._changed |= start_failures.has_changed(answer["cleared"])
                parts.append(start_failures.describe_outcome(answer["cleared"]))
        return ContainerFailure({**result, "msg": start_failures.join_sentences(parts)})

    def _release(self, token: str) -> None:
        """Release the reservation. A failure is only a warning, because the reservation expires."""
        result = self._execute(PLANNER, {"name": self._arguments.get("name"), "_phase": "release", "_token": token})
        if result.get("failed"):
            self._warnings.append(f"The reservation of the GPUs could not be released: {result.get('msg')}")

    def _diff(self, plan: dict[str, Any], engine: dict[str, Any], volume: dict[str, Any] | None) -> dict[str, Any]:
        """Combine the diff of the GPUs with the diff of the engine's module."""
        diff = {}
        engine_diff = engine.get("diff") or {}
        for side in ("before", "after"):
            diff[side] = dict(plan["gpu_diff"][side])
            details = _masked(engine_diff.get(side))
            if isinstance(details, dict):
                diff[side] = {**details, **diff[side]}
            elif details:
                diff[side]["options"] = details
            if volume:
                diff[side]["driver_volume"] = volume["name"] if side == "after" else None
        return diff

    def _call(self, module: str, arguments: dict[str, Any]) -> dict[str, Any]:
        result = self._checked(self._execute(module, arguments))
        self._warnings += result.get("warnings") or []
        return result

    def _execute(self, module: str, arguments: dict[str, Any]) -> dict[str, Any]:
        given, variables = dict(arguments), self._task_vars
        if module == PLANNER:
            given[_PRIVATE_OPTION] = {key: given.pop(key) for key in _PRIVATE if key in given}
        else:
            # The engine's module would log the passwords in the environment and the command of the container.
            variables = {**(variables or {}), "ansible_no_target_syslog": True}
        return self._execute_module(module_name=module, module_args=given, task_vars=variables)

    @staticmethod
    def _checked(result: dict[str, Any]) -> dict[str, Any]:
        if result.get("failed"):
            raise ContainerFailure(result)
        return result


def _masked(details: Any) -> Any:
    """Mask passwords and tokens in a side of an engine module's diff. Podman's module returns text."""
    return secret_masking.masked_file(details) if isinstance(details, str) else secret_masking.masked_tree(details)
