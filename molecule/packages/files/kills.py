# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kill module package_transaction or its package manager at many moments. Check that the next run completes it.

    kills.py MANAGER all                      every round of kills, one line for each
    kills.py MANAGER start REQUEST MOMENT     start the module, and print `now` when the moment has come
    kills.py MANAGER finish REQUEST MOMENT    after the host was killed: complete the transaction, and check the host

A round has three requests: install, change, and absent. After the round, the host must be as before it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from host_checks import (
    HOME,
    MANAGERS,
    SCRIPTS,
    Problem,
    check_end,
    check_packages,
    check_request,
    check_scripts,
    command,
    descendants,
    output,
    reset,
    size,
    tail,
)

SLOW, REQUESTS = HOME / "slow", HOME / "requests.log"
RECORD = Path("/var/lib/gpufleet/application.json")
MODULE = "ansible_collections.gpufleet.hosts.plugins.modules.package_transaction"
# The process that holds or releases packages.
HOLD = r"apt-mark \S*hold|dnf .*versionlock|zypper .*lock"
# Moments: seconds after the start, or what must have happened, with seconds after it.
#   view          the module reads the repository      download  the package manager downloads the large package
#   record        the record is written                process:  a process whose command line matches runs
#   script:       a script of a package began          done      the record is complete
ROUNDS = (
    ("view", "view", "0.5"),
    ("download", "view+0.3", "script:slow 2.0-1 before_removal"),
    ("record", "script:notes 1.0-1 after_removal", "script:slow 2.0-1 before_removal+1"),
    ("script:slow 1.0-1 before_install+1", "script:memo 1.0-1 after_install", "script:slow 2.0-1 after_removal+1"),
    ("script:slow 1.0-1 after_install+1", "script:slow 2.0-1 before_install+1", f"process:{HOLD}"),
    (f"process:{HOLD}", f"process:{HOLD}", "script:plugin 1.0-1 after_removal"),
    ("download+1", "script:slow 2.0-1 after_install+1", "script:app 2.0-1 before_removal"),
    ("script:slow 1.0-1 before_install", "script:agent-old 1.0-1 before_removal", "1"),
)
# The victim of the first request of the first round. Each request and each round has the next victim.
# manager: the scripts of the packages go on. transaction: they are killed, too, but the module is not.
VICTIMS = ("transaction", "module", "manager", "everything")


# --- requests ---------------------------------------------------------------------------------------------------------


def options(request: str) -> dict[str, Any]:
    """Return the options of the module."""
    if request == "absent":
        return {"record": "application", "state": "absent"}
    version = "1.0" if request == "install" else "2.0"
    found: dict[str, Any] = {
        "record": "application",
        "repositories": [
            {
                "name": "application",
                "url": "http://127.0.0.1:8080",
                "key": "http://127.0.0.1:8080/key.asc",
                "fingerprint": (HOME / "fingerprint").read_text(encoding="utf-8").strip(),
            }
        ],
        "install": [f"app={version}", "plugin", f"slow={version}", "big"],
        "hold": ["app", "slow"],
    }
    if request == "change":
        found["install"] += ["memo", "agent-new"]
        found["remove"] = ["notes", "agent-old"]
        found["may_change"] = ["plugin"]
    return found


def start(request: str) -> subprocess.Popen[bytes]:
    """Start the module in a session of its own."""
    arguments = HOME / "arguments.json"
    arguments.write_text(json.dumps({"ANSIBLE_MODULE_ARGS": options(request)}), encoding="utf-8")
    with (HOME / "module.out").open("wb") as out, (HOME / "module.err").open("wb") as err:
        return subprocess.Popen(
            [sys.executable, "-m", MODULE, str(arguments)],
            stdout=out,
            stderr=err,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": str(HOME / "python"), "PYTHONDONTWRITEBYTECODE": "1"},
        )


def result(module: subprocess.Popen[bytes]) -> dict[str, Any]:
    """Return the result of a module that runs to its end."""
    module.wait(timeout=180)
    out, err = ((HOME / f"module.{name}").read_text(encoding="utf-8") for name in ("out", "err"))
    try:
        return json.loads(out)
    except ValueError:
        return {"failed": True, "msg": f"no result: {out}{err}"}


def run(request: str) -> dict[str, Any]:
    """Run the module to its end."""
    return result(start(request))


# --- moments ----------------------------------------------------------------------------------------------------------


def has_come(moment: str, module: subprocess.Popen[bytes], began: float, requests: int, scripts: int) -> bool:
    """Return whether a moment has come. `requests` and `scripts` are the sizes of the logs before the start."""
    kind, _colon, what = moment.partition(":")
    if kind == "script":
        return f"{what} begin" in tail(SCRIPTS, scripts)
    if kind == "process":
        return any(re.search(what, command(pid)) for pid in descendants(module.pid))
    if kind == "view":
        return bool(tail(REQUESTS, requests))
    if kind == "download":
        return re.search(r"/big[_-]", tail(REQUESTS, requests)) is not None
    if kind in ("record", "done"):
        with contextlib.suppress(OSError, ValueError):
            pending = bool(json.loads(RECORD.read_text(encoding="utf-8")).get("pending"))
            return pending == (kind == "record") and RECORD.stat().st_mtime >= began
        return False
    return time.time() - began >= float(kind)


@contextlib.contextmanager
def reached(request: str, moment: str) -> Iterator[tuple[subprocess.Popen[bytes], bool]]:
    """Start the module, and wait for the moment. Scripts and downloads are slow until then."""
    event, _plus, seconds = moment.rpartition("+") if re.search(r"\+[\d.]+$", moment) else (moment, "", "0")
    requests, scripts, began = size(REQUESTS), size(SCRIPTS), time.time()
    SLOW.touch()
    module = start(request)
    try:
        while module.poll() is None and not has_come(event, module, began, requests, scripts):
            time.sleep(0.002)
        with contextlib.suppress(subprocess.TimeoutExpired):
            module.wait(timeout=float(seconds))
        yield module, module.poll() is None
    finally:
        SLOW.unlink(missing_ok=True)


def kill(module: subprocess.Popen[bytes], victim: str, manager: str) -> str:
    """Kill a victim. Return the commands of the killed processes."""
    victims = [module.pid]
    if victim in ("manager", "transaction"):
        names = MANAGERS[manager]
        victims = [
            pid
            for pid in descendants(module.pid)
            if any(os.path.basename(word) in names for word in command(pid).split()[:2])
        ]
    if victim in ("transaction", "everything"):
        known: set[int] = set()
        # Processes that are stopped start no others.
        while new := {*victims, *(child for pid in victims for child in descendants(pid))} - known:
            for pid in new:
                known.add(pid)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
        victims = sorted(known, reverse=True)
    killed = [" ".join(command(pid).split()[:4])[-60:] for pid in victims if pid != module.pid]
    for pid in victims:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    module.wait(timeout=10 if module.pid in victims else 180)
    return "; ".join(killed)


# --- rounds -----------------------------------------------------------------------------------------------------------


def complete(manager: str, request: str) -> str:
    """Run the module again until it has nothing to do, and check the host. Return what the module repaired."""
    second = run(request)
    if second.get("failed"):
        raise Problem(f"the second run failed: {second['msg']}")
    third = run(request)
    if third.get("failed") or third["changed"]:
        raise Problem(f"the third run is not without changes: {third}")
    check_packages(manager)
    check_scripts(manager)
    check_request(manager, options(request))
    if request == "absent":
        check_end(manager)
    return ", ".join(second["repaired"])


def kill_once(manager: str, request: str, moment: str, victim: str) -> str:
    """Kill a victim at a moment, complete the transaction, and describe it."""
    with reached(request, moment) as (module, runs):
        killed = kill(module, victim, manager) if runs else ""
    if not runs:
        raise Problem(f"the moment did not come: {result(module)}")
    failed = result(module).get("msg", "no error") if victim in ("manager", "transaction") else ""
    repaired = complete(manager, request)
    return "; ".join(
        filter(None, [f"killed {killed}" if killed else "", failed, f"repaired: {repaired}" if repaired else ""])
    )


def report(ok: bool, began: float, *words: str) -> None:
    """Print one line about a moment."""
    print(
        "ok  " if ok else "FAIL",
        f"{time.time() - began:5.1f} s",
        *(word.replace("\n", " ") for word in words),
        flush=True,
    )


def rounds(manager: str, only: list[int]) -> int:
    """Run all rounds. Return the number of problems."""
    problems = 0
    for number, moments in enumerate(ROUNDS):
        if only and number not in only:
            continue
        if manager == "apt":
            # apt keeps the downloaded packages of the previous round.
            output("apt-get", "clean")
        for place, (request, moment) in enumerate(zip(("install", "change", "absent"), moments)):
            victim = VICTIMS[(number + place) % len(VICTIMS)]
            began = time.time()
            name = f"{number:2} {request:7} {victim:11} {re.sub('process:.*', 'hold', moment)}:"
            try:
                report(True, began, name, kill_once(manager, request, moment, victim))
            except (Problem, subprocess.TimeoutExpired) as problem:
                report(False, began, name, str(problem))
                problems += 1
                reset(manager)
                break
    return problems


def main() -> int:
    """Run the rounds, or one part of a round that another program kills."""
    manager, action, *rest = sys.argv[1:]
    if action == "all":
        reset(manager)
        return 1 if rounds(manager, [int(word) for word in rest]) else 0
    request, moment = rest
    if manager == "apt" and action == "start" and request == "install":
        output("apt-get", "clean")
    if action == "start":
        with reached(request, moment) as (_module, runs):
            print("now" if runs else f"the moment did not come: {result(_module)}", flush=True)
            # The host is killed here.
            time.sleep(60 if runs else 0)
        return 1
    began = time.time()
    SLOW.unlink(missing_ok=True)
    try:
        report(True, began, f"{request:7} power cut  {moment}:", complete(manager, request))
    except (Problem, subprocess.TimeoutExpired) as problem:
        report(False, began, f"{request:7} power cut  {moment}:", str(problem))
        reset(manager)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
