# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action plugin of gpu_host_plan: check the variables, observe the host once, and plan every selected part.

The documentation is in plugins/modules/gpu_host_plan.py. The decisions are in module_utils/site/.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from ansible import constants as C
from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible.plugins.loader import become_loader, connection_loader

from ansible_collections.gpufleet.hosts.plugins.plugin_utils import kept_bytecode

kept_bytecode.use()

from ansible_collections.gpufleet.hosts.plugins.module_utils.adoption import (
    adoption_result,
    allowed_on_image,
    docker_data_root_on_nvme,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.adoption.allowed_on_image import Adoption
from ansible_collections.gpufleet.hosts.plugins.module_utils.base import variable_fields
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import read_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.variable_fields import VariableError
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import variables as driver_request
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.kernel_modules import settings_lost_by_reload
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import variables as engine_request
from ansible_collections.gpufleet.hosts.plugins.module_utils.facts import module_call as facts_call
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import controller
from ansible_collections.gpufleet.hosts.plugins.module_utils.migration import leftovers
from ansible_collections.gpufleet.hosts.plugins.module_utils.observe import module_call as observe_call
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.package_query_timeouts import LOCK_TIMEOUT
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.part_plan import Context, Part
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import dnf_excludes
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import drain_decision as site_drain
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import (
    is_host_converged,
    observation_options,
    package_queries,
    plan_result,
    registry,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import plan_of_all_parts as site_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import plan_report as site_report
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import unknown_variables as site_variables
from ansible_collections.gpufleet.hosts.plugins.plugin_utils import (
    cdi_program,
    facts_program,
    host_program,
    host_python,
    other_action,
    role_data,
)
from ansible_collections.gpufleet.hosts.plugins.plugin_utils.nvml_binding import controller_binding

OBSERVE = "gpufleet.hosts.gpu_host_info"
TRANSACTION = "gpufleet.hosts.package_transaction"
FACTS = "gpufleet.hosts.nvidia_gpu_facts"
MIGRATION = "gpufleet.hosts.nvidia_docker_migration"

_SPEC = {
    "parts": {"type": "list", "elements": "str", "choices": list(registry.BY_NAME), "default": []},
    "requires_root": {"type": "bool", "default": False},
    "collect_errors": {"type": "bool", "default": False},
    "first_plan": {"type": "bool", "default": True},
    "drained": {"type": "bool", "default": False},
    "adopt": {"type": "bool", "default": False},
    "image": {"type": "str", "default": ""},
    "cloud_init_timeout": {"type": "int", "default": 0},
    "short": {"type": "bool", "default": False},
    # None: not given. An empty list: nothing was changed, or held.
    "changes_before": {"type": "list", "elements": "dict"},
    "held_before": {"type": "list", "elements": "str"},
}
# Paths belong to the host and are checked there.
_OBSERVATION = {**observe_call.OPTIONS, "files": {**observe_call.OPTIONS["files"], "elements": "str"}}
_FACTS_OPTIONS = {
    **{name: option.get("default") for name, option in facts_call.OPTIONS.items()},
    "gather_subset": ["!all"],
}
# Ansible imports this file once, and then starts a process for each host. The processes share the prepared program.
_PROGRAM = "observe.program"
_FACTS_WITH_BINDING = facts_program.with_binding(_FACTS_OPTIONS, controller_binding())
host_program.prepare(_PROGRAM, _FACTS_WITH_BINDING[1] if _FACTS_WITH_BINDING else {}, bytecode=False)
role_data.read_before_fork()
# Each of these processes would read the documentation of the plugins for connections again, also those of later tasks.
for _loader, _name in (connection_loader, C.DEFAULT_TRANSPORT), (become_loader, C.DEFAULT_BECOME_METHOD):
    _loader.get(_name, class_only=True)


class Failure(Exception):
    """The task fails with this result."""

    def __init__(self, message: str, **result: Any) -> None:
        super().__init__(message)
        self.result = {**result, "failed": True, "msg": message}


class ActionModule(ActionBase):
    """See the module's documentation."""

    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp=None, task_vars=None):
        super().run(tmp, task_vars)
        self._task_vars: dict[str, Any] = host_python.without_warning(task_vars or {})
        # What the package manager has answered.
        self._known = package_queries.Known()
        # The facts that the program of the observation gathered.
        self._facts: dict[str, Any] | None = None
        # Whether the host is drained before its first change.
        self._drains = False
        # The options of dockerd that an adoption adds to the user's.
        self._docker_options: dict[str, Any] = {}
        # The GPU facts before a planned reload of the driver.
        self._settings: dict[str, Any] | None = None
        # What the modules reported besides their results.
        self._discovered: dict[str, Any] = {}
        self._notices: dict[str, list[Any]] = {"warnings": [], "deprecations": []}
        try:
            return self._plan()
        except Failure as failure:
            collects = self._task.args.get("collect_errors") is True
            result = site_report.collected(failure.result) if collects else failure.result
            return {**{kind: found for kind, found in self._notices.items() if found}, **result}

    def _plan(self) -> dict[str, Any]:
        try:
            self._docker_options = docker_data_root_on_nvme.docker_options(self._task_vars, self._value)
        except VariableError as error:
            raise Failure(str(error), errors=[str(error)]) from error
        options = self._options()
        selected = options["parts"]
        names = site_variables.unknown_names(self._task_vars)
        drain_values = site_drain.given(self._task_vars, self._value, names.errors)
        self._drains = site_drain.precedes(drain_values) and options["first_plan"] and not options["drained"]
        values = self._variables(selected, names.errors)
        host = self._observe(values, selected)
        notes = self._check_boot(host, options)
        adopted = self._adopt(host, options) if options["adopt"] else None
        selected = adopted.parts if adopted else selected
        if selected:
            self._check_data_root(host, values, adopts=adopted is not None)
        host, parts, facts = self._resolve(host, values, selected, options)
        notes = [*notes, *site_report.leftover_notes(host, parts)]
        try:
            drain, drain_notes = site_drain.of_run(drain_values, parts, host["files"])
        except VariableError as error:
            raise Failure(str(error)) from error
        self._fail_if_impossible(host, parts, options, notes)
        result = {
            "changed": False,
            "host": host,
            **plan_result.of_parts(parts, check_mode=self._task.check_mode),
            "notes": [*notes, *drain_notes],
            "drain": drain,
            "warnings": [*names.warnings, *self._notices["warnings"]],
            "deprecations": self._notices["deprecations"],
        }
        if adopted is not None:
            result["adoption"] = adoption_result.result(
                host,
                adopted,
                parts,
                values,
                installs_plugin=site_plan.installs_versionlock(host, parts),
                requested_kind=options["image"].strip(),
                changes_before=options["changes_before"],
                held_before=options["held_before"],
            )
        found = {**self._discovered, **(facts or {})}
        result |= {"ansible_facts": found} if found else {}
        result |= {"_ansible_no_log": True} if result["has_secrets"] else {}
        result["converged"] = is_host_converged.is_converged(result, found)
        return plan_result.shortened(result) if options["short"] and result["converged"] else result

    def _resolve(
        self, host: dict[str, Any], values: dict[str, dict[str, Any]], selected: list[str], options: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Part], dict[str, Any] | None]:
        """Plan the parts until nothing more has to be read. Return the host, the parts and the GPU facts."""
        if self._facts is not None:
            parts = self._parts(host, values, selected, facts=self._facts)
            is_final = not any(part.acts or part.errors or part.query for part in parts.values())
            if is_final and site_plan.needs_facts(host, values, parts):
                return host, parts, self._facts
        parts = self._parts(host, values, selected)
        can_change = options["first_plan"] and not self._task.check_mode and host["uid"] == 0
        can_wait = host["package_state"]["busy"] and can_change
        if can_wait and any(part.acts or part.errors for part in parts.values()):
            # While dpkg runs, packages look half installed. A plan is possible only after it has finished.
            host = self._observe_after_package_manager(values, selected)
            parts = self._parts(host, values, selected)
        if not options["first_plan"]:
            return host, parts, None
        parts, self._known = package_queries.ask_all(
            parts,
            self._package_manager,
            lambda known: self._parts(host, values, selected, known),
            lambda planned, known: bool(self._conflicts(host, planned, options, known)),
        )
        errors = self._conflicts(host, parts, options, self._known)
        if not errors and site_plan.reloads_driver(parts):
            self._settings = self._gpu_settings(host)
            parts = self._parts(host, values, selected)
            errors = self._conflicts(host, parts, options, self._known)
        if errors or not site_plan.needs_facts(host, values, parts):
            return host, parts, None
        facts = self._gpu_facts(host)
        return host, self._parts(host, values, selected, facts=facts), facts

    def _package_manager(self, options: dict[str, Any]) -> dict[str, Any] | str:
        """Return the result of module package_transaction, or the text of its failure."""
        is_checking = self._task.check_mode
        # Playbook plan changes no host, also outside check mode. Only it needs root and does not wait for cloud-init.
        if self._task.args.get("requires_root") and "cloud_init_timeout" not in self._task.args:
            self._task.check_mode = True
        try:
            return self._run_module(TRANSACTION, options)
        except Failure as failure:
            return str(failure)
        finally:
            self._task.check_mode = is_checking

    def _conflicts(
        self,
        host: dict[str, Any],
        parts: dict[str, Part],
        options: dict[str, Any],
        known: package_queries.Known,
    ) -> list[str]:
        """Return what prevents the run, without failed queries: the other parts are planned in spite of them."""
        answered = {name: part for name, part in parts.items() if name not in known.unanswered}
        return site_plan.errors(host, answered, options["requires_root"])

    def _fail_if_impossible(
        self, host: dict[str, Any], parts: dict[str, Part], options: dict[str, Any], notes: list[str]
    ) -> None:
        """Fail if the run cannot change the host. The result has the changes of the parts that could be planned."""
        errors = site_plan.errors(host, parts, options["requires_root"])
        is_refused = False
        removals = package_queries.rehearsal(parts) if options["first_plan"] else None
        if removals and not self._conflicts(host, parts, options, self._known):
            answer = self._package_manager(removals)
            is_refused = isinstance(answer, str)
            errors += [f"{answer} Nothing was changed."] if is_refused else []
        if errors:
            shown = package_queries.changes_of_failed(host["uid"], parts, removals=not is_refused)
            errors = dnf_excludes.explained(errors, self._known.answer.get("hidden") or {})
            raise Failure(" ".join(errors), errors=errors, notes=notes, changes=shown)

    def _adopt(self, host: dict[str, Any], options: dict[str, Any]) -> Adoption:
        """Return what may act on the prepared image of the host. Fail if the image cannot be adopted."""
        try:
            return allowed_on_image.adopt(host, options["parts"], options["image"].strip())
        except allowed_on_image.NotAdoptable as error:
            raise Failure(str(error), errors=[str(error)]) from error

    def _check_data_root(self, host: dict[str, Any], values: dict[str, dict[str, Any]], *, adopts: bool) -> None:
        """Fail if Docker's data would be on disks that are not mounted. A role that runs alone does not adopt."""
        on_nvme = "container_engine" in values and bool(self._docker_options)
        engine = engine_request.read(values.get("container_engine", {}))
        if not adopts and not on_nvme:
            return
        error = docker_data_root_on_nvme.missing_disk(host, engine.name, engine.docker_options, on_nvme=on_nvme)
        if error:
            raise Failure(error, errors=[error])

    def _check_boot(self, host: dict[str, Any], options: dict[str, Any]) -> list[str]:
        """Fail if cloud-init still runs after the time limit. Without a limit, return a note for the user."""
        if "cloud_init_timeout" not in self._task.args:
            return allowed_on_image.boot_notes(host)
        error = allowed_on_image.boot_problem(host, options["cloud_init_timeout"], _timeout_variable(options))
        if error:
            raise Failure(error, errors=[error])
        return []

    def _options(self) -> dict[str, Any]:
        timeout = self._task.args.get("cloud_init_timeout", 0)
        if not re.fullmatch(r"\d+", str(timeout).strip()):
            raise Failure(
                f"{_timeout_variable(self._task.args)} is {variable_fields.shown(timeout)}, but must be a whole number "
                "of seconds, 0 or more."
            )
        checked = ArgumentSpecValidator(_SPEC).validate(dict(self._task.args))
        if checked.error_messages:
            raise Failure(f"gpu_host_plan: {'; '.join(checked.error_messages)}")
        return checked.validated_parameters

    def _variables(self, parts: list[str], errors: list[str]) -> dict[str, dict[str, Any]]:
        """Return the user's variables of the roles that the parts need, by role. Fail if one is invalid."""
        needed = {"observe", *(role for part in parts for role in registry.BY_NAME[part].needed_roles)}
        found: dict[str, dict[str, Any]] = {}
        for role, request in registry.REQUESTS.items():
            if role not in needed:
                continue
            given = {
                name: f"{role}_{name}" for name in variable_fields.table(request) if f"{role}_{name}" in self._task_vars
            }
            found[role] = {name: self._value(variable) for name, variable in given.items()}
            errors = [*errors, *site_variables.unset(role, found[role])]
            try:
                checked = _read(role, found[role])
            except VariableError as error:
                errors = [*errors, str(error)]
            else:
                if role == "container_engine" and self._docker_options:
                    found[role]["docker_options"] = {**self._docker_options, **checked.docker_options}
        if errors:
            raise Failure(" ".join(errors), errors=errors)
        return found

    def _value(self, variable: str) -> Any:
        """Return the value of a user's variable, after templating."""
        try:
            return self._templar.template(self._task_vars[variable])
        except AnsibleError as error:
            message = f"{variable} cannot be templated: {error}"
            raise Failure(message, errors=[message]) from error

    def _observe(self, values: dict[str, dict[str, Any]], parts: list[str], lock_timeout: int = 0) -> dict[str, Any]:
        wanted = _read("observe", values["observe"])
        arguments = {
            **observation_options.of_variables(values, parts, services=wanted.services, files=wanted.files),
            "package_lock_timeout": lock_timeout,
        }
        if self._task.args.get("cloud_init_timeout"):
            arguments["cloud_init_timeout"] = self._task.args["cloud_init_timeout"]
        host = self._run_program(arguments, parts) or self._run_module(OBSERVE, arguments)["host"]
        if (not parts or "nvidia_container_toolkit" in parts) and leftovers.may_exist(host):
            gather = {"gather": True, "docker_root": host["docker_data"]["root"]}
            host["nvidia_docker"] = self._run_module(MIGRATION, gather)["traces"]
        return host

    def _run_program(self, arguments: dict[str, Any], parts: list[str]) -> dict[str, Any] | None:
        """Observe the host and its GPUs with one program, which is much faster than two modules.

        Return None if the ordinary modules must run.
        """
        self._facts = None
        python = host_python.command_for_input(self, self._task_vars)
        if python is None:
            return None
        checked = ArgumentSpecValidator(_OBSERVATION).validate(arguments)
        if checked.error_messages:
            return None
        facts, extra = None, {}
        if self._task.args.get("first_plan", True) and site_plan.can_need_facts(parts):
            facts, extra = _FACTS_WITH_BINDING or (None, {})
        given = {"options": checked.validated_parameters, "check_mode": self._task.check_mode, "facts": facts}
        try:
            program = host_program.make(_PROGRAM, given, extra, installed_packages=True, bytecode=False)
            answer = host_python.answer(self, python, program)
        except AnsibleConnectionFailure:
            raise
        except AnsibleError as error:
            raise Failure(str(error)) from error
        if answer is None or not isinstance(answer.get("host"), dict):
            return None
        found = answer.get("facts")
        result = facts_program.known_result(found) if isinstance(found, dict) else None
        # nvidia_gpu_facts reports a failure, or succeeds with another binding.
        self._facts = result.get("ansible_facts") if result and not result.get("failed") else None
        return answer["host"]

    def _observe_after_package_manager(self, values: dict[str, dict[str, Any]], parts: list[str]) -> dict[str, Any]:
        driver = values.get("nvidia_driver")
        timeout = driver_request.read(driver).lock_timeout if driver is not None else LOCK_TIMEOUT
        host = self._observe(values, parts, timeout)
        if host["package_state"]["busy"]:
            raise Failure(
                f"Another process still holds dpkg's lock after {timeout} seconds. Nothing was changed. Wait until the "
                "process has finished, then run the playbook again. To find the process, run "
                "'fuser -v /var/lib/dpkg/lock-frontend' on the host."
            )
        return host

    def _parts(
        self,
        host: dict[str, Any],
        values: dict[str, dict[str, Any]],
        selected: list[str],
        known: package_queries.Known | None = None,
        facts: dict[str, Any] | None = None,
    ) -> dict[str, Part]:
        known = known or self._known
        context = Context(
            host=host,
            values=values,
            platforms=role_data.platforms(host["os"]["key"]),
            is_controller=controller.is_controller(host, self._connection.transport, *_identity()),
            versions=known.answer.get("versions"),
            streams=known.answer.get("streams"),
            dependencies=known.answer.get("dependencies"),
            rejected_sources=known.rejected_sources,
            unanswered=known.unanswered,
            facts=facts,
            settings=self._settings,
            drains=self._drains,
            **cdi_program.DIGESTS,
        )
        return site_plan.plan(context, selected)

    def _gpu_facts(self, host: dict[str, Any]) -> dict[str, Any]:
        """Return the facts of the observation's program, or those of module nvidia_gpu_facts."""
        if self._facts is not None:
            return self._facts
        return self._run_facts(host, _FACTS_OPTIONS["gather_subset"])

    def _gpu_settings(self, host: dict[str, Any]) -> dict[str, Any]:
        """Return the GPU facts with the settings that a reload of the driver drops."""
        try:
            return self._run_facts(host, list(settings_lost_by_reload.SUBSETS))
        except Failure as failure:
            return {"nvidia_gpu_state": "error", "nvidia_gpu_state_reason": str(failure)}

    def _run_facts(self, host: dict[str, Any], subsets: list[str]) -> dict[str, Any]:
        """Run the action plugin of nvidia_gpu_facts."""
        action = other_action.load(self, FACTS, {"gather_subset": subsets})
        result = action.run(task_vars={**self._task_vars, "gpufleet_host": host})
        if result.get("failed"):
            raise Failure(host_python.failure(result))
        return result["ansible_facts"]

    def _run_module(self, module: str, arguments: dict[str, Any]) -> dict[str, Any]:
        try:
            result = self._execute_module(module_name=module, module_args=arguments, task_vars=self._task_vars)
        except AnsibleConnectionFailure:
            raise
        except AnsibleError as error:
            result = {"failed": True, "msg": str(error)}
        self._remember(result)
        if result.get("unreachable"):
            raise AnsibleConnectionFailure(host_python.failure(result))
        if result.get("failed"):
            raise Failure(host_python.failure(result))
        return result

    def _remember(self, result: Mapping[str, Any]) -> None:
        """Keep the discovered Python of the host for later tasks, and the notices of the module."""
        facts = result.get("ansible_facts") or {}
        self._discovered |= {name: value for name, value in facts.items() if name.startswith("discovered_interpreter")}
        known = {**(self._task_vars.get("ansible_facts") or {}), **self._discovered}
        self._task_vars = {**self._task_vars, "ansible_facts": known}
        for kind, notices in self._notices.items():
            notices += [notice for notice in result.get(kind) or [] if notice not in notices]


def _timeout_variable(options: Mapping[str, Any]) -> str:
    """Name the variable of the playbook that limits how long it waits for cloud-init."""
    adopts = boolean(options.get("adopt") or False, strict=False)
    return "dlami_cloud_init_timeout" if adopts else "site_cloud_init_timeout"


def _read(role: str, values: Mapping[str, Any]) -> Any:
    """Return the request of a role. Some roles check more than the types and choices of their table."""
    part = registry.BY_NAME.get(role)
    return part.read_request(values) if part else variable_fields.read(registry.REQUESTS[role], role, values)


@lru_cache(maxsize=1)
def _identity() -> tuple[str, str]:
    """Return the boot ID and the machine ID of the controller."""
    boot, machine = (read_text("/", path) or "" for path in ("/proc/sys/kernel/random/boot_id", "/etc/machine-id"))
    return boot.strip(), machine.strip()
