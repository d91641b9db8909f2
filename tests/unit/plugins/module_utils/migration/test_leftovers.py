# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every leftover of nvidia-docker is named with its consequence, in playbooks `plan` and `verify`."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.migration import leftovers, old_packages, old_sources
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts import outcomes
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.part_plan import Part
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import apt_sources
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import plan_report
from ansible_collections.gpufleet.hosts.tests.unit.plugins import old_nvidia_docker as old

NEW = "https://nvidia.github.io/libnvidia-container/stable/deb/amd64"
LISTS = "/etc/apt/sources.list.d"
OWN = f"{LISTS}/gpufleet-nvidia-container-toolkit.sources"


def with_sources(seen: dict[str, t.Any], files: t.Mapping[str, str]) -> dict[str, t.Any]:
    seen["apt"]["sources"] = [entry for path, text in files.items() for entry in apt_sources.parse(path, text)]
    return seen


def with_daemon_json(seen: dict[str, t.Any], content: t.Any, flags: t.Any = ()) -> dict[str, t.Any]:
    seen["docker_daemon_json"] |= {"content": content, "flags": list(flags)}
    return seen


def removed(name: str, state: str = "config_files") -> dict[str, t.Any]:
    seen = old.host()
    seen["package_state"][state] = [name]
    return seen


FLAG = {
    "text": "--add-runtime=nvidia=/usr/bin/nvidia-container-runtime",
    "key": "runtimes",
    "value": ["nvidia=/usr/bin/nvidia-container-runtime"],
    "place": "/etc/systemd/system/docker.service.d/override.conf",
}
STOPPED = old.described("train", volumes=[old.VOLUME])
RUNNING = old.described("infer", runtime="nvidia", running=True)
CASES: dict[str, tuple[dict[str, t.Any], list[str]]] = {
    "nothing": (old.host(), []),
    "plugin": (old.host({"nvidia-docker": "1.0.1-1"}), ["package nvidia-docker 1.0.1-1 is installed", "plugin"]),
    "wrapper": (
        old.host({"nvidia-docker2": "2.6.0-1"}),
        ["package nvidia-docker2 2.6.0-1", "to purge it deletes /etc/docker/daemon.json with all your options"],
    ),
    "empty wrapper": (old.host({"nvidia-docker2": "2.14.0-1"}), ["to purge it deletes /etc/docker/daemon.json"]),
    "runtime": (
        old.host({"nvidia-container-runtime": "3.4.2-1"}),
        ["package nvidia-container-runtime 3.4.2-1", "conflict with the toolkit"],
    ),
    "removed wrapper": (removed("nvidia-docker2"), ["not purged: a later purge deletes /etc/docker/daemon.json"]),
    "unpacked wrapper": (
        removed("nvidia-docker2", "unfinished"),
        ["nvidia-docker2 is not completely installed, so apt cannot change any package"],
    ),
    "dead volume": (
        old.host(volumes=[old.VOLUME]),
        [f"volume {old.VOLUME}", "which does not run: each start of Docker waits 15 seconds", "no driver volume"],
    ),
    "living volume": (
        old.host(volumes=[old.VOLUME], answers=True),
        [f"volume {old.VOLUME}", "so no driver volume of the same name can be created"],
    ),
    "unknown volumes": (old.host(volumes=None), ["volumes/metadata.db cannot be read", "unknown"]),
    "files": (old.host(files=["/var/lib/nvidia-docker"]), ["left /var/lib/nvidia-docker", "does not run"]),
    "user": (old.host(has_user=True), ["user nvidia-docker"]),
    "stopped container": (
        old.host(containers=[STOPPED]),
        ["cannot start again: train (stopped)", "must be created again"],
    ),
    "container of an unknown runtime": (
        old.host(containers=[old.described("old", runtime="nvidia-old")]),
        ["a runtime that Docker does not know (nvidia-old)", "old (stopped)"],
    ),
    "container of the runtime that the role registers": (old.host(containers=[RUNNING]), []),
    "default runtime that is gone": (
        with_daemon_json(old.host(), {"default-runtime": "nvidia"}),
        ["default-runtime nvidia, which is not registered, so Docker does not start"],
    ),
    "flag": (
        with_daemon_json(old.host(), {}, [FLAG]),
        ["/etc/systemd/system/docker.service.d/override.conf registers runtime nvidia with --add-runtime"],
    ),
    "hook": (
        old.host(hooks=["/usr/share/containers/oci/hooks.d/oci-nvidia-hook.json"]),
        ["OCI hook /usr/share/containers/oci/hooks.d/oci-nvidia-hook.json", "a second time"],
    ),
    "list": (
        with_sources(
            old.host(), {f"{LISTS}/nvidia-docker.list": "deb https://nvidia.github.io/nvidia-docker/debian10/amd64 /\n"}
        ),
        [f"{LISTS}/nvidia-docker.list has the old repository https://nvidia.github.io/nvidia-docker/debian10/amd64"],
    ),
    "clash": (
        with_sources(
            old.host(),
            {f"{LISTS}/a.list": f"deb {NEW} /\n", OWN: f"Types: deb\nURIs: {NEW}\nSuites: /\nSigned-By: /k.gpg\n"},
        ),
        [f"{LISTS}/a.list has an entry for {NEW}", "Conflicting values set for option Signed-By"],
    ),
    "key": (
        old.host(keys=[{"path": "/etc/apt/trusted.gpg", "alone": False}]),
        ["/etc/apt/trusted.gpg has a copy", "EXPKEYSIG"],
    ),
}


WRONG_TYPES = ("nvidia", ["nvidia"], 1, {"nvidia": "/usr/bin/nvidia-container-runtime"}, {"nvidia": None})


@pytest.mark.parametrize("runtimes", WRONG_TYPES)
def test_runtimes_of_another_type_have_no_program(runtimes: object) -> None:
    seen = with_daemon_json(old.host({"nvidia-docker2": "2.6.0-1"}), {"runtimes": runtimes})
    assert "comes from package" not in "".join(leftovers.texts(t.cast("t.Any", seen)))


@pytest.mark.parametrize("name", CASES)
def test_leftover_is_named_with_its_consequence(name: str) -> None:
    seen, words = CASES[name]
    found = leftovers.texts(t.cast("t.Any", seen))
    assert len(found) == bool(words)
    assert [word for word in words if word not in "".join(found)] == []


def test_host_that_was_not_observed_for_it_has_none() -> None:
    seen = old.host({"nvidia-docker2": "2.6.0-1"})
    assert leftovers.texts(t.cast("t.Any", {**seen, "nvidia_docker": None})) == []
    del seen["nvidia_docker"]
    assert leftovers.notes(t.cast("t.Any", seen)) == []


def test_package_nvidia_docker_of_another_version_is_another_package() -> None:
    assert old_packages.packages(t.cast("t.Any", old.host({"nvidia-docker": "2.0.0-1"}))) == {}


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://nvidia.github.io/nvidia-docker/ubuntu18.04/amd64", True),
        ("https://nvidia.github.io/nvidia-container-runtime/stable/ubuntu18.04/amd64", True),
        ("https://nvidia.github.io/libnvidia-container/stable/ubuntu18.04/amd64", True),
        ("https://nvidia.github.io/libnvidia-container/ubuntu16.04/amd64", True),
        ("https://nvidia.github.io/libnvidia-container/centos7/$basearch", True),
        ("https://nvidia.github.io/libnvidia-container/stable/deb/$(ARCH)", False),
        ("https://nvidia.github.io/libnvidia-container/experimental/rpm/$basearch", False),
        ("https://mirror.example/nvidia-docker/ubuntu18.04/amd64", False),
        (None, False),
    ],
)
def test_old_repositories_are_those_with_a_directory_for_each_distribution(url: str | None, expected: bool) -> None:
    assert old_sources.is_old(url) is expected


def test_entries_with_the_same_key_do_not_clash() -> None:
    entry = f"deb [signed-by=/k.gpg] {NEW} /\n"
    seen = with_sources(old.host(), {f"{LISTS}/a.list": entry, f"{LISTS}/b.list": entry})
    assert old_sources.of_host(seen) == []


def test_plan_says_how_to_remove_them_unless_it_does() -> None:
    seen = t.cast("t.Any", old.host(has_user=True, hooks=["/etc/containers/oci/hooks.d/nvidia.json"]))
    first, last = plan_report.leftover_notes(seen, {"nvidia_container_toolkit": Part()})
    assert first.startswith("User nvidia-docker")
    assert last.endswith(
        "To remove all of this, set nvidia_container_toolkit_migrate to true and run playbook gpufleet.hosts.site."
    )
    migrates = Part(outcome=outcomes.ToolkitOutcome(migrates=True))
    assert plan_report.leftover_notes(seen, {"nvidia_container_toolkit": migrates}) == []
    assert plan_report.leftover_notes(seen, {"container_engine": Part()}) == []
