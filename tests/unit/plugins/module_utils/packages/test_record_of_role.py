# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import (
    nvidia_repository,
    record_files,
    record_of_role,
    record_ownership,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages.record_of_role import DRIVER, TOOLKIT
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import host


def having(record: str | dict | None, path: str = DRIVER, **changes) -> dict:
    """Describe a host with a record."""
    text = record if isinstance(record, str) or record is None else json.dumps(record)
    there = host("el-9", **changes)
    there["files"][path] = {"exists": text is not None, "content": text}
    return there


def content(there: dict, path: str) -> dict:
    return json.loads(there["files"][path]["content"] or "{}")


def begin(
    there: dict, path: str, before: list[str], *, key: str | None = None, stream: dict | None = None, **more
) -> str:
    """Return the record before an installation."""
    keys, streams = [key] if key else [], [stream] if stream else []
    return record_ownership.text(
        record_ownership.begin(content(there, path), before, keys=keys, streams=streams, **more)
    )


def finish(there: dict, path: str, before: list[str], after: list[str]) -> str:
    """Return the record after an installation."""
    return record_ownership.text(
        record_ownership.finish(content(there, path), before, after, enabled=there["module_streams"])
    )


def finished(there: dict, before: list[str], after: list[str] | None = None) -> dict:
    return json.loads(finish(there, DRIVER, before, before if after is None else after))


@pytest.mark.parametrize(
    ("asked", "name", "ours"),
    [
        ("libcuda1", "libcuda1", True),
        ("libcuda1=535.309.01-0+deb12u1", "libcuda1", True),
        ("nvidia-driver-cuda-3:580.95.05-1.el9", "nvidia-driver-cuda", True),
        ("kernel-devel-5.14.0-570.el9.x86_64", "kernel-devel", True),
        ("cuda-toolkit-12-6", "cuda-toolkit-12-6", True),
        ("cuda-toolkit-12-6", "cuda-toolkit", False),
        ("linux-headers-6.1.0-47-amd64", "linux-headers", False),
        ("libcuda1", "libcuda11", False),
    ],
)
def test_requested_packages_are_installed_for_certain(asked, name, ours):
    interrupted = having(begin(having(None), DRIVER, ["vim"], asked=[asked]))
    there = ["vim", name, "tmux"]
    assert record_of_role.installed_for_certain(interrupted, DRIVER, there) == ({name} if ours else set())
    assert record_of_role.possibly_installed(interrupted, DRIVER, there) == {name, "tmux"}
    packages, uncertain = ([name], ["tmux"]) if ours else ([], sorted([name, "tmux"]))
    done = finished(interrupted, there)
    assert (done["packages"], done["uncertain"]) == (packages, uncertain)


def test_packages_that_were_installed_before_are_not_recorded():
    begun = begin(having(None), DRIVER, ["libcuda1"], asked=["libcuda1=535-1", "dkms"])
    assert json.loads(begun)["asked"] == ["dkms"]
    assert record_of_role.installed_for_certain(having(begun), DRIVER, ["libcuda1", "dkms"]) == {"dkms"}
    # The next run requests a package that the user has installed in the meantime.
    again = begin(having(begun), DRIVER, ["libcuda1", "ffmpeg"], asked=["ffmpeg"])
    assert finished(having(again), ["libcuda1", "ffmpeg", "dkms"])["packages"] == ["dkms"]


def test_a_finished_record_ignores_later_packages():
    interrupted = having(begin(having(None), DRIVER, ["vim"], asked=["dkms"], key="EB"))
    assert record_of_role.is_unfinished(interrupted, DRIVER)
    done = finish(interrupted, DRIVER, ["vim", "dkms"], ["vim", "dkms"])
    assert json.loads(done) == {"packages": ["dkms"], "requested": ["dkms"], "files": {}, "key": "EB"}
    assert not record_of_role.is_unfinished(having(done), DRIVER)
    # The user installs nvidia-settings later.
    assert record_of_role.possibly_installed(having(done), DRIVER, ["vim", "dkms", "nvidia-settings"]) == {"dkms"}


def test_packages_that_the_other_role_requested_are_not_recorded():
    interrupted = having(begin(having(None), DRIVER, ["vim"]))
    other = begin(having(None, TOOLKIT), TOOLKIT, ["vim"], asked=["cuda-toolkit-12-6"])
    interrupted["files"][TOOLKIT] = {"exists": True, "content": other}
    assert record_of_role.possibly_installed(interrupted, DRIVER, ["vim", "cuda-toolkit-12-6", "dkms"]) == {"dkms"}


def stream(name: str, before: str | None) -> dict:
    return {"module": "nvidia-driver", "name": f"nvidia-driver:{name}", "before": before and f"nvidia-driver:{before}"}


@pytest.mark.parametrize(
    ("record", "todo", "expected"),
    [
        ({}, stream("580-open", None), stream("580-open", None)),
        ({}, stream("580-open", "570"), stream("580-open", "570")),
        # The role switches to another stream: the first stream remains the previous one.
        ({"stream": stream("580-open", "570")}, stream("595-open", "580-open"), stream("595-open", "570")),
        # The user has enabled another stream in the meantime.
        ({"stream": stream("580-open", "570")}, stream("595-open", "590"), stream("595-open", "590")),
        # A run was interrupted between two streams.
        ({"pending_stream": stream("580-open", "570")}, stream("580-open", None), stream("580-open", "570")),
        ({"pending_stream": stream("580-open", "570")}, None, stream("580-open", "570")),
        ({}, None, None),
    ],
)
def test_the_first_stream_is_recorded_as_the_previous_stream(record, todo, expected):
    begun = json.loads(begin(having(record), DRIVER, ["vim"], stream=todo))
    assert begun.get("pending_stream") == expected


@pytest.mark.parametrize(
    ("now", "done", "pending"),
    [
        ("580-open", stream("580-open", "570"), None),
        # The previous stream was restored after a failure.
        ("570", None, None),
        # The previous stream could not be restored.
        (None, None, stream("580-open", "570")),
    ],
)
def test_only_an_enabled_stream_is_recorded(now, done, pending):
    begun = {"pending": ["vim"], "pending_stream": stream("580-open", "570")}
    left = finished(having(begun, module_streams={"nvidia-driver": now} if now else {}), ["vim"])
    assert (left.get("stream"), left.get("pending_stream")) == (done, pending)


def test_a_failed_switch_keeps_the_recorded_stream():
    begun = {"stream": stream("570-open", None), "pending_stream": stream("580-open", None), "pending": ["vim"]}
    left = finished(having(begun, module_streams={"nvidia-driver": "570-open"}), ["vim"])
    assert (left["stream"], "pending_stream" in left) == (stream("570-open", None), False)


NVIDIAS = {
    "packages": ["dkms", "libcuda1", "libnvidia-cfg1", "libnvidia-ptxjitcompiler1", "nvidia-kernel-dkms", "nvidia-smi"],
    "requested": ["dkms", "nvidia-smi"],
    "repositories": ["gpufleet-nvidia-cuda"],
    "written": ["/etc/apt/sources.list.d/gpufleet-nvidia-cuda.sources"],
    "files": {},
    "key": "EB693B3035CD5710",
}


@pytest.mark.parametrize(
    ("installed", "uses", "released"),
    [
        (["dkms"], [], True),
        (["dkms"], ["gpufleet-nvidia-cuda"], False),
        (["dkms", "libcuda1"], [], False),
        (["dkms", "nvidia-kernel-dkms"], [], False),
        (["dkms", "libnvidia-cfg1", "libnvidia-ptxjitcompiler1"], [], True),
        ([], [], True),
    ],
    ids=["purged", "the repository is used again", "libraries", "modules", "dependencies", "everything removed"],
)
def test_a_driver_that_the_user_purged_releases_the_repository(installed, uses, released):
    begun = begin(having(NVIDIAS), DRIVER, installed, asked=["nvidia-driver"], repositories=uses)
    done = having(finish(having(begun), DRIVER, installed, [*installed, "nvidia-driver"]))
    assert nvidia_repository.is_used_by(done, DRIVER) is not released
    # The removal still removes the repository's files and its key.
    left = record_ownership.removal(content(done, DRIVER), ["nvidia-driver"], enabled={})
    assert left.files == NVIDIAS["written"]
    assert record_ownership.is_recorded_key("gpg-pubkey-35cd5710", record_of_role.read(done, DRIVER))


@pytest.mark.parametrize(
    ("packages", "left", "is_abandoned"),
    [
        (["libnvidia-compute-580", "libnvidia-cfg1-580", "nvidia-dkms-580-open"], ["libnvidia-cfg1-580"], True),
        (["libnvidia-compute", "libnvidia-gpucomp", "nvidia-dkms-open"], ["libnvidia-gpucomp"], True),
        (["libnvidia-compute", "libnvidia-gpucomp", "nvidia-dkms-open"], ["nvidia-dkms-open"], False),
        (["libnvidia-cfg", "kmod-nvidia-open-dkms", "nvidia-driver-cuda"], ["libnvidia-cfg"], True),
        (["libnvidia-cfg", "kmod-nvidia-open-dkms", "nvidia-driver-cuda"], ["kmod-nvidia-open-dkms"], False),
        (["libnvidia-cfg", "nvidia-open-driver-G06", "nvidia-compute-G06"], ["libnvidia-cfg"], True),
        (["libnvidia-cfg", "nvidia-open-driver-G06", "nvidia-compute-G06"], ["nvidia-compute-G06"], False),
        (["linux-modules-nvidia-580-server-generic", "nvidia-utils-580-server"], ["nvidia-utils-580-server"], False),
        # Other tools installed the driver itself, or it is the record of the toolkit.
        (["libnvidia-nscq-580", "nvidia-fabricmanager-580"], ["nvidia-fabricmanager-580"], False),
        (["cuda-nvcc-13-0", "cuda-toolkit-13-0", "nvidia-open"], ["cuda-nvcc-13-0", "cuda-toolkit-13-0"], False),
    ],
)
def test_a_driver_without_modules_and_main_libraries_is_abandoned(packages, left, is_abandoned):
    there = having({"packages": ["dkms", *packages], "requested": packages, "files": {}})
    there["installed_packages"] = dict.fromkeys(["dkms", *left], "1 x86_64")
    assert record_of_role.is_abandoned(there, DRIVER) is is_abandoned


@pytest.mark.parametrize("text", ["", "{", "[]", "null"])
def test_a_damaged_record_is_empty(text):
    assert not any(record_of_role.read(having(text), DRIVER).values())
    assert not record_of_role.is_unfinished(having(text), DRIVER)


def test_a_key_that_is_trusted_by_its_digest_has_a_fingerprint_once_it_is_installed():
    digest, fingerprint = f"sha256:{'0' * 64}", "610C7B14E068A878070DA4E99CD0A493D42D0685"
    there = having({"key": digest})
    assert record_of_role.read(there, DRIVER)["key"] == digest
    there["keyrings"]["/k.gpg"] = {"fingerprints": [fingerprint], "digests": [digest]}
    assert record_of_role.read(there, DRIVER)["key"] == fingerprint
    there["files"][DRIVER]["content"] = json.dumps({"pending_key": digest})
    assert record_of_role.read(there, DRIVER)["key"] == fingerprint


def test_the_observed_record_contains_no_former_files():
    text = json.dumps(
        {"packages": ["app"], "previous": {"/etc/apt/auth.conf": {"content": "c2VjcmV0", "mode": "0600"}}}
    )
    assert json.loads(record_files.without_former_files(text)) == {"packages": ["app"], "previous": {}}
    assert record_files.without_former_files("{damaged") == "{damaged"
