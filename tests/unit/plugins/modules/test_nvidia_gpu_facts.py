# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare the module's documentation with its results, and check invalid options."""

from __future__ import annotations

import json

import pytest
import yaml
from ansible.module_utils.testing import patch_module_args

from ansible_collections.gpufleet.hosts.plugins.module_utils.facts import gather as facts_gather
from ansible_collections.gpufleet.hosts.plugins.module_utils.facts import gather_subset_option
from ansible_collections.gpufleet.hosts.plugins.modules import nvidia_gpu_facts
from ansible_collections.gpufleet.hosts.tests.unit.plugins.gpu_trees import Tree
from ansible_collections.gpufleet.hosts.tests.unit.plugins.simulated_nvml import NvmlLab, Simulated

TYPES = {"str": str, "int": int, "float": float, "bool": bool, "list": list, "dict": dict}
RETURNED = yaml.safe_load(nvidia_gpu_facts.RETURN)
OPTIONS = yaml.safe_load(nvidia_gpu_facts.DOCUMENTATION)["options"]
RICH = {
    "driver": {"version": "580.95.05"},
    "gpus": [{"model": "H100-SXM5-80GB", "count": 2}, {"model": "A100-SXM4-40GB", "mig": ["1g.5gb"]}, {"model": "T4"}],
    "nvswitches": 1,
    "set": {"gpu.0.processes.compute": "4711:1073741824", "process.4711": "/usr/bin/python3"},
}
GATHER_BELOW = """
import json, sys
sys.path.insert(0, %r)
from ansible_collections.gpufleet.hosts.plugins.module_utils.facts import gather
print(json.dumps(gather.gather(driver_root=%r)["facts"]))
"""


@pytest.fixture
def gathered(tmp_path, monkeypatch):
    """The results of the module with given subsets, on a host that supports almost every field."""
    simulated = Simulated(tmp_path, RICH)
    monkeypatch.setenv("GPUSIM_STATE", str(simulated.lab.state))
    tree = Tree(tmp_path)
    tree.loaded("580.95.05")
    for function in simulated.lab.host["pci"]:
        for name, value in function["files"].items():
            tree.file(f"sys/bus/pci/devices/{function['address']}/{name}", value)

    def gather(*asked):
        found = facts_gather.gather(gather_subset_option.choose_subsets(asked), root=str(tmp_path))
        return {
            "ansible_facts": found["facts"],
            "nvml_binding": found["binding"]["origin"],
            "nvml_binding_version": found["binding"]["version"],
        }

    return gather


def deviations(documented: dict, value: dict, subsets: frozenset, where: str = "") -> list[str]:
    """Return the differences between documentation and result."""
    found = []
    expected = {
        name
        for name, field in documented.items()
        if field["returned"] == "always" or any(f"V({subset})" in field["returned"] for subset in subsets)
    }
    found += [f"{where}{name} is not documented" for name in sorted(set(value) - set(documented))]
    found += [f"{where}{name} is not returned" for name in sorted(expected - set(value))]
    unexpected = set(value) & set(documented) - expected
    found += [f"{where}{name} is returned without its subset" for name in sorted(unexpected)]
    for name in sorted(expected & set(value)):
        found += _deviation(documented[name], value[name], subsets, f"{where}{name}")
    return found


def _deviation(field: dict, value, subsets: frozenset, where: str) -> list[str]:
    if value is None:
        return []
    expected = TYPES[field["type"]]
    if value.__class__ is not expected:  # A bool is an instance of int, too.
        return [f"{where} is a {type(value).__name__}, documented is {field['type']}"]
    if "contains" not in field and expected is not list:
        return []
    if "contains" not in field:
        elements = TYPES[field["elements"]]
        return [f"{where} holds a {type(one).__name__}" for one in value if not isinstance(one, elements)]
    values = value if expected is list else [value]
    return [text for one in values for text in deviations(field["contains"], one, subsets, f"{where}.")]


def documented_fields(tree: dict, where: str = ""):
    for name, field in tree.items():
        yield f"{where}{name}", field
        yield from documented_fields(field.get("contains", {}), f"{where}{name}.")


@pytest.mark.parametrize(
    "asked", [["all"], list(gather_subset_option.DEFAULT_SUBSETS), *([name] for name in gather_subset_option.SUBSETS)]
)
def test_the_result_matches_the_documentation(gathered, asked):
    assert deviations(RETURNED, gathered(*asked), gather_subset_option.choose_subsets(asked)) == []


def test_a_host_without_gpu_and_driver_returns_the_same_keys(tmp_path):
    found = facts_gather.gather(root=str(tmp_path), driver_root=str(tmp_path))
    returned = {"ansible_facts": found["facts"], "nvml_binding": None, "nvml_binding_version": None}
    assert deviations(RETURNED, returned, frozenset({"min"})) == []


def test_differences_are_found():
    tree = {"a": {"returned": "always", "type": "int"}, "b": {"returned": "when the subset V(ecc) is gathered"}}
    assert deviations(tree, {"a": 1}, frozenset()) == []
    assert deviations(tree, {"a": "1"}, frozenset()) == ["a is a str, documented is int"]
    assert deviations(tree, {"a": 1, "b": 1}, frozenset()) == ["b is returned without its subset"]
    assert deviations(tree, {"a": 1, "c": 1}, frozenset({"ecc"})) == ["c is not documented", "b is not returned"]


@pytest.mark.parametrize(("path", "field"), [pytest.param(*item, id=item[0]) for item in documented_fields(RETURNED)])
def test_every_field_has_type_sample_and_unit(path, field):
    assert field["type"] in TYPES
    assert field["description"].endswith(".")
    if "contains" in field:
        assert field["type"] in ("dict", "list")
        return
    assert isinstance(field["sample"], TYPES[field["type"]]), path
    for suffix, unit in (("_mib", "MiB"), ("_w", "in W"), ("_mhz", "MHz"), ("_c", "degrees Celsius"), ("_j", "in J")):
        if path.endswith(suffix):
            assert unit in field["description"], path


def test_the_documented_options_match_the_code():
    assert OPTIONS["gather_subset"]["default"] == list(gather_subset_option.DEFAULT_SUBSETS)
    for subset in gather_subset_option.SUBSETS:
        assert f"V({subset})" in " ".join(OPTIONS["gather_subset"]["description"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"gather_subset": "gpus"}, ["unknown subset 'gpus'", "Known subsets: all, min, identity", "topology"]),
        ({"gather_subset": "!min"}, ["min is always gathered", "'!all'"]),
        ({"timeout": 0}, ["timeout=0 is invalid. Set a number of seconds above 0 and at most 3600."]),
        ({"timeout": 1e300}, ["timeout=1e+300 is invalid. Set a number of seconds"]),
        ({"driver_root": "."}, ["driver_root=. is not an absolute path"]),
        ({"timeout": -1}, ["timeout", "-1"]),
        ({"timeout": "soon"}, ["timeout", "float"]),
        ({"driver_root": "/nonexistent"}, ["driver_root=/nonexistent is not a directory"]),
        ({"subset": "min"}, ["Unsupported parameters", "subset"]),
    ],
)
def test_invalid_options_fail_with_a_message(capsys, arguments, words):
    with patch_module_args(arguments), pytest.raises(SystemExit):
        nvidia_gpu_facts.main()
    result = json.loads(capsys.readouterr().out)
    assert result["failed"] is True
    for word in words:
        assert word in result["msg"]


@pytest.mark.parametrize("below", ["", "lib64", "usr/lib/x86_64-linux-gnu"])
def test_driver_root_selects_the_library(tmp_path, below):
    place = tmp_path / "driver" / below
    place.mkdir(parents=True)
    lab = NvmlLab(tmp_path, {"driver": {"version": "580.95.05"}, "gpus": [{"model": "T4"}]})
    (place / "libnvidia-ml.so.580.95.05").write_bytes(lab.library.read_bytes())
    (place / "libnvidia-ml.so.1").symlink_to("libnvidia-ml.so.580.95.05")
    del lab.env["LD_LIBRARY_PATH"]
    collections = facts_gather.__file__.split("/ansible_collections/", maxsplit=1)[0]
    facts = json.loads(lab.python(GATHER_BELOW % (collections, str(tmp_path / "driver"))))
    assert facts["nvidia_gpu_state"] == "ready"
    assert facts["nvidia_driver"]["library_path"] == str(place / "libnvidia-ml.so.580.95.05")
    assert facts["nvidia_driver"]["library_version"] == "580.95.05"
