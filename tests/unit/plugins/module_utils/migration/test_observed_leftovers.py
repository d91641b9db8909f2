# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The observation finds what nvidia-docker left, and costs nothing on a host without it."""

from __future__ import annotations

import json
import socket
import typing as t

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.migration import leftovers, observed_leftovers
from ansible_collections.gpufleet.hosts.plugins.module_utils.observe import observation
from ansible_collections.gpufleet.hosts.tests.unit.plugins import declared
from ansible_collections.gpufleet.hosts.tests.unit.plugins import old_nvidia_docker as old
from ansible_collections.gpufleet.hosts.tests.unit.plugins.gpu_trees import Tree

DEBIAN = 'ID=debian\nVERSION_ID="12"\nVERSION_CODENAME=bookworm\n'
STATUS = "Package: {}\nStatus: install ok installed\nArchitecture: amd64\nVersion: {}\n\n"
GONE = "Package: {}\nStatus: deinstall ok config-files\nArchitecture: amd64\nVersion: {}\n\n"
LIST = "deb https://nvidia.github.io/nvidia-docker/debian10/amd64 /\n"


@pytest.fixture
def tree(tmp_path) -> Tree:
    tree = Tree(tmp_path)
    tree.file("etc/os-release", DEBIAN)
    return tree


class Programs:
    """The programs that run: none answers."""

    def __init__(self) -> None:
        self.units: list[str] = []

    def __call__(self, argv: list[str]) -> tuple[int, str, str]:
        self.units += argv[argv.index("--") + 1 :] if argv[0] == "systemctl" else []
        return 127, "", ""


def seen(tree: Tree, run: t.Any = None) -> t.Any:
    """Observe as module gpu_host_plan does: a second call only if the host can have leftovers."""
    host = t.cast(
        "t.Any",
        observation.observe(
            tree.root, declared=declared.PLACES, machine="x86_64", kernel=tree.kernel, run=run or Programs()
        ),
    )
    if not leftovers.may_exist(host):
        return None
    return observed_leftovers.read(tree.root, host["docker_data"]["root"], run or Programs())


def add_container(tree: Tree, number: int, *arguments: t.Any, **more: t.Any) -> None:
    config, settings = old.container(*arguments, **more)
    folder = f"var/lib/docker/containers/{number:064x}"
    tree.file(f"{folder}/config.v2.json", json.dumps(config))
    tree.file(f"{folder}/hostconfig.json", json.dumps(settings))


def test_host_without_traces_costs_no_call_and_few_bytes(tree: Tree) -> None:
    tree.file(
        "var/lib/docker/volumes/metadata.db", old.database({"data": "local"}).replace(b"nvidia-docker", b"x" * 13)
    )
    tree.file(
        "etc/apt/sources.list.d/nct.list", "deb https://nvidia.github.io/libnvidia-container/stable/deb/amd64 /\n"
    )
    tree.file("var/lib/dpkg/status", STATUS.format("nvidia-container-toolkit", "1.20.1-1"))
    add_container(tree, 1, "web", runtime="nvidia")
    run = Programs()
    assert seen(tree, run) is None
    assert "nvidia-docker.service" not in run.units


@pytest.mark.parametrize(
    ("path", "text", "key", "value"),
    [
        ("etc/docker/plugins/nvidia-docker.spec", "unix:///x", "files", ["/etc/docker/plugins/nvidia-docker.spec"]),
        ("usr/lib/docker/plugins/nvidia-docker.json", "{}", "files", ["/usr/lib/docker/plugins/nvidia-docker.json"]),
        ("var/lib/nvidia-docker/volumes/x", "", "files", ["/var/lib/nvidia-docker"]),
        ("lib/systemd/system/nvidia-docker.service", "", "files", ["/lib/systemd/system/nvidia-docker.service"]),
        ("etc/default/nvidia-docker", "", "files", ["/etc/default/nvidia-docker"]),
        ("usr/local/bin/nvidia-docker-plugin", "", "files", ["/usr/local/bin/nvidia-docker-plugin"]),
        ("etc/passwd", "root:x:0:0::/:/bin/sh\nnvidia-docker:x:9:9::/:/x\n", "has_user", True),
        (
            "usr/share/containers/oci/hooks.d/oci-nvidia-hook.json",
            "{}",
            "hooks",
            ["/usr/share/containers/oci/hooks.d/oci-nvidia-hook.json"],
        ),
        ("etc/apt/sources.list.d/nvidia-docker.list", LIST, "volumes", []),
        ("var/lib/dpkg/status", STATUS.format("nvidia-docker2", "2.14.0-1"), "files", []),
        ("var/lib/dpkg/status", GONE.format("nvidia-docker2", "2.6.0-1"), "files", []),
        ("var/lib/dpkg/status", STATUS.format("nvidia-container-runtime", "3.4.2-1"), "files", []),
        ("var/lib/docker/volumes/metadata.db", old.database({old.VOLUME: "nvidia-docker"}), "volumes", [old.VOLUME]),
        ("var/lib/docker/volumes/metadata.db", b'"Driver":"nvidia-docker"', "volumes", None),
        ("var/lib/gpufleet/migration/daemon.json", "{}", "saved", ["daemon.json"]),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 60 else "",
)
def test_each_trace_is_found_alone(tree: Tree, path: str, text: t.Any, key: str, value: t.Any) -> None:
    tree.file(path, text)
    found = seen(tree)
    assert found is not None
    assert found[key] == value


def test_lib_and_its_link_are_one_file(tree: Tree) -> None:
    tree.file("usr/lib/systemd/system/nvidia-docker.service", "")
    tree.link("lib", "usr/lib")
    assert seen(tree)["files"] == ["/usr/lib/systemd/system/nvidia-docker.service"]


def test_containers_are_read_with_their_volumes_and_runtimes_and_without_their_secrets(tree: Tree) -> None:
    tree.file("var/lib/dpkg/status", STATUS.format("nvidia-docker2", "2.6.0-1"))
    add_container(tree, 1, "train", volume=old.VOLUME)
    add_container(tree, 2, "infer", runtime="nvidia", running=True)
    add_container(tree, 3, "web")
    add_container(tree, 4, "default", runtime="")
    tree.file(f"var/lib/docker/containers/{5:064x}/config.v2.json", "{")
    found = seen(tree)["containers"]
    assert [(one["name"], one["running"], one["runtime"], one["volumes"], one["plugin"]) for one in found] == [
        ("infer", True, "nvidia", [], False),
        ("train", False, "runc", [old.VOLUME], True),
    ]


def test_only_the_program_of_nvidia_docker_1_is_a_leftover(tree: Tree) -> None:
    tree.file("usr/bin/nvidia-docker-plugin", "x")
    tree.file("usr/bin/nvidia-docker", "#!/bin/sh\n")
    assert seen(tree)["files"] == ["/usr/bin/nvidia-docker-plugin"]
    tree.file("usr/local/bin/nvidia-docker", b"\x7fELF\x02")
    assert seen(tree)["files"] == ["/usr/bin/nvidia-docker-plugin", "/usr/local/bin/nvidia-docker"]


def test_data_directory_of_docker_is_followed(tree: Tree) -> None:
    tree.file("etc/docker/daemon.json", '{"data-root": "/srv/docker"}')
    tree.file("srv/docker/volumes/metadata.db", old.database({old.VOLUME: "nvidia-docker"}))
    assert seen(tree)["volumes"] == [old.VOLUME]


def test_plugin_that_listens_answers(tmp_path, monkeypatch) -> None:
    path = tmp_path / "s"
    monkeypatch.chdir(tmp_path)
    assert not observed_leftovers.answers("s")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path.name)
        server.listen()
        assert observed_leftovers.answers("s")
    assert not observed_leftovers.answers("s")
