# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run ansible-playbook for a test that a playbook describes, without the 1.6 s CPU that each start takes.

    nested.py NAME ansible-playbook ARGUMENT...

The first run with a NAME, such as that of a host, starts a process that forks one for each run. It ends with the
playbook that describes the test. Runs with the same NAME must not overlap.
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parents[2]
# The seconds in which the process must listen. It takes about 2 on an idle machine.
DEADLINE = 60


def owner() -> int:
    """Return the process of the outermost ansible-playbook above this one, or the parent."""
    found, process = os.getppid(), os.getppid()
    while process > 1:
        try:
            words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
            status = Path(f"/proc/{process}/stat").read_text(encoding="ascii", errors="replace")
        except OSError:
            break
        if any(word.endswith(b"/ansible-playbook") for word in words[:3]):
            found = process
        process = int(status.rpartition(")")[2].split()[1])
    return found


def connect(address: str) -> socket.socket | None:
    """Return a connection to the process with this address, or None if there is none."""
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        client.connect(address)
    except ConnectionRefusedError:
        client.close()
        return None
    return client


def serve(address: str, master: int) -> None:
    """Run what clients ask for, until the process `master` has ended."""
    sys.path.append(str(ROOT / ".ansible/collections"))
    # Clients do not need it.
    ansible_run = importlib.import_module("ansible_collections.gpufleet.hosts.tests.unit.plugins.ansible_run")

    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(address)
    server.listen()
    server.settimeout(1)
    while Path(f"/proc/{master}").exists():
        try:
            client = server.accept()[0]
        except TimeoutError:
            continue
        with client, client.makefile("rw", encoding="utf-8") as file:
            argv, environment, directory = json.loads(file.readline())
            done = ansible_run.run(argv, env=environment, cwd=directory)
            file.write(json.dumps([done.returncode, done.stdout, done.stderr]) + "\n")


def start(address: str, master: int, errors: IO[bytes]) -> int:
    """Start the process that serves this address, as a session of its own, and return its ID."""
    child = os.fork()
    if child:
        return child
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for number, file in enumerate((null, null, errors.fileno())):
        os.dup2(file, number)
    try:
        serve(address, master)
    except Exception:  # the first client reads it
        traceback.print_exc()
    finally:
        # Also ends the processes of ansible_run.
        sys.exit(0)


def started(address: str, master: int) -> socket.socket:
    """Start the process that serves this address, and return a connection to it."""
    with tempfile.TemporaryFile() as errors:
        child = start(address, master, errors)
        deadline = time.monotonic() + DEADLINE
        ended = False
        while not ended and time.monotonic() < deadline:
            time.sleep(0.05)
            ended = os.waitpid(child, os.WNOHANG)[0] == child
            client = connect(address)
            if client is not None:
                return client
        errors.seek(0)
        said = errors.read().decode(errors="replace").strip() or "It printed no error."
    state = "ended before it listened" if ended else f"(ID {child}) does not listen after {DEADLINE} s"
    sys.exit(f"nested.py: the process that runs ansible-playbook {state}. {said}")


def main() -> int:
    """Send the command to the process, and print what the run has printed."""
    name, argv = sys.argv[1], sys.argv[2:]
    master = owner()
    # An abstract address: no file remains.
    address = f"\0gpufleet-nested-{master}-{name}"
    client = connect(address)
    if client is None:
        client = started(address, master)
    with client, client.makefile("rw", encoding="utf-8") as file:
        file.write(json.dumps([argv, dict(os.environ), os.getcwd()]) + "\n")
        file.flush()
        status, output, errors = json.loads(file.readline())
    sys.stdout.write(output)
    sys.stderr.write(errors)
    return status


if __name__ == "__main__":
    sys.exit(main())
