# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA's runtime on nodes of every distribution: first run, second run, removal. Generated files never change."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes import distribution_paths, node_distribution
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import toml_editor
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri import registration_and_removal as cri_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri.cri_changes import CriPlan
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.kubernetes_node import (
    nvidia_runtime,
    runtime_removal,
)
from ansible_collections.gpufleet.hosts.tests.unit.plugins import kubernetes_samples as samples

DROP_IN, SETTINGS = distribution_paths.K0S_DROP_IN, distribution_paths.SETTINGS


def plan(seen: t.Any, *, policy: str = "when_safe", default: bool = False, has_runtime: bool = True) -> CriPlan:
    node = node_distribution.recognize(seen).node
    assert node is not None
    engines = {"containerd": "1.7.24"} if node.distribution in ("kubeadm", "other") else {}
    return nvidia_runtime.plan(
        seen, node, engines, has_runtime=has_runtime, default_runtime=default, restart_policy=policy
    )


def node(folder: Path, name: str) -> dict[str, t.Any]:
    seen = samples.node(folder, name)
    if "containerd.service" in seen["services"]:
        seen["engines"]["containerd"] = {"package": "containerd", "version": "1.7.24"}
    return seen


def carried_out(seen: dict[str, t.Any], done: CriPlan) -> None:
    """Write the files, and let k3s and RKE2 find the runtime when they start."""
    texts = seen["cri_files"]["nodes"]
    for change in done.engines:
        for file in change.files:
            assert file.path not in distribution_paths.GENERATED.values()
            assert texts.get(file.path) == file.former
            texts.pop(file.path, None)
            if file.content is not None:
                texts[file.path] = file.content
        if change.action:
            for path, settings in ((samples.K3S_FILE, SETTINGS["k3s"]), (samples.RKE2_FILE, SETTINGS["rke2"])):
                name = f"\n[plugins.'{samples.V3}'.containerd]\ndefault_runtime_name = 'nvidia'\n"
                found = samples.K3S_FOUND + (name if settings in texts else "")
                texts.update({path: found} if path in texts else {})


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("k3s server", []),
        ("k3s agent", ["restart k3s-agent.service"]),
        ("RKE2 agent", ["restart rke2-agent.service"]),
        ("RKE2 of an image", []),
        ("k0s", [f"write {DROP_IN}"]),
        ("MicroK8s", []),
        ("EKS", []),
        ("Kubespray", []),
    ],
)
def test_runtime_is_registered_once(name: str, changes: list[str], tmp_path: Path) -> None:
    seen = node(tmp_path, name)
    done = plan(seen)
    assert (done.changes, done.problems) == (changes, [])
    assert len(done.disruptions) == len(changes)
    carried_out(seen, done)
    again = plan(seen)
    assert (again.changes, again.engines, again.problems, again.disruptions) == ([], [], [], [])


def test_kubeadm_gets_the_drop_in_of_the_toolkit_s_role(tmp_path: Path) -> None:
    done = plan(node(tmp_path, "kubeadm"))
    assert done.engines[0].files[0].path == owned.CONTAINERD_DROP_IN
    assert (done.engines[0].unit, done.engines[0].action) == ("containerd.service", "restarted")


@pytest.mark.parametrize("name", ["EKS", "EKS before nodeadm", "Kubespray", "k3s agent", "RKE2 agent"])
def test_role_of_the_toolkit_alone_does_no_more_in_the_files_of_a_node(name: str, tmp_path: Path) -> None:
    seen = node(tmp_path, name)
    seen["engines"]["containerd"] = {"package": "containerd", "version": "2.1.4"}
    done = cri_plan.plan(
        t.cast("t.Any", seen), {"containerd": "2.1.4"}, default_runtime=True, restart_policy="when_safe"
    )
    assert (done.changes, done.engines, done.problems) == ([], [], [])
    assert "writes containerd's configuration, so it stays unchanged" in done.reasons[0]


def test_files_of_an_uninstalled_k3s_do_not_keep_kubeadm_from_its_runtime(tmp_path: Path) -> None:
    seen = node(tmp_path, "k3s left beside kubeadm")
    gone = {"load_state": "not-found", "active_state": "inactive"}
    seen["services"] |= dict.fromkeys(distribution_paths.OWN_UNITS["k3s"], gone)
    assert plan(seen).changes[-1] == "restart containerd.service"
    seen["services"]["k3s.service"] = samples.INSTALLED
    assert "Role gpu_kubernetes_node registers runtime nvidia in k3s" in plan(seen).reasons[0]


@pytest.mark.parametrize("name", ["k3s server", "k3s agent", "RKE2 server"])
def test_default_runtime_of_k3s_and_rke2_is_a_setting_that_is_removed_again(name: str, tmp_path: Path) -> None:
    seen = node(tmp_path, name)
    done = plan(seen, default=True, policy="always")
    (change,) = done.engines
    path = SETTINGS["rke2" if "RKE2" in name else "k3s"]
    assert [(file.path, str(file.content).splitlines()[-1]) for file in change.files] == [
        (path, "default-runtime: nvidia")
    ]
    assert change.action == "restarted"
    carried_out(seen, done)
    assert plan(seen, default=True, policy="always").changes == []
    found = node_distribution.recognize(t.cast("t.Any", seen)).node
    gone = runtime_removal.of_distributions(t.cast("t.Any", seen), found, "always")
    assert gone.changes == [f"remove {path}", f"restart {change.unit}"]
    carried_out(seen, gone)
    assert runtime_removal.of_distributions(t.cast("t.Any", seen), found, "always").changes == []
    # Back to runc as the default without state absent.
    carried_out(seen, plan(seen, default=True, policy="always"))
    assert plan(seen, policy="always").changes == [f"remove {path}", f"restart {change.unit}"]


def test_drop_in_of_k0s_keeps_the_options_of_runc_and_the_version_of_the_file(tmp_path: Path) -> None:
    seen = node(tmp_path, "k0s")
    runc = f'[plugins."{samples.V2}".containerd.runtimes.runc.options]\nSystemdCgroup = true\n'
    seen["cri_files"]["nodes"][distribution_paths.GENERATED["k0s"]] = "version = 2\n" + runc
    done = plan(seen, default=True)
    tree = toml_editor.parse(str(done.engines[0].files[0].content))
    table = tree["plugins"][samples.V2]["containerd"]
    options = {"SystemdCgroup": True, "BinaryName": "/usr/bin/nvidia-container-runtime"}
    assert (tree["version"], table["default_runtime_name"]) == (2, "nvidia")
    assert table["runtimes"]["nvidia"]["options"] == options
    carried_out(seen, done)
    gone = runtime_removal.of_distributions(t.cast("t.Any", seen), None, "when_safe")
    assert (gone.changes, gone.engines[0].action) == ([f"remove {DROP_IN}"], None)


@pytest.mark.parametrize(
    ("name", "file", "text", "words"),
    [
        ("k0s", distribution_paths.K0S_ROOT, "version = 2\n", "k0s ignores drop-ins"),
        ("k0s", distribution_paths.K0S_ROOT, None, "k0s has not started"),
        (
            "k0s",
            distribution_paths.GENERATED["k0s"],
            samples.K3S_FOUND,
            "already registered in k0s as /usr/bin/nvidia-container",
        ),
        ("k3s agent", samples.K3S_FILE, None, "another data directory"),
        ("k3s agent", distribution_paths.TEMPLATES["k3s"][1], "version = 2\n", "your own template without"),
    ],
)
def test_what_the_role_leaves_alone_is_said(name: str, file: str, text: str | None, words: str, tmp_path: Path) -> None:
    seen = node(tmp_path, name)
    seen["cri_files"]["nodes"].pop(file, None)
    seen["cri_files"]["nodes"].update({file: text} if text is not None else {})
    done = plan(seen)
    assert (done.changes, done.problems) == ([], [])
    assert words in " ".join(done.reasons)


V2, V3 = distribution_paths.TEMPLATES["k3s"][1], distribution_paths.TEMPLATES["k3s"][0]
NEW, OLD = samples.K3S, samples.K3S.replace("version = 3", "version = 2")
BARE = "version = 2\n"


@pytest.mark.parametrize(
    ("templates", "generated", "restarts"),
    [
        ({V3: '{{ template "base" . }}\n'}, NEW, True),
        ({V3: '{{- template "base" . -}}\n[debug]\n'}, NEW, True),
        ({V2: '{{template "base" .}}\n'}, OLD, True),
        # A copy of the base of an older k3s.
        ({V2: '{{range $k, $v := .ExtraRuntimes}}\n[plugins.cri.containerd.runtimes."{{$k}}"]\n{{end}}\n'}, OLD, True),
        ({V2: '[plugins."io.containerd.grpc.v1.cri".containerd.runtimes."nvidia"]\n'}, OLD, True),
        ({V2: "[plugins.cri.containerd.runtimes.nvidia]\n"}, OLD, True),
        ({V2: BARE}, OLD, False),
        ({V3: "version = 3\n"}, NEW, False),
        ({V2: '[plugins.cri.containerd.runtimes."nvidia-cdi"]\n'}, OLD, False),
        # The first template counts, unless k3s is too old for it.
        ({V3: '{{ template "base" . }}', V2: BARE}, NEW, True),
        ({V3: BARE, V2: '{{ template "base" . }}'}, NEW, False),
        ({V3: BARE, V2: '{{ template "base" . }}'}, OLD, True),
        ({V3: BARE}, OLD, True),
    ],
)
def test_template_of_the_user_that_keeps_k3s_from_adding_the_runtime(
    templates: dict[str, str], generated: str, restarts: bool, tmp_path: Path
) -> None:
    seen = node(tmp_path, "k3s agent")
    seen["cri_files"]["nodes"] |= {**templates, samples.K3S_FILE: generated}
    done = plan(seen)
    assert done.changes == (["restart k3s-agent.service"] if restarts else [])
    assert ("your own template without" in " ".join(done.reasons)) == (not restarts)


def test_default_runtime_that_the_user_has_set_needs_no_file(tmp_path: Path) -> None:
    seen = node(tmp_path, "k3s server")
    default = f"\n[plugins.'{samples.V3}'.containerd]\ndefault_runtime_name = \"nvidia\"\n"
    seen["cri_files"]["nodes"][samples.K3S_FILE] += default
    done = plan(seen, default=True, policy="always")
    assert (done.changes, done.engines) == ([], [])
    assert "already the default runtime of k3s" in done.reasons[0]


@pytest.mark.parametrize(
    ("name", "policy", "action"),
    [
        ("RKE2 agent", "when_safe", True),
        ("RKE2 agent", "never", False),
        ("RKE2 server", "when_safe", False),
        ("RKE2 server", "always", True),
    ],
)
def test_server_is_only_restarted_if_the_user_says_always(name: str, policy: str, action: bool, tmp_path: Path) -> None:
    done = plan(node(tmp_path, name), policy=policy)
    (disruption,) = done.disruptions
    assert bool(done.engines) == action
    assert (disruption.state == "required") == action
    assert action or "is not restarted" in done.reasons[0]
    assert "kubelet" in disruption.reason


OPERATORS = "/usr/local/nvidia/toolkit/nvidia-container-runtime"


@pytest.mark.parametrize(
    ("name", "exists", "has_runtime", "expected"),
    [
        # The GPU Operator has installed its toolkit on the node, and k3s has found it.
        ("k3s agent", True, False, ""),
        ("k3s agent", True, True, ""),
        # The operator was uninstalled since k3s started.
        ("k3s agent", False, True, "restart k3s-agent.service"),
        ("k3s agent", False, False, "is not installed"),
        ("k0s", True, False, ""),
        ("k0s", False, True, f"write {DROP_IN}"),
        ("kubeadm", True, False, ""),
        ("kubeadm", False, False, "is not installed"),
    ],
)
def test_runtime_of_another_toolkit_is_kept_if_its_program_exists(
    name: str, exists: bool, has_runtime: bool, expected: str, tmp_path: Path
) -> None:
    seen = node(tmp_path, name)
    files = seen["cri_files"]
    text = samples.K3S_FOUND.replace("/usr/bin/nvidia-container-runtime", OPERATORS)
    if name == "kubeadm":
        options = f"[plugins.'{samples.V2}'.containerd.runtimes.nvidia.options]\nBinaryName = '{OPERATORS}'\n"
        files["containerd"] = {"/etc/containerd/config.toml": "version = 2\n" + options}
    else:
        files["nodes"][samples.K3S_FILE if name == "k3s agent" else distribution_paths.GENERATED["k0s"]] = text
    seen["nvidia_runtimes"] = {OPERATORS: "1.18.0"} if exists else {}
    done = plan(seen, has_runtime=has_runtime)
    assert len([*done.changes, *done.problems]) == bool(expected)
    assert expected in "".join([*done.changes, *done.problems])


def test_foreign_registration_in_k0s_is_completed_with_the_default_runtime(tmp_path: Path) -> None:
    seen = node(tmp_path, "k0s")
    seen["cri_files"]["nodes"][distribution_paths.GENERATED["k0s"]] = samples.K3S_FOUND
    assert plan(seen).changes == []
    assert plan(seen, default=True).changes == [f"write {DROP_IN}"]


def test_setting_that_a_server_has_not_applied_is_named_in_every_run(tmp_path: Path) -> None:
    seen = node(tmp_path, "k3s server")
    done = plan(seen, default=True)
    assert (done.engines[0].action, done.disruptions[0].state) == (None, "forbidden")
    carried_out(seen, done)
    again = plan(seen, default=True)
    assert again.changes == []
    assert again.reasons[0] == f"k3s.service has not applied {SETTINGS['k3s']}"
    # The first run advises this policy for the restart.
    assert "set gpu_kubernetes_node_restart_policy to always" in again.reasons[1]
    allowed = plan(seen, default=True, policy="always")
    assert (allowed.changes, allowed.engines[0].action) == (["restart k3s.service"], "restarted")
    carried_out(seen, allowed)
    assert plan(seen, default=True, policy="always").changes == []


def test_setting_that_k3s_ignores_causes_no_further_restart(tmp_path: Path) -> None:
    seen = node(tmp_path, "k3s server")
    carried_out(seen, plan(seen, default=True))
    seen["cri_files"]["ignored"] = [SETTINGS["k3s"]]
    again = plan(seen, default=True, policy="always")
    assert (again.changes, again.engines, again.disruptions) == ([], [], [])
    assert "although it has started since" in again.reasons[0]


def test_removal_on_a_server_leaves_the_restart_to_the_user_and_says_so(tmp_path: Path) -> None:
    seen = node(tmp_path, "k3s server")
    carried_out(seen, plan(seen, default=True))
    found = node_distribution.recognize(t.cast("t.Any", seen)).node
    gone = runtime_removal.of_distributions(t.cast("t.Any", seen), found, "when_safe")
    assert (gone.changes, gone.engines[0].action) == ([f"remove {SETTINGS['k3s']}"], None)
    assert (gone.disruptions[0].state, "is not restarted" in gone.reasons[0]) == ("forbidden", True)


@pytest.mark.parametrize("name", ["kubeadm", "k3s agent", "k0s"])
def test_node_without_the_toolkit_is_a_problem_with_the_way_out(name: str, tmp_path: Path) -> None:
    (problem,) = plan(node(tmp_path, name), has_runtime=False).problems
    assert "Run role nvidia_container_toolkit first" in problem


def test_broken_generated_file_is_named_and_stays(tmp_path: Path) -> None:
    seen = node(tmp_path, "k3s agent")
    seen["cri_files"]["nodes"][samples.K3S_FILE] = "version = [\n"
    done = plan(seen)
    assert done.engines == []
    assert "The configuration that k3s generates cannot be read" in done.problems[0]


@pytest.mark.parametrize(("default", "leaves_out"), [(False, True), (True, False)])
def test_registration_by_the_toolkit_role_in_this_run_is_left_out(
    default: bool, leaves_out: bool, tmp_path: Path
) -> None:
    seen: t.Any = node(tmp_path, "kubeadm")
    found = node_distribution.recognize(seen).node
    assert found is not None
    done = nvidia_runtime.plan(
        seen,
        found,
        {"containerd": "1.7.24"},
        has_runtime=True,
        toolkit_role_registers=True,
        default_runtime=default,
        restart_policy="when_safe",
    )
    assert (done.engines == []) is leaves_out
    assert ("role nvidia_container_toolkit registers the runtime in the same run" in done.reasons) is leaves_out
