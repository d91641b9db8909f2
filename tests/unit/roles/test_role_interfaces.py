# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import re
from pathlib import Path

import jinja2
import pytest
import yaml

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import variable_fields
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.option_limits import LONGEST_DRAIN
from ansible_collections.gpufleet.hosts.plugins.module_utils.cuda import variables as cuda_request
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import variables as driver_request
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import variables as engine_request
from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes import role_variables as kubernetes_request
from ansible_collections.gpufleet.hosts.plugins.module_utils.observe import variables as observe_request
from ansible_collections.gpufleet.hosts.plugins.module_utils.persistence import variables as persistence_request
from ansible_collections.gpufleet.hosts.plugins.module_utils.slurm import variables as slurm_request
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import variables as toolkit_request

ROOT = Path(__file__).resolve().parents[3] / "roles"
ROLES = sorted(path.parent.parent for path in ROOT.glob("*/tasks/main.yml"))
# The roles whose variables are defined in a dataclass.
TABLES = {
    "container_engine": engine_request.EngineRequest,
    "cuda_toolkit": cuda_request.CudaRequest,
    "gpu_kubernetes_node": kubernetes_request.KubernetesNodeRequest,
    "gpu_slurm_node": slurm_request.SlurmNodeRequest,
    "nvidia_container_toolkit": toolkit_request.ToolkitRequest,
    "nvidia_driver": driver_request.DriverRequest,
    "nvidia_persistenced": persistence_request.PersistenceRequest,
    "observe": observe_request.ObserveRequest,
}
# The type and the choices in the argument specs, by the kind of the variable. Argument specs accept one type only.
BOOL_OR_AUTO = ("str", ["auto", "true", "false"])
TYPES = {"str": str, "bool": bool, "int": int, "list": list, "dict": dict, "path": str, "float": float}


def load(path: Path) -> dict:
    return yaml.safe_load(path.read_text(encoding="utf-8")) or {} if path.exists() else {}


def test_there_are_roles():
    assert {"observe", "nvidia_driver", "nvidia_persistenced", "container_engine"} <= {role.name for role in ROLES}


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
class TestInterface:
    def test_defaults_and_specification_name_the_same_variables_with_the_same_values(self, role):
        defaults = load(role / "defaults/main.yml")
        options = load(role / "meta/argument_specs.yml")["argument_specs"]["main"]["options"]
        assert set(defaults) == {name for name, option in options.items() if not option.get("required")}
        specified = {name: option["default"] for name, option in options.items() if "default" in option}
        assert {name: defaults[name] for name in specified} == specified

    def test_each_variable_has_the_roles_prefix_a_type_and_a_description(self, role):
        options = load(role / "meta/argument_specs.yml")["argument_specs"]["main"]["options"]
        for name, option in options.items():
            assert name.startswith(f"{role.name}_"), name
            assert option["type"] in TYPES, name
            assert option["description"], name
            if "default" in option:
                assert isinstance(option["default"], TYPES[option["type"]]), name

    def test_a_default_is_one_of_its_choices(self, role):
        options = load(role / "meta/argument_specs.yml")["argument_specs"]["main"]["options"]
        for name, option in options.items():
            if "choices" in option and "default" in option:
                values = option["default"] if isinstance(option["default"], list) else [option["default"]]
                assert set(values) <= set(option["choices"]), name

    def test_tasks_use_no_variable_of_the_role_that_is_not_specified(self, role):
        options = load(role / "meta/argument_specs.yml")["argument_specs"]["main"]["options"]
        used = set()
        for path in [*role.glob("tasks/*.yml"), *role.glob("handlers/*.yml"), *role.glob("vars/**/*.yml")]:
            text = path.read_text(encoding="utf-8")
            code = " ".join(re.findall(r"\{\{.*?\}\}|\{%.*?%\}|(?:when|that|until):[^\n]*", text, re.DOTALL))
            used |= set(re.findall(rf"(?<![\w.'\"/]){role.name}_[a-z_]+\b(?!\()", code))
        assert {name for name in used - set(options) if not name.endswith("_report")} == set()


@pytest.mark.parametrize("role", TABLES)
class TestTable:
    def test_defaults_are_those_of_the_table(self, role):
        expected = {f"{role}_{name}": default for name, (_rule, default) in variable_fields.table(TABLES[role]).items()}
        assert load(ROOT / role / "defaults/main.yml") == expected

    def test_argument_specs_have_the_types_and_choices_of_the_table(self, role):
        options = load(ROOT / role / "meta/argument_specs.yml")["argument_specs"]["main"]["options"]
        expected = {}
        for name, (rule, _default) in variable_fields.table(TABLES[role]).items():
            choices = list(rule.choices) or None
            expected[f"{role}_{name}"] = BOOL_OR_AUTO if rule.kind == "bool or auto" else (rule.kind, choices)
        assert {name: (option["type"], option.get("choices")) for name, option in options.items()} == expected

    def test_documentation_names_the_limits(self, role):
        options = load(ROOT / role / "meta/argument_specs.yml")["argument_specs"]["main"]["options"]
        for name, (rule, _default) in variable_fields.table(TABLES[role]).items():
            for limit in {rule.minimum, rule.maximum} - {None}:
                assert f"V({limit})" in str(options[f"{role}_{name}"]["description"]), name


@pytest.mark.parametrize("seconds", [0, 1, "1", 3600, LONGEST_DRAIN, str(LONGEST_DRAIN), LONGEST_DRAIN + 1])
def test_the_role_for_slurm_has_the_limits_of_its_table(seconds):
    """The role has no plan of the controller, which checks the table, so its first task checks this variable."""
    check = yaml.safe_load((ROOT / "gpu_slurm_node/tasks/main.yml").read_text(encoding="utf-8"))[0][
        "ansible.builtin.assert"
    ]
    accepts = jinja2.Environment(autoescape=True).compile_expression(check["that"])(
        gpu_slurm_node_drain_timeout=seconds
    )
    try:
        variable_fields.read(slurm_request.SlurmNodeRequest, "gpu_slurm_node", {"drain_timeout": seconds})
    except variable_fields.VariableError:
        assert not accepts
    else:
        assert accepts
