# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The matrix of the solvers fails for wrong engines, and for refusals that do not name the cause."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.simulation import SimulatedChange
from ansible_collections.gpufleet.hosts.tests.sandbox.vendor.archives import Package, load
from ansible_collections.gpufleet.hosts.tests.solver import engines
from ansible_collections.gpufleet.hosts.tests.solver.engine_cases import Case, Expected, Outcome, faults
from ansible_collections.gpufleet.hosts.tests.solver.hosts import System

HOST = System("host", "debian-13", "", "", (), ("base",))
CE = Package("docker-ce", "5:28.5.1-1", "amd64")
CLI = Package("docker-ce-cli", "5:28.5.1-1", "amd64", files=("/usr/bin/docker",))
OLD_CLI = Package("docker-ce-cli", "5:27.5.1-1", "amd64")
PODMAN_DOCKER = Package("podman-docker", "5.4.2", "amd64", files=("/usr/bin/docker",))
DEBIANS = Package("docker.io", "26.1.5", "amd64", files=("/usr/lib/systemd/system/docker.service",))
DOCKERS = Package("docker-ce", "5:28.5.1-1", "amd64", files=("/lib/systemd/system/docker.service",))
RIGHT = Expected((("docker-ce", "28.5.1"), ("docker-ce-cli", "28.5.1")), "docker", frozenset({"runc"}))
KEPT = Expected(kept=True)
REFUSED = Expected(refusals=(r"\bdocker\.io\b",))
GONE, NEW = SimulatedChange("runc", "remove", "1"), SimulatedChange("docker-ce", "install", None, "5:28.5.1-1")
OTHER = SimulatedChange("podman", "remove", "5")
MOVED = SimulatedChange("docker.io", "upgrade", "1", "2")
CASES = [
    (RIGHT, {"system": [CE, CLI], "changes": [GONE, NEW]}, None),
    (RIGHT, {"system": [CE], "changes": [GONE, NEW]}, "docker-ce-cli is not installed"),
    (RIGHT, {"system": [CE, OLD_CLI], "changes": [GONE]}, "docker-ce-cli has version 27.5.1, expected 28.5.1"),
    (RIGHT, {"system": [CE, CLI], "changes": [NEW]}, "removes nothing, expected runc"),
    (RIGHT, {"system": [CE, CLI], "changes": [GONE, OTHER]}, "removes podman, runc, expected runc"),
    (RIGHT, {"system": [CE, CLI, PODMAN_DOCKER], "changes": [GONE]}, "podman-docker contain /usr/bin/docker"),
    (RIGHT, {"system": [DOCKERS, CLI, DEBIANS], "changes": [GONE]}, "contain /lib/systemd/system/docker.service"),
    (RIGHT, {"system": [CE, CLI], "changes": [GONE], "again": ["install git"]}, "second run would change: install git"),
    (RIGHT, {"system": [CE, CLI], "changes": [GONE], "source": "distribution"}, "from distribution, expected docker"),
    (RIGHT, {"refused": "conflicts with runc"}, "expected an installation: conflicts with runc"),
    (KEPT, {"system": [CE]}, None),
    (KEPT, {"system": [CE], "changes": [MOVED]}, "changes upgrade docker.io from 1 to 2, expected no change"),
    (KEPT, {"errors": ["no"]}, "expected no change: no"),
    (REFUSED, {"errors": ["docker.io is installed"]}, None),
    (REFUSED, {"refused": "it would remove docker.io"}, None),
    (REFUSED, {"errors": ["container_engine_name=docker.io is wrong"]}, "expected ("),
    (REFUSED, {"system": [CE], "changes": [NEW]}, "planned, expected a refusal that names"),
]


@pytest.mark.parametrize(("expected", "outcome", "fault"), CASES)
def test_verdict(expected, outcome, fault):
    plan = SimpleNamespace(source=outcome.pop("source", "docker"), reason="")
    found = faults(Case(HOST, (), expected), Outcome(plan=plan, **outcome))
    assert found == [] if fault is None else fault in " ".join(found)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (
            SimulatedChange("docker-ce-cli", "upgrade", "5:28.5.1-1", "9:1"),
            "apt-get dist-upgrade changes the held engine",
        ),
        (SimulatedChange("git", "upgrade", "1", "2"), None),
    ],
)
def test_held_engine_keeps_its_version(change, fault):
    plan = SimpleNamespace(source="docker", reason="")
    outcome = Outcome(plan=plan, system=[CE, CLI], changes=[GONE], upgraded={"dist-upgrade": [change]})
    found = faults(Case(HOST, (), RIGHT), outcome)
    assert found == [] if fault is None else fault in found[0]


def test_a_case_has_exactly_one_outcome():
    with pytest.raises(ValueError, match="exactly one outcome"):
        Expected(kept=True, refusals=("x",))


# --- what is right, without the code under test --------------------------------------------------------------------


class Tool(SimpleNamespace):
    """The archives of a platform, without a package manager."""


ARCHIVES = {
    "debian": ("engines-debian", "docker-deb"),
    "ubuntu": ("engines-ubuntu", "docker-deb"),
    "el": ("engines-el", "docker-rpm"),
}


def expected(platform, host, **values):
    base, docker = ARCHIVES[platform.partition("-")[0]]
    tool = Tool(archives={**engines.split(load(base, platform)), "docker": load(docker, platform)})
    if platform in ("debian-12", "ubuntu-24.04"):
        tool.archives["moby"] = load("moby-deb", platform)
    (found,) = [system for system in engines.systems(tool, platform) if system.name == f"{platform}/{host}"]
    return engines.expected(tool, found, {"name": "docker", "source": "auto", **values})


@pytest.mark.parametrize(
    ("platform", "host", "values", "installs", "removes"),
    [
        ("debian-12", "bare", {}, {"docker.io": "20.10.24+dfsg1"}, set()),
        ("debian-12", "bare", {"minimum_version": "25.0"}, {"docker-ce": "29.7.2", "docker-ce-cli": "29.7.2"}, set()),
        ("debian-13", "bare", {}, {"docker.io": "26.1.5+dfsg1", "docker-cli": "26.1.5+dfsg1"}, set()),
        (
            "debian-13",
            "distribution",
            {"source": "docker", "replace": True},
            {"docker-ce": "29.7.2"},
            {"docker.io", "docker-cli", "containerd", "runc"},
        ),
        ("ubuntu-24.04", "bare", {}, {"docker.io": "29.1.3"}, set()),
        ("ubuntu-24.04", "repository", {}, {"docker-ce": "29.7.2", "docker-ce-cli": "29.7.2"}, set()),
        ("el-9", "podman-runc", {"replace": True}, {"docker-ce": "29.7.2"}, {"runc"}),
        ("el-10", "bare", {}, {"docker-ce": "29.7.2"}, set()),
        ("el-9", "podman", {}, {"docker-ce": "29.7.2"}, set()),
        (
            "el-8",
            "podman",
            {"replace": True},
            {"docker-ce": "29.7.2"},
            {"runc", "podman", "podman-catatonit", "podman-plugins", "containers-common"},
        ),
        ("debian-12", "docker-ce-outdated", {"version": "28.5.1"}, {"docker-ce": "28.5.1"}, set()),
    ],
)
def test_expected_installation(platform, host, values, installs, removes):
    right = expected(platform, host, **values)
    assert installs.items() <= dict(right.installs).items()
    assert right.removes == removes


@pytest.mark.parametrize(
    ("platform", "host", "values", "message"),
    [
        ("debian-13", "distribution", {"source": "docker"}, "docker 26.1.5 is installed from package docker.io"),
        ("debian-12", "podman-docker", {}, "docker cannot be installed together with podman-docker"),
        ("el-8", "podman", {}, "docker cannot be installed together with runc"),
        ("el-10", "bare", {"source": "distribution"}, "the distribution has none"),
        (
            "el-10",
            "without-optional-repository",
            {},
            "the repositories of this host do not have kernel-modules-extra for kernel 6.12.0-211.7.1.el10_2.x86_64",
        ),
        ("debian-12", "bare", {"version": "26.0.99"}, "Debian has no such version of docker.io"),
        ("ubuntu-24.04", "moby", {"minimum_version": "29.5"}, "docker 28.3.3 (package moby-engine) is installed"),
        (
            "ubuntu-24.04",
            "moby",
            {"name": "containerd", "minimum_version": "2.2"},
            "containerd 1.7.28 (package moby-containerd) is installed",
        ),
        ("debian-12", "docker-ce-held", {"version": "28.5.1"}, "upgrade docker-ce from 27.5.1 to 28.5.1 (held)"),
    ],
)
def test_expected_refusal(platform, host, values, message):
    right = expected(platform, host, **values)
    assert any(re.search(pattern, message) for pattern in right.refusals)
    assert not any(re.search(pattern, "The package manager failed.") for pattern in right.refusals)
