# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare what remains on a simulated host after a lost SSH connection or Ctrl-C, with and without the progress lines.

Two runs at once execute a long command on the same host: one with module command, one with reported_task, which prints
lines meanwhile. Exit status: 0 reported_task leaves no more processes than command, 1 it does, 2 nothing was measured.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

COMMANDS = {"command": "61.25", "reported_task": "61.75"}
PLAY = """
- hosts: all
  gather_facts: false
  tasks:
    - ansible.builtin.command: {argv: [sleep, "61.25"]}
      when: module == 'command'
    - gpufleet.hosts.reported_task:
        module: ansible.builtin.command
        arguments: {argv: [sleep, "61.75"]}
        text: sleeping
      when: module == 'reported_task'
"""
# The host is asked what it does every 10 seconds.
LONG_ENOUGH = 12


def processes(host: str) -> list[tuple[int, str]]:
    """Return the processes of the host: their numbers on the host, and their command lines."""
    # `docker top` needs `ps` on this machine. The images of the hosts contain it.
    command = ["docker", "exec", host, "ps", "-e", "--no-headers", "-o", "pid,args"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return [(int(number), words) for number, words in (line.split(maxsplit=1) for line in lines)]


def counts(host: str) -> dict[str, int]:
    """Return how many processes of the host belong to each of the two commands: the command and its parents."""
    lines = [words for _pid, words in processes(host)]
    return {module: sum(f"sleep {number}" in line for line in lines) for module, number in COMMANDS.items()}


def connections(directory: str) -> list[int]:
    """Return the processes of SSH on this machine that use a directory for their shared connection."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue  # it has ended
        if Path(words[0].decode(errors="replace").split(":")[0]).name == "ssh" and directory.encode() in b" ".join(
            words
        ):
            found.append(int(path.parent.name))
    return found


def kill(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
            os.kill(pid, signal.SIGKILL)


def wait(until, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not until() and time.monotonic() < end:
        time.sleep(0.5)
    return bool(until())


def measure(inventory: list[str], host: str, way: str) -> str | None:
    """Interrupt two runs in one way. Return what is wrong, or None."""
    before = {pid for pid, _words in processes(host)}
    with tempfile.TemporaryDirectory() as directory:
        play = Path(directory, "play.yml")
        play.write_text(PLAY, encoding="utf-8")
        shared = Path(directory, "cp")
        shared.mkdir(mode=0o700)
        environment = {**os.environ, "ANSIBLE_SSH_CONTROL_PATH_DIR": str(shared), "ANSIBLE_SSH_RETRIES": "0"}
        runs = [
            subprocess.Popen(
                ["ansible-playbook", *inventory, "--limit", host, "-e", f"module={module}", str(play)],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            for module in COMMANDS
        ]
        try:
            if not wait(lambda: all(counts(host).values()), 120):
                raise SystemExit(f"lost_connection: the commands did not start on {host}: {counts(host)}")
            time.sleep(LONG_ENOUGH)
            if way == "connection":
                kill(connections(str(shared)))
            else:
                for run in runs:
                    os.killpg(run.pid, signal.SIGINT)
            for run in runs:
                run.wait(timeout=120)
            time.sleep(3)
            left = counts(host)
            readers = [words for pid, words in processes(host) if pid not in before and "gpufleet/progress" in words]
        finally:
            for run in runs:
                if run.poll() is None:
                    os.killpg(run.pid, signal.SIGKILL)
            kill(connections(str(shared)))
            sleeping = [str(pid) for pid, words in processes(host) if words.startswith("sleep 61.")]
            if sleeping:
                subprocess.run(["docker", "exec", host, "kill", "-KILL", *sleeping], check=False)
    print(f"{host}, {way}: processes that remain: {left}")
    if left["reported_task"] > left["command"] or readers:
        return f"{way}: {left}, {readers}"
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inventory", action="append", required=True, help="path of an inventory; can be repeated")
    parser.add_argument("--host", required=True, help="a simulated host with SSH")
    options = parser.parse_args()
    inventory = [word for path in options.inventory for word in ("-i", path)]
    try:
        wrong = [measure(inventory, options.host, way) for way in ("connection", "interrupt")]
    except (OSError, subprocess.SubprocessError) as problem:
        print(f"lost_connection: {problem}", file=sys.stderr)
        return 2
    for sentence in filter(None, wrong):
        print(f"lost_connection: more processes remain than without progress lines: {sentence}", file=sys.stderr)
    return 1 if any(wrong) else 0


if __name__ == "__main__":
    sys.exit(main())
