# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How role nvidia_driver downloads and runs NVIDIA's installer."""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from ansible_collections.gpufleet.hosts.tests.unit.plugins import ansible_run

TASKS = Path(__file__).resolve().parents[3] / "roles" / "nvidia_driver" / "tasks"
INSTALLER = b"#!/bin/sh\nexit 0\n"
CHECKSUM = f"sha256:{hashlib.sha256(INSTALLER).hexdigest()}"


def load(name: str) -> list[dict]:
    return yaml.safe_load((TASKS / name).read_text(encoding="utf-8"))


# The requests for files that are not available at first.
asked: list[str] = []


class Archive(http.server.BaseHTTPRequestHandler):
    """A server that provides the installer of one version, without a login and with one (robot:s3cret).

    Below /busy-N/, the first N requests fail.
    """

    def do_GET(self) -> None:  # pylint: disable=invalid-name
        status = 200 if self.path.endswith("/580.95.05.run") else 404
        failures = re.match(r"/busy-(\d+)/", self.path)
        if failures:
            asked.append(self.path)
            status = 503 if asked.count(self.path) <= int(failures[1]) else status
        if self.path.startswith("/private/") and self.headers.get("Authorization") != "Basic cm9ib3Q6czNjcmV0":
            status = 401
        self.send_response(status)
        self.end_headers()
        self.wfile.write(INSTALLER)

    def log_message(self, *_arguments: object) -> None:  # pylint: disable=arguments-differ
        """Log nothing."""


@pytest.fixture(name="archive", scope="module")
def _archive() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Archive) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def download(root: Path, url: str, checksum: str, *options: str, login: tuple[str, str] = ("", "")) -> str:
    """Download the installer into a test directory with -v and return the output."""
    text = (TASKS / "download_installer.yml").read_text(encoding="utf-8")
    text = text.replace("/var/cache/gpufleet", f"{root}/cache").replace("delay: 5", "delay: 0")
    tasks = yaml.safe_load(
        text.replace("owner: root", f"owner: {os.getuid()}").replace("group: root", f"group: {os.getgid()}")
    )
    (root / "play.yml").write_text(yaml.safe_dump([{"hosts": "localhost", "gather_facts": False, "tasks": tasks}]))
    runfile = {"url": url, "checksum": checksum, "username": login[0], "password": login[1], "proxy": ""}
    values = {
        "ansible_python_interpreter": sys.executable,
        "__nvidia_driver_plan": {"version": "580.95.05", "todo": {"runfile": runfile}},
    }
    argv = ["ansible-playbook", "-v", "-i", "localhost,", "-c", "local", *options, "-e", json.dumps(values)]
    argv.append(f"{root}/play.yml")
    done = ansible_run.run(argv)
    return done.stdout + done.stderr


@pytest.mark.parametrize("login", [("", ""), ("robot", "s3cret")], ids=["no login", "login"])
@pytest.mark.parametrize(
    "case",
    [
        (
            "535.run",
            CHECKSUM,
            "Request failed: HTTP Error 404: Not Found (status 404). The installer was not run.",
        ),
        (
            "580.95.05.run",
            f"sha256:{'0' * 64}",
            f"did not match {'0' * 64}; it was {CHECKSUM[7:]}. The installer was not run.",
        ),
    ],
    ids=["missing file", "wrong checksum"],
)
def test_a_failed_download_is_explained_and_leaves_no_file(
    tmp_path: Path, archive: str, login: tuple[str, str], case: tuple
) -> None:
    path, checksum, message = case
    output = download(tmp_path, f"http://{archive}/{path}", checksum, login=login)
    assert "failed=1" in output, output
    assert message in output, output
    assert f"with checksum {checksum} could not be downloaded from http://{archive}/{path}: " in output
    assert "nvidia_driver_runfile_checksum: both must belong to version 580.95.05" in output
    assert not (tmp_path / "cache").exists()
    assert "s3cret" not in output


def test_a_busy_server_is_asked_three_times(tmp_path: Path, archive: str) -> None:
    output = download(tmp_path, f"http://{archive}/busy-9/580.95.05.run", CHECKSUM)
    assert "Service Unavailable (status 503) (tried 3 times). The installer was not run." in output, output
    assert asked.count("/busy-9/580.95.05.run") == 3
    output = download(tmp_path, f"http://{archive}/busy-2/580.95.05.run", CHECKSUM)
    assert "failed=0" in output, output


def test_the_installer_is_downloaded_with_the_login_which_is_not_shown(tmp_path: Path, archive: str) -> None:
    url = f"http://{archive}/private/580.95.05.run"
    assert "status 401" in download(tmp_path, url, CHECKSUM)
    output = download(tmp_path, url, CHECKSUM, login=("robot", "s3cret"))
    assert "failed=0" in output, output
    assert "s3cret" not in output
    assert (tmp_path / "cache/nvidia-580.95.05.run").read_bytes() == INSTALLER


def test_a_failed_download_keeps_other_installers(tmp_path: Path, archive: str) -> None:
    other = tmp_path / "cache" / "nvidia-535.309.01.run"
    other.parent.mkdir(mode=0o755)
    other.write_bytes(INSTALLER)
    assert "failed=1" in download(tmp_path, f"http://{archive}/535.run", CHECKSUM)
    assert other.exists()


def test_the_installer_is_downloaded_once_and_not_in_check_mode(tmp_path: Path, archive: str) -> None:
    url, path = f"http://{archive}/580.95.05.run", tmp_path / "cache" / "nvidia-580.95.05.run"
    assert "failed=0" in download(tmp_path, url, CHECKSUM, "--check")
    assert not path.parent.exists()
    output = download(tmp_path, url, CHECKSUM)
    assert "failed=0" in output, output
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (INSTALLER, 0o700)
    assert "changed=0" in download(tmp_path, url, CHECKSUM)


# Extracts a program into a temporary directory and runs it, like NVIDIA's installer.
EXTRACTING = """#!/bin/sh
set -e
directory=$(mktemp -d "${TMPDIR:-/tmp}/makeself.XXXXXX")
trap 'rm -rf "$directory"' EXIT
printf '#!/bin/sh\\necho "installed $*"\\n' >"$directory/installer"
chmod 700 "$directory/installer"
"$directory/installer" "$@"
"""


def command_of(file: str, name: str) -> dict:
    """Return the task that runs the installer, without the tasks around it."""
    (task,) = [task for task in load(file) if task["name"] == name]
    return task


@pytest.mark.parametrize(
    ("file", "name", "values"),
    [
        (
            "run_installer.yml",
            "Runfile | Run NVIDIA's installer",
            {"__nvidia_driver_plan": {"version": "580.95.05", "todo": {"runfile": {"options": ["--silent"]}}}},
        ),
        (
            "remove.yml",
            "Remove | Run NVIDIA's uninstaller",
            {"__nvidia_driver_removal": {"runfile": ["/var/cache/gpufleet/nvidia-580.95.05.run", "--silent"]}},
        ),
    ],
    ids=["install", "remove an interrupted installation"],
)
def test_the_installer_does_not_need_the_temporary_directory_of_the_host(
    tmp_path: Path, file: str, name: str, values: dict
) -> None:
    installer = tmp_path / "cache" / "nvidia-580.95.05.run"
    installer.parent.mkdir()
    installer.write_text(EXTRACTING, encoding="utf-8")
    installer.chmod(0o700)
    play = [{"hosts": "localhost", "gather_facts": False, "tasks": [command_of(file, name)], "vars": values}]
    text = yaml.safe_dump(play).replace("/var/cache/gpufleet", f"{tmp_path}/cache")
    (tmp_path / "play.yml").write_text(text, encoding="utf-8")
    # No program can create a file in /proc, as none can run one in a /tmp with noexec.
    environment = {**os.environ, "TMPDIR": "/proc"}
    argv = ["ansible-playbook", "-v", "-i", "localhost,", "-c", "local", "-e"]
    argv += [f"ansible_python_interpreter={sys.executable}", f"{tmp_path}/play.yml"]
    done = ansible_run.run(argv, env=environment)
    assert "installed --silent" in done.stdout, done.stdout + done.stderr
    assert list(installer.parent.iterdir()) == [installer]
