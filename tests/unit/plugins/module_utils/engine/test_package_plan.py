# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import copy
import typing as t

import pytest

from ansible_collections.gpufleet.hosts.tests.unit.plugins.engine_samples import (
    FULL,
    OFFERS,
    PLATFORMS,
    answered,
    host,
    plan,
    recorded,
)

DOCKER = ["docker-ce", "docker-ce-cli", "containerd.io", "docker-buildx-plugin", "docker-compose-plugin"]
DOCKER_URL = "https://download.docker.com/linux"
DEB_CE = {
    "docker-ce": "5:28.5.1-1~debian.12~bookworm",
    "docker-ce-cli": "5:28.5.1-1~debian.12~bookworm",
    "containerd.io": "2.1.5-1~debian.12~bookworm",
}
DEB_CE_26 = {**dict.fromkeys(DEB_CE, "5:26.1.0-1"), "containerd.io": "1.7.0-1"}
RPM_CE = {"docker-ce": "3:28.5.1-1.el9", "docker-ce-cli": "1:28.5.1-1.el9", "containerd.io": "2.1.5-1.el9"}
SUPPORT = {"ca-certificates": "1", "iptables": "1", "python3-requests": "1"}
IO = {"docker.io": "20.10.24+dfsg1-1+deb12u1", **SUPPORT}


def offers(key: str) -> dict[str, list[str]]:
    return FULL[key.partition("-")[0]]


# --- from bare to installed, on every platform ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "engine", "source", "package", "url"),
    [
        ("debian-12", "docker", "distribution", "docker.io", None),
        ("debian-13", "docker", "distribution", "docker-cli", None),
        ("ubuntu-22.04", "docker", "distribution", "docker.io", None),
        ("ubuntu-24.04", "docker", "distribution", "docker.io", None),
        ("ubuntu-26.04", "docker", "distribution", "docker.io", None),
        ("el-8", "docker", "docker", "docker-ce", f"{DOCKER_URL}/rhel/8/x86_64/stable"),
        ("el-9", "docker", "docker", "docker-ce", f"{DOCKER_URL}/rhel/9/x86_64/stable"),
        ("el-10", "docker", "docker", "docker-ce", f"{DOCKER_URL}/rhel/10/x86_64/stable"),
        ("amazon-2023", "docker", "distribution", "docker", None),
        ("sles-15", "docker", "distribution", "docker", None),
        ("debian-12", "podman", "distribution", "netavark", None),
        ("ubuntu-22.04", "podman", "distribution", "containernetworking-plugins", None),
        ("ubuntu-24.04", "podman", "distribution", "netavark", None),
        ("el-8", "podman", "distribution", "podman", None),
        ("el-9", "podman", "distribution", "netavark", None),
        ("sles-15", "podman", "distribution", "podman", None),
        ("debian-13", "containerd", "distribution", "containerd", None),
        ("ubuntu-26.04", "containerd", "distribution", "containerd", None),
        ("el-10", "containerd", "docker", "containerd.io", f"{DOCKER_URL}/rhel/10/x86_64/stable"),
        ("amazon-2023", "containerd", "distribution", "containerd", None),
        ("sles-15", "containerd", "distribution", "containerd", None),
    ],
)
def test_bare_host_gets_an_engine(key: str, engine: str, source: str, package: str, url: str | None) -> None:
    done = answered(host(key), offers(key), name=engine)
    assert (done.problems, done.source, done.is_installed) == ([], source, False)
    assert package in done.packages
    assert done.transaction is not None
    assert [repository["url"] for repository in done.transaction.repositories] == ([url] if url else [])
    assert done.acts


@pytest.mark.parametrize(
    ("key", "url", "suite", "fingerprint"),
    [
        ("debian-12", f"{DOCKER_URL}/debian", "bookworm", "9DC858229FC7DD38854AE2D88D81803C0EBFCD88"),
        ("debian-13", f"{DOCKER_URL}/debian", "trixie", "9DC858229FC7DD38854AE2D88D81803C0EBFCD88"),
        ("ubuntu-22.04", f"{DOCKER_URL}/ubuntu", "jammy", "9DC858229FC7DD38854AE2D88D81803C0EBFCD88"),
        ("ubuntu-24.04", f"{DOCKER_URL}/ubuntu", "noble", "9DC858229FC7DD38854AE2D88D81803C0EBFCD88"),
        ("ubuntu-26.04", f"{DOCKER_URL}/ubuntu", "resolute", "9DC858229FC7DD38854AE2D88D81803C0EBFCD88"),
        ("el-9", f"{DOCKER_URL}/rhel/9/x86_64/stable", None, "060A61C51B558A7F742B77AAC52FEB6B621E9F35"),
    ],
)
def test_dockers_repository(key: str, url: str, suite: str | None, fingerprint: str) -> None:
    question = plan(host(key), source="docker").query
    assert question is not None
    assert question["query"] == ["docker-ce", "docker-ce-cli"]
    (repository,) = question["repositories"]
    assert (repository["url"], repository.get("suite"), repository["fingerprint"]) == (url, suite, fingerprint)
    assert repository["key"] == f"{url.partition('/9/')[0]}/gpg"
    assert repository.get("components") == (["stable"] if suite else None)
    done = answered(host(key), offers(key), source="docker")
    assert (done.problems, done.version) == ([], offers(key)["docker-ce"][0])
    assert done.packages[:5] == DOCKER
    assert done.changes[:2] == [f"add repository {url}", f"install {', '.join(done.packages)}"]


@pytest.mark.parametrize(
    ("system", "folder"), [("centos", "centos"), ("rocky", "rhel"), ("ol", "rhel"), ("rhel", "rhel")]
)
def test_centos_stream_has_another_folder(system: str, folder: str) -> None:
    seen = host("el-9")
    seen["os"]["id"] = system
    (repository,) = plan(seen).query["repositories"]  # type: ignore[index]
    assert repository["url"] == f"{DOCKER_URL}/{folder}/9/x86_64/stable"


def test_mirror_with_login_and_proxy() -> None:
    mirror = {
        "mirror": "https://mirror.example/docker/",
        "repository_username": "robot",
        "repository_password": "s3cret",
        "proxy": "http://proxy.example:3128",
        "key_fingerprint": "AAAA" * 10,
    }
    done = plan(host("ubuntu-24.04"), source="docker", **mirror)
    (repository,) = done.query["repositories"]  # type: ignore[index]
    assert repository["url"] == "https://mirror.example/docker/ubuntu"
    assert repository["key"] == "https://mirror.example/docker/ubuntu/gpg"
    assert (repository["username"], repository["password"]) == ("robot", "s3cret")
    assert (repository["proxy"], repository["fingerprint"]) == ("http://proxy.example:3128", "AAAA" * 10)
    assert done.has_secrets
    assert "s3cret" not in " ".join([*done.changes, done.reason])


KUBELET = {"kubelet.service": {"active_state": "active"}}
APT_ENTRY = {
    "file": "/etc/apt/sources.list.d/docker.list",
    "enabled": True,
    "types": ["deb"],
    "uris": [f"{DOCKER_URL}/debian"],
    "suites": ["bookworm"],
    "components": ["stable"],
    "signed_by": "/etc/apt/keyrings/docker.asc",
}
REPO = {"id": "docker-ce-stable", "file": "/etc/yum.repos.d/docker-ce.repo", "enabled": True}


@pytest.mark.parametrize(
    ("key", "more", "adds"),
    [
        ("debian-12", {"apt": {"sources": [APT_ENTRY]}}, False),
        (
            "debian-12",
            {"apt": {"sources": [{**APT_ENTRY, "uris": ["https://m.example/docker-ce/linux/debian/"]}]}},
            False,
        ),
        ("debian-12", {"apt": {"sources": [{**APT_ENTRY, "suites": ["trixie"]}]}}, True),
        ("debian-12", {"apt": {"sources": [{**APT_ENTRY, "enabled": False}]}}, True),
        ("el-9", {"repositories": [{**REPO, "url": f"{DOCKER_URL}/centos/$releasever/$basearch/stable"}]}, False),
        ("el-9", {"repositories": [{**REPO, "url": f"{DOCKER_URL}/centos/8/$basearch/stable"}]}, True),
        ("el-9", {"repositories": [{**REPO, "url": f"{DOCKER_URL}/centos/9/x86_64/test"}]}, True),
        # apt rejects a second entry for the suite that has another key.
        ("debian-12", {"apt": {"sources": [{**APT_ENTRY, "components": ["test"]}]}}, False),
        # A mirror of the distribution, and an entry without binary packages.
        (
            "debian-12",
            {
                "apt": {
                    "sources": [
                        {
                            **APT_ENTRY,
                            "uris": ["https://docker.corp.example/repository/debian"],
                            "components": ["main", "contrib"],
                        }
                    ]
                }
            },
            True,
        ),
        ("debian-12", {"apt": {"sources": [{**APT_ENTRY, "types": ["deb-src"]}]}}, True),
        # Docker does not update the folder centos of Enterprise Linux 8.
        ("el-8", {"repositories": [{**REPO, "url": f"{DOCKER_URL}/centos/$releasever/$basearch/stable"}]}, True),
        ("el-8", {"repositories": [{**REPO, "url": f"{DOCKER_URL}/rhel/8/x86_64/stable"}]}, False),
    ],
)
def test_entry_of_the_user_for_the_repository_stays(key: str, more: dict[str, t.Any], adds: bool) -> None:
    done = answered(host(key, **more), offers(key), source="docker")
    assert done.transaction is not None
    assert bool(done.transaction.repositories) == adds


# --- kernel modules -------------------------------------------------------------------------------------------------

KERNEL, NEXT = "6.12.0-211.7.1.el10_2", "6.12.0-230.el10_3"
EXTRA = "kernel-modules-extra"


@pytest.mark.parametrize(
    ("kernels", "packages", "variables", "expected"),
    [
        ((f"{KERNEL}.x86_64",) * 2, {}, {}, [f"{EXTRA}={KERNEL}"]),
        ((f"{KERNEL}.aarch64",) * 2, {}, {}, [f"{EXTRA}={KERNEL}"]),
        ((f"{KERNEL}.x86_64", f"{NEXT}.x86_64"), {}, {}, [f"{EXTRA}={KERNEL}", f"{EXTRA}={NEXT}"]),
        ((f"{KERNEL}.x86_64", f"{NEXT}.x86_64"), {EXTRA: KERNEL}, {}, [f"{EXTRA}={NEXT}"]),
        ((f"{KERNEL}.x86_64+rt",) * 2, {}, {}, [f"kernel-rt-modules-extra={KERNEL}"]),
        ((f"{KERNEL}.aarch64+64k",) * 2, {}, {}, [f"kernel-64k-modules-extra={KERNEL}"]),
        # Oracle's kernel has the module in its base package.
        (("6.12.0-107.59.3.3.el10uek.x86_64",) * 2, {}, {}, []),
        ((f"{KERNEL}.x86_64",) * 2, {}, {"docker_options": {"firewall-backend": "nftables"}}, []),
        ((f"{KERNEL}.x86_64",) * 2, {}, {"name": "podman"}, []),
        ((f"{KERNEL}.x86_64",) * 2, {}, {"name": "containerd"}, []),
    ],
)
def test_docker_gets_its_kernel_module_on_enterprise_linux_10(
    kernels: tuple[str, str], packages: dict[str, str], variables: dict[str, t.Any], expected: list[str]
) -> None:
    seen = host("el-10", packages, kernel={"running": kernels[0], "next_boot": kernels[1], "kernels": []})
    names = (EXTRA, "kernel-rt-modules-extra", "kernel-64k-modules-extra")
    done = answered(seen, {**offers("el"), **{name: [NEXT, KERNEL] for name in names}}, **variables)
    assert done.problems == []
    assert [name for name in done.packages if "modules-extra" in name] == expected


def test_adopted_docker_gets_its_kernel_module_for_the_next_kernel() -> None:
    packages = {**RPM_CE, "ca-certificates": "1", "python3-requests": "1", EXTRA: KERNEL}
    kernel = {"running": f"{KERNEL}.x86_64", "next_boot": f"{NEXT}.x86_64", "kernels": []}
    seen = host("el-10", packages, kernel=kernel)
    assert answered(seen, {EXTRA: [NEXT]}).packages == [f"{EXTRA}={NEXT}"]
    assert answered(seen, {EXTRA: [NEXT]}, source="preinstalled").packages == []
    done = answered(seen, {EXTRA: [KERNEL]})
    assert (done.problems, done.acts) == ([], False)
    assert f"do not have {EXTRA} for kernel {NEXT}.x86_64, so Docker may not start after a reboot" in done.reason


def test_running_docker_needs_no_module_for_the_running_kernel() -> None:
    packages = {**RPM_CE, "ca-certificates": "1", "python3-requests": "1", EXTRA: NEXT}
    kernel = {"running": f"{KERNEL}.x86_64", "next_boot": f"{NEXT}.x86_64", "kernels": []}
    done = plan(host("el-10", packages, kernel=kernel))
    assert (done.problems, done.query, done.acts) == ([], None, False)
    stopped = {"docker.service": {"load_state": "loaded", "active_state": "failed", "unit_file_state": "enabled"}}
    assert plan(host("el-10", packages, kernel=kernel, services=stopped)).packages == [f"{EXTRA}={KERNEL}"]


def test_docker_without_its_kernel_module_is_refused_before_the_installation() -> None:
    (problem,) = answered(host("el-10"), {**offers("el"), EXTRA: []}).problems
    assert f"do not have {EXTRA} for kernel {KERNEL}.x86_64" in problem
    assert "module xt_addrtype" in problem
    kernel = {"running": f"{KERNEL}.x86_64", "next_boot": f"{NEXT}.x86_64", "kernels": []}
    done = answered(host("el-10", kernel=kernel), {**offers("el"), EXTRA: [NEXT]})
    assert done.problems == []
    assert f"so Docker may not start before a reboot into {NEXT}.x86_64" in done.reason


# --- which source ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "variables", "source", "version"),
    [
        ("debian-12", {}, "distribution", "20.10.24"),
        ("debian-12", {"minimum_version": "25.0"}, "docker", "5:29.1.2-1~debian.12~bookworm"),
        ("debian-12", {"version": "28.5.1"}, "docker", "5:28.5.1-1~debian.12~bookworm"),
        ("debian-12", {"version": "20.10"}, "distribution", "20.10.24+dfsg1-1+deb12u1"),
        ("ubuntu-24.04", {}, "distribution", "28.2.2-0ubuntu1~24.04.1"),
        ("ubuntu-24.04", {"minimum_version": "29"}, "docker", "5:29.1.2-1~debian.12~bookworm"),
        ("ubuntu-24.04", {"version": "24.0.7"}, "distribution", "24.0.7-0ubuntu4"),
        ("sles-15", {"version": "27.5.1"}, "distribution", "27.5.1_ce-150000.218.1"),
        ("el-9", {"version": "28.5"}, "docker", "3:28.5.2-1.el9"),
    ],
)
def test_auto_takes_the_first_source_with_a_suitable_version(
    key: str, variables: dict[str, str], source: str, version: str
) -> None:
    done = answered(host(key), offers(key), **variables)
    assert (done.problems, done.source, done.version) == ([], source, version)
    if "version" in variables:
        assert done.packages[0].partition("=")[2] == version


@pytest.mark.parametrize(
    ("key", "packages", "more", "variables", "source"),
    [
        ("debian-12", {"containerd.io": "2.1.5-1"}, {}, {}, "docker"),
        ("debian-13", {"docker-ce-cli": "5:28.5.1-1"}, {}, {}, "docker"),
        ("debian-12", {}, {"apt": {"sources": [APT_ENTRY]}}, {}, "docker"),
        ("debian-12", {}, {"apt": {"sources": [APT_ENTRY]}}, {"name": "containerd"}, "docker"),
        ("debian-12", {}, {"apt": {"sources": [APT_ENTRY]}}, {"name": "podman"}, "distribution"),
        ("debian-12", {}, {"apt": {"sources": [APT_ENTRY]}}, {"version": "20.10"}, "distribution"),
        ("debian-12", {}, {"apt": {"sources": [{**APT_ENTRY, "enabled": False}]}}, {}, "distribution"),
        # A node of Kubernetes with Docker's containerd keeps it.
        ("debian-12", {"containerd.io": "2.1.5-1"}, {"services": KUBELET}, {}, "docker"),
    ],
)
def test_auto_prefers_dockers_source_on_a_host_that_uses_it(
    key: str, packages: dict[str, str], more: dict[str, t.Any], variables: dict[str, str], source: str
) -> None:
    done = answered(host(key, packages, **more), {**offers(key), "podman": ["4.3.1"]}, **variables)
    assert (done.problems, done.source) == ([], source)
    assert done.transaction is not None
    assert done.transaction.remove == []


def test_archive_without_a_current_docker_leads_to_dockers() -> None:
    done = answered(host("ubuntu-22.04"), {**offers("ubuntu"), "docker.io": ["18.9.1-0ubuntu1"]})
    assert (done.source, done.problems) == ("docker", [])
    assert "docker 19.03 or newer is required, but" in done.reason
    assert "no such version of docker.io. It has 18.9.1;" in done.reason


def test_versions_of_engine_and_client_are_those_of_the_request() -> None:
    done = answered(host("el-9"), offers("el"), version="28.5.1")
    assert done.packages[:3] == ["docker-ce=3:28.5.1-1.el9", "docker-ce-cli=1:28.5.1-1.el9", "containerd.io"]


@pytest.mark.parametrize(
    ("key", "variables", "words"),
    [
        (
            "el-9",
            {"version": "99.1"},
            "container_engine_version=99.1, but Docker's repository "
            "https://download.docker.com/linux/rhel/9/x86_64/stable has no such version of docker-ce. It has "
            "29.1.2, 28.5.2, 28.5.1, 27.5.1. Request another version.",
        ),
        ("debian-12", {"source": "distribution", "version": "28.5.1"}, "or set container_engine_source=docker."),
        ("ubuntu-24.04", {"minimum_version": "99"}, "It has 29.1.2, 28.5.2"),
        ("sles-15", {"minimum_version": "29"}, "It has 28.3.3, 27.5.1."),
        ("amazon-2023", {"source": "docker"}, "Set container_engine_source=distribution."),
        (
            "sles-15",
            {"source": "docker"},
            "does not provide docker on Some sles-15: Docker's repository does not have it",
        ),
        ("el-9", {"source": "distribution"}, "Set container_engine_source=docker."),
        ("amazon-2023", {"name": "podman"}, "dnf install spal-release"),
        ("debian-12", {"name": "podman", "source": "docker"}, "Set container_engine_source=distribution."),
        ("el-9", {"source": "preinstalled"}, "container_engine_source=preinstalled, but docker is not installed"),
    ],
)
def test_source_without_a_suitable_version_is_refused(key: str, variables: dict[str, str], words: str) -> None:
    (problem,) = answered(host(key), offers(key), **variables).problems
    assert words in problem


def test_archive_without_the_package_names_the_repository_to_enable() -> None:
    (problem,) = answered(host("sles-15"), {}).problems
    assert "No repository of this host has docker (activate the Containers Module: 'SUSEConnect" in problem
    assert "--list-extensions' shows the command)" in problem


def test_leap_has_no_modules() -> None:
    seen = host("sles-15")
    seen["os"]["id"] = "opensuse-leap"
    (problem,) = answered(seen, {}).problems
    assert "SUSEConnect" not in problem
    assert "main and update repositories" in problem


def test_repositories_are_queried_only_for_an_unknown_version() -> None:
    assert plan(host("debian-13")).query is None
    assert plan(host("debian-13"), version="26.1.5").query == {
        "query": ["docker.io", "docker-cli"],
        "repositories": [],
    }
    assert plan(host("ubuntu-24.04")).query == {"query": ["docker.io"], "repositories": []}


# --- an installed engine --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "packages", "variables"),
    [
        ("debian-12", IO, {}),
        ("debian-12", IO, {"source": "distribution"}),
        ("debian-12", IO, {"version": "20.10.24"}),
        ("debian-12", {**DEB_CE, **SUPPORT}, {}),
        ("debian-12", {**DEB_CE, **SUPPORT}, {"source": "docker", "minimum_version": "28"}),
        ("ubuntu-24.04", {"moby-engine": "28.0.1-1", **SUPPORT}, {}),
        ("el-9", {**RPM_CE, "ca-certificates": "1", "python3-requests": "1"}, {"version": "28.5"}),
        ("amazon-2023", {"docker": "25.0.16-1.amzn2023", "ca-certificates": "1", "python3-requests": "1"}, {}),
        ("sles-15", {"docker-stable": "24.0.9_ce-1", "ca-certificates": "1"}, {}),
        ("el-9", {"podman": "5.6.0-1", "ca-certificates": "1"}, {"name": "podman"}),
        ("el-9", RPM_CE, {"source": "preinstalled"}),
    ],
)
def test_installed_engine_that_satisfies_the_request_stays(
    key: str, packages: dict[str, str], variables: dict[str, str]
) -> None:
    done = plan(host(key, packages), **variables)
    assert (done.problems, done.changes, done.query, done.acts) == ([], [], None, False)


@pytest.mark.parametrize(
    ("key", "interpreters", "expected"),
    [
        ("el-8", ["python3.12"], ["ca-certificates", "python3.12-requests"]),
        ("el-8", ["python39"], ["ca-certificates", "python39-requests"]),
        ("el-9", [], ["ca-certificates", "python3-requests"]),
        # Which of them Ansible uses depends on its version.
        (
            "el-9",
            ["python3.11", "python3.12"],
            ["ca-certificates", "python3-requests", "python3.12-requests", "python3.11-requests"],
        ),
        # No package with requests is known for these.
        ("el-9", ["python3.14"], ["ca-certificates", "python3-requests"]),
        ("el-10", ["python3.14"], ["ca-certificates", "python3-requests"]),
        ("amazon-2023", ["python3.12"], ["ca-certificates", "python3-requests"]),
    ],
)
def test_adopted_engine_gets_what_the_modules_need(key: str, interpreters: list[str], expected: list[str]) -> None:
    extra = {"kernel-modules-extra": "6.12.0-211.7.1.el10_2"} if key == "el-10" else {}
    seen = host(key, {**RPM_CE, **dict.fromkeys(interpreters, "3"), **extra})
    assert plan(seen).packages == expected
    assert plan(seen, source="preinstalled").packages == []


@pytest.mark.parametrize(
    ("key", "packages", "source", "words"),
    [
        (
            "debian-12",
            {**DEB_CE, **SUPPORT},
            "distribution",
            "docker 28.5.1 is installed from package docker-ce, which comes",
        ),
        ("debian-12", IO, "docker", "is installed from package docker.io, which comes from another source"),
        ("ubuntu-24.04", {"moby-engine": "28.0.1-1"}, "docker", "is installed from package moby-engine"),
    ],
)
def test_engine_of_another_origin_is_refused_without_leave(
    key: str, packages: dict[str, str], source: str, words: str
) -> None:
    (problem,) = plan(host(key, packages), source=source).problems
    assert words in problem
    assert "container_engine_source=auto to keep it, or container_engine_replace=true" in problem


def test_engine_of_another_origin_is_replaced_on_request() -> None:
    seen = host("debian-12", {**IO, "containerd": "1.6.20", "runc": "1.1.5"})
    done = answered(seen, offers("debian"), source="docker", replace=True)
    assert (done.problems, done.source) == ([], "docker")
    assert done.transaction is not None
    assert done.transaction.remove == ["docker.io", "containerd", "runc"]
    assert done.changes[0] == "remove docker.io, containerd, runc"
    assert done.reason.startswith("docker 20.10.24 from the distribution is replaced")


@pytest.mark.parametrize(
    ("key", "packages", "variables", "gpus", "says"),
    [
        ("debian-12", IO, {}, True, True),
        ("debian-12", {}, {}, True, True),
        ("debian-12", IO, {}, False, False),
        (
            "debian-12",
            {"containerd": "1.6.20", "runc": "1.1.5", **IO},
            {"source": "docker", "replace": True},
            True,
            False,
        ),
        ("debian-13", {}, {}, True, False),
    ],
)
def test_docker_without_cdi_names_the_variables(
    key: str, packages: dict[str, str], variables: dict[str, t.Any], gpus: bool, says: bool
) -> None:
    seen = host(key, packages)
    seen["accelerators"] = {"nvidia": {"gpus": ["0000:3b:00.0"] if gpus else []}}
    reason = answered(seen, offers(key), **variables).reason
    way = (
        "does not support CDI (docker run --device nvidia.com/gpu=all), which requires Docker 25 or later: set "
        "container_engine_source=docker and container_engine_replace=true"
    )
    assert (way in reason) is says


def test_engine_without_a_package_is_never_replaced() -> None:
    unit = {"docker.service": {"load_state": "loaded", "active_state": "active", "fragment_path": "/etc/x.service"}}
    seen = host("el-9", services=unit)
    assert plan(seen).problems == []
    (problem,) = plan(seen, source="docker", replace=True).problems
    assert "docker is already installed (unit /etc/x.service) and belongs to no package that this role knows" in problem


def unit_of(engine: str) -> dict[str, t.Any]:
    return {f"{engine}.service": {"load_state": "loaded", "active_state": "inactive", "fragment_path": "/x.service"}}


@pytest.mark.parametrize("source", ["auto", "preinstalled"])
@pytest.mark.parametrize("variables", [{"version": "28"}, {"minimum_version": "2.0"}])
@pytest.mark.parametrize(
    ("engine", "remedy"), [("docker", "Start docker.service, or remove"), ("containerd", "Remove")]
)
def test_version_of_an_engine_without_a_package_is_not_ignored(
    engine: str, remedy: str, variables: dict[str, str], source: str
) -> None:
    seen = host("el-9", services=unit_of(engine))
    assert plan(seen, name=engine, source=source).problems == []
    (problem,) = plan(seen, name=engine, source=source, **variables).problems
    assert f"but the version of the installed {engine} (unit /x.service) is not known" in problem
    assert f"{remedy} the setting." in problem


def test_running_docker_without_a_package_tells_its_version() -> None:
    seen = host("el-9", services=unit_of("docker"), info={"server_version": "28.5.1"})
    assert plan(seen, minimum_version="28").problems == []
    (problem,) = plan(seen, minimum_version="29").problems
    assert "docker 28.5.1 (unit /x.service) is installed, and this role does not change its version" in problem


@pytest.mark.parametrize("engine", ["docker", "containerd"])
def test_hold_of_an_engine_without_a_package_is_said(engine: str) -> None:
    done = plan(host("el-9", services=unit_of(engine)), name=engine, hold=True)
    assert done.problems == []
    assert f"container_engine_hold has no effect, because the installed {engine} (unit /x.service)" in done.reason
    assert "hold" not in plan(host("el-9", services=unit_of(engine)), name=engine).reason


def test_microsofts_containerd_is_an_engine_with_a_package() -> None:
    seen = host("ubuntu-22.04", {"moby-containerd": "1.7.27-1", "moby-runc": "1.2.6-1", "ca-certificates": "1"})
    assert plan(seen, name="containerd").changes == []
    assert plan(seen, name="containerd", hold=True).changes == ["hold moby-containerd"]
    (problem,) = plan(seen, name="containerd", minimum_version="2.0").problems
    assert "containerd 1.7.27 (package moby-containerd) is installed" in problem
    done = answered(seen, offers("ubuntu"), name="containerd", source="docker", replace=True)
    assert (done.problems, done.transaction.remove) == ([], ["moby-containerd", "moby-runc"])  # type: ignore[union-attr]


RUNNING_27 = {"server_version": "27.5.1", "containers_running": 0}


@pytest.mark.parametrize("variables", [{"version": "28.5.1"}, {"minimum_version": "28"}, {}])
def test_daemon_that_is_older_than_its_package_needs_a_restart_only(variables: dict[str, str]) -> None:
    done = plan(host("debian-12", {**DEB_CE, **SUPPORT}, info=RUNNING_27), **variables)
    assert (done.problems, done.changes, done.query) == ([], [], None)
    assert "docker 28.5.1 from Docker's repository is installed and is kept" in done.reason
    assert "a restart is pending, because the daemon still runs version 27.5.1" in done.reason
    current = plan(host("debian-12", {**DEB_CE, **SUPPORT}, info={"server_version": "28.5.1"}), **variables)
    assert "restart" not in current.reason


# --- versions of an installed engine ----------------------------------------------------------------------------------


def test_older_engine_is_upgraded_to_the_minimum() -> None:
    seen = host("el-9", {**RPM_CE, "ca-certificates": "1", "python3-requests": "1"}, repositories=[])
    assert plan(seen, minimum_version="29").query == {
        "query": ["docker-ce", "docker-ce-cli"],
        "repositories": plan(seen, minimum_version="29").transaction.repositories,  # type: ignore[union-attr]
    }
    done = answered(seen, offers("el"), minimum_version="29")
    assert done.packages == ["docker-ce=3:29.1.2-1.el9", "docker-ce-cli=1:29.1.2-1.el9"]
    assert "docker 28.5.1 from Docker's repository is installed and is changed to 29.1.2" in done.reason
    assert (done.problems, done.version) == ([], "3:29.1.2-1.el9")


@pytest.mark.parametrize(
    ("key", "packages", "variables", "expected"),
    [
        # An older client is upgraded with the new engine.
        ("el-9", {"docker-ce-cli": "1:27.5.1-1.el9"}, {}, ["docker-ce=3:29.1.2-1.el9", "docker-ce-cli=1:29.1.2-1.el9"]),
        (
            "debian-13",
            {"docker-cli": "26.1.4"},
            {"source": "distribution"},
            ["docker.io=26.1.5+dfsg1-9", "docker-cli=26.1.5+dfsg1-9+b9"],
        ),
        # A client that an incomplete removal left stays.
        ("debian-13", {"docker-cli": "26.1.5+dfsg1-9+b9"}, {"source": "distribution"}, ["docker.io=26.1.5+dfsg1-9"]),
        # A missing client gets the version of the engine.
        ("el-9", {"docker-ce": "3:27.5.1-1.el9"}, {}, ["docker-ce-cli=1:27.5.1-1.el9"]),
        (
            "el-9",
            {"docker-ce": "3:27.5.1-1.el9"},
            {"version": "28.5"},
            ["docker-ce=3:28.5.2-1.el9", "docker-ce-cli=1:28.5.2-1.el9"],
        ),
        # Nothing is installed: the package manager chooses.
        ("el-9", {}, {}, ["docker-ce", "docker-ce-cli"]),
    ],
)
def test_engine_and_client_get_one_version(
    key: str, packages: dict[str, str], variables: dict[str, t.Any], expected: list[str]
) -> None:
    trixie = {"docker.io": ["26.1.5+dfsg1-9"], "docker-cli": ["26.1.5+dfsg1-9+b9"]}
    done = answered(host(key, packages), {**offers(key), **trixie}, **variables)
    assert done.problems == []
    assert [item for item in done.packages if item.startswith(("docker-ce", "docker.io", "docker-cli"))] == expected


PARTIAL = {"docker-ce": ["5:28.1.1-1", "5:27.5.1-1"], "docker-ce-cli": ["5:27.5.1-1"]}
MIRROR_ENTRY = {"apt": {"sources": [APT_ENTRY]}}
LACKS = "has docker-ce 28.1.1, but not docker-ce-cli in this version"
USES_OLDER = f"{LACKS}, so version 27.5.1 is used"


@pytest.mark.parametrize(
    ("key", "packages", "offered", "variables", "expected"),
    [
        ("ubuntu-24.04", {}, {}, {"source": "docker", "minimum_version": "27"}, ("docker", "5:27.5.1-1", USES_OLDER)),
        # The client of an incomplete removal: all packages get one version.
        (
            "ubuntu-24.04",
            {"docker-ce-cli": "5:27.5.1-1"},
            {},
            {"source": "docker"},
            ("docker", "5:27.5.1-1", USES_OLDER),
        ),
        # An upgrade of the installed engine.
        ("debian-12", DEB_CE_26, {}, {"minimum_version": "27"}, ("docker", "5:27.5.1-1", USES_OLDER)),
        # Another source has a newer one, an older one, or none that suits.
        ("debian-12", {}, {"docker.io": ["28.1.1-1"]}, {"minimum_version": "27"}, ("distribution", "28.1.1-1", LACKS)),
        ("debian-12", {}, {"docker.io": ["27.1.0-1"]}, {"minimum_version": "27"}, ("docker", "5:27.5.1-1", USES_OLDER)),
        ("debian-12", {}, {"docker.io": ["20.10.24"]}, {"minimum_version": "27"}, ("docker", "5:27.5.1-1", USES_OLDER)),
        # Complete.
        ("debian-12", {}, {}, {"source": "docker", "version": "27.5"}, ("docker", "5:27.5.1-1", "")),
    ],
)
def test_docker_that_lacks_its_newest_client_is_older_and_said(
    key: str,
    packages: dict[str, str],
    offered: dict[str, list[str]],
    variables: dict[str, t.Any],
    expected: tuple[str, str, str],
) -> None:
    source, version, said = expected
    more = MIRROR_ENTRY if key == "debian-12" else {}
    done = answered(host(key, packages, **more), {**offers(key), **PARTIAL, **offered}, **variables)
    assert (done.problems, done.source, done.version) == ([], source, version)
    assert said in done.reason
    assert ("so version" in done.reason) is ("so version" in said)


def test_distribution_that_lacks_its_newest_client_leads_to_dockers() -> None:
    trixie = {"docker.io": ["27.5.1+dfsg1-9", "26.1.5+dfsg1-9"], "docker-cli": ["26.1.5+dfsg1-9"]}
    done = answered(host("debian-13"), {**offers("debian-13"), **trixie}, minimum_version="26")
    assert (done.problems, done.source) == ([], "docker")
    assert "has docker.io 27.5.1, but not docker-cli in this version" in done.reason


def test_client_of_another_version_is_said() -> None:
    done = answered(host("el-9", {"docker-ce": "3:26.0.0-1.el9"}), offers("el"))
    assert (done.problems, "docker-ce-cli" in done.packages) == ([], True)
    assert f"docker-ce-cli gets version 29.1.2, because Docker's repository {DOCKER_URL}/rhel/9" in done.reason
    assert "does not have the engine's version 26.0.0" in done.reason
    (problem,) = answered(host("el-9", {"docker-ce": "3:26.0.0-1.el9"}), {"docker-ce-cli": []}).problems
    assert f"Docker's repository {DOCKER_URL}/rhel/9/x86_64/stable has no docker-ce-cli. Enable" in problem
    same = answered(host("el-9", {"docker-ce": "3:27.5.1-1.el9"}), offers("el"))
    assert "docker-ce-cli" not in same.reason


def test_exact_version_is_also_a_downgrade() -> None:
    done = answered(host("el-9", RPM_CE), offers("el"), version="27.5.1")
    assert done.packages[:2] == ["docker-ce=3:27.5.1-1.el9", "docker-ce-cli=1:27.5.1-1.el9"]


KEPT_ALIVE = {"info": {"containers_running": 2, "live_restore": True}}


@pytest.mark.parametrize(
    ("more", "policy", "way_out"),
    [
        ({}, "when_safe", None),
        ({}, "never", None),
        ({"containers": {"docker": 2}}, "when_safe", "always"),
        ({"containers": {"docker": 2}}, "never", "always"),
        ({"containers": {"docker": 2}}, "always", None),
        ({"info": {"containers_running": 0, "containers_paused": 1}}, "when_safe", "always"),
        (KEPT_ALIVE, "when_safe", None),
        (KEPT_ALIVE, "never", "when_safe"),
        (KEPT_ALIVE, "always", None),
        ({"containers": {"podman": 2}}, "when_safe", None),
        ({"containers": {"podman": 2}}, "never", None),
    ],
)
@pytest.mark.parametrize("variables", [{"minimum_version": "29"}, {"version": "29.1.2"}])
def test_version_change_restarts_docker_only_as_the_policy_allows(
    more: dict[str, t.Any], policy: str, way_out: str | None, variables: dict[str, str]
) -> None:
    done = answered(host("el-9", RPM_CE, **copy.deepcopy(more)), offers("el"), restart_policy=policy, **variables)
    assert bool(done.problems) == bool(way_out)
    if way_out:
        assert f"set container_engine_restart_policy={way_out}" in done.problems[0].replace("Set", "set")
        assert "Changing Docker from 28.5.1 to 29.1.2 restarts the daemon" in done.problems[0]


@pytest.mark.parametrize(
    ("version", "containers", "policy", "is_refused"),
    [
        ("1.7", {"docker": 2, "containerd": 1}, "when_safe", True),
        ("1.7", {"docker": 2}, "always", False),
        ("1.7", {"podman": 2}, "when_safe", False),
        # The shims keep the containers running while a newer containerd starts.
        ("2.2", {"docker": 2}, "when_safe", False),
    ],
)
def test_downgrade_of_containerd_needs_stopped_containers(
    version: str, containers: dict[str, int], policy: str, is_refused: bool
) -> None:
    seen = host("debian-12", {"containerd.io": "2.1.5-1~debian.12~bookworm"}, containers=containers)
    available = {"containerd.io": ["2.2.0-1~debian.12~bookworm", "1.7.28-1~debian.12~bookworm"]}
    done = answered(seen, available, name="containerd", version=version, restart_policy=policy)
    assert bool(done.problems) == is_refused
    if is_refused:
        assert "containerd from 2.1.5 to 1.7.28 is a downgrade" in done.problems[0]
        assert "running containers of Docker (2) and containerd (1)" in done.problems[0]


@pytest.mark.parametrize(
    ("key", "packages", "variables", "words"),
    [
        ("ubuntu-24.04", {"moby-engine": "27.0.1-1"}, {"minimum_version": "28"}, "(package moby-engine) is installed"),
        ("el-9", RPM_CE, {"source": "preinstalled", "version": "29.1.2"}, "or set container_engine_source."),
        (
            "debian-12",
            IO,
            {"minimum_version": "25"},
            "or set container_engine_source=docker and container_engine_replace=true.",
        ),
        # Docker's repository does not support the platform.
        ("amazon-2023", DEB_CE, {"minimum_version": "29"}, "docker 28.5.1 (package docker-ce) is installed"),
        ("debian-12", DEB_CE, {"source": "preinstalled", "version": "29"}, "docker 28.5.1 (package docker-ce) is ins"),
    ],
)
def test_version_that_the_role_cannot_provide_is_refused(
    key: str, packages: dict[str, str], variables: dict[str, str], words: str
) -> None:
    (problem,) = answered(host(key, packages), offers(key), **variables).problems
    assert words in problem


# --- conflicts ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "packages", "variables", "named"),
    [
        ("debian-12", {"podman-docker": "4"}, {}, "podman-docker"),
        ("debian-12", {"containerd.io": "2"}, {"source": "distribution"}, "containerd.io"),
        ("debian-12", {"containerd": "1.6", "runc": "1.1"}, {"source": "docker"}, "containerd, runc"),
        ("el-9", {"podman-docker": "5", "runc": "1.2"}, {}, "podman-docker, runc"),
        ("el-8", {"podman": "4.9", "runc": "1.1"}, {}, "runc, podman"),
        ("el-8", {"podman": "4.9", "runc": "1.1"}, {"name": "containerd"}, "runc, podman"),
        # These need Podman.
        ("el-8", {"podman": "4.9", "runc": "1.1", "toolbox": "0.0.99"}, {}, "runc, podman, toolbox"),
        (
            "el-8",
            {"podman": "4.9", "runc": "1", "podman-tests": "4.9", "toolbox": "0", "toolbox-tests": "0"},
            {"name": "containerd"},
            "podman, podman-tests, toolbox, toolbox-tests, runc",
        ),
        ("el-8", {"docker-ce": "3:28", "containerd.io": "2"}, {"name": "podman"}, "docker-ce, containerd.io"),
        ("el-9", {"moby-containerd": "2", "moby-runc": "1.3"}, {}, "moby-containerd, moby-runc"),
        ("el-8", {"containers-common": "1", "podman": "4.9", "runc": "1.1"}, {}, "runc, podman, containers-common"),
        ("el-8", {"containers-common": "1", "runc": "1.1"}, {"name": "containerd"}, "runc, containers-common"),
        ("el-8", {"containerd.io": "2", "docker-ce": "29"}, {"name": "podman"}, "docker-ce, containerd.io"),
        ("amazon-2023", {"containerd.io": "2"}, {}, "containerd.io"),
        ("sles-15", {"podman-docker": "4.9"}, {}, "podman-docker"),
        ("ubuntu-24.04", {"containerd.io": "2"}, {"name": "containerd", "source": "distribution"}, "containerd.io"),
    ],
)
def test_conflicting_packages_are_named_and_removed_only_on_request(
    key: str, packages: dict[str, str], variables: dict[str, str], named: str
) -> None:
    (problem,) = answered(host(key, packages), offers(key), **variables).problems
    assert all(name in problem for name in named.split(", "))
    assert "container_engine_replace=true" in problem
    done = answered(host(key, packages), offers(key), replace=True, **variables)
    assert done.problems == []
    assert done.transaction is not None
    assert set(done.transaction.remove) == set(named.split(", "))


def test_podman_and_docker_stay_together_on_enterprise_linux_9() -> None:
    done = answered(host("el-9", {"podman": "5.6.0", "crun": "1.2"}), offers("el"))
    assert (done.problems, done.transaction.remove) == ([], [])  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("key", "packages", "more", "words"),
    [
        (
            "el-8",
            {"podman": "4.9", "runc": "1"},
            {"containers": {"podman": 3}},
            "running containers of Podman (3) need",
        ),
        (
            "debian-12",
            {"containerd": "1.6"},
            {"containers": {"kubernetes": 9}},
            "containers of Kubernetes (9) need it. Nothing was changed. Remove the node from the cluster first, "
            "or set container_engine_source=distribution.",
        ),
        # k3s, a snap and rootless Docker have their own containerd.
        ("debian-12", {"containerd": "1.6"}, {"containers": {"k3s": 9, "snap": 1, "rootless": 1}}, None),
        # CRI-O does not need podman.
        ("el-8", {"podman": "4.9"}, {"containers": {"crio": 3}}, None),
        ("el-8", {"podman": "4.9", "runc": "1"}, {"containers": {"crio": 3}}, "runc cannot be removed"),
        ("debian-12", {"containerd": "1.6"}, {"containers": {"containerd": 1}}, "containers of containerd (1) need it"),
        (
            "debian-12",
            {"containerd": "1.6"},
            {"services": {"kubelet.service": {"active_state": "active"}}},
            "containerd cannot be removed: Kubernetes uses this host (kubelet.service is active)",
        ),
        (
            "debian-12",
            {**IO},
            {"containers": {"docker": 1}},
            "docker.io cannot be removed: running containers of Docker (1) need it",
        ),
        (
            "debian-12",
            {**IO},
            {"info": {"containers_running": 2, "container_names": ["db", "trainer"]}},
            "docker.io cannot be removed: running containers of Docker (2: db, trainer) need it. Nothing was changed. "
            "Stop these containers first.",
        ),
        ("debian-12", {"podman": "4", "runc": "1"}, {"containers": {"podman": 1}}, "runc cannot be removed"),
        ("debian-12", {"podman": "4", "crun": "1", "runc": "1"}, {"containers": {"podman": 1}}, None),
        ("el-9", {"podman-docker": "5"}, {"containers": {"podman": 3}}, None),
    ],
)
def test_containers_of_others_are_not_harmed(
    key: str, packages: dict[str, str], more: dict[str, t.Any], words: str | None
) -> None:
    done = answered(host(key, packages, **more), offers(key), source="docker", replace=True)
    assert [words in problem for problem in done.problems if words] == ([True] if words else [])
    assert bool(done.problems) == bool(words)


@pytest.mark.parametrize(
    ("key", "packages", "variables", "words"),
    [
        (
            "debian-12",
            {"containerd": "1.6.20", "runc": "1"},
            {"source": "docker"},
            "with containerd, runc. Kubernetes uses the installed runtime (kubelet.service is active). "
            "Set container_engine_source=distribution.",
        ),
        ("debian-12", {"containerd.io": "2"}, {"source": "distribution"}, "Set container_engine_source=docker."),
        ("el-9", {"runc": "1.2"}, {}, "Set container_engine_name=none."),
        ("el-9", {"runc": "1.2"}, {"replace": True}, "from the cluster first, or set container_engine_name=none."),
        ("debian-12", {"containerd": "1.6.20"}, {"name": "containerd", "source": "docker"}, "=auto to keep it."),
        ("debian-12", IO, {"source": "docker"}, "=auto to keep it."),
    ],
)
def test_runtime_of_kubernetes_is_never_replaced_on_advice(
    key: str, packages: dict[str, str], variables: dict[str, t.Any], words: str
) -> None:
    (problem,) = answered(host(key, packages, services=KUBELET), offers(key), **variables).problems
    assert words in problem
    assert "container_engine_replace" not in problem


# --- holds ----------------------------------------------------------------------------------------------------------


def test_hold_covers_the_engine_and_needs_dnfs_plugin() -> None:
    done = answered(host("el-9"), offers("el"), hold=True)
    assert done.transaction is not None
    assert done.transaction.hold == ["docker-ce", "docker-ce-cli", "containerd.io"]
    assert "python3-dnf-plugin-versionlock" in done.packages
    packages = {**DEB_CE, **SUPPORT}
    done = plan(host("debian-12", packages, held_packages=["docker-ce"]), hold=True)
    assert done.changes == ["hold docker-ce, docker-ce-cli, containerd.io"]
    assert plan(host("debian-12", packages, held_packages=list(DEB_CE)), hold=True).changes == []
    moby = {"moby-engine": "28.0.1-1", **SUPPORT}
    assert plan(host("ubuntu-24.04", moby), hold=True).changes == ["hold moby-engine"]


def test_preinstalled_engine_is_held_without_an_installation() -> None:
    seen = host("debian-12", DEB_CE)
    assert plan(seen, source="preinstalled", hold=True).changes == ["hold docker-ce, docker-ce-cli, containerd.io"]
    (problem,) = plan(host("el-9", RPM_CE), source="preinstalled", hold=True).problems
    assert "needs python3-dnf-plugin-versionlock, but container_engine_source=preinstalled installs no" in problem


def test_only_holds_of_the_role_are_released() -> None:
    files = recorded(*DEB_CE, holds=["docker-ce", "docker-ce-cli"])
    seen = host("debian-12", {**DEB_CE, **SUPPORT}, held_packages=["docker-ce", "containerd.io"], files=files)
    assert plan(seen).changes == ["release docker-ce"]
    assert plan(seen, name="docker", hold=False).transaction.release == ["docker-ce"]  # type: ignore[union-attr]


# --- recognized and said ----------------------------------------------------------------------------------------------


SNAP = {"snap.docker.dockerd.service": {"load_state": "loaded", "active_state": "active"}}


def test_snap_is_refused_for_docker_and_named_for_others() -> None:
    (problem,) = plan(host("ubuntu-24.04", services=SNAP)).problems
    assert "Docker is installed as a snap (snap.docker.dockerd.service)" in problem
    assert "'snap remove docker'" in problem
    done = answered(host("ubuntu-24.04", services=SNAP), offers("ubuntu"), name="podman")
    assert done.problems == []
    assert "Docker is also installed as a snap" in done.reason


@pytest.mark.parametrize(
    ("key", "packages", "more", "words"),
    [
        ("debian-12", IO, {"services": SNAP}, "Docker is also installed as a snap, which uses the same socket"),
        ("debian-12", IO, {"containers": {"k3s": 4}}, "k3s or RKE2 runs on this host with its own containerd"),
        ("debian-12", IO, {"rootless": [1000, 1001]}, "is also running (uid 1000, 1001)"),
        ("ubuntu-24.04", {"moby-engine": "28.0.1-1", **SUPPORT}, {}, "moby-engine is Microsoft's build of Docker"),
        ("debian-12", IO, {"containers": {"kubernetes": 2}}, "Kubernetes uses this host (2 of its containers"),
    ],
)
def test_what_else_is_on_the_host_is_said(
    key: str, packages: dict[str, str], more: dict[str, t.Any], words: str
) -> None:
    done = plan(host(key, packages, **more))
    assert (done.problems, done.changes) == ([], [])
    assert words in done.reason


@pytest.mark.parametrize(("version", "is_said"), [("3.4.4+ds1-1ubuntu1.22.04.2", True), ("4.9.3+ds1-1build2", False)])
@pytest.mark.parametrize("is_installed", [True, False])
def test_podman_without_cdi_is_said(version: str, is_said: bool, is_installed: bool) -> None:
    packages = {"podman": version, **SUPPORT} if is_installed else {}
    done = answered(host("ubuntu-22.04", packages), {"podman": [version]}, name="podman")
    assert done.problems == []
    assert ("Podman 3.4.4 does not support CDI" in done.reason) == is_said


def test_flags_of_amazons_unit_are_said() -> None:
    seen = host("amazon-2023", {"docker": "25.0.16-1", "ca-certificates": "1", "python3-requests": "1"})
    flag = {"text": "--default-ulimit=x", "key": "default-ulimits", "value": {}, "place": "/etc/sysconfig/docker"}
    seen["docker_daemon_json"]["flags"] = [flag]
    assert "/etc/sysconfig/docker sets flags of dockerd" in plan(seen).reason


def test_version_of_containerd_that_kubernetes_uses_is_not_changed() -> None:
    kubelet = {"kubelet.service": {"active_state": "active"}}
    seen = host("debian-12", {"containerd": "1.6.20", "ca-certificates": "1"}, services=kubelet)
    assert plan(seen, name="containerd").changes == []
    (problem,) = plan(seen, name="containerd", minimum_version="1.7").problems
    assert "Kubernetes uses the installed containerd 1.6.20 (kubelet.service is active)" in problem


def test_dependencies_do_not_change_the_runtime_of_kubernetes() -> None:
    kubelet = {"kubelet.service": {"active_state": "active"}}
    runtime = {"containerd": "1.6.20", "runc": "1.1.5"}
    node = plan(host("debian-12", runtime, services=kubelet), source="distribution")
    assert node.problems == []
    assert node.transaction is not None
    assert sorted(node.transaction.keep) == ["containerd", "runc"]
    other = plan(host("debian-12", runtime), source="distribution")
    assert other.transaction is not None
    assert other.transaction.keep == []


# --- options for daemon.json that depend on the version and the package -----------------------------------------------


@pytest.mark.parametrize(
    ("key", "variables", "options", "words"),
    [
        ("debian-12", {}, {"features": {"cdi": True}}, "features.cdi: Docker 20.10.24 does not support CDI"),
        ("debian-12", {}, {"cdi-spec-dirs": ["/etc/cdi"]}, "install Docker 25.0 or later."),
        ("debian-12", {"minimum_version": "25"}, {"features": {"cdi": True}, "cdi-spec-dirs": ["/etc/cdi"]}, None),
        ("el-9", {}, {"nri-opts": {"enable": True}}, "nri-opts: Docker 29.1.2 does not have this option."),
        ("el-9", {}, {"option-of-29": 1}, "option-of-29: dockerd has no such option."),
        # The unit of the package that the role installs has these flags.
        ("el-9", {}, {"hosts": ["tcp://0.0.0.0:2376"]}, "hosts: the package's unit starts dockerd with -H fd://, and"),
        ("debian-12", {}, {"hosts": ["tcp://0.0.0.0:2376"]}, "hosts: the package's unit starts dockerd with -H fd://"),
        (
            "amazon-2023",
            {},
            {"containerd": "/run/x.sock"},
            "containerd: the package's unit starts dockerd with --conta",
        ),
        # Amazon's unit also has the flags in /etc/sysconfig/docker of the package.
        (
            "amazon-2023",
            {},
            {"default-ulimits": {"nofile": {"Name": "nofile", "Soft": 65536, "Hard": 65536}}},
            "default-ulimits: the package's unit starts dockerd with --default-ulimit nofile=32768:65536, and",
        ),
        (
            "amazon-2023",
            {},
            {"default-ulimits": {"nofile": {"Name": "nofile", "Soft": 32768, "Hard": 65536}}},
            None,
        ),
        ("el-9", {}, {"default-ulimits": {"nofile": {"Name": "nofile", "Soft": 65536, "Hard": 65536}}}, None),
        # Options and storage drivers that Docker no longer has.
        ("debian-12", {}, {"graph": "/data"}, None),
        (
            "el-9",
            {},
            {"graph": "/data"},
            "graph: Docker 29.1.2 no longer has this option, which was removed in Docker 23.0. Use data-root instead.",
        ),
        ("el-9", {}, {"cluster-store": "consul://x"}, "cluster-store: Docker 29.1.2 no longer has this option"),
        ("el-9", {}, {"cluster-advertise": "eth0"}, "cluster-advertise: Docker 29.1.2 no longer has this option"),
        ("el-9", {}, {"oom-score-adjust": -500}, "which was removed in Docker 26.0. Remove it."),
        ("amazon-2023", {}, {"oom-score-adjust": -500}, None),
        ("el-9", {}, {"api-cors-header": "*"}, "which was removed in Docker 29.0. Remove it."),
        ("el-9", {"version": "28.5"}, {"api-cors-header": "*"}, None),
        (
            "el-9",
            {},
            {"storage-driver": "aufs"},
            "storage-driver: Docker 29.1.2 no longer has aufs, which was removed in Docker 24.0. Use overlay2 instead.",
        ),
        ("el-9", {}, {"storage-driver": "overlay"}, "no longer has overlay, which was removed in Docker 24.0"),
        ("el-9", {}, {"storage-driver": "devicemapper"}, "devicemapper, which was removed in Docker 25.0"),
        ("debian-12", {}, {"storage-driver": "aufs"}, None),
        ("el-9", {}, {"storage-driver": "overlay2"}, None),
        ("el-9", {}, {"graph": None}, None),
        ("el-9", {}, {"hosts": ["fd://"]}, None),
        ("el-9", {}, {"hosts": None}, None),
    ],
)
def test_option_that_the_new_docker_cannot_have_is_refused_before_the_installation(
    key: str, variables: dict[str, t.Any], options: dict[str, t.Any], words: str | None
) -> None:
    done = answered(host(key), offers(key), docker_options=options, **variables)
    assert [words in problem for problem in done.problems if words] == ([True] if words else [])
    assert bool(done.problems) == bool(words)


def test_option_of_a_newer_docker_than_the_known_ones_is_left_to_dockerd() -> None:
    newer = {"docker-ce": ["3:31.0.0-1.el9"], "docker-ce-cli": ["1:31.0.0-1.el9"]}
    assert answered(host("el-9"), newer, docker_options={"option-of-31": 1}).problems == []
    assert answered(host("el-9"), newer, docker_options={"nri-opts": {"enable": True}}).problems == []


def test_drop_in_that_removes_the_flags_before_the_installation_is_respected() -> None:
    seen = host("el-9")
    seen["docker_daemon_json"]["has_command"] = True
    assert answered(seen, offers("el"), docker_options={"hosts": ["tcp://0.0.0.0:2376"]}).problems == []


@pytest.mark.parametrize(("version", "is_refused"), [("5:24.0.9-1", True), ("5:25.0.0-1", False)])
def test_option_that_the_installed_docker_cannot_have_is_refused(version: str, is_refused: bool) -> None:
    seen = host("debian-12", {**dict.fromkeys(DEB_CE, version), **SUPPORT})
    done = plan(seen, docker_options={"cdi-spec-dirs": ["/etc/cdi"], "features": {"cdi": True}})
    assert len(done.problems) == (2 if is_refused else 0)


# --- repository and record --------------------------------------------------------------------------------------------


def test_interrupted_run_is_finished() -> None:
    files = recorded("docker.io", pending=["dpkg"])
    done = plan(host("debian-12", IO, files=files))
    assert (done.changes, done.acts) == (["finish the interrupted installation of the packages"], True)


def test_every_platform_of_the_driver_has_docker_and_containerd() -> None:
    assert sorted(PLATFORMS) == [
        *("amazon-2023", "debian-12", "debian-13", "el-10", "el-8", "el-9", "sles-15"),
        *("ubuntu-22.04", "ubuntu-24.04", "ubuntu-26.04"),
    ]
    assert OFFERS
