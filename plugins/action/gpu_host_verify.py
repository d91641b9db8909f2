# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action plugin of gpu_host_verify: observe a host, and decide whether it can run GPU work.

The documentation is in plugins/modules/gpu_host_verify.py, the decision in module_utils/site/host_health.py.
"""

from __future__ import annotations

from typing import Any

from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase

from ansible_collections.gpufleet.hosts.plugins.plugin_utils import kept_bytecode

kept_bytecode.use()

from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators import schema
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.variable_fields import VariableError, shown
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import nvidia_driver, nvidia_group
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import health_variables, host_health
from ansible_collections.gpufleet.hosts.plugins.module_utils.vendor_driver import vendor_differences
from ansible_collections.gpufleet.hosts.plugins.plugin_utils import host_python, other_action

PLAN = "gpufleet.hosts.gpu_host_plan"
FACTS = "gpufleet.hosts.nvidia_gpu_facts"
VOLUME = "gpufleet.hosts.nvidia_driver_volume"
PROOF = "gpufleet.hosts.gpu_container_proof"
SLURM = "gpufleet.hosts.gpu_slurm_config"


class ActionModule(ActionBase):
    """See the module's documentation."""

    TRANSFERS_FILES = False
    _supports_check_mode = True
    _VALID_ARGS = frozenset({"container"})

    def run(self, tmp=None, task_vars=None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        self._task_vars: dict[str, Any] = dict(task_vars or {})
        try:
            starts_containers = self._boolean("verify_container", self._task.args.get("container", False))
            settings = health_variables.read(self._value)
        except VariableError as error:
            return {"failed": True, "msg": str(error)}
        observed = self._run_action(PLAN, {"parts": [], "requires_root": True})
        if observed.get("failed") or observed.get("unreachable"):
            return observed
        host = observed["host"]
        facts = observed.get("ansible_facts") or {}
        self._task_vars |= {
            "gpufleet_host": host,
            "ansible_facts": {**(self._task_vars.get("ansible_facts") or {}), **facts},
        }
        volume = proof = None
        if nvidia_group(host)["gpus"]:
            read = self._run_action(FACTS, {})
            if read.get("failed") or read.get("unreachable"):
                return {**read, "msg": host_python.failure(read)}
            facts = {**facts, **read["ansible_facts"]}
            volume = self._volume(host)
            proof = self._proof() if starts_containers else None
        found = host_health.judge(host, facts, volume, proof=proof, **settings)
        if starts_containers and self._has_ready_chips(host):
            found["problems"] += self._problems_of_chips()
        self._add_slurm(host, found)
        notices = {kind: observed[kind] for kind in ("warnings", "deprecations") if observed.get(kind)}
        return {"changed": False, "host": host, "health": found, "ansible_facts": facts, **notices}

    def _value(self, name: str, default: Any) -> Any:
        return self._templar.template(self._task_vars[name]) if name in self._task_vars else default

    @staticmethod
    def _boolean(name: str, value: Any) -> bool:
        try:
            return boolean(value)
        except TypeError as error:
            raise VariableError(f"{name} is {shown(value)}, but must be true or false.") from error

    def _volume(self, host: dict[str, Any]) -> dict[str, Any] | None:
        """Return what module nvidia_driver_volume would change. The health check reports a stopped engine."""
        if nvidia_driver(host)["loaded"] is None:
            return None
        has_docker = (
            host["engines"]["docker"]["package"]
            or (host["services"].get("docker.service") or {}).get("load_state") == "loaded"
        )
        installed = [
            name for name, there in (("docker", has_docker), ("podman", host["engines"]["podman"]["package"])) if there
        ]
        name, state = self._value("container_engine_name", "docker"), self._value("container_engine_state", "present")
        engines = [] if name in ("none", "containerd") or state == "absent" else installed
        is_checking, self._task.check_mode = self._task.check_mode, True
        try:
            return self._execute_module(
                module_name=VOLUME,
                module_args={"engine": ["auto"] if engines else ["none"], "expected_engines": engines},
                task_vars=self._task_vars,
            )
        finally:
            self._task.check_mode = is_checking

    def _add_slurm(self, host: dict[str, Any], found: dict[str, Any]) -> None:
        """Add what is wrong with a node of Slurm, where slurmd runs."""
        if (host["services"].get("slurmd.service") or {}).get("active_state") != "active":
            return
        names = {"node": "name", "directory": "directory", "programs": "programs"}
        given = {name: self._value(f"gpu_slurm_node_{rest}", None) for name, rest in names.items()}
        read = self._run_action(SLURM, {"gather": True, **{name: value for name, value in given.items() if value}})
        if read.get("failed") or read.get("unreachable"):
            found["problems"].append(f"Slurm: {host_python.failure(read)}")
            return
        found["problems"] += [f"Slurm: {text}" for text in read["findings"]]
        found["notes"] += read["notes"]

    def _proof(self) -> dict[str, Any]:
        """Start containers. The health check evaluates the result, also that of a failure."""
        options = {
            "image": self._value("nvidia_container_toolkit_proof_image", "") or "",
            "isolations": self._value("nvidia_container_toolkit_isolations", []) or [],
        }
        result = self._execute_module(module_name=PROOF, module_args=options, task_vars=self._task_vars)
        return {**result, "msg": host_python.failure(result)} if result.get("failed") else result

    @staticmethod
    def _has_ready_chips(host: dict[str, Any]) -> bool:
        """Return whether the host has AWS Neuron chips. Chips that are not ready are a problem already."""
        has_chips = bool(host["accelerators"].get(vendor_differences.NEURON.name))
        return has_chips and vendor_differences.observed(host, vendor_differences.NEURON)[1]["state"] == schema.READY

    def _problems_of_chips(self) -> list[str]:
        """Start containers with AWS Neuron's chips, and return why the proof failed."""
        result = self._execute_module(
            module_name=PROOF, module_args={"accelerator": vendor_differences.NEURON.name}, task_vars=self._task_vars
        )
        return list(result.get("problems") or [host_python.failure(result)]) if result.get("failed") else []

    def _run_action(self, name: str, options: dict[str, Any]) -> dict[str, Any]:
        """Run another action plugin of this collection with the objects of this one."""
        return other_action.load(self, name, options).run(task_vars=self._task_vars)
