# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The file /usr/local/bin/nvidia-docker: when the role writes and removes it, and whose files it leaves alone."""

from __future__ import annotations

import ast
import hashlib
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.observe import file_contents, observation
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.part_plan import Context, Part
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import host_health
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import plan_of_all_parts as site_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import nvidia_docker_file
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import variables as toolkit_request
from ansible_collections.gpufleet.hosts.tests.drift.run import platforms
from ansible_collections.gpufleet.hosts.tests.unit.drift import converged_host as sample
from ansible_collections.gpufleet.hosts.tests.unit.plugins import container_toolkit_samples, site_samples
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import add_package

PATH, PYTHON = "/usr/local/bin/nvidia-docker", "/usr/bin/python3.11"
TEXT = nvidia_docker_file.text(PYTHON)
DIGEST = hashlib.sha256(TEXT.encode()).hexdigest()
MISSING = {"exists": False, "content": None, "mode": None}
OURS = {"exists": True, "content": DIGEST, "mode": "0755"}
OLD = {"exists": True, "content": "0" * 64, "mode": "0755"}
OF_A_USER = {"exists": True, "content": None, "mode": "0755"}
ON, OFF, ABSENT = {"wrapper": True}, {}, {"state": "absent", "wrapper": True}  # type: ignore[var-annotated]


def planned(file: dict[str, Any], values: dict[str, Any], **changes: Any) -> Part:
    """Plan the role on a host with a driver and Docker. The toolkit itself is not its work here."""
    host = {**sample.converged_host(), "root_python": PYTHON, **changes}
    host["files"] = {**host["files"], PATH: file}
    given = sample.values(nvidia_container_toolkit={"source": "none", **values})
    context = Context(host=host, values=given, platforms=platforms(sample.KEY))  # type: ignore[arg-type]
    return site_plan.plan(context, ("nvidia_container_toolkit",))["nvidia_container_toolkit"]


@pytest.mark.parametrize(
    ("file", "values", "changes"),
    [
        (MISSING, ON, [f"write {PATH}"]),
        (OLD, ON, [f"write {PATH}"]),
        ({**OURS, "mode": "0777"}, ON, [f"write {PATH}"]),
        # Another user owns it.
        ({**OURS, "content": ""}, ON, [f"write {PATH}"]),
        (OURS, ON, []),
        (MISSING, OFF, []),
        (OURS, OFF, [f"remove {PATH}"]),
        (OLD, OFF, [f"remove {PATH}"]),
        (OF_A_USER, OFF, []),
        (MISSING, ABSENT, []),
        (OURS, ABSENT, [f"remove {PATH}"]),
        (OF_A_USER, ABSENT, []),
    ],
)
def test_program_is_written_and_removed(file: dict[str, Any], values: dict[str, Any], changes: list[str]) -> None:
    part = planned(file, values)
    assert (part.changes, part.acts, part.errors) == (changes, bool(changes), [])
    written = part.plan["wrapper"]["file"]
    if changes:
        content = TEXT if changes == [f"write {PATH}"] else None
        assert written == {"path": PATH, "content": content, "mode": "0755"}


def test_file_of_a_user_is_an_error_before_any_change() -> None:
    part = planned(OF_A_USER, ON)
    assert (part.changes, part.acts) == ([], False)
    (error,) = part.errors
    assert f"{PATH} exists and this role did not write it" in error
    assert "Nothing was changed" in error


def test_program_needs_a_python_that_only_root_can_replace() -> None:
    (error,) = planned(MISSING, ON, root_python=None, python="/home/me/bin/python3").errors
    assert "/home/me/bin/python3" in error


@pytest.mark.parametrize("file", [MISSING, OURS, OF_A_USER])
@pytest.mark.parametrize("source", ["none", "auto"])
def test_hosts_without_docker_or_without_a_gpu_get_no_program(file: dict[str, Any], source: str) -> None:
    bare = sample.converged_host()
    bare["accelerators"]["nvidia"].update(gpus=[], device_ids=[])
    empty = sample.converged_host()
    empty["engines"] = {name: {**seen, "package": None} for name, seen in empty["engines"].items()}
    del empty["services"]["docker.service"]
    for host in (bare, empty):
        part = planned(file, {"source": source, "wrapper": True}, **host)
        assert (part.changes, part.errors) == ([f"remove {PATH}"] if file == OURS else [], [])
        assert part.reasons[0]


def test_only_root_writes_the_program() -> None:
    assert any("root" in error for error in planned(MISSING, ON, uid=1000).errors)
    assert planned(OURS, ON, uid=1000).errors == []


def managed(file: dict[str, Any], **values: Any) -> Part:
    """Plan the role on a host whose toolkit it installed."""
    host = site_samples.converged()
    for name, version in container_toolkit_samples.unit().items():
        add_package(host, name, version)
    host = container_toolkit_samples.registered(host)
    host["files"] |= {**container_toolkit_samples.recorded(*container_toolkit_samples.unit()), PATH: file}
    host["root_python"] = PYTHON
    context = site_samples.context(host, {"nvidia_container_toolkit": values})
    return site_plan.plan(context, ("nvidia_container_toolkit",))["nvidia_container_toolkit"]


def test_program_comes_with_and_goes_before_the_toolkit() -> None:
    assert managed(MISSING, wrapper=True).changes[-1:] == [f"write {PATH}"]
    assert f"write {PATH}" not in managed(OURS, wrapper=True).changes
    assert managed(OURS).changes[-1:] == [f"remove {PATH}"]
    removed = managed(OURS, state="absent", wrapper=True)
    assert removed.changes.count(f"remove {PATH}") == 1
    assert any("nvidia-container-toolkit" in text for text in removed.changes)
    assert PATH not in " ".join(managed(OF_A_USER, state="absent").changes)


@pytest.mark.parametrize(
    ("file", "values", "problem"),
    [
        (OURS, ON, None),
        (OLD, ON, None),
        (MISSING, ON, "is missing"),
        (OF_A_USER, ON, "was not written by role"),
        (MISSING, OFF, None),
        (OF_A_USER, OFF, None),
        (MISSING, ABSENT, None),
    ],
)
def test_verify_reports_a_program_that_users_do_not_get(
    file: dict[str, Any], values: dict[str, Any], problem: str | None
) -> None:
    host = sample.converged_host()
    host["files"] = {**host["files"], PATH: file}
    facts = {"nvidia_gpu_state": "ready", "nvidia_gpus": []}
    toolkit = toolkit_request.read({"source": "none", **values})
    found = [text for text in host_health.judge(host, facts, toolkit=toolkit)["problems"] if PATH in text]
    assert [bool(problem)] == [bool(found)]
    assert problem is None or problem in found[0]


# --- the text ---


def test_program_is_plain_python_of_the_standard_library() -> None:
    lines = TEXT.splitlines()
    assert lines[0] == "#!/usr/bin/python3.11 -I"
    assert lines[1] == owned.WRAPPER_MARK
    imported = {
        name
        for node in ast.walk(ast.parse(TEXT, feature_version=(3, 9)))
        for name in ([node.module] if isinstance(node, ast.ImportFrom) else [])
        + ([alias.name for alias in node.names] if isinstance(node, ast.Import) else [])
    }
    known = {"__future__", "collections", "ctypes", "json", "os", "re", "shutil", "signal", "subprocess", "sys", "time"}
    assert imported <= known
    # Ansible must not take a part of the text for a template.
    assert not [mark for mark in ("{{", "{%", "{#") if mark in TEXT]


# --- the observation ---


def observed(root: Path) -> dict[str, Any]:
    return file_contents.of_file(str(root), PATH)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    path = tmp_path / PATH[1:]
    path.parent.mkdir(parents=True)
    return path


def test_observation_knows_the_program_by_its_mark(tmp_path: Path, place: Path) -> None:
    assert observed(tmp_path) == MISSING
    place.write_text(TEXT, encoding="utf-8")
    place.chmod(0o755)
    assert observed(tmp_path) == OURS
    place.write_text(f"{TEXT}# edited\n", encoding="utf-8")
    assert observed(tmp_path)["content"] not in (None, DIGEST)


@pytest.mark.parametrize(
    "text",
    ["", "#!/bin/sh\nexec docker run --gpus all\n", f"#!/bin/sh\n# x\n{owned.WRAPPER_MARK}\n", "#!/bin/sh\n\xff"],
)
def test_other_files_belong_to_somebody_else(tmp_path: Path, place: Path, text: str) -> None:
    place.write_text(text, encoding="utf-8")
    assert observed(tmp_path) == {**OF_A_USER, "mode": f"{place.stat().st_mode & 0o7777:04o}"}


def test_links_and_directories_belong_to_somebody_else(tmp_path: Path, place: Path) -> None:
    target = tmp_path / "target"
    target.write_text(TEXT, encoding="utf-8")
    place.symlink_to(target)
    assert (observed(tmp_path)["exists"], observed(tmp_path)["content"]) == (True, None)
    target.unlink()
    assert (observed(tmp_path)["exists"], observed(tmp_path)["content"]) == (True, None)
    place.unlink()
    place.mkdir()
    assert (observed(tmp_path)["exists"], observed(tmp_path)["content"]) == (True, None)


def test_program_of_another_owner_is_written_again(
    tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.write_text(TEXT, encoding="utf-8")
    monkeypatch.setattr(observation.os, "stat", _owned_by(12345, place))
    assert observed(tmp_path)["content"] == ""


def _owned_by(uid: int, path: Path) -> Any:
    real = observation.os.stat

    def stat(name: Any, **more: Any) -> Any:
        found = real(name, **more)
        values = list(found)
        values[4] = uid if str(name) == str(path) else found.st_uid
        return observation.os.stat_result(values)

    return stat
