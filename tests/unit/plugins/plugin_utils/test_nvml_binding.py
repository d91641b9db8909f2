# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml.missing_pynvml import BindingMissing
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml.pynvml_host_or_controller import (
    binding_version,
    load_binding,
)
from ansible_collections.gpufleet.hosts.plugins.plugin_utils import nvml_binding

MISSING = {"failed": True, "msg": "no pynvml", "nvml_binding_missing": True}
DONE = {"changed": False, "ansible_facts": {}}


@pytest.fixture
def action(tmp_path, monkeypatch):
    """Return an action plugin. Tests set the results of its module."""
    monkeypatch.setattr(nvml_binding.C, "DEFAULT_LOCAL_TMP", str(tmp_path))
    plugin = nvml_binding.NvmlAction.__new__(nvml_binding.NvmlAction)
    plugin._task = SimpleNamespace(
        action="gpufleet.hosts.gpu_container",
        args={"name": "x"},
        async_val=0,
        check_mode=False,
        diff=False,
        delegate_to=None,
    )
    shell = SimpleNamespace(tmpdir=None, join_path=lambda *parts: "/".join(parts))
    plugin._connection = SimpleNamespace(has_native_async=False, _shell=shell)
    plugin._make_tmp_path = MagicMock(return_value="/remote/ansible-tmp-1")
    plugin._transfer_file = MagicMock()
    plugin._fixup_perms2 = MagicMock()
    plugin._execute_module = MagicMock()
    monkeypatch.setattr(nvml_binding.ActionBase, "run", lambda self, tmp=None, task_vars=None: {})
    return plugin


def test_a_host_with_a_binding_gets_one_call(action):
    action._execute_module.side_effect = [DONE]
    assert action.run(task_vars={}) == DONE
    action._execute_module.assert_called_once_with(
        module_name="gpufleet.hosts.gpu_container", module_args={"name": "x"}, task_vars={}
    )
    action._transfer_file.assert_not_called()


def test_a_host_without_a_binding_gets_it_and_a_second_call(action):
    action._execute_module.side_effect = [MISSING, DONE]
    assert action.run(task_vars={}) == DONE
    remote = "/remote/ansible-tmp-1/pynvml-13.615.71.zip"
    assert action._transfer_file.call_args.args[1] == remote
    assert action._execute_module.call_args.kwargs["module_args"] == {"name": "x", "_nvml_binding_path": remote}
    action._fixup_perms2.assert_called_once_with(["/remote/ansible-tmp-1", remote])


SEEN = {"accelerators": {"nvidia": {"driver": {"loaded": "580.95.05"}}}, "nvml_binding": False}


@pytest.mark.parametrize("async_val", [0, 60])
def test_a_host_observed_without_a_binding_gets_it_at_once(action, async_val):
    action._task.async_val = async_val
    action._execute_module.side_effect = [DONE]
    assert action.run(task_vars={"gpufleet_host": SEEN}) == DONE
    assert action._execute_module.call_args.kwargs["module_args"]["_nvml_binding_path"].endswith(".zip")
    action._transfer_file.assert_called_once()


@pytest.mark.parametrize(
    "seen",
    [
        {**SEEN, "nvml_binding": True},
        {**SEEN, "nvml_binding": None},
        {**SEEN, "accelerators": {"nvidia": {"driver": {"loaded": None}}}},
        {"accelerators": None},
        {},
        None,
        "nonsense",
    ],
)
def test_a_host_not_observed_without_a_binding_gets_nothing_at_first(action, seen):
    action._execute_module.side_effect = [DONE]
    action.run(task_vars={"gpufleet_host": seen})
    action._transfer_file.assert_not_called()


def test_a_delegated_task_ignores_the_observation(action):
    action._task.delegate_to = "other"
    action._execute_module.side_effect = [DONE]
    action.run(task_vars={"gpufleet_host": SEEN})
    action._transfer_file.assert_not_called()


def test_a_controller_without_a_binding_runs_the_module(action, monkeypatch):
    """The binding may have been installed on the host since the observation."""
    monkeypatch.setattr(nvml_binding, "controller_binding", lambda: None)
    action._execute_module.side_effect = [DONE]
    assert action.run(task_vars={"gpufleet_host": SEEN}) == DONE


def test_an_existing_temporary_directory_is_used(action):
    action._connection._shell.tmpdir = "/remote/there"
    action._execute_module.side_effect = [MISSING, DONE]
    action.run(task_vars={})
    assert action._transfer_file.call_args.args[1] == "/remote/there/pynvml-13.615.71.zip"
    action._make_tmp_path.assert_not_called()


def test_another_failure_is_returned(action):
    action._execute_module.side_effect = [{"failed": True, "msg": "something else"}]
    assert action.run(task_vars={})["msg"] == "something else"


def test_a_probe_runs_before_an_asynchronous_job(action):
    action._task.async_val = 60
    action._execute_module.side_effect = [MISSING, {"started": 1}]
    assert action.run(task_vars={}) == {"started": 1}
    probe, job = action._execute_module.call_args_list
    assert probe.kwargs["module_name"] == "gpufleet.hosts.nvidia_gpu_facts"
    assert "wrap_async" not in probe.kwargs
    assert job.kwargs["wrap_async"] is True
    assert job.kwargs["module_args"]["_nvml_binding_path"].endswith("pynvml-13.615.71.zip")


def test_an_asynchronous_job_on_a_host_with_a_binding_gets_none(action):
    action._task.async_val = 60
    action._execute_module.side_effect = [DONE, {"started": 1}]
    action.run(task_vars={})
    assert action._execute_module.call_args.kwargs["module_args"] == {"name": "x"}
    action._transfer_file.assert_not_called()


@pytest.mark.parametrize("async_val", [0, 60])
def test_neither_host_nor_controller_has_a_binding(action, monkeypatch, async_val):
    action._task.async_val = async_val
    action._execute_module.side_effect = [MISSING]
    monkeypatch.setattr(nvml_binding, "controller_binding", lambda: None)
    result = action.run(task_vars={})
    assert result["failed"] is True
    for word in (
        "An NVIDIA driver is installed",
        "neither the host nor the controller has it",
        "pip install nvidia-ml-py",
    ):
        assert word in result["msg"]
    assert sys.executable in result["msg"]


def test_a_package_without_a_file_is_not_a_binding(monkeypatch):
    for spec in (None, SimpleNamespace(origin=None), SimpleNamespace(origin="/gone/pynvml.py")):
        monkeypatch.setattr(nvml_binding.importlib.util, "find_spec", lambda name, spec=spec: spec)
        assert nvml_binding.controller_binding() is None


@pytest.fixture
def imported(tmp_path, monkeypatch):
    """Import the packed binding, optionally changed, with a Python that has no other pynvml."""

    def load(change=None):
        binding = nvml_binding.controller_binding()
        packed = Path(nvml_binding.pack(binding, str(tmp_path)))
        named = tmp_path / nvml_binding.archive_name(binding)
        with zipfile.ZipFile(packed) as before, zipfile.ZipFile(named, "w") as after:
            for name in before.namelist():
                after.writestr(name, (change or (lambda name, data: data))(name, before.read(name)))
        monkeypatch.setattr(sys, "path", [entry for entry in sys.path if "site-packages" not in entry])
        monkeypatch.delitem(sys.modules, "pynvml", raising=False)
        with pytest.raises(BindingMissing, match="No module named 'pynvml'"):
            load_binding()
        module = load_binding(str(named))
        assert binding_version(module.__file__) == "13.615.71"
        assert module.nvmlInit.__name__ == "nvmlInit"
        sys.modules.pop("pynvml")
        return module.__file__.replace(str(named), "")

    return load


def test_the_packed_binding_is_imported_from_bytecode(imported):
    assert imported() == "/pynvml.pyc"


def test_another_python_compiles_the_packed_binding(imported):
    assert imported(lambda name, data: b"3.99" + data[4:] if name.endswith(".pyc") else data) == "/pynvml.py"


def test_a_package_is_packed_with_its_modules(tmp_path):
    package = tmp_path / "pynvml"
    package.mkdir()
    for name, source in (("__init__.py", ""), ("nvml.py", ""), ("smi.py", "print 'two'")):
        (package / name).write_text(source)
    packed = nvml_binding.pack(str(package / "__init__.py"), str(tmp_path))
    with zipfile.ZipFile(packed) as archive:
        names = archive.namelist()
    assert names == [f"pynvml/{name}" for name in ("__init__.py", "__init__.pyc", "nvml.py", "nvml.pyc", "smi.py")]


def test_the_result_of_a_missing_binding_is_understood_by_the_action_plugin():
    result = BindingMissing("No module named 'pynvml'").result()
    assert result["nvml_binding_missing"] is True
    for word in ("An NVIDIA driver is installed", ": No module named 'pynvml'.", "nvidia-ml-py on the host"):
        assert word in result["msg"]
