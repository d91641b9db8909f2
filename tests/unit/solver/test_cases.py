# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The matrix of the solvers fails for drivers that do not work, and for refusals that do not name the cause."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.simulation import SimulatedChange
from ansible_collections.gpufleet.hosts.tests.sandbox.vendor import archives
from ansible_collections.gpufleet.hosts.tests.sandbox.vendor.archives import Package
from ansible_collections.gpufleet.hosts.tests.solver import debian, enterprise, suse, ubuntu
from ansible_collections.gpufleet.hosts.tests.solver.cases import Case, Expected, Outcome, faults
from ansible_collections.gpufleet.hosts.tests.solver.hosts import System

OLD, NEW = "6.8.0-87-generic", "6.8.0-88-generic"
IMAGES = tuple(Package(f"linux-image-{release}", "1", "amd64", release=release) for release in (OLD, NEW))
HOST = System("host", "ubuntu-24.04", OLD, NEW, IMAGES, ("ubuntu",))
PLAN = {"module_build": "precompiled", "flavor": "open", "branch": "580", "source": "distribution", "version": "580.2"}
RIGHT = Expected(("precompiled",), flavor="open", branch="580", source="distribution")
TOOLS = Package("nvidia-utils-580-server", "580.2-1", "amd64", driver="580.2")


def module(release: str, driver: str = "580.2", flavor: str = "open") -> Package:
    """Return prebuilt modules."""
    name = f"linux-modules-nvidia-580-server-{flavor}-{release}"
    return Package(name, "1", "amd64", driver=driver, flavor=flavor, release=release)


DKMS = Package("nvidia-dkms-580-server-open", "580.2-1", "all", driver="580.2", flavor="open")
HEADERS = Package(f"linux-headers-{NEW}", "1", "amd64", release=NEW)
OTHER = Package("linux-image-6.8.0-99-generic", "1", "amd64", release="6.8.0-99-generic")
SYSTEMS = [
    ([TOOLS, module(NEW)], {}, None),
    ([TOOLS, DKMS, HEADERS], {"module_build": "dkms"}, "builds with dkms"),
    ([TOOLS, module(OLD)], {}, f"no module for kernel {NEW}"),
    ([TOOLS, module(NEW, "580.1")], {}, "has driver 580.1, but the user space has version 580.2"),
    ([TOOLS, module(NEW), module(OLD, "580.1")], {}, f"{OLD} with driver 580.1"),
    ([TOOLS, module(NEW), module(OLD)], {}, None),
    ([TOOLS, module(NEW, flavor="proprietary")], {}, "is proprietary"),
    ([TOOLS, module(NEW), OTHER], {}, "installs another kernel: linux-image-6.8.0-99-generic"),
    (
        [TOOLS, Package("libcuda", "580.1-1", "amd64", driver="580.1"), module(NEW)],
        {},
        "the user space has version 580.1",
    ),
    ([module(NEW)], {}, "the user space has no version"),
    ([TOOLS, module(NEW)], {"branch": "595"}, "branch is 595, expected 580"),
    ([TOOLS, module(NEW)], {"version": "580.9"}, "planned was 580.9"),
]


@pytest.mark.parametrize(("system", "plan", "fault"), SYSTEMS)
def test_installed_driver_must_work_after_the_next_boot(system, plan, fault):
    outcome = Outcome(plan={**PLAN, **plan, "reasons": []}, system=[*IMAGES, *system])
    found = faults(Case(HOST, "T4", (), RIGHT), outcome)
    assert found == [] if fault is None else fault in " ".join(found)


def test_dkms_needs_the_headers_of_the_next_kernel():
    expected = Expected(("dkms",), reasons=("dkms modules",))
    plan = {**PLAN, "module_build": "dkms", "reasons": ["dkms modules: the repositories lack a driver"]}
    for extra, count in (([HEADERS], 0), ([], 1)):
        outcome = Outcome(plan=plan, system=[*IMAGES, TOOLS, DKMS, *extra])
        assert len(faults(Case(HOST, "T4", (), expected), outcome)) == count


KERNEL = Package("linux-image-6.8.0-99-generic", "1", "amd64", release="6.8.0-99-generic")
ITS_HEADERS = Package("linux-headers-6.8.0-99-generic", "1", "all", release="6.8.0-99-generic")
ITS_MODULE, OTHER_MODULE = module("6.8.0-99-generic"), module("6.8.0-99-generic", "580.3")
NEWER_TOOLS = Package("nvidia-utils-580-server", "580.3-1", "amd64", driver="580.3")
UPGRADES = [
    ([TOOLS, module(NEW)], None),
    ([TOOLS, module(NEW), KERNEL], "installs linux-image-6.8.0-99-generic, which has no module of the driver's"),
    ([TOOLS, module(NEW), KERNEL, OTHER_MODULE], "installs linux-image-6.8.0-99-generic, which has no module"),
    ([TOOLS, module(NEW), KERNEL, ITS_MODULE], None),
    ([TOOLS, DKMS, KERNEL], "installs linux-image-6.8.0-99-generic, which has no module"),
    ([TOOLS, DKMS, KERNEL, ITS_HEADERS], None),
    ([NEWER_TOOLS, module(NEW, "580.3")], "the user space has version 580.3"),
    ([module(NEW)], "the user space has no version"),
]


@pytest.mark.parametrize(("system", "fault"), UPGRADES)
@pytest.mark.parametrize("expected", [RIGHT, Expected(kept=True)])
def test_driver_must_work_after_an_upgrade_of_the_system(expected, system, fault):
    outcome = Outcome(plan={**PLAN, "reasons": []}, system=[*IMAGES, TOOLS, module(NEW)])
    outcome.upgraded = {"dist-upgrade": [*IMAGES, *system]}
    found = faults(Case(HOST, "T4", (), expected), outcome)
    assert found == [] if fault is None else fault in " ".join(found)


REFUSALS = [
    (Expected(refusals=("Volta",)), Outcome(["0x1db1 (Volta) needs 580"]), None),
    (Expected(refusals=("Volta",)), Outcome(["no package"]), "a refusal that names Volta"),
    (RIGHT, Outcome(["no package"]), "refused, expected an installation: no package"),
    (RIGHT, Outcome(refused="unmet dependencies"), "the solver refuses the plan: unmet dependencies"),
    (Expected(refusals=("Volta",)), Outcome(plan=PLAN), "planned, expected a refusal"),
]


@pytest.mark.parametrize(("expected", "outcome", "fault"), REFUSALS)
def test_refusal_must_be_expected_and_name_the_cause(expected, outcome, fault):
    found = faults(Case(HOST, "V100", (), expected), outcome)
    assert found == [] if fault is None else fault in " ".join(found)


@pytest.mark.parametrize(
    "outcome", [{}, {"builds": ("dkms",), "refusals": ("DKMS",)}, {"kept": True, "builds": ("dkms",)}]
)
def test_case_has_exactly_one_outcome(outcome):
    with pytest.raises(ValueError, match="exactly one outcome"):
        Expected(**outcome)


# The data files of each platform's archives, as in function `manager` of its family.
FAMILIES = {
    "ubuntu-24.04": (ubuntu, {"ubuntu": "ubuntu", "nvidia": "nvidia-apt"}),
    "ubuntu-26.04": (ubuntu, {"ubuntu": "ubuntu", "nvidia": "nvidia-apt"}),
    "debian-13": (debian, {"debian": "debian", "nvidia": "nvidia-apt"}),
    "el-9": (enterprise, {"base": "el", "nvidia": "nvidia-rpm", "vendor": "vendor-modules"}),
    "sles-15": (suse, {"base": "sles", "nvidia": "nvidia-suse"}),
}
EMPTY_WORDS = "Upgrade the kernel and reboot first. Use auto, or set another nvidia_driver_source."


@pytest.mark.parametrize("platform", FAMILIES)
def test_refusal_that_repeats_the_settings_is_not_enough(platform):
    family, files = FAMILIES[platform]
    manager = SimpleNamespace(archives={name: archives.load(file, platform) for name, file in files.items()})
    cases = [case for case in family.cases(manager, platform) if case.expected.refusals]
    assert cases
    for case in cases:
        settings = " and ".join(f"nvidia_driver_{name} is {value}" for name, value in case.values)
        for text in (f"{settings}.", f"{settings}. {EMPTY_WORDS}"):
            assert faults(case, Outcome([text])), f"{case} accepts: {text}"


GUEST = Case(HOST, "H100", (), Expected(user_space="580.2"))


@pytest.mark.parametrize(
    ("system", "brought", "fault"),
    [
        ([TOOLS], ["nvidia-utils-580-server"], None),
        ([TOOLS], ["nvidia-utils-580-server", "nvidia-dkms-580-server-open"], "brings packages of the kernel: "),
        ([TOOLS], ["kmod-nvidia-open-dkms"], "packages of the kernel"),
        ([Package("libcuda", "580.1-1", "amd64", driver="580.1")], [], "580.1 (libcuda), the node has 580.2"),
        ([], [], "has no version, the node has 580.2"),
    ],
)
def test_guest_must_get_the_user_space_of_its_node_and_nothing_of_the_kernel(system, brought, fault):
    changes = [SimulatedChange(name, "install", None, "580.2-1", "amd64") for name in brought]
    found = faults(GUEST, Outcome(plan={"reasons": []}, changes=changes, system=system))
    assert found == [] if fault is None else fault in " ".join(found)
