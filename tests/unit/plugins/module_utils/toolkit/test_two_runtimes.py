# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The runtimes of NVIDIA and Gaudi in one containerd, if one run changes both."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import variables as driver_request
from ansible_collections.gpufleet.hosts.plugins.module_utils.gaudi_driver import part as gaudi_part
from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes import role_variables
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.part_plan import Context
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import turns_of_parts
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import part as toolkit_part
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import plan as toolkit_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import toml_editor, toolkit_cdi_units
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri import registration_and_removal as cri_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri.containerd_versions import ROOT_FILE
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri.cri_changes import CriPlan
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri.vendor_runtimes import HABANA, NVIDIA
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.kubernetes_node import node_plan
from ansible_collections.gpufleet.hosts.tests.unit.plugins.module_utils.gaudi_driver import test_plan as gaudi_samples
from ansible_collections.gpufleet.hosts.tests.unit.plugins.module_utils.toolkit.cri import (
    test_registration_and_removal as cri_samples,
)

BOTH = {"1.7.24": cri_samples.OLD, "2.1.5": cri_samples.NEW}


def registered(seen: t.Any, runtime: t.Any, *, default: bool = False, by_node: bool | None = None) -> CriPlan:
    """Plan a runtime, and write its files."""
    engines = {"containerd": seen["engines"]["containerd"]["version"]}
    done = cri_plan.plan(seen, engines, runtime, default_runtime=default, restart_policy="when_safe", by_node=by_node)
    assert done.problems == []
    cri_samples.carried_out(seen, done)
    return done


def host_with_both(version: str) -> t.Any:
    seen = cri_samples.host("containerd", version, containerd={ROOT_FILE: BOTH[version]})
    for runtime in (NVIDIA, HABANA):
        registered(seen, runtime)
    return seen


def imports_exist(seen: t.Any) -> bool:
    """Return whether containerd starts: it does not if an imported drop-in does not exist."""
    texts = seen["cri_files"]["containerd"]
    names = toml_editor.parse(texts[ROOT_FILE]).get("imports") or []
    return all("*" in name or name in texts for name in names)


def as_kubeadm(seen: t.Any) -> t.Any:
    seen["services"]["kubelet.service"] = {"load_state": "loaded", "active_state": "active"}
    seen["installed_packages"] = {**seen["installed_packages"], "habanalabs-container-runtime": "1.24.0-1 amd64"}
    return seen


@pytest.mark.parametrize("version", BOTH)
@pytest.mark.parametrize("node_default", [False, True])
def test_role_of_the_node_leaves_no_import_of_a_removed_file(version: str, node_default: bool) -> None:
    seen = as_kubeadm(host_with_both(version))
    if node_default:
        registered(seen, HABANA, by_node=True)
    done = node_plan.plan(seen, role_variables.read({"state": "absent"}), ["nvidia", "gaudi"])
    assert done.problems == []
    cri_samples.carried_out(seen, t.cast("CriPlan", done))
    assert NVIDIA.containerd_drop_in not in seen["cri_files"]["containerd"]
    assert imports_exist(seen)


def test_role_of_the_node_registers_both_in_one_run() -> None:
    seen = as_kubeadm(host_with_both("2.1.5"))
    seen["engines"]["container_toolkit"] = {"package": "nvidia-container-toolkit", "version": "1.20.0"}
    texts = seen["cri_files"]["containerd"]
    # The drop-ins are there, but somebody has written the root file again.
    texts[ROOT_FILE] = cri_samples.NEW
    seen["files"].pop(cri_samples.RECORD)
    done = node_plan.plan(seen, role_variables.read({}), ["nvidia", "gaudi"])
    assert done.problems == []
    cri_samples.carried_out(seen, t.cast("CriPlan", done))
    imports = toml_editor.parse(texts[ROOT_FILE])["imports"]
    assert {NVIDIA.containerd_drop_in, HABANA.containerd_drop_in} <= set(imports)


@pytest.mark.parametrize(("first", "again"), [("present", False), ("absent", True)])
def test_the_part_of_gaudi_plans_again_after_the_toolkit_has_changed_containerd(
    first: str, again: bool, tmp_path: Path
) -> None:
    both = host_with_both("2.1.5")
    seen: t.Any = gaudi_samples.record(gaudi_samples.working(tmp_path, packages=gaudi_samples.INSTALLED))
    seen |= {name: both[name] for name in ("cri_files", "engines", "services")}
    seen["files"][cri_samples.RECORD] = both["files"][cri_samples.RECORD]
    values: dict[str, t.Any] = {
        "nvidia_container_toolkit": {"state": first, "source": "none"},
        "gaudi_driver": {"state": "absent"},
        "container_engine": {},
        "nvidia_driver": {},
    }
    context = Context(seen, values, {"gaudi_driver": gaudi_samples.PLATFORMS, "nvidia_container_toolkit": {}})
    parts = {"nvidia_container_toolkit": toolkit_part.plan(context, {})}
    parts["gaudi_driver"] = gaudi_part.plan(context, parts)
    assert "remove /etc/containerd/conf.d/99-gpufleet-gaudi.toml" in str(parts["gaudi_driver"].changes)
    how = turns_of_parts.apply(parts, check_mode=False)
    assert how["gaudi_driver"] == ("again" if again else "planned")


def test_a_mark_in_the_drop_in_restarts_nothing() -> None:
    seen = cri_samples.host("containerd", "2.1.5", containerd={ROOT_FILE: cri_samples.NEW})
    registered(seen, NVIDIA, by_node=True)
    (change,) = registered(seen, NVIDIA, default=True).engines
    assert ([file.path for file in change.files], change.action) == ([NVIDIA.containerd_drop_in], None)


ORDERS = [(NVIDIA, HABANA), (HABANA, NVIDIA)]


def used_by_old_containerd(seen: t.Any) -> dict[str, t.Any]:
    """Return the table of CRI of each drop-in. Before 2.0, containerd uses only that of the last file."""
    texts = seen["cri_files"]["containerd"]
    trees = [toml_editor.parse(texts[name]) for name in toml_editor.parse(texts[ROOT_FILE])["imports"]]
    tables = [tree["plugins"][cri_samples.V2] for tree in trees]
    assert all(table == tables[0] for table in tables)
    return dict(tables[-1])


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("default", [False, True])
@pytest.mark.parametrize("root", [cri_samples.OLD, None])
def test_an_old_containerd_knows_both_runtimes_and_the_second_run_changes_nothing(
    order: t.Any, default: bool, root: str | None
) -> None:
    texts = {} if root is None else {ROOT_FILE: root}
    seen = cri_samples.host("containerd", "1.7.24", containerd=dict(texts))
    for runtime in order:
        registered(seen, runtime, default=default and runtime is NVIDIA)
    for runtime in order:
        again = registered(seen, runtime, default=default and runtime is NVIDIA)
        assert (again.engines, again.reasons) == ([], [])
    table = used_by_old_containerd(seen)
    assert set(table["containerd"]["runtimes"]) == {"runc", "nvidia", "habana"}
    assert table["containerd"].get("default_runtime_name") == ("nvidia" if default else None)
    assert table.get("sandbox_image") == (None if root is None else "pause:3.10")
    # The removal of one of them leaves the other one, and the second removal no trace.
    for gone, rest in (order, order[::-1]):
        cri_samples.carried_out(seen, cri_plan.removal(seen, "when_safe", gone))
        if rest.containerd_drop_in not in seen["cri_files"]["containerd"]:
            break
        is_default = default and rest is NVIDIA
        table = used_by_old_containerd(seen)["containerd"]
        assert set(table["runtimes"]) == {"runc", rest.name}
        assert table.get("default_runtime_name") == ("nvidia" if is_default else None)
        assert registered(seen, rest, default=is_default).engines == []
    assert (seen["cri_files"]["containerd"], seen["files"][cri_samples.RECORD]["exists"]) == (texts, False)


def test_the_node_keeps_its_default_runtime_when_another_runtime_is_registered_and_removed() -> None:
    seen = cri_samples.host("containerd", "1.7.24", containerd={ROOT_FILE: cri_samples.OLD})
    registered(seen, HABANA, by_node=True)
    registered(seen, NVIDIA)
    for _run in range(2):
        assert registered(seen, HABANA, by_node=True).engines == []
        assert registered(seen, HABANA).engines == []
        assert used_by_old_containerd(seen)["containerd"]["default_runtime_name"] == "habana"
        cri_samples.carried_out(seen, cri_plan.removal(seen, "when_safe", NVIDIA))
    registered(seen, HABANA, by_node=False)
    assert "default_runtime_name" not in used_by_old_containerd(seen)["containerd"]


def test_both_runtimes_stay_when_containerd_becomes_new() -> None:
    seen = host_with_both("1.7.24")
    seen["engines"]["containerd"]["version"] = "2.1.5"
    for runtime in (NVIDIA, HABANA):
        registered(seen, runtime)
    assert all(registered(seen, runtime).engines == [] for runtime in (NVIDIA, HABANA))
    assert all(one.containerd_drop_in in seen["cri_files"]["containerd"] for one in (NVIDIA, HABANA))


def test_logins_in_the_shared_table_refuse_the_removal() -> None:
    seen = host_with_both("1.7.24")
    seen["cri_files"]["masked"] = ["/etc/containerd/conf.d/logins.toml"]
    assert "logins.toml" in cri_plan.removal(seen, "when_safe", NVIDIA).problems[0]


def test_the_toolkit_plans_again_after_the_removal_of_the_runtime_of_gaudi(monkeypatch: pytest.MonkeyPatch) -> None:
    """The removal comes first and changes the root file, which the toolkit writes, too."""
    seen = host_with_both("2.1.5")
    seen["accelerators"]["nvidia"]["driver"] = {"loaded": None, "version": None}
    for is_shared in (True, False):
        if not is_shared:
            cri_samples.carried_out(seen, cri_plan.removal(seen, "when_safe", HABANA))
        changes = cri_plan.removal(seen, "when_safe", NVIDIA)
        result = toolkit_plan.ToolkitPlan(cri=changes, steps=changes.steps, acts=True)
        monkeypatch.setattr(toolkit_plan, "without_toolkit", lambda *_args, result=result, **_more: result)
        for name in ("waits", "changed"):
            monkeypatch.setattr(toolkit_cdi_units, name, lambda *_args: None)
        monkeypatch.setattr(driver_request, "is_driver_wanted", lambda *_args: True)
        values: dict[str, t.Any] = {"source": "none", "isolations": ["cdi"]}
        context = Context(seen, {"nvidia_container_toolkit": values, "container_engine": {}}, {}, facts={})
        assert toolkit_part.plan(context, {}).plans_again is is_shared
