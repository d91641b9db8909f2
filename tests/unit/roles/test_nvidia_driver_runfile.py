# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How role nvidia_driver fetches and runs NVIDIA's installer."""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

TASKS = Path(__file__).resolve().parents[3] / "roles" / "nvidia_driver" / "tasks"
INSTALLER = b"#!/bin/sh\nexit 0\n"
CHECKSUM = f"sha256:{hashlib.sha256(INSTALLER).hexdigest()}"


def load(name: str) -> list[dict]:
    return yaml.safe_load((TASKS / name).read_text(encoding="utf-8"))


class Archive(http.server.BaseHTTPRequestHandler):
    """A server that has the installer of one version, and wants no login."""

    def do_GET(self) -> None:  # pylint: disable=invalid-name
        self.send_response(200 if self.path == "/580.95.05.run" else 404)
        self.end_headers()
        self.wfile.write(INSTALLER)

    def log_message(self, *_arguments: object) -> None:  # pylint: disable=arguments-differ
        """Say nothing."""


@pytest.fixture(name="archive", scope="module")
def _archive() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Archive) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def have(root: Path, url: str, checksum: str, *options: str) -> str:
    """Run what fetches the installer, in a directory of ours, and return what a run with -v says."""
    text = (TASKS / "installer.yml").read_text(encoding="utf-8").replace("/var/cache/gpufleet", f"{root}/cache")
    tasks = yaml.safe_load(
        text.replace("owner: root", f"owner: {os.getuid()}").replace("group: root", f"group: {os.getgid()}")
    )
    (root / "play.yml").write_text(yaml.safe_dump([{"hosts": "localhost", "gather_facts": False, "tasks": tasks}]))
    runfile = {"url": url, "place": "the archive", "checksum": checksum}
    values = {
        "ansible_python_interpreter": sys.executable,
        "nvidia_driver_proxy": "",
        "__nvidia_driver_plan": {"version": "580.95.05", "todo": {"runfile": runfile}},
    }
    argv = ["ansible-playbook", "-v", "-i", "localhost,", "-c", "local", *options, "-e", json.dumps(values)]
    environment = {**os.environ, "ANSIBLE_LOCAL_TEMP": f"{root}/local", "ANSIBLE_REMOTE_TEMP": f"{root}/remote"}
    argv.append(f"{root}/play.yml")
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=environment)
    return done.stdout + done.stderr


def test_the_installer_is_had_before_the_first_change() -> None:
    first, *others = load("act.yml")
    assert first["ansible.builtin.include_tasks"] == "installer.yml"
    assert first["when"] == "__nvidia_driver_plan.steps.runfile"
    assert others[0]["ansible.builtin.include_tasks"] == "packages.yml"
    # Nothing between it and the run fetches it once more.
    assert "get_url" not in str(load("runfile.yml"))


@pytest.mark.parametrize("login", ["", "robot:s3cret@"], ids=["no login", "login"])
@pytest.mark.parametrize(
    "case",
    [
        (
            "535.run",
            CHECKSUM,
            "Request failed: HTTP Error 404: Not Found (status 404). Check nvidia_driver_runfile_url",
        ),
        (
            "580.95.05.run",
            f"sha256:{'0' * 64}",
            f"did not match {'0' * 64}; it was {CHECKSUM[7:]}. Check nvidia_driver",
        ),
    ],
    ids=["not there", "another one"],
)
def test_why_it_cannot_be_had_is_said_and_nothing_stays(tmp_path: Path, archive: str, login: str, case: tuple) -> None:
    path, checksum, said = case
    output = have(tmp_path, f"http://{login}{archive}/{path}", checksum)
    assert "failed=1" in output, output
    assert said in output, output
    assert f"the archive with the checksum {checksum}, and was not run" in output
    assert "nvidia_driver_runfile_checksum: both have to be of version 580.95.05" in output
    assert not (tmp_path / "cache").exists()
    assert "s3cret" not in output


def test_a_part_of_an_address_in_the_reason_is_not_shown(tmp_path: Path) -> None:
    output = have(tmp_path, "http://robot:s3/cret@mirror.example/x.run", CHECKSUM)
    assert "failed=1" in output, output
    assert "cret@" not in output
    assert "s3/" not in output


def test_an_installer_that_is_there_stays(tmp_path: Path, archive: str) -> None:
    other = tmp_path / "cache" / "nvidia-535.309.01.run"
    other.parent.mkdir(mode=0o755)
    other.write_bytes(INSTALLER)
    assert "failed=1" in have(tmp_path, f"http://{archive}/535.run", CHECKSUM)
    assert other.exists()


def test_the_right_one_is_had_and_check_mode_fetches_nothing(tmp_path: Path, archive: str) -> None:
    url, there = f"http://{archive}/580.95.05.run", tmp_path / "cache" / "nvidia-580.95.05.run"
    assert "failed=0" in have(tmp_path, url, CHECKSUM, "--check")
    assert not there.parent.exists()
    output = have(tmp_path, url, CHECKSUM)
    assert "failed=0" in output, output
    assert (there.read_bytes(), there.stat().st_mode & 0o777) == (INSTALLER, 0o700)
    assert "changed=0" in have(tmp_path, url, CHECKSUM)


def test_the_installer_runs_after_the_host_was_written_down() -> None:
    tasks = [str(task) for task in load("runfile.yml")]
    order = [next(i for i, text in enumerate(tasks) if word in text) for word in ("record.yml", "'argv'")]
    assert order == sorted(order)
