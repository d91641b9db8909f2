# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import typing as t

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import version_key
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import vulnerabilities
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.package_plan import UNIT
from ansible_collections.gpufleet.hosts.tests.unit.plugins.container_toolkit_samples import (
    OFFERS,
    PLATFORMS,
    PLUGIN,
    answered,
    configured,
    host,
    packages,
    recorded,
    unit,
)

BASE = "https://nvidia.github.io/libnvidia-container"
KEY = "C95B321B61E88C1809C4F759DDCAE044F796ECB0"
TOOLKIT, NEW = "nvidia-container-toolkit", [f"{name}=1.20.1-1" for name in UNIT]


# --- the vulnerabilities ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "known"),
    [
        ("1.20.1-1", []),
        ("1.19.1-1", []),
        ("1.19.0-1", ["CVE-2026-24260"]),
        ("1.17.8-1", ["CVE-2026-24260"]),
        ("1.17.7-1", ["CVE-2026-24260", "CVE-2025-23266", "CVE-2025-23267"]),
        ("1.17.3-1", ["CVE-2026-24260", "CVE-2025-23266", "CVE-2025-23267", "CVE-2025-23359"]),
        ("2.0", []),
    ],
)
def test_versions_have_the_vulnerabilities_that_were_fixed_later(version: str, known: list[str]) -> None:
    assert vulnerabilities.of(version) == known


def test_the_oldest_versions_have_all_vulnerabilities() -> None:
    assert set(vulnerabilities.of("1.16.1")) == {entry.cve for entry in vulnerabilities.VULNERABILITIES}
    assert version_key(vulnerabilities.FLOOR) >= (1, 19, 1)


# --- from bare to installed -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", sorted(PLATFORMS))
def test_bare_host_gets_all_packages_in_one_version_and_holds_them(key: str) -> None:
    done = answered(host(key))
    assert (done.problems, done.source, done.version) == ([], "nvidia", "1.20.1-1")
    assert done.transaction is not None
    plugin = list(PLUGIN) if key.startswith(("el", "amazon")) else []
    assert (done.transaction.install, done.transaction.hold) == (NEW + plugin, list(UNIT))
    assert "~" in done.transaction.keep[0]


@pytest.mark.parametrize(
    ("key", "arch", "url"),
    [
        ("debian-12", "x86_64", f"{BASE}/stable/deb/amd64"),
        ("ubuntu-24.04", "aarch64", f"{BASE}/stable/deb/arm64"),
        ("el-8", "x86_64", f"{BASE}/stable/rpm/x86_64"),
        ("amazon-2023", "aarch64", f"{BASE}/stable/rpm/aarch64"),
        ("sles-15", "x86_64", f"{BASE}/stable/rpm/x86_64"),
    ],
)
def test_the_repository_of_the_platform_is_trusted_by_its_key(key: str, arch: str, url: str) -> None:
    seen = host(key)
    seen["os"]["arch"] = arch
    query = packages(seen).query
    assert query is not None
    (definition,) = query["repositories"]
    assert (definition["url"], definition["key"], definition["fingerprint"]) == (url, f"{BASE}/gpgkey", KEY)
    # dnf would reject the packages, which have no signature of their own.
    assert definition.get("signed") == ("metadata" if key in ("el-8", "amazon-2023") else None)


def test_packages_are_pinned_to_the_repository() -> None:
    work = answered(host("ubuntu-24.04")).transaction
    assert work is not None
    (pin,) = work.files
    assert pin["path"] == owned.CONTAINER_TOOLKIT_APT_PREFERENCES
    assert f'Package: {" ".join(UNIT)}\nPin: origin "nvidia.github.io"\n' in pin["content"]
    work = answered(host("el-9")).transaction
    assert work is not None
    # Lower numbers come first, and 99 is the default.
    assert (work.files, [item["priority"] < 99 for item in work.repositories]) == ([], [True])


def test_mirror_replaces_the_address_and_has_logins() -> None:
    done = packages(
        host("debian-13"),
        mirror="https://mirror.example/nct/",
        repository_username="robot",
        repository_password="s3cret",
        key_fingerprint="AAAA" * 10,
    )
    assert done.query is not None
    (definition,) = done.query["repositories"]
    assert definition["url"] == "https://mirror.example/nct/stable/deb/amd64"
    assert definition["key"] == "https://mirror.example/nct/gpgkey"
    assert (definition["username"], definition["password"]) == ("robot", "s3cret")
    assert definition["fingerprint"] == "AAAA" * 10


APT = {"file": "/etc/apt/sources.list.d/nvidia-container-toolkit.list", "suites": ["/"], "components": []}
RPM = {"id": TOOLKIT, "file": "/etc/yum.repos.d/nvidia-container-toolkit.repo"}


@pytest.mark.parametrize(
    ("key", "entry", "adds"),
    [
        ("debian-12", {"enabled": True, "uris": [f"{BASE}/stable/deb/$(ARCH)"]}, False),
        ("debian-12", {"enabled": True, "uris": ["https://m.example/libnvidia-container/stable/deb/amd64/"]}, False),
        ("debian-12", {"enabled": False, "uris": [f"{BASE}/stable/deb/amd64"]}, True),
        ("debian-12", {"enabled": True, "uris": [f"{BASE}/experimental/deb/amd64"]}, True),
        ("el-9", {"enabled": True, "url": f"{BASE}/stable/rpm/$basearch"}, False),
        ("el-9", {"enabled": True, "url": f"{BASE}/experimental/rpm/$basearch"}, True),
        ("sles-15", {"enabled": True, "url": f"{BASE}/stable/rpm/$basearch?proxy=p.example"}, False),
    ],
)
def test_entry_of_the_user_for_the_repository_stays(key: str, entry: dict[str, t.Any], adds: bool) -> None:
    seen = host(key)
    if seen["apt"] is not None:
        seen["apt"]["sources"] = [{**APT, **entry}]
    else:
        seen["repositories"] = [{**RPM, **entry}]
    work = answered(seen).transaction
    assert work is not None
    assert bool(work.repositories) == adds


# --- which version ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("variables", "version"),
    [
        ({}, "1.20.1-1"),
        ({"version": "1.20.0"}, "1.20.0-1"),
        ({"version": "1.19"}, "1.19.1-1"),
        ({"version": "1.17.8", "accept_vulnerable": True}, "1.17.8-1"),
    ],
)
def test_requested_version(variables: dict[str, t.Any], version: str) -> None:
    done = answered(host("debian-12"), **variables)
    assert (done.problems, done.version) == ([], version)
    assert done.transaction is not None
    assert done.transaction.install == [f"{name}={version}" for name in UNIT]


def test_a_version_that_one_package_lacks_is_not_installed() -> None:
    offers = {**OFFERS, "libnvidia-container1": ["1.20.0-1", "1.19.1-1"]}
    assert answered(host("debian-12"), offers).version == "1.20.0-1"
    (problem,) = answered(host("debian-12"), offers, version="1.20.1").problems
    assert "has nvidia-container-toolkit 1.20.1-1, but not libnvidia-container1 in this version" in problem


@pytest.mark.parametrize(
    ("key", "variables", "offers", "words"),
    [
        (
            "debian-12",
            {"version": "9.9"},
            OFFERS,
            f"repository {BASE}/stable/deb/amd64 has no such version. It has 1.20.1",
        ),
        ("debian-12", {"version": "1.17.8"}, OFFERS, "version=1.17.8 has known vulnerabilities: CVE-2026-24260."),
        (
            "debian-12",
            {},
            {name: ["1.17.8-1"] for name in UNIT},
            "has no version without known vulnerabilities (1.19.1 or newer). It has 1.17.8-1",
        ),
        ("debian-12", {"source": "distribution"}, OFFERS, "Set nvidia_container_toolkit_source=nvidia."),
        ("debian-12", {"source": "preinstalled"}, OFFERS, "but the toolkit is not installed."),
        ("amazon-2023", {"source": "distribution"}, {}, "dnf install nvidia-release"),
        ("fedora-43", {}, OFFERS, "set nvidia_container_toolkit_source=preinstalled"),
    ],
)
def test_refusals_name_the_way_out(
    key: str, variables: dict[str, t.Any], offers: dict[str, list[str]], words: str
) -> None:
    seen = host("debian-12" if key.startswith("fedora") else key)
    seen["os"]["key"] = key
    done = answered(seen, offers, **variables)
    (problem,) = done.problems
    assert words in problem
    assert done.transaction is None


def test_other_architecture_is_refused() -> None:
    seen = host("ubuntu-24.04")
    seen["os"]["arch"] = "ppc64le"
    (problem,) = packages(seen).problems
    assert "on Some ubuntu-24.04 (ppc64le)" in problem


# --- an installed toolkit ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["debian-12", "el-9", "sles-15"])
def test_converged_host_has_nothing_to_do_and_nothing_to_ask(key: str) -> None:
    done = packages(configured(key, unit()))
    assert (done.problems, done.query, done.transaction) == ([], None, None)
    assert done.version == "1.20.1-1"


@pytest.mark.parametrize(
    ("variables", "found"),
    [
        ({}, unit()),
        ({}, unit("1.19.1-1")),
        ({"source": "distribution"}, unit()),
        ({"source": "preinstalled"}, unit()),
        ({"source": "preinstalled"}, {"nvidia-container-toolkit-base": "1.20.0-1"}),
        ({"source": "preinstalled", "accept_vulnerable": True}, unit("1.14.0-1")),
        ({"version": "1.20"}, unit("1.20.0-1")),
    ],
)
def test_suitable_toolkit_of_any_origin_stays(variables: dict[str, t.Any], found: dict[str, str]) -> None:
    done = packages(host("debian-12", found), **variables)
    assert (done.problems, done.query, done.transaction) == ([], None, None)


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (unit("1.17.8-1"), "the installed version 1.17.8-1 has known vulnerabilities: CVE-2026-24260"),
        (
            {**unit(), "libnvidia-container1": "1.19.1-1"},
            "have different versions: libnvidia-container-tools 1.20.1-1, libnvidia-container1 1.19.1-1",
        ),
        ({"nvidia-container-toolkit": "1.20.1-1"}, "libnvidia-container-tools, libnvidia-container1 are not installed"),
    ],
)
def test_unsuitable_toolkit_is_changed_as_one_unit(found: dict[str, str], why: str) -> None:
    done = answered(host("debian-12", found))
    assert done.transaction is not None
    assert done.transaction.install == NEW
    assert why in " ".join(done.reasons)


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (unit("1.17.8-1"), "1.17.8-1 has known vulnerabilities: CVE-2026-24260"),
        ({**unit(), UNIT[3]: "1.19.1-1"}, "different versions"),
        ({UNIT[2]: "1.20.1-1"}, "not installed"),
    ],
)
def test_unsuitable_preinstalled_toolkit_is_refused(found: dict[str, str], why: str) -> None:
    done = packages(host("debian-12", found), source="preinstalled")
    (problem,) = done.problems
    assert problem.startswith("nvidia_container_toolkit_source=preinstalled, but ")
    assert why in problem
    assert done.transaction is None


def test_toolkit_that_somebody_else_holds_is_not_changed() -> None:
    seen = host("debian-12", unit("1.17.8-1"), held_packages=[TOOLKIT])
    (problem,) = packages(seen).problems
    assert "has known vulnerabilities: CVE-2026-24260" in problem
    assert "nvidia-container-toolkit is held, and not by this role" in problem
    ours = host("debian-12", unit("1.17.8-1"), held_packages=[TOOLKIT], files=recorded(*UNIT, holds=[TOOLKIT]))
    assert packages(ours).problems == []


def test_holds_are_released_on_request() -> None:
    work = packages(configured("debian-12", unit()), hold=False).transaction
    assert work is not None
    assert (work.release, work.install) == (sorted(UNIT), [])


def test_changed_mirror_changes_the_repository_and_the_pin() -> None:
    work = packages(configured("debian-12", unit()), mirror="https://mirror.example/nct").transaction
    assert work is not None
    assert [item["url"] for item in work.repositories] == ["https://mirror.example/nct/stable/deb/amd64"]
    assert 'Pin: origin "mirror.example"' in work.files[0]["content"]
    assert work.install == []


def test_interrupted_installation_is_finished() -> None:
    files = recorded(*UNIT, pending=["nvidia-container-toolkit"])
    assert packages(host("debian-12", unit(), files=files)).transaction is not None
