# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Role gaudi_driver: adoption, the vendor's packages and repository, kernel modules, removal."""

from __future__ import annotations

import json

import pytest
import yaml

from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators import (
    gather_all_vendors as accelerators_gather,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.variable_fields import VariableError
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import variables as engine_request
from ansible_collections.gpufleet.hosts.plugins.module_utils.gaudi_driver import plan as gaudi_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.gaudi_driver import repository as gaudi_repository
from ansible_collections.gpufleet.hosts.plugins.module_utils.gaudi_driver import variables as gaudi_request
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.outcomes import EngineOutcome
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import (
    repository_options as repository_definition,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import role_file_paths
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.part import engine_versions
from ansible_collections.gpufleet.hosts.plugins.module_utils.vendor_driver import vendor_differences
from ansible_collections.gpufleet.hosts.tests.unit.plugins import gaudi_hosts
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import KERNELS, ROOT
from ansible_collections.gpufleet.hosts.tests.unit.plugins.gaudi_trees import GAUDI, GAUDI2, GAUDI3, GaudiTree
from ansible_collections.gpufleet.hosts.tests.unit.plugins.process_tree import ProcessTree

PLATFORMS = yaml.safe_load((ROOT / "roles/gaudi_driver/vars/platforms.yml").read_text(encoding="utf-8"))[
    "__gaudi_driver_platforms"
]
KEY = "0123456789ABCDEF0123456789ABCDEF01234567"
UNIT = ["habanalabs-dkms", "habanalabs-firmware", "habanalabs-firmware-tools"]
NEW, OLD, LAST_OF_FIRST = "1.23.0-695", "1.22.1-6", "1.21.3-57"
OFFERED = {name: [NEW, OLD, LAST_OF_FIRST] for name in UNIT}
INSTALLED = dict.fromkeys(UNIT, NEW)
ADDRESS = "0000:19:00.0"


def planned(host, versions=None, **values):
    values = {"key_fingerprint": KEY, **values}
    return gaudi_plan.plan(
        host,
        gaudi_request.read(values),
        PLATFORMS,
        versions,
        lambda options: f"digest {options}",
        engines=engine_versions(host, engine_request.read({}), EngineOutcome()),
    )


def bare(tmp_path, device: str = GAUDI3, key: str = "ubuntu-24.04", **changes):
    """Return a host with an accelerator and no driver."""
    tree = GaudiTree(tmp_path, loaded=False)
    tree.function(ADDRESS, device, vendor="0x1da3", class_id="0x120000")
    return gaudi_hosts.observed(tree, key, **changes)


def working(tmp_path, device: str = GAUDI3, *, version: str | None = "1.23.0-0abc123", **changes):
    tree = GaudiTree(tmp_path, version=version)
    tree.accelerator(ADDRESS, 0, 4, device)
    return gaudi_hosts.observed(tree, **changes)


def record(host, **content):
    """Add the record of the role's packages."""
    text = json.dumps({"requested": UNIT, "packages": UNIT, "holds": UNIT, **content})
    host["files"][owned.GAUDI_RECORD] = {"exists": True, "content": text, "mode": "0644"}
    return host


def test_the_record_of_the_observation_describes_the_devices_as_the_host_itself(tmp_path):
    tree = GaudiTree(tmp_path).board()
    host = gaudi_hosts.observed(tree)
    on_host = accelerators_gather.gather(dict, root=tree.root, vendors=["gaudi"])
    devices, state = vendor_differences.observed(host, vendor_differences.GAUDI)
    assert devices == on_host["accelerators"]
    assert state["driver_version"] == on_host["accelerator_vendors"]["gaudi"]["driver_version"]


# --- adoption --------------------------------------------------------------------------------------------------------


def test_a_host_without_gaudi_gets_nothing(tmp_path):
    result = planned(gaudi_hosts.observed(GaudiTree(tmp_path, loaded=False)))
    assert (result.wanted, result.acts, result.reasons) == (False, False, ["this host has no Gaudi accelerator"])


def test_the_driver_of_the_kernel_is_adopted_with_what_it_lacks(tmp_path):
    result = planned(working(tmp_path, GAUDI2, version=None), key_fingerprint="")
    assert (result.problems, result.transaction, result.query, result.load) == ([], None, None, [])
    text = "; ".join(result.reasons)
    assert "the driver of the kernel is adopted" in text
    assert "habanalabs_en" in text
    assert result.report is not None
    assert result.report["devices"] == ["module-4"]


def test_a_driver_of_the_kernel_that_does_not_know_gaudi3_is_not_adopted(tmp_path):
    tree = GaudiTree(tmp_path, loaded=False)
    tree.function(ADDRESS, GAUDI3, vendor="0x1da3", class_id="0x120000")
    tree.module("1", kernel=KERNELS["ubuntu-24.04"], name="habanalabs")
    assert planned(gaudi_hosts.observed(tree)).query is not None
    tree.function("0000:5a:00.0", GAUDI2, vendor="0x1da3", class_id="0x120000")
    adopted = planned(gaudi_hosts.observed(tree))
    assert (adopted.query, adopted.load) == (None, ["habanalabs"])


@pytest.mark.parametrize("device", ["0x1001", "0x1011", "0x1021", "0x1030", "0x1060", "0x1063"])
def test_a_driver_of_the_kernel_is_not_loaded_for_devices_that_it_does_not_know(tmp_path, device):
    tree = GaudiTree(tmp_path, loaded=False)
    tree.function(ADDRESS, device, vendor="0x1da3", class_id="0x120000")
    tree.module("1", kernel=KERNELS["ubuntu-24.04"], name="habanalabs")
    result = planned(gaudi_hosts.observed(tree))
    assert result.query is not None
    assert not any("adopted" in reason for reason in result.reasons)


@pytest.mark.parametrize("device", ["0x1000", "0x1001", "0x1010", "0x1011"])
def test_every_first_generation_device_gets_the_last_release_for_it(tmp_path, device):
    assert planned(bare(tmp_path, device), OFFERED).version == LAST_OF_FIRST


def test_installed_packages_of_another_tool_are_adopted_and_not_held(tmp_path):
    result = planned(working(tmp_path, packages=INSTALLED), key_fingerprint="")
    assert (result.problems, result.transaction) == ([], None)
    assert f"the installed driver {NEW} is adopted" in result.reasons


def test_preinstalled_needs_a_driver(tmp_path):
    assert planned(working(tmp_path), source="preinstalled").problems == []
    (problem,) = planned(bare(tmp_path / "other"), source="preinstalled").problems
    assert "gaudi_driver_source=preinstalled, but this host has no usable driver" in problem


def test_source_none_changes_nothing(tmp_path):
    result = planned(bare(tmp_path), source="none")
    assert (result.acts, result.problems, result.reasons) == (False, [], ["gaudi_driver_source is none"])


# --- packages --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("key", "suite"), [("ubuntu-22.04", "jammy"), ("ubuntu-24.04", "noble")])
def test_a_bare_host_asks_for_the_versions_and_then_installs_one_of_them(tmp_path, key, suite):
    first = planned(bare(tmp_path, key=key))
    assert first.query is not None
    assert first.query["query"] == UNIT
    (repository,) = first.query["repositories"]
    assert (repository["url"], repository["suite"], repository["components"]) == (
        "https://vault.habana.ai/artifactory/debian",
        suite,
        ["main"],
    )
    assert (repository["key"], repository["fingerprint"]) == (
        "https://vault.habana.ai/artifactory/api/gpg/key/public",
        KEY,
    )
    repository_definition.read([repository], "apt")
    result = planned(bare(tmp_path / "again", key=key), OFFERED)
    assert result.transaction is not None
    assert result.transaction.install == [f"{name}={NEW}" for name in UNIT]
    assert (result.transaction.hold, result.version, result.query) == (UNIT, NEW, None)
    assert result.load == ["habanalabs", "habanalabs_cn", "habanalabs_ib", "habanalabs_en"]
    assert (result.modules_file or "").splitlines()[1:] == result.load


def test_headers_of_the_running_kernel_are_installed(tmp_path):
    result = planned(bare(tmp_path, headers=()), OFFERED)
    assert result.transaction is not None
    assert result.transaction.install[-1] == f"linux-headers-{KERNELS['ubuntu-24.04']}"


@pytest.mark.parametrize(
    ("requested", "version"),
    [("", NEW), ("1.22", OLD), ("1.22.1", OLD), ("1.22.1-6", OLD), ("1.21.3", LAST_OF_FIRST)],
)
def test_the_requested_version_is_installed(tmp_path, requested, version):
    assert planned(bare(tmp_path), OFFERED, version=requested).version == version


@pytest.mark.parametrize(
    ("device", "values", "offered", "words"),
    [
        (GAUDI3, {"version": "1.20"}, OFFERED, "gaudi_driver_version is 1.20, but the repository https://vault"),
        (GAUDI3, {}, {name: [] for name in UNIT}, "has no package habanalabs-dkms"),
        (GAUDI3, {}, {**OFFERED, UNIT[1]: ["1.20.0-1"]}, f"has habanalabs-dkms {NEW}, but not habanalabs-firmware"),
        (GAUDI, {"version": "1.23"}, OFFERED, "does not support the first generation"),
    ],
)
def test_an_impossible_version_is_a_problem(tmp_path, device, values, offered, words):
    result = planned(bare(tmp_path, device), offered, **values)
    assert words in result.problems[0]
    assert (result.changes, result.acts) == ([], False)


def test_the_first_generation_gets_the_last_release_that_supports_it(tmp_path):
    assert planned(bare(tmp_path, GAUDI), OFFERED).version == LAST_OF_FIRST


def test_the_remedy_names_only_versions_that_are_not_refused(tmp_path):
    (problem,) = planned(bare(tmp_path, GAUDI), OFFERED, version="1.23").problems
    assert problem.endswith(f"Set gaudi_driver_version to one of: {LAST_OF_FIRST}.")


def test_packages_of_different_versions_become_one_version(tmp_path):
    mixed = {**INSTALLED, UNIT[1]: OLD}
    result = planned(working(tmp_path, packages=mixed), OFFERED, source="vendor")
    assert result.transaction is not None
    assert result.transaction.install == [f"{name}={NEW}" for name in UNIT]
    assert "the packages have different versions" in result.reasons[0]


def test_a_hold_of_others_is_respected(tmp_path):
    host = working(tmp_path, packages=INSTALLED, held=("habanalabs-dkms",))
    (problem,) = planned(host, OFFERED, version="1.22").problems
    assert "habanalabs-dkms is held, and not by this role" in problem


def test_a_converged_host_is_left_alone(tmp_path):
    host = record(working(tmp_path, packages=INSTALLED, held=tuple(UNIT)))
    assert planned(host).transaction is None
    released = planned(host, hold=False)
    assert released.transaction is not None
    assert released.transaction.release == sorted(UNIT)
    host["held_packages"] = []
    held = planned(host)
    assert held.transaction is not None
    assert (held.transaction.hold, held.transaction.install) == (UNIT, [])


# --- accelerators in use ---------------------------------------------------------------------------------------------


def in_use(tmp_path, *opened: str, **changes):
    """Return a host with the role's packages on which a process has nodes open."""
    tree = GaudiTree(tmp_path)
    tree.accelerator(ADDRESS, 0, 4)
    ProcessTree(tree.path).process(4711, "python3", opened=opened)
    return record(gaudi_hosts.observed(tree, packages=INSTALLED, held=tuple(UNIT), **changes))


@pytest.mark.parametrize(
    ("values", "words"),
    [({"version": "1.22"}, f"cannot be changed to {OLD}"), ({"state": "absent"}, "cannot be removed")],
)
def test_packages_stay_while_a_process_uses_an_accelerator(tmp_path, values, words):
    result = planned(in_use(tmp_path, "/dev/accel/accel0"), OFFERED, **values)
    (problem,) = result.problems
    assert words in problem
    assert "accelerators are in use by process 4711 (python3) (/dev/accel/accel0)" in problem
    assert (result.changes, result.acts) == ([], False)
    # An exporter only monitors.
    monitored = planned(in_use(tmp_path / "monitor", "/dev/accel/accel_controlD0"), OFFERED, **values)
    assert monitored.problems == []
    assert monitored.acts


def test_a_driver_in_use_is_left_alone_and_its_runtime_can_be_added(tmp_path):
    host = in_use(tmp_path, "/dev/accel/accel0")
    assert (planned(host).problems, planned(host).transaction) == ([], None)
    names = [*UNIT, "habanalabs-container-runtime"]
    fixed = in_use(tmp_path / "fixed", "/dev/accel/accel0")
    fixed["installed_packages"] = {
        name: text.replace(NEW, "1.24.0-1007") for name, text in fixed["installed_packages"].items()
    }
    result = planned(fixed, {name: ["1.24.0-1007"] for name in names}, container_runtime=True)
    assert (result.problems, result.version) == ([], "1.24.0-1007")


# --- the repository --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["ubuntu-22.04", "ubuntu-24.04"])
def test_without_a_fingerprint_nothing_is_changed_and_the_way_to_read_it_is_named(tmp_path, key):
    result = planned(bare(tmp_path, key=key), key_fingerprint="")
    assert "gaudi_driver_key_fingerprint is not set" in result.problems[0]
    assert "curl -fsS https://vault.habana.ai/artifactory/api/gpg/key/public | gpg --show-keys" in result.problems[0]
    assert (result.query, result.transaction, result.changes, result.acts) == (None, None, [], False)


@pytest.mark.parametrize(
    ("key", "os_changes", "values", "words"),
    [
        ("debian-12", {}, {}, "The vendor has no packages for debian-12"),
        ("el-8", {}, {}, "The vendor has no packages for el-8"),
        ("el-9", {"version": "9.5"}, {}, "the releases 9.4, 9.6, but this host has 9.5"),
        ("el-9", {"version": "9.4"}, {}, "gaudi_driver_driver_package is not set"),
        ("ubuntu-24.04", {"arch": "aarch64"}, {}, "The vendor has no Gaudi driver for aarch64"),
    ],
)
def test_platforms_without_packages_are_refused_with_the_way_out(tmp_path, key, os_changes, values, words):
    result = planned(bare(tmp_path, key=key, os=os_changes), **values)
    assert words in result.problems[0]
    assert "Set" in result.problems[0] or "set" in result.problems[0]
    assert not result.acts


def test_another_distribution_can_use_the_suite_of_a_similar_one(tmp_path):
    result = planned(bare(tmp_path, key="debian-12"), suite="jammy", driver_package="habanalabs-dkms")
    assert result.query is not None
    assert result.query["repositories"][0]["suite"] == "jammy"


@pytest.mark.parametrize(("release", "note"), [("9.4", True), ("9.6", False)])
def test_the_crypto_policy_is_named_and_never_changed(tmp_path, release, note):
    host = bare(tmp_path, key="el-9", os={"version": release})
    names = ["habanalabs", *UNIT[1:]]
    result = planned(host, {name: ["1.23.0-695.el9"] for name in names}, driver_package="habanalabs")
    assert result.transaction is not None
    (repository,) = result.transaction.repositories
    assert repository["url"] == f"https://vault.habana.ai/artifactory/rhel/9/{release}"
    assert repository["key"] == f"{repository['url']}/repodata/repomd.xml.key"
    repository_definition.read([repository], "dnf")
    assert any("update-crypto-policies" in reason for reason in result.reasons) is note
    assert "python3-dnf-plugin-versionlock" in result.transaction.install
    assert not [change for change in result.changes if "crypto" in change]


def test_a_mirror_and_its_login(tmp_path):
    values = {"mirror": "https://mirror.example/gaudi", "repository_username": "robot", "repository_password": "s3cret"}
    result = planned(bare(tmp_path), OFFERED, **values)
    assert result.transaction is not None
    (repository,) = result.transaction.repositories
    assert (repository["url"], repository["password"]) == ("https://mirror.example/gaudi/debian", "s3cret")
    assert result.has_secrets
    with pytest.raises(VariableError, match="must not contain a login"):
        planned(bare(tmp_path / "other"), mirror="https://robot:s3cret@mirror.example/gaudi")


def test_a_changed_password_changes_only_the_repository_and_is_a_secret(tmp_path):
    values = {"mirror": "https://mirror.example/gaudi", "repository_username": "robot", "repository_password": "s3cret"}
    host = record(working(tmp_path, packages=INSTALLED, held=tuple(UNIT)))
    entry = role_file_paths.repository_entry(
        gaudi_repository.define(host, gaudi_request.read({**values, "key_fingerprint": KEY}), {})["name"], "apt"
    )
    host["files"][entry] = {"exists": True, "content": "Types: deb\n", "mode": "0644"}
    result = planned(host, **values)
    assert result.transaction is not None
    assert (result.problems, result.transaction.install, result.has_secrets) == ([], [], True)


# --- kernel modules --------------------------------------------------------------------------------------------------


def test_a_driver_that_is_loaded_is_replaced_by_a_reboot_of_the_user(tmp_path):
    result = planned(working(tmp_path, GAUDI2, version=None), OFFERED, source="vendor")
    assert result.load == []
    assert any("reboot the host to load 1.23.0-695" in reason for reason in result.reasons)
    same = planned(record(working(tmp_path / "same", packages=INSTALLED, held=tuple(UNIT))))
    assert not any("reboot" in reason for reason in same.reasons)


@pytest.mark.parametrize("values", [{"activate": False}, {}])
def test_modules_are_not_loaded_against_the_users_will(tmp_path, values):
    tree = GaudiTree(tmp_path, loaded=False)
    tree.function(ADDRESS, GAUDI3, vendor="0x1da3", class_id="0x120000")
    if not values:
        tree.file("etc/modprobe.d/image.conf", "blacklist habanalabs\n")
    result = planned(gaudi_hosts.observed(tree), OFFERED, **values)
    assert result.load == []
    assert any("habanalabs" in reason and ("blacklists" in reason or "activate" in reason) for reason in result.reasons)


# --- removal ---------------------------------------------------------------------------------------------------------


def test_absent_removes_what_the_role_installed(tmp_path):
    host = record(working(tmp_path, packages={**INSTALLED, "dkms": "3"}, held=tuple(UNIT)))
    host["files"][owned.GAUDI_MODULES_LOAD] = {"exists": True, "content": "", "mode": "0644"}
    result = planned(host, state="absent")
    assert (result.packages, result.record, result.remove_files) == (UNIT, True, [owned.GAUDI_MODULES_LOAD])
    assert "the loaded driver stays loaded until the next boot" in result.reasons
    assert result.acts


def test_absent_leaves_a_driver_of_others_alone(tmp_path):
    result = planned(working(tmp_path, packages=INSTALLED), state="absent")
    assert (result.acts, result.packages) == (False, [])


def test_changes_need_root(tmp_path):
    assert "root" in planned(bare(tmp_path, uid=1000), OFFERED).problems[0]
