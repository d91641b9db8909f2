# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The holds of playbook dlami on Amazon Linux, where dnf needs a plugin for them, and the report about them."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.adoption import adoption_result
from ansible_collections.gpufleet.hosts.plugins.module_utils.adoption.allowed_on_image import Adoption
from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.part_plan import Context
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import plan_of_all_parts as site_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.package_plan import UNIT
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import A100, KERNELS, host, platform
from ansible_collections.gpufleet.hosts.tests.unit.plugins.site_samples import DOCKER, PLATFORMS, ROLES, file, running

KEY, VERSION = "amazon-2023", "580.95.05"
PLUGIN = "python3-dnf-plugin-versionlock"
DRIVER = ["libnvidia-ml", "nvidia-driver-cuda", "nvidia-driver-cuda-libs"]
EXTRAS = ["datacenter-gpu-manager-4-core", "efa"]
PARTS = ("nvidia_driver", "container_engine", "nvidia_container_toolkit")
DLAMI = {"nvidia_driver": {"source": "preinstalled"}, "container_engine": {"hold": True}}
NO_HOLD = {**DLAMI, "container_engine": {"hold": False}}


def dlami(*, plugin=False, held=(), report=None):
    """Describe a host of Amazon Linux with a driver, Docker, the toolkit, DCGM and EFA."""
    packages = {
        **dict.fromkeys(DRIVER, f"3:{VERSION}-1.amzn2023"),
        **dict.fromkeys(UNIT, "1.20.0-1"),
        **dict.fromkeys(EXTRAS, "1.47.0-1"),
        **dict.fromkeys(["docker", "iptables-nft", "python3-requests", "ca-certificates"], "25.0.16-1"),
        **({PLUGIN: "4.3.0-13"} if plugin else {}),
    }
    there = host(
        KEY,
        (A100,),
        packages=packages,
        held=held,
        modules={KERNELS[KEY]: VERSION},
        driver={"library": VERSION, "loaded": VERSION, "library_path": "/usr/lib64/libnvidia-ml.so.1"},
        services={DOCKER: running(DOCKER)},
        modules_loaded=["nvidia", "nvidia_uvm"],
    )
    there["image"] |= {"kind": "dlami", "evidence": ["/opt/dlami"], "efa": "1.47.0"}
    there["engines"]["docker"] = {"package": "docker", "version": "25.0.16-1", "info": None}
    there["files"][owned.DAEMON_JSON] = file(None)
    there["files"][owned.ADOPTION_REPORT] = file(report)
    return there


def run(there, values=None, *, selected=PARTS, **before):
    """Plan the adoption. Return the plans and the result."""
    given = {**{role: {} for role in ROLES}, **(values or DLAMI)}
    context = Context(host=there, values=given, platforms={**PLATFORMS, "nvidia_driver": platform(KEY)})
    parts = site_plan.plan(context, selected)
    before = {"changes_before": None, "held_before": None, **before}
    adopted = Adoption("dlami", list(selected), "")
    installs_plugin = site_plan.installs_versionlock(there, parts)
    result = adoption_result.result(
        there, adopted, parts, given, installs_plugin=installs_plugin, requested_kind="", **before
    )
    return parts, result


def reasons(result):
    return {part["part"]: part["reason"] for part in result["report"]["parts"]}


def test_one_run_installs_the_plugin_and_holds_everything():
    parts, first = run(dlami())
    driver = parts["nvidia_driver"]
    assert parts["container_engine"].plan["transaction"]["install"] == [PLUGIN]
    # The role of the driver installs the plugin before it holds, as for a driver that it installs itself.
    assert (driver.acts, driver.errors) == (True, [])
    assert driver.plan["todo"]["prerequisites"] == driver.plan["hold_needs"] == [PLUGIN]
    assert set(DRIVER) <= set(driver.plan["todo"]["transaction"]["hold"])
    assert driver.outcome.installs is False
    assert (first["hold"], first["install"]) == (sorted([*EXTRAS, *UNIT]), [PLUGIN])
    changes = [{"part": name, "changes": part.changes, "reasons": part.reasons} for name, part in parts.items()]

    held = [*DRIVER, "docker", *EXTRAS, *UNIT]
    after = dlami(plugin=True, held=held)
    _parts, outcome = run(after, changes_before=changes, held_before=first["hold"])
    assert reasons(outcome) == reasons(first)
    assert "not held" not in " ".join(reasons(outcome).values())
    assert reasons(outcome)["dcgm"].endswith("hold datacenter-gpu-manager-4-core")

    parts, second = run(dlami(plugin=True, held=held, report=outcome["text"]))
    assert parts["nvidia_driver"].changes == []
    assert not any("hold" in change for part in parts.values() for change in part.changes)
    assert (second["hold"], second["install"], second["is_written"]) == ([], [], True)


@pytest.mark.parametrize(
    ("values", "selected"), [(NO_HOLD, PARTS), (DLAMI, ("nvidia_driver", "nvidia_container_toolkit"))]
)
def test_without_the_plugin_nothing_is_held_and_the_report_says_so(values, selected):
    parts, first = run(dlami(), values, selected=selected)
    assert parts["nvidia_driver"].plan["todo"]["prerequisites"] == []
    assert (first["hold"], first["install"]) == ([], [])
    found = reasons(first)
    names = ("nvidia_driver", "nvidia_container_toolkit", "dcgm", "efa")
    assert all("not held" in found[name] and PLUGIN in found[name] for name in names), found


def test_an_empty_list_says_that_the_run_held_nothing():
    # Another program has installed the plugin during the run.
    _parts, outcome = run(dlami(plugin=True), NO_HOLD, changes_before=[], held_before=[])
    assert not any("hold" in reason for reason in reasons(outcome).values())
    _parts, planned = run(dlami(plugin=True), NO_HOLD)
    assert "hold efa" in reasons(planned)["efa"]


def test_a_hold_that_the_user_declined_needs_no_plugin():
    values = {**DLAMI, "nvidia_driver": {"source": "preinstalled", "hold": False}}
    parts, _result = run(dlami(), values)
    assert parts["nvidia_driver"].plan["todo"]["prerequisites"] == []
    assert not parts["nvidia_driver"].plan["todo"]["transaction"]["hold"]
