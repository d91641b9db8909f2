# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Role gaudi_driver: the vendor's container runtime in the engines, its configuration, and its hook for Podman."""

from __future__ import annotations

import json
import re

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.gaudi_driver import habana_runtime
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import toml_editor
from ansible_collections.gpufleet.hosts.tests.unit.plugins import gaudi_hosts, kubernetes_samples
from ansible_collections.gpufleet.hosts.tests.unit.plugins.gaudi_trees import GAUDI, GAUDI3, GaudiTree
from ansible_collections.gpufleet.hosts.tests.unit.plugins.module_utils.gaudi_driver.test_plan import (
    INSTALLED,
    UNIT,
    bare,
    planned,
    record,
    working,
)

FIXED, VULNERABLE = "1.24.0-1007", "1.23.0-695"
ALL = [*UNIT, habana_runtime.PACKAGE]
DAEMON_JSON = "/etc/docker/daemon.json"


def with_runtime(tmp_path, version: str = FIXED, *, docker: bool = True, config: str | None = "", **files):
    """Return a host with the driver and the runtime of others."""
    host = working(tmp_path, packages=dict.fromkeys(ALL, version))
    if docker:
        host["engines"]["docker"].update(package="docker-ce", version="28.3.3")
    for path, text in {habana_runtime.CONFIG: config, habana_runtime.PACKAGED_HOOK: "{}", **files}.items():
        host["files"][path] = {"exists": text is not None, "content": text, "mode": "0644"}
    host["files"].setdefault(DAEMON_JSON, {"exists": False, "content": None, "mode": None})
    return host


def run(host, versions=None, **values):
    return planned(host, versions, container_runtime=True, **values)


def test_the_runtime_is_registered_in_docker_with_an_explicit_default(tmp_path):
    result = run(with_runtime(tmp_path))
    assert result.problems == []
    assert result.runtime.options == {"runtimes": {"habana": {"path": "/usr/bin/habana-container-runtime"}}}
    config = toml_editor.parse(result.runtime.files[habana_runtime.CONFIG] or "")
    assert config == {"habana-container-runtime": {"visible_devices_all_as_default": False}}
    assert list(result.runtime.files) == [
        owned.GAUDI_CONFIG_RECORD,
        habana_runtime.CONFIG,
        owned.GAUDI_HOOK,
        owned.GAUDI_HOOKS_DIR,
    ]


def test_the_keys_of_others_in_the_configuration_stay(tmp_path):
    text = 'mount_uverbs = true\n\n[habana-container-runtime]\nvisible_devices_all_as_default = true\nmode = "oci"\n'
    changed = run(with_runtime(tmp_path, config=text)).runtime.files[habana_runtime.CONFIG]
    assert changed == text.replace("default = true", "default = false")
    already = run(with_runtime(tmp_path / "again", config=changed))
    assert habana_runtime.CONFIG not in already.runtime.files


def test_the_hook_for_podman_is_overridden_by_one_that_never_runs():
    hook = habana_runtime.HOOK_OVERRIDE
    assert owned.GAUDI_HOOK.rpartition("/")[2] == habana_runtime.PACKAGED_HOOK.rpartition("/")[2]
    ((name, value),) = hook["when"]["annotations"].items()
    assert re.search(name, "gpufleet.hosts/never")
    assert not re.search(value, "")
    assert "always" not in hook["when"]


@pytest.mark.parametrize(
    ("text", "is_written", "is_named"),
    [
        (None, True, False),
        ("[engine]\n# hooks_dir = []\n", True, False),
        ('[engine]\nhooks_dir = ["/usr/share/containers/oci/hooks.d"]\n', False, True),
        ('[engine]\nhooks_dir = ["/opt/hooks.d", "/etc/containers/oci/hooks.d"]\n', False, False),
    ],
)
def test_the_directories_of_hooks_are_set_unless_the_user_has_set_them(tmp_path, text, is_written, is_named):
    host = with_runtime(tmp_path)
    if text is not None:
        host["accelerators"]["gaudi"]["record"]["texts"]["/etc/containers/containers.conf"] = text
    result = run(host)
    written = result.runtime.files.get(owned.GAUDI_HOOKS_DIR) or ""
    assert ('"/usr/share/containers/oci/hooks.d", "/etc/containers/oci/hooks.d"]' in written) is is_written
    assert any("sets hooks_dir without" in reason for reason in result.reasons) is is_named


@pytest.mark.parametrize(
    ("offered", "values", "words"),
    [
        ([VULNERABLE], {}, "CVE-2026-32677"),
        ([FIXED, VULNERABLE], {"version": "1.23"}, "Set gaudi_driver_version to 1.24.0 or newer"),
    ],
)
def test_a_vulnerable_runtime_is_never_installed(tmp_path, offered, values, words):
    result = run(bare(tmp_path), dict.fromkeys(ALL, offered), **values)
    assert words in result.problems[0]
    assert not result.acts


@pytest.mark.parametrize(
    ("device", "values", "words"),
    [
        (GAUDI3, {"version": "1.23"}, "gaudi_driver_version is 1.23, which has the vulnerability CVE-2026-32677"),
        (GAUDI3, {"version": "1.23.0-695"}, "Set gaudi_driver_version to 1.24.0 or newer"),
        (GAUDI, {}, "1.21 was the last release for the first generation of Gaudi in this host"),
        ("0x1011", {"version": "1.21"}, "Set gaudi_driver_container_runtime to false and use CDI"),
    ],
)
def test_a_request_that_no_repository_can_satisfy_asks_for_no_versions(tmp_path, device, values, words):
    result = run(bare(tmp_path, device), **values)
    assert words in result.problems[0]
    assert (len(result.problems), result.query, result.acts) == (1, None, False)


@pytest.mark.parametrize("version", ["", "1.24", "1.24.0", "1.24.0-1007", "2.0"])
def test_versions_that_can_have_the_runtime_are_asked_for(tmp_path, version):
    result = run(bare(tmp_path), version=version)
    assert result.problems == []
    assert result.query is not None


def test_the_hook_stays_overridden_while_the_package_of_the_role_stays(tmp_path):
    first = run(with_runtime(tmp_path))
    host = record(with_runtime(tmp_path / "after"), requested=ALL, packages=ALL, holds=ALL)
    host["held_packages"] = ALL
    for path, content in first.runtime.files.items():
        host["files"][path] = {"exists": True, "content": content, "mode": "0644"}
    result = planned(host)
    assert (result.problems, result.runtime.files, result.transaction) == ([], {}, None)
    assert any("the override of its hook stays" in reason for reason in result.reasons)
    # All packages keep one version.
    newer = planned(host, {name: ["1.25.0-1"] for name in ALL}, version="1.25")
    assert newer.transaction is not None
    assert newer.transaction.install == [f"{name}=1.25.0-1" for name in ALL]
    gone = planned(host, state="absent")
    assert (gone.packages, gone.runtime.files[owned.GAUDI_HOOK]) == (sorted(ALL), None)


def test_a_repository_without_a_fixed_version_is_a_problem(tmp_path):
    (problem,) = run(bare(tmp_path), {name: [VULNERABLE] for name in ALL}).problems
    assert problem.endswith("It has no version that can be used.")


def test_all_packages_get_the_version_of_the_fixed_runtime(tmp_path):
    result = run(bare(tmp_path), {name: [FIXED, VULNERABLE] for name in ALL})
    assert result.transaction is not None
    assert result.transaction.install == [f"{name}={FIXED}" for name in ALL]
    assert f"set visible_devices_all_as_default in {habana_runtime.CONFIG}" in result.changes
    # The configuration file belongs to the package, which is not installed yet.
    assert habana_runtime.CONFIG not in result.runtime.files


def test_an_adopted_vulnerable_runtime_is_a_problem(tmp_path):
    (problem,) = run(with_runtime(tmp_path, VULNERABLE)).problems
    assert "habanalabs-container-runtime 1.23.0-695 has the vulnerability CVE-2026-32677" in problem


def test_an_adopted_driver_without_the_runtime_is_a_problem(tmp_path):
    (problem,) = run(working(tmp_path, packages=INSTALLED)).problems
    assert "the adopted driver came without habanalabs-container-runtime" in problem


@pytest.mark.parametrize(("number", "is_refused"), [(9, False), (10, True)])
def test_ten_accelerators_are_refused_with_the_reason(tmp_path, number, is_refused):
    host = with_runtime(tmp_path)
    tree = GaudiTree(tmp_path / "large")
    for index in range(number):
        tree.accelerator(f"0000:{0x19 + index:02x}:00.0", index, index)
    host["accelerators"] = gaudi_hosts.observed(tree)["accelerators"]
    problems = run(host).problems
    assert any("compares only the last digit" in problem for problem in problems) is is_refused


V2 = "io.containerd.grpc.v1.cri"
# CRI-O's own packages have their OCI runtimes here: cri-o/packaging, templates/latest/cri-o (b111fe9).
CRIO = (
    '[crio.runtime]\ndefault_runtime = "crun"\n[crio.runtime.runtimes.crun]\nruntime_path = "/usr/libexec/crio/crun"\n'
)


def of_cri(tmp_path, name: str, version: str, **texts):
    """Return a host of Kubernetes with one running engine and no Docker."""
    host = with_runtime(tmp_path, docker=False)
    host["engines"][name].update(package=name, version=version)
    host["services"][f"{name}.service"] = {"load_state": "loaded", "active_state": "active", "active_since_us": 4711}
    host["cri_files"] = {**host["cri_files"], **texts}
    return host


@pytest.mark.parametrize(
    ("version", "text", "table"),
    [
        ("1.7.24", f'version = 2\n[plugins."{V2}".containerd.runtimes.runc.options]\nSystemdCgroup = true\n', V2),
        ("2.2.5", "version = 3\n", "io.containerd.cri.v1.runtime"),
    ],
)
def test_the_runtime_is_registered_in_containerd_at_the_right_level(tmp_path, version, text, table):
    root = "/etc/containerd/config.toml"
    result = run(of_cri(tmp_path, "containerd", version, containerd={root: text}))
    (engine,) = result.runtime.cri
    files = {file.path: file.content for file in engine.files}
    tree = toml_editor.parse(files[owned.GAUDI_CONTAINERD_DROP_IN])["plugins"][table]["containerd"]
    assert tree["runtimes"]["habana"]["runtime_type"] == "io.containerd.runc.v2"
    assert tree["runtimes"]["habana"]["options"]["BinaryName"] == "/usr/bin/habana-container-runtime"
    assert tree["runtimes"]["habana"]["options"].get("SystemdCgroup") is (True if "Systemd" in text else None)
    assert "default_runtime_name" not in tree
    assert toml_editor.parse(files[root])["imports"] == [owned.GAUDI_CONTAINERD_DROP_IN]
    assert files[owned.GAUDI_CONTAINERD_DROP_IN].startswith("# Written by role gpufleet.hosts.gaudi_driver.")
    assert (engine.unit, engine.action) == ("containerd.service", "restarted")
    assert f"write {owned.GAUDI_CONTAINERD_DROP_IN}" in result.changes
    assert [one.target for one in result.runtime.disruptions] == ["containerd.service"]


def test_the_runtime_is_registered_in_crio_and_its_hook_is_named(tmp_path):
    host = of_cri(tmp_path, "crio", "1.34.0", crio={"/etc/crio/crio.conf.d/10-crio.conf": CRIO})
    result = run(host)
    (engine,) = result.runtime.cri
    (file,) = engine.files
    runtime = toml_editor.parse(file.content or "")["crio"]["runtime"]["runtimes"]["habana"]
    assert (file.path, engine.action) == (owned.GAUDI_CRIO_DROP_IN, "reloaded")
    assert runtime["runtime_path"] == "/usr/bin/habana-container-runtime"
    # The vendor's program calls runc by its name, and CRI-O's packages have it beside crun.
    assert runtime["monitor_env"][0].startswith("PATH=/usr/local/sbin:")
    assert runtime["monitor_env"][0].endswith(":/usr/libexec/crio")
    assert any(f"{habana_runtime.PACKAGED_HOOK} runs for every container of CRI-O" in text for text in result.reasons)


def test_a_second_run_changes_neither_containerd_nor_crio_and_the_removal_both(tmp_path):
    for name, version, path in (
        ("containerd", "2.2.5", owned.GAUDI_CONTAINERD_DROP_IN),
        ("crio", "1.34.0", owned.GAUDI_CRIO_DROP_IN),
    ):
        host = of_cri(tmp_path / name, name, version)
        (engine,) = run(host).runtime.cri
        host["cri_files"][name] = {file.path: file.content for file in engine.files}
        assert run(host).runtime.cri == []
        for values in ({"state": "absent"}, {"container_runtime": False}):
            gone = planned(host, **values)
            assert [(file.path, file.content) for one in gone.runtime.cri for file in one.files] == [(path, None)]
            assert f"remove {path}" in gone.changes


def test_the_removal_is_refused_while_containers_of_containerd_run(tmp_path):
    host = of_cri(tmp_path, "containerd", "2.2.5", containerd={owned.GAUDI_CONTAINERD_DROP_IN: "version = 3\n"})
    host["engine_processes"]["containers"]["kubernetes"] = 2
    (problem,) = planned(host, state="absent").problems
    assert "container runtime of Gaudi cannot be removed: containers of containerd are running (2)" in problem


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("k3s agent", "has its own containerd"),
        ("k0s", "has its own containerd"),
        ("MicroK8s", "has its own containerd"),
        ("EKS", "nodeadm writes containerd's configuration"),
        ("Kubespray", "containerd_additional_runtimes"),
    ],
)
def test_configurations_that_others_generate_stay(tmp_path, name, words):
    host = with_runtime(tmp_path, docker=False)
    node = kubernetes_samples.node(tmp_path / "node", name)
    host["cri_files"] = node["cri_files"]
    host["services"] |= kubernetes_samples.NODES[name][1]
    host["engines"]["containerd"].update(package="containerd", version="2.2.5")
    result = run(host)
    assert (result.runtime.cri, result.problems) == ([], [])
    assert any(words in reason for reason in result.reasons)


def test_docker_s_own_containerd_gets_no_runtime(tmp_path):
    host = with_runtime(tmp_path)
    host["engines"]["containerd"].update(package="containerd.io", version="2.2.5")
    result = run(host)
    assert result.runtime.cri == []
    assert result.runtime.options is not None


def test_a_runtime_of_others_and_its_hook_are_named(tmp_path):
    result = planned(with_runtime(tmp_path))
    assert result.runtime.options is None
    assert any("runs for every container of Podman and CRI-O" in reason for reason in result.reasons)


def test_removal_restores_what_the_role_changed(tmp_path):
    text = "[habana-container-runtime]\nvisible_devices_all_as_default = true\n"
    first = run(with_runtime(tmp_path, config=text))
    host = record(with_runtime(tmp_path / "after", config=text))
    for path, content in first.runtime.files.items():
        host["files"][path] = {"exists": True, "content": content, "mode": "0644"}
    for values in ({"state": "absent"}, {"container_runtime": False}):
        result = planned(host, **values)
        assert result.runtime.files == {
            owned.GAUDI_CONFIG_RECORD: None,
            habana_runtime.CONFIG: text,
            owned.GAUDI_HOOKS_DIR: None,
            owned.GAUDI_HOOK: None,
        }


def test_a_converged_runtime_is_left_alone(tmp_path):
    first = run(with_runtime(tmp_path))
    host = with_runtime(tmp_path / "after")
    for path, content in first.runtime.files.items():
        host["files"][path] = {"exists": True, "content": content, "mode": "0644"}
    again = run(host)
    assert again.runtime.files == {}


def test_the_override_is_valid_json(tmp_path):
    text = run(with_runtime(tmp_path)).runtime.files[owned.GAUDI_HOOK]
    assert json.loads(text or "")["stages"] == ["prestart"]
