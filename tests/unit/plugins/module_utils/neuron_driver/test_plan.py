# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Role neuron_driver: versions, adoption, the repository, what is refused, the kernel module, removal."""

from __future__ import annotations

import json

import pytest
import yaml

from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators import (
    gather_all_vendors as accelerators_gather,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.variable_fields import VariableError
from ansible_collections.gpufleet.hosts.plugins.module_utils.neuron_driver import oci_hook
from ansible_collections.gpufleet.hosts.plugins.module_utils.neuron_driver import part as neuron_part
from ansible_collections.gpufleet.hosts.plugins.module_utils.neuron_driver import plan as neuron_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.neuron_driver import repository as neuron_repository
from ansible_collections.gpufleet.hosts.plugins.module_utils.neuron_driver import variables as neuron_request
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.outcomes import EngineOutcome
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.part_plan import Context, Part
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import file_contents as repository_files
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import (
    repository_options as repository_definition,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import drain_decision as site_drain
from ansible_collections.gpufleet.hosts.plugins.module_utils.vendor_driver import accelerator_health, vendor_differences
from ansible_collections.gpufleet.hosts.tests.unit.plugins import neuron_hosts
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import ROOT
from ansible_collections.gpufleet.hosts.tests.unit.plugins.neuron_trees import INF1, INF2, TRN1, TRN2, NeuronTree
from ansible_collections.gpufleet.hosts.tests.unit.plugins.process_tree import ProcessTree

DATA = yaml.safe_load((ROOT / "roles/neuron_driver/vars/platforms.yml").read_text(encoding="utf-8"))[
    "__neuron_driver_data"
]
OFFERED = {"aws-neuronx-dkms": ["2.31.7.0", "2.30.2.0", "2.28.4.0", "2.24.7.0", "2.21.37.0"]}
DKMS, TOOLS = "aws-neuronx-dkms", "aws-neuronx-tools"
CURRENT = {DKMS: "2.30.2.0", TOOLS: "2.32.28.0"}


def planned(host, versions=None, **values):
    return neuron_plan.plan(host, neuron_request.read(values), DATA, versions, lambda options: f"digest {options}")


def bare(tmp_path, generation=TRN2, key="ubuntu-24.04", **changes):
    """Return a host with a chip and no driver."""
    tree = NeuronTree(tmp_path, loaded=False)
    tree.bus(generation, 1, bound=False)
    return neuron_hosts.observed(tree, key, **changes)


def working(tmp_path, generation=TRN2, *, version="2.30.2.0", opened=(), **changes):
    """Return a host whose driver drives two chips. `opened`: nodes that a process has open."""
    tree = NeuronTree(tmp_path, version=version)
    tree.host(generation, 2)
    ProcessTree(tmp_path).process(70, "train", opened=opened)
    tree.file("etc/modules-load.d/neuron.conf", "neuron\n")
    return neuron_hosts.observed(tree, **changes)


def record(host, *names):
    """Add the record of the role's packages."""
    names = names or (DKMS, TOOLS)
    text = json.dumps({"requested": list(names), "packages": list(names), "holds": list(names)})
    host["files"][owned.NEURON_RECORD] = {"exists": True, "content": text, "mode": "0644"}
    return host


def test_the_record_of_the_observation_describes_the_chips_as_the_host_itself(tmp_path):
    tree = NeuronTree(tmp_path)
    tree.host(TRN2, 16)
    devices, state = vendor_differences.observed(neuron_hosts.observed(tree), vendor_differences.NEURON)
    on_host = accelerators_gather.gather(dict, root=tree.root, vendors=["neuron"])
    keys = ("index", "stable_id", "nodes", "health", "generation")
    assert [[one[key] for key in keys] for one in devices] == [
        [one[key] for key in keys] for one in on_host["accelerators"]
    ]
    assert state["state"] == "ready"


# --- versions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("generation", "values", "dkms", "tools"),
    [
        (TRN2, {}, "2.30.2.0", "2.32.28.0"),
        (INF2, {"release": "2.33"}, "2.31.7.0", "2.33.38.0"),
        (TRN1, {"version": "2.28"}, "2.28.4.0", ""),
        (INF1, {}, "2.24.7.0", ""),
        (INF1, {"version": "2.21", "tools": False}, "2.21.37.0", None),
    ],
)
def test_the_versions_of_a_release(tmp_path, generation, values, dkms, tools):
    first = planned(bare(tmp_path, generation), **values)
    assert first.query["query"] == [DKMS]
    result = planned(bare(tmp_path, generation), OFFERED, **values)
    assert result.problems == []
    expected = [f"{DKMS}={dkms}", *([] if tools is None else [f"{TOOLS}={tools}" if tools else TOOLS])]
    assert result.transaction.install == expected
    assert result.transaction.hold == [DKMS, *([TOOLS] if tools is not None else [])]
    assert (result.load, result.idle_commands) == (["neuron"], ["update-pciids"])


@pytest.mark.parametrize(
    ("generation", "values", "message"),
    [
        (INF1, {"release": "2.32"}, "Driver 2.30.2.0 is requested, but it does not support Inferentia"),
        (INF1, {"version": "2.25"}, "The last driver for it is 2.24"),
        (TRN2, {"version": "2.21"}, "does not support Trainium2, which needs 2.22 or later"),
        (INF2, {"version": "2.27"}, "known security holes"),
        (INF2, {"release": "1.9"}, "Known releases: 2.32, 2.33"),
    ],
)
def test_versions_that_are_refused(tmp_path, generation, values, message):
    (problem,) = planned(bare(tmp_path, generation), OFFERED, **values).problems
    assert message in problem


def test_the_floor_can_be_lowered(tmp_path):
    result = planned(bare(tmp_path, INF2), {DKMS: ["2.27.4.0"]}, version="2.27", minimum_version="2.20")
    assert (result.problems, result.transaction.install[0]) == ([], f"{DKMS}=2.27.4.0")


def test_a_version_that_the_repository_lacks_is_named(tmp_path):
    (problem,) = planned(bare(tmp_path), {DKMS: ["2.28.4.0"]}).problems
    assert "2.30.2.0" in problem
    assert "Set it to one of: 2.28.4.0" in problem


def test_release_and_version_exclude_each_other():
    with pytest.raises(VariableError, match=r"neuron_driver_release is 2\.32 and neuron_driver_version is 2\.30"):
        neuron_request.read({"release": "2.32", "version": "2.30"})
    with pytest.raises(VariableError, match="requires neuron_driver_oci_hook"):
        neuron_request.read({"oci_hook_default_runtime": True})


# --- platforms -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "values", "url", "suite"),
    [
        ("ubuntu-22.04", {}, "https://apt.repos.neuron.amazonaws.com", "jammy"),
        ("ubuntu-24.04", {}, "https://apt.repos.neuron.amazonaws.com", "noble"),
        ("debian-12", {"suite": "bookworm"}, "https://apt.repos.neuron.amazonaws.com", "bookworm"),
        ("el-9", {}, "https://yum.repos.neuron.amazonaws.com", None),
        ("amazon-2023", {}, "https://yum.repos.neuron.amazonaws.com", None),
        ("amazon-2023", {"mirror": "https://mirror.example/neuron/"}, "https://mirror.example/neuron", None),
    ],
)
def test_the_repository(tmp_path, key, values, url, suite):
    host = bare(tmp_path, key=key)
    (repository,) = planned(host, **values).query["repositories"]
    assert (repository["url"], repository.get("suite")) == (url, suite)
    assert repository["key"] == f"{url}/GPG-PUB-KEY-AMAZON-AWS-NEURON.PUB"
    assert repository["fingerprint"] == "00FA2C1079260870A76D2C285749CAD8646D9185"
    assert repository_definition.read([repository], host["os"]["package_manager"])


@pytest.mark.parametrize(
    ("key", "changes", "values", "message"),
    [
        ("debian-12", {}, {}, "is not documented. Set neuron_driver_suite, for example to bookworm"),
        ("sles-15", {}, {}, "AWS has no Neuron packages for sles-15"),
        ("ubuntu-24.04", {"arch": "aarch64"}, {}, "AWS has no Neuron driver for aarch64"),
        (
            "ubuntu-24.04",
            {"kernel": "6.8.0-88-generic"},
            {"require_tested_kernel": True},
            "Kernel 6.8.0-88-generic is not among the kernels that AWS tested SDK 2.32 with on ubuntu-24.04: 6.17",
        ),
    ],
)
def test_a_host_that_cannot_get_the_driver(tmp_path, key, changes, values, message):
    (problem,) = planned(bare(tmp_path, key=key, **changes), **values).problems
    assert message in problem


def test_an_untested_kernel_is_a_note(tmp_path):
    untested = planned(bare(tmp_path, kernel="6.8.0-88-generic"), OFFERED)
    assert any("is not among the kernels" in reason for reason in untested.reasons)
    tested = planned(bare(tmp_path / "b", kernel="6.17.0-1009-aws"), OFFERED, require_tested_kernel=True)
    assert (tested.problems, [reason for reason in tested.reasons if "kernel" in reason]) == ([], [])


@pytest.mark.parametrize(
    ("key", "kernel", "expected"),
    [
        ("ubuntu-24.04", "6.17.0-1009-aws", "linux-headers-6.17.0-1009-aws"),
        ("el-9", "5.14.0-570.el9.x86_64", "kernel-devel=5.14.0-570.el9"),
        ("amazon-2023", "6.1.155-176.282.amzn2023.x86_64", "kernel-devel=6.1.155-176.282.amzn2023"),
        ("amazon-2023", "6.18.2-64.amzn2023.x86_64", "kernel6.18-devel=6.18.2-64.amzn2023"),
    ],
)
def test_the_headers_of_the_kernel(tmp_path, key, kernel, expected):
    result = planned(bare(tmp_path, key=key, kernel=kernel, headers=()), OFFERED)
    assert expected in result.transaction.install


# --- a mirror with a login, and rpm -----------------------------------------------------------------------------------

LOGIN = {
    "mirror": "https://mirror.example/neuron",
    "repository_username": "robot",
    "repository_password": "geheim",
    "proxy": "http://proxy.example:3128",
    "proxy_username": "via",
    "proxy_password": "hidden",
}
APT = ("ubuntu-22.04", "ubuntu-24.04", "debian-12")
RPM = ("el-9", "el-10", "amazon-2023")


def written(definition, manager):
    """Return the files of a repository that the package manager reads, with their modes."""
    (repository,) = repository_definition.read([definition], manager)
    files = repository_files.without_key(repository, manager)
    return {file.path: (file.content.decode(), file.mode) for file in files if file.content is not None}


@pytest.mark.parametrize("key", [*APT, *RPM])
def test_a_mirror_with_a_login(tmp_path, key):
    host = bare(tmp_path, key=key)
    values = {**LOGIN, "suite": "bookworm"}
    first = part(host, **values)
    assert first.errors == []
    second = part(host, OFFERED, **values)
    # The task that shows the plan is not logged.
    assert (second.errors, second.has_secrets) == ([], True)
    (definition,) = second.plan["transaction"]["repositories"]
    assert first.query["repositories"] == [definition]
    files = written(definition, host["os"]["package_manager"])
    secret = [path for path, (text, _mode) in files.items() if "geheim" in text or "hidden" in text]
    assert secret
    assert {files[path][1] for path in secret} == {0o600}
    assert any("geheim" in files[path][0] for path in secret)
    assert not any("geheim" in text or "hidden" in text for text in (*second.changes, *second.reasons))
    for text, mode in files.values():
        assert mode == 0o600 or "robot" not in text


@pytest.mark.parametrize("mirror", ["", "file:///srv/neuron"])
def test_a_login_needs_the_server_of_a_mirror(mirror):
    """It must never be sent to AWS."""
    with pytest.raises(VariableError, match="neuron_driver_repository_username is set without the URL of a server"):
        neuron_request.read({**LOGIN, "mirror": mirror})


@pytest.mark.parametrize("key", ["ubuntu-24.04", "el-9", "amazon-2023"])
def test_a_changed_password_changes_only_the_repository_and_is_a_secret(tmp_path, key):
    host = record(working(tmp_path, key=key, packages={**CURRENT, LOCK: "1"}, held=(DKMS, TOOLS)))
    definition = neuron_repository.define(host, neuron_request.read(LOGIN), {"suite": "noble"})
    for path, (text, mode) in written(definition, host["os"]["package_manager"]).items():
        host["files"][path] = {"exists": True, "content": text, "mode": f"{mode:04o}"}
    result = planned(host, **{**LOGIN, "repository_password": "neu"})
    assert (result.problems, result.transaction.install, result.has_secrets) == ([], [], True)
    assert result.transaction.repositories[0]["password"] == "neu"


LOCK = "python3-dnf-plugin-versionlock"


@pytest.mark.parametrize("key", RPM)
def test_an_installation_with_dnf(tmp_path, key):
    result = planned(bare(tmp_path, key=key), OFFERED)
    assert result.problems == []
    assert result.transaction.install == [f"{DKMS}=2.30.2.0", f"{TOOLS}=2.32.28.0", LOCK]
    assert (result.transaction.hold, result.idle_commands) == ([DKMS, TOOLS], ["update-pciids"])
    (repository,) = result.transaction.repositories
    assert (repository["url"], "suite" in repository) == ("https://yum.repos.neuron.amazonaws.com", False)


@pytest.mark.parametrize("key", [*APT[:2], *RPM])
def test_a_converged_host_of_each_platform_needs_nothing(tmp_path, key):
    host = record(working(tmp_path, key=key, packages={**CURRENT, LOCK: "1"}, held=(DKMS, TOOLS)))
    result = planned(host)
    assert (result.problems, result.transaction, result.query) == ([], None, None)


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        ("el-9", "2.31.7.0 is installed, and 2.30.2.0 is older, which dnf cannot install over it"),
        ("amazon-2023", "run 'dnf remove aws-neuronx-dkms', and run this role again"),
        # apt installs an older version over a newer one.
        ("ubuntu-24.04", None),
    ],
)
def test_an_older_driver_over_a_newer_one(tmp_path, key, problem):
    packages = {DKMS: "2.31.7.0", TOOLS: "2.33.38.0", LOCK: "1"}
    host = record(working(tmp_path, version="2.31.7.0", key=key, packages=packages, held=(DKMS, TOOLS)))
    assert planned(host, release="2.32").problems == []  # before the query
    found = planned(host, OFFERED, release="2.32").problems
    assert [text for text in found if problem and problem in text] == found
    assert len(found) == (1 if problem else 0)


@pytest.mark.parametrize(
    ("key", "command"), [("ubuntu-22.04", "apt-get purge aws-neuron-dkms"), ("el-9", "dnf remove aws-neuron-dkms")]
)
def test_the_package_of_older_guides_is_named_before_any_change(tmp_path, key, command):
    (problem,) = planned(bare(tmp_path, INF1, key=key, packages={"aws-neuron-dkms": "1.5.0"})).problems
    assert "Package aws-neuron-dkms is installed, which conflicts with aws-neuronx-dkms" in problem
    assert f"run '{command}'" in problem


def test_a_working_driver_of_older_guides_is_adopted(tmp_path):
    result = planned(working(tmp_path, INF1, version="2.21.0.0", packages={"aws-neuron-dkms": "2.21.0.0"}))
    assert (result.problems, result.transaction) == ([], None)
    assert "the installed driver 2.21.0.0 is adopted" in result.reasons


# --- an installed driver ---------------------------------------------------------------------------------------------


def test_a_current_driver_of_another_tool_is_adopted(tmp_path):
    result = planned(working(tmp_path, packages=CURRENT))
    assert (result.problems, result.transaction, result.query, result.load) == ([], None, None, [])
    assert "the installed driver 2.30.2.0 is adopted" in result.reasons


def test_a_driver_below_the_floor_is_replaced(tmp_path):
    old = {**CURRENT, DKMS: "2.26.5.0"}
    result = planned(working(tmp_path, version="2.26.5.0", packages=old), OFFERED)
    assert result.transaction.install == [f"{DKMS}=2.30.2.0"]
    assert any("2.26.5.0" in reason for reason in result.reasons)


def test_the_driver_of_inf1_is_not_below_the_floor(tmp_path):
    result = planned(working(tmp_path, INF1, version="2.24.7.0", packages={DKMS: "2.24.7.0"}))
    assert (result.transaction, "the installed driver 2.24.7.0 is adopted" in result.reasons) == (None, True)


def test_a_converged_host_needs_nothing(tmp_path):
    host = record(working(tmp_path, packages=CURRENT, held=(DKMS, TOOLS)))
    result = planned(host)
    assert (result.problems, result.transaction, result.query, result.load, result.modules_file) == (
        [],
        None,
        None,
        [],
        None,
    )


@pytest.mark.parametrize(
    ("packages", "held", "install", "hold"),
    [
        ({**CURRENT, TOOLS: "2.30.1.0"}, (DKMS, TOOLS), [f"{TOOLS}=2.32.28.0"], [TOOLS]),
        ({DKMS: "2.30.2.0"}, (DKMS,), [f"{TOOLS}=2.32.28.0"], [TOOLS]),
        (CURRENT, (TOOLS,), [], [DKMS]),
        (CURRENT, (DKMS,), [], [TOOLS]),
    ],
    ids=["other tools", "no tools", "no hold of the driver", "no hold of the tools"],
)
def test_drift_is_repaired(tmp_path, packages, held, install, hold):
    result = planned(record(working(tmp_path, packages=packages, held=held)), OFFERED)
    assert [item for item in result.transaction.install if item.startswith(TOOLS)] == install
    assert set(hold) <= set(result.transaction.hold)


def test_a_lost_list_of_modules_is_written_again(tmp_path):
    host = record(working(tmp_path, packages=CURRENT, held=(DKMS, TOOLS)))
    host["files"][owned.NEURON_MODULES_LOAD] = {"exists": False}
    assert planned(host).modules_file == "neuron\n"


@pytest.mark.parametrize("kind", ["link", "empty", "spaces"])
def test_a_disabled_list_of_modules_stays(tmp_path, kind):
    """AWS's images for EKS load one of two drivers with a unit of their own, and disable this file."""
    tree = NeuronTree(tmp_path)
    tree.host(TRN2, 2)
    path = tmp_path / "etc/modules-load.d/neuron.conf"
    path.parent.mkdir(parents=True)
    if kind == "link":
        path.symlink_to("/dev/null")
    else:
        path.write_text("" if kind == "empty" else " \n")
    host = neuron_hosts.observed(tree, packages=CURRENT)
    result = planned(host)
    assert (result.modules_file, f"write {owned.NEURON_MODULES_LOAD}" in result.changes) == (None, False)
    assert any("is empty or a link to /dev/null" in reason for reason in result.reasons)


# --- chips in use ----------------------------------------------------------------------------------------------------


def test_an_upgrade_is_refused_while_a_process_holds_a_chip(tmp_path):
    host = record(working(tmp_path, packages=CURRENT, held=(DKMS, TOOLS), opened=("/dev/neuron1",)))
    (problem,) = planned(host, OFFERED, release="2.33").problems
    assert "in use by process 70 (train) (/dev/neuron1). Stop the containers and processes" in problem
    assert planned(host).problems == []


def test_a_removal_is_refused_while_a_process_holds_a_chip(tmp_path):
    host = record(working(tmp_path, packages=CURRENT, opened=("/dev/neuron0",)))
    result = planned(host, state="absent")
    assert "cannot be removed, because chips are in use by process 70" in result.problems[0]
    assert result.changes == []


# --- removal ---------------------------------------------------------------------------------------------------------


def test_removal_takes_what_the_scripts_of_the_packages_left(tmp_path):
    host = record(working(tmp_path, packages=CURRENT))
    for path in owned.NEURON_LEFTOVERS[:2]:
        host["files"][path] = {"exists": True, "content": "", "mode": "0644"}
    result = planned(host, state="absent")
    assert (result.packages, result.unload) == ([DKMS, TOOLS], ["neuron"])
    assert result.remove_files == ["/etc/modules-load.d/neuron.conf", "/usr/lib/udev/rules.d/neuron-udev.rules"]


def test_removal_leaves_an_adopted_driver(tmp_path):
    result = planned(working(tmp_path, packages=CURRENT), state="absent")
    assert (result.packages, result.unload, result.remove_files, result.acts) == ([], [], [], False)


def test_a_host_without_chips_gets_nothing(tmp_path):
    result = planned(neuron_hosts.observed(NeuronTree(tmp_path, loaded=False)))
    assert (result.wanted, result.acts, result.reasons) == (False, False, ["this host has no AWS Neuron device"])


def test_root_is_required(tmp_path):
    assert any("become" in problem for problem in planned(bare(tmp_path, uid=1000), OFFERED).problems)


# --- the vendor's hook ------------------------------------------------------------------------------------------------

HOOK = "aws-neuronx-oci-hook"
RUNTIME = {"path": "/opt/aws/neuron/bin/oci_neuron_hook_wrapper.sh", "runtimeArgs": []}
# Invented: AWS does not document the content of this file.
HOOK_FILE = json.dumps({"default-runtime": "neuron", "runtimes": {"neuron": RUNTIME}})


def with_hook(tmp_path, text: str | None = HOOK_FILE, present=None, **changes):
    host = record(working(tmp_path, packages={**CURRENT, HOOK: "2.19.65.0"}, held=(DKMS, TOOLS), **changes))
    host["files"][owned.NEURON_HOOK_CONFIG] = {"exists": text is not None, "content": text, "mode": "0644"}
    host["docker_daemon_json"]["content"] = present or {}
    return host


def test_the_package_of_the_hook_is_installed_first(tmp_path):
    result = planned(record(working(tmp_path, packages=CURRENT, held=(DKMS, TOOLS))), oci_hook=True, release="2.32")
    assert (result.problems, result.transaction.install, result.transaction.hold) == ([], [HOOK], [HOOK])
    assert result.hook.options is None


def test_a_lost_hold_of_the_hook_is_set_again(tmp_path):
    host = record(with_hook(tmp_path, present={"runtimes": {"neuron": RUNTIME}}), DKMS, TOOLS, HOOK)
    result = planned(host, oci_hook=True)
    assert (result.problems, result.transaction.install, result.transaction.hold) == ([], [], [HOOK])
    assert f"hold {HOOK}" in result.changes
    host["held_packages"] = [DKMS, TOOLS, HOOK]
    assert planned(host, oci_hook=True).transaction is None
    assert planned(host, oci_hook=True, hold=False).transaction.release == [DKMS, HOOK, TOOLS]


@pytest.mark.parametrize("default", [False, True])
def test_only_the_key_of_the_runtime_is_merged(tmp_path, default):
    wanted = {"runtimes": {"neuron": RUNTIME}, **({"default-runtime": "neuron"} if default else {})}
    values = {"oci_hook": True, "oci_hook_default_runtime": default}
    assert planned(with_hook(tmp_path), **values).hook.options == wanted
    assert planned(with_hook(tmp_path / "b", present=wanted), **values).hook.options is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "does not exist"),
        ("{", "is not valid JSON"),
        ("[]", "has no key runtimes.neuron"),
        ('{"runtimes": {"other": {"path": "/x"}}}', "has no key runtimes.neuron"),
        ('{"runtimes": {"neuron": {}}}', "has no key runtimes.neuron"),
    ],
)
def test_another_file_of_the_package_is_an_error(tmp_path, text, message):
    result = planned(with_hook(tmp_path, text), oci_hook=True)
    assert message in result.problems[0]
    assert "daemon.json was not changed" in result.problems[0]


@pytest.mark.parametrize(
    ("key", "changes", "message"),
    [
        ("debian-12", {}, "Set neuron_driver_suite, for example to bookworm"),
        ("sles-15", {}, "AWS has no Neuron packages for sles-15"),
    ],
)
def test_the_hook_of_an_adopted_driver_needs_the_repository(tmp_path, key, changes, message):
    result = planned(working(tmp_path, key=key, **changes), oci_hook=True)
    (problem,) = result.problems
    assert message in problem
    assert (result.transaction, result.changes) == (None, [])


@pytest.mark.parametrize(("key", "more"), [("ubuntu-24.04", []), ("el-9", [LOCK])])
def test_the_hook_of_an_adopted_driver_brings_what_holds_need_and_keeps_passwords_secret(tmp_path, key, more):
    result = planned(working(tmp_path, key=key, packages=CURRENT), oci_hook=True, **LOGIN)
    assert (result.problems, result.transaction.install) == ([], [HOOK, *more])
    assert (result.transaction.hold, result.has_secrets) == ([HOOK], True)


@pytest.mark.parametrize("hold", [True, False])
def test_the_hook_of_an_adopted_driver_names_the_repository_and_the_hold(tmp_path, hold):
    changes = planned(working(tmp_path, packages=CURRENT), oci_hook=True, source="preinstalled", hold=hold).changes
    assert changes[:3] == [
        "add repository https://apt.repos.neuron.amazonaws.com",
        f"install {HOOK}",
        *([f"hold {HOOK}"] if hold else ["register Docker's runtime neuron"]),
    ]


MANAGED = {"entries": [{"path": ["default-runtime"], "managers": ["neuron_driver"], "value": "neuron"}]}
EMPTY = {"containers": [], "original": None, "made_directory": False, "written": None}


@pytest.mark.parametrize(
    ("default", "is_own", "registered", "expected"),
    [
        # The user's default runtime stays, and is no reason to act.
        (False, False, True, []),
        (False, False, False, ["register Docker's runtime neuron in /etc/docker/daemon.json"]),
        (False, True, True, ["remove default-runtime from /etc/docker/daemon.json"]),
        (True, False, True, []),
        (True, True, True, []),
    ],
)
def test_only_a_default_runtime_of_the_role_is_removed(tmp_path, default, is_own, registered, expected):
    present = {"default-runtime": "neuron", "runtimes": {"neuron": RUNTIME} if registered else {}}
    host = with_hook(tmp_path, present=present)
    text = json.dumps({**MANAGED, **EMPTY}) if is_own else None
    host["files"][oci_hook._RECORD] = {"exists": is_own, "content": text, "mode": "0600"}
    hook = oci_hook.plan(host, neuron_request.read({"oci_hook": True, "oci_hook_default_runtime": default}))
    assert (hook.problems, hook.changes, hook.options is None) == ([], expected, not expected)


def test_amazon_linux_has_no_hook(tmp_path):
    (problem,) = planned(bare(tmp_path, key="amazon-2023"), OFFERED, oci_hook=True).problems
    assert "does not support the hook on amazon-2023" in problem


# --- playbooks site and verify ----------------------------------------------------------------------------------------


def part(host, versions=None, parts=None, *, drains=False, **values):
    context = Context(
        host=host,
        values={"neuron_driver": values},
        platforms={"neuron_driver": DATA},
        versions=versions,
        drains=drains,
        accelerator_program=lambda options: f"digest {options}",
    )
    return neuron_part.plan(context, parts or {})


def test_the_part_asks_and_then_acts(tmp_path):
    first = part(bare(tmp_path))
    assert (first.query["record"], first.query["query"]) == ("neuron_driver", [DKMS])
    second = part(bare(tmp_path), OFFERED)
    assert (second.query, second.acts, second.errors) == (None, True, [])
    assert any(f"{DKMS}=2.30.2.0" in text for text in second.changes)


def test_the_part_removes_first(tmp_path):
    found = part(record(working(tmp_path, packages=CURRENT)), state="absent")
    assert (found.removes, found.removal["record"], found.removal["remove"]) == (True, "neuron_driver", [DKMS, TOOLS])


@pytest.mark.parametrize(
    ("package", "service", "engine", "problems"),
    [
        (None, None, None, 1),
        (None, None, "podman", 1),
        (None, None, "docker", 0),
        ({"name": "docker.io", "version": "26"}, None, None, 0),
        (None, "loaded", None, 0),
    ],
    ids=["no engine", "Podman is installed later", "Docker is installed later", "package", "Docker without a package"],
)
def test_the_hook_needs_docker(tmp_path, package, service, engine, problems):
    host = record(working(tmp_path, packages=CURRENT, held=(DKMS, TOOLS)))
    host["engines"]["docker"]["package"] = package
    host["services"]["docker.service"] = {"load_state": service or "not-found", "active_state": "inactive"}
    planned = Part(outcome=EngineOutcome(engine, installs=True))
    parts = {"container_engine": planned} if engine else {}
    found = part(host, parts=parts, oci_hook=True).errors
    assert len(found) == problems
    assert all("the hook is a runtime of Docker, which is not installed" in text for text in found)
    assert part(host, parts=parts).errors == []


def test_hosts_of_other_vendors_need_no_data(tmp_path):
    host = neuron_hosts.observed(NeuronTree(tmp_path, loaded=False))
    found = neuron_part.plan(Context(host=host, values={}, platforms={}), {})
    assert (found.acts, found.errors, found.changes) == (False, [], [])


def test_verify_names_chips_that_cannot_be_used(tmp_path):
    assert accelerator_health.problems(working(tmp_path)) == []
    tree = NeuronTree(tmp_path / "lost")
    tree.host(TRN2, 2, reset="2\n")
    (problem,) = accelerator_health.problems(neuron_hosts.observed(tree))
    assert "the AWS Neuron chips cannot be used (state error)" in problem
    (problem,) = accelerator_health.problems(bare(tmp_path / "bare"))
    assert "has no module neuron" in problem


# --- the drain of playbook site ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("values", [{"release": "2.33"}, {"state": "absent"}])
def test_chips_in_use_are_drained_first_and_the_role_plans_again_afterwards(tmp_path, values):
    host = record(working(tmp_path, packages=CURRENT, held=(DKMS, TOOLS), opened=("/dev/neuron1",)))
    assert "in use by process 70" in part(host, OFFERED, **values).errors[0]
    found = part(host, OFFERED, drains=True, **values)
    assert (found.errors, found.acts, found.plans_again) == ([], True, True)
    assert "chips are in use by process 70 (train) (/dev/neuron1); the drain" in found.reasons[-1]
    drain, notes = site_drain.of_run({"adapter": "slurm"}, {"neuron_driver": found}, {})
    assert (drain["begins"], drain["reason"]) == (True, "reload of the driver")
    assert "drains the host (reload of the driver)" in notes[0]


def test_only_packages_of_the_driver_are_a_reason_to_drain(tmp_path):
    new = part(bare(tmp_path), OFFERED, drains=True)
    assert site_drain.of_run({"adapter": "slurm"}, {"neuron_driver": new}, {})[0]["reason"] == "new driver"
    host = record(working(tmp_path / "b", packages={DKMS: "2.30.2.0"}, held=(DKMS,), opened=("/dev/neuron1",)))
    tools = part(host, OFFERED, drains=True)
    assert (tools.acts, tools.plans_again, tools.disruptions) == (True, False, [])
    assert site_drain.of_run({"adapter": "slurm"}, {"neuron_driver": tools}, {})[0] is None
