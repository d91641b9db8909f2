# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Valid TOML and JSON with values of other types: a problem that names the file, the key and the value."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes import (
    distribution_paths,
    node_distribution,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.neuron_driver import oci_hook
from ansible_collections.gpufleet.hosts.plugins.module_utils.neuron_driver.variables import NeuronDriverRequest
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import (
    docker_runtime,
    registered_runtimes,
    toml_editor,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri import registration_and_removal as cri_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri.containerd_versions import ROOT_FILE
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri.vendor_runtimes import (
    HABANA,
    NVIDIA,
    CriRuntime,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.kubernetes_node import (
    generated_configuration,
    nvidia_runtime,
)
from ansible_collections.gpufleet.hosts.tests.unit.plugins import container_toolkit_samples as samples
from ansible_collections.gpufleet.hosts.tests.unit.plugins import kubernetes_samples

V2 = "io.containerd.grpc.v1.cri"
CONTAINERD = f'plugins."{V2}".containerd'
CRIO_FILE, WAY_OUT = "/etc/crio/crio.conf", "Correct the file, and run the role again"
OF_CONTAINERD = [
    ("disabled_plugins = 5", "disabled_plugins is '5'"),
    ('disabled_plugins = [["cri"]]', "disabled_plugins is"),
    ("version = [2]", "version is '[2]', but must be an integer"),
    ("version = true", "version is 'True'"),
    ("imports = 5", "imports is '5'"),
    ("imports = [1]", "imports is '[1]', but must be a list of strings"),
    ('imports = "/etc/x.toml"', "imports is '/etc/x.toml'"),
    ("plugins = 5", "plugins is '5'"),
    (f'plugins."{V2}" = 5', f'plugins."{V2}" is'),
    (f"{CONTAINERD} = 5", f"{CONTAINERD} is '5', but must be a table"),
    (f'{CONTAINERD}.runtimes = "x"', f"{CONTAINERD}.runtimes is 'x'"),
    (f'{CONTAINERD}.runtimes.runc = "x"', f"{CONTAINERD}.runtimes.runc is 'x'"),
    (f'{CONTAINERD}.runtimes.runc.options = "x"', f"{CONTAINERD}.runtimes.runc.options is 'x'"),
    (f'{CONTAINERD}.runtimes.runc.base_runtime_spec = ["x"]', "base_runtime_spec is"),
    (f'{CONTAINERD}.default_runtime_name = ["x"]', "default_runtime_name is"),
]
OF_CRIO = [
    ('crio = "x"', "crio is 'x'"),
    ('crio.runtime = "x"', "crio.runtime is 'x'"),
    ("crio.runtime.runtimes = [1]", "crio.runtime.runtimes is '[1]'"),
    ('crio.runtime.runtimes.runc = "x"', "crio.runtime.runtimes.runc is 'x'"),
    ('crio.runtime.default_runtime = ["a"]', "crio.runtime.default_runtime is"),
    ("crio.runtime.runtimes.crun.monitor_env = [5]", "crio.runtime.runtimes.crun.monitor_env is '[5]'"),
]


@pytest.mark.parametrize("engine", ["containerd", "crio"])
@pytest.mark.parametrize("runtime", [NVIDIA, HABANA], ids=["nvidia", "habana"])
def test_other_types_in_files_of_engines_are_named(engine: str, runtime: CriRuntime) -> None:
    path = ROOT_FILE if engine == "containerd" else CRIO_FILE
    for line, words in OF_CONTAINERD if engine == "containerd" else OF_CRIO:
        # Dotted keys make tables, so the version stands before them.
        text = line if line.startswith("version") or engine == "crio" else f"version = 2\n{line}"
        seen: t.Any = samples.host("debian-13", {engine: "1.7.24"})
        seen["engines"][engine] = {"package": engine, "version": "1.7.24"}
        seen["cri_files"] |= {engine: {path: text}}
        done = cri_plan.plan(seen, {engine: "1.7.24"}, runtime, default_runtime=False, restart_policy="when_safe")
        (problem,) = done.problems
        assert (path in problem, words in problem, WAY_OUT in problem, done.engines) == (True, True, True, []), line
        assert registered_runtimes.by_engine(seen) == {}
        if engine == "containerd":
            seen["cri_files"]["containerd"][runtime.containerd_drop_in] = ""
            gone = cri_plan.removal(seen, "when_safe", runtime)
            assert (len(gone.problems), words in gone.problems[0], gone.engines) == (1, True, []), line


@pytest.mark.parametrize(
    ("name", "path", "text"),
    [
        ("k0s", distribution_paths.K0S_ROOT, f"{distribution_paths.K0S_MANAGED}\nversion = [2]\n"),
        *[
            ("k0s", distribution_paths.GENERATED["k0s"], f"{line}\n")
            for line, _words in OF_CONTAINERD
            if "version" not in line
        ],
        *[("k3s agent", distribution_paths.GENERATED["k3s"], f"{line}\n") for line, _words in OF_CONTAINERD],
    ],
)
def test_other_types_in_files_of_distributions_are_named(name: str, path: str, text: str, tmp_path: Path) -> None:
    seen: t.Any = kubernetes_samples.node(tmp_path, name)
    seen["cri_files"]["nodes"][path] = text
    found = node_distribution.recognize(seen).node
    assert found is not None
    done = nvidia_runtime.plan(seen, found, {}, has_runtime=True, default_runtime=True, restart_policy="always")
    assert (len(done.problems), f"{path} is not valid" in done.problems[0], done.engines) == (1, True, [])


def test_filters_read_generated_files_with_other_types() -> None:
    for line, _words in OF_CONTAINERD:
        tree = toml_editor.parse(line)
        assert generated_configuration.registered_program(tree, "nvidia") is None
        assert generated_configuration.default_name(tree) in (None, "['x']")


@pytest.mark.parametrize("runtimes", [["nvidia"], "x", 5])
def test_runtimes_of_another_type_in_daemon_json_are_named(runtimes: t.Any) -> None:
    seen: t.Any = samples.host("debian-13", {"docker": "29.0"})
    seen["docker_daemon_json"] = {"content": {"runtimes": runtimes}, "flags": [], "error": None, "missing_runtimes": {}}
    assert "docker" not in registered_runtimes.by_engine(seen)
    definition = json.dumps({"runtimes": {"neuron": {"path": "/opt/x"}}})
    seen["files"][owned.NEURON_HOOK_CONFIG] = {"exists": True, "content": definition}
    seen["installed_packages"][oci_hook.HOOK] = "1.0 amd64"
    seen["os"] |= {"family": "debian"}
    hook = oci_hook.plan(seen, NeuronDriverRequest(oci_hook=True))
    for (problem,) in (docker_runtime.plan(seen, default_runtime=False).problems, hook.problems):
        assert f"daemon.json, runtimes: {str(runtimes)!r} is not an object" in problem
        assert WAY_OUT in problem
