# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run Ansible and measure time, CPU time, module executions, task results and network traffic."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SITE = ROOT / "playbooks/site.yml"
PLAYBOOKS = {
    "site": SITE,
    "gather": HERE / "gather.yml",
    "floor": HERE / "floor.yml",
    "baseline": HERE / "baseline/site.yml",
}

FORKS = 10
HUGE_FLEET = 1000
NO_GPU = 77
COUNTERS = {"Tcp": "ActiveOpens", "Udp": "OutDatagrams"}


class CannotMeasure(Exception):
    """A run failed or changed something, so its measurement cannot be used."""


class Done(NamedTuple):
    """A finished program. The CPU time includes the children of the program. The memory is the most of one process."""

    seconds: float
    cpu_seconds: float
    memory_mib: float
    result: subprocess.CompletedProcess[str]


def ansible(program: str, *arguments: str, calls: Path | None = None) -> Done:
    """Run a program of Ansible. Record its module executions and task results in the file `calls`."""
    # Molecule forces colors, which counts more than ANSIBLE_NOCOLOR.
    colors = {"ANSIBLE_NOCOLOR": "1", "ANSIBLE_FORCE_COLOR": "0"}
    environment = {**os.environ, **colors, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}
    # Python keeps bytecode by default, so Ansible's own modules are not compiled in each run.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    # The recap is parsed.
    environment["ANSIBLE_STDOUT_CALLBACK"] = "ansible.builtin.default"
    if calls:
        environment |= {"REMOTE_CALLS": str(calls), "ANSIBLE_CALLBACK_PLUGINS": str(HERE / "callback")}
    command, started = [program, *arguments], time.perf_counter()
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=errors) as process:
            _pid, status, usage = os.wait4(process.pid, 0)  # Popen.wait does not return the memory.
            seconds, process.returncode = time.perf_counter() - started, os.waitstatus_to_exitcode(status)
        for stream in (output, errors):
            stream.seek(0)
        result = subprocess.CompletedProcess(command, process.returncode, output.read(), errors.read())
    return Done(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, result)


def changes(output: str) -> dict[str, int]:
    """Return the number of changes on each host from the recap of ansible-playbook."""
    return {host: int(n) for host, n in re.findall(r"^(\S+)\s+: ok=\d+\s+changed=(\d+) ", output, flags=re.MULTILINE)}


def converge(path: Path, *arguments: str, calls: Path | None = None) -> dict[str, Any]:
    """Run a playbook, which may change the hosts. Return its time."""
    done = ansible("ansible-playbook", *arguments, str(path), calls=calls)
    name, output = path.relative_to(ROOT), done.result.stdout
    if done.result.returncode:
        raise CannotMeasure(f"{name} failed:\n{(output + done.result.stderr)[-2000:]}")
    changed = changes(output)
    if not changed:
        raise CannotMeasure(f"{name} ran on no host. Check the inventory and --limit.")
    measured = {"seconds": done.seconds, "cpu_seconds": done.cpu_seconds, "memory_mib": done.memory_mib}
    return {**measured, "hosts": len(changed), "changed": changed}


def unchanged(path: Path, *arguments: str, calls: Path | None = None) -> dict[str, Any]:
    """Run a playbook on converged hosts. Return its time."""
    run = converge(path, *arguments, calls=calls)
    changed = [host for host, number in run.pop("changed").items() if number]
    if changed:
        raise CannotMeasure(
            f"{path.relative_to(ROOT)} changed {', '.join(changed)}. The hosts are not converged, or the playbook is "
            "not idempotent."
        )
    return run


def prepare(*arguments: str) -> None:
    """Converge the hosts. The baseline adds its own files."""
    for name in ("site", "baseline"):
        converge(PLAYBOOKS[name], *arguments)


def counted(entries: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the executed modules, their number, the sent bytes, and the task results by status for each host."""
    hosts: dict[str, dict[str, Any]] = {}
    for entry in entries:
        host = hosts.setdefault(entry["host"], {"calls": 0, "sent": 0, "modules": Counter(), "results": Counter()})
        if "module" in entry:
            host["calls"] += 1
            host["modules"][entry["module"]] += 1
        elif "sent" in entry:
            host["sent"] += entry["sent"]
        else:
            host["results"][entry["result"]] += 1
    return hosts


def counters(text: str) -> dict[str, int]:
    """Return the counters of /proc/net/snmp for traffic that the host initiated."""
    found: dict[str, int] = {}
    lines = text.splitlines()
    for names, values in zip(lines[::2], lines[1::2]):
        group = names.partition(":")[0]
        if group in COUNTERS:
            row = dict(zip(names.split()[1:], values.split()[1:]))
            found[f"{group}.{COUNTERS[group]}"] = int(row[COUNTERS[group]])
    return found


def network(inventory: Sequence[str], hosts: str) -> dict[str, dict[str, int]]:
    """Return the counters of every host."""
    with tempfile.TemporaryDirectory() as tree:
        ansible("ansible", hosts, *inventory, "-m", "ansible.builtin.slurp", "-a", "src=/proc/net/snmp", "-t", tree)
        answers = {path.name: json.loads(path.read_text(encoding="utf-8")) for path in Path(tree).iterdir()}
    return {
        host: counters(base64.b64decode(answer["content"]).decode())
        for host, answer in answers.items()
        if "content" in answer
    }


def traffic(before: dict[str, dict[str, int]], after: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    return {
        host: {name: value - before[host][name] for name, value in now.items()}
        for host, now in after.items()
        if host in before
    }


def counts(
    inventory: Sequence[str], hosts: str, arguments: Sequence[str], playbooks: Iterable[str] = ("site", "baseline")
) -> dict[str, dict[str, Any]]:
    """Count module executions, task results and network traffic of the playbooks on each converged host."""
    found = {}
    for name in playbooks:
        with tempfile.TemporaryDirectory() as directory:
            calls = Path(directory) / "calls.jsonl"
            before = network(inventory, hosts)
            unchanged(PLAYBOOKS[name], *inventory, *arguments, calls=calls)
            sent = traffic(before, network(inventory, hosts))
            entries = [json.loads(line) for line in calls.read_text(encoding="utf-8").splitlines()]
        found[name] = {host: {**taken, "network": sent.get(host)} for host, taken in counted(entries).items()}
    return found


def times(arguments: Sequence[str], repeats: int) -> dict[str, list[dict[str, Any]]]:
    """Time all playbooks in turns, so that other load affects all of them."""
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in PLAYBOOKS}
    for _turn in range(repeats):
        for name, path in PLAYBOOKS.items():
            runs[name].append(unchanged(path, *arguments))
    return runs


def aliases(inventory: Sequence[str], host: str, number: int, directory: Path) -> Path:
    """Write an inventory with many names for one converged host. Ansible treats each name as a separate host."""
    result = ansible("ansible-inventory", *inventory, "--host", host).result
    if result.returncode:
        raise CannotMeasure(f"the inventory has no host {host}: {result.stderr[-500:]}")
    # The variables are not templated. Replace `inventory_dir`, because the new inventory is in another directory.
    written = result.stdout.replace("{{ inventory_dir }}", str(Path(inventory[1]).resolve().parent))
    variables = {"ansible_host": host, **json.loads(written)}
    hosts = {f"{host}-{index:03}": variables for index in range(number)}
    path = directory / f"{number}.json"
    path.write_text(json.dumps({"all": {"children": {"gpu_hosts": {"hosts": hosts}}}}), encoding="utf-8")
    return path


def scale(
    inventory: Sequence[str], host: str, sizes: Sequence[int], repeats: int, floor_size: int
) -> tuple[dict[int, list[dict[str, Any]]], list[dict[str, Any]]]:
    """Time site.yml on fleets of several sizes in turns, and the floor on a fleet of one of these sizes."""
    runs: dict[int, list[dict[str, Any]]] = {number: [] for number in sizes}
    floors: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as directory:
        fleets = {number: aliases(inventory, host, number, Path(directory)) for number in sizes}
        for turn in range(repeats):
            for number, fleet in fleets.items():
                if turn and number >= HUGE_FLEET:
                    continue  # A run takes minutes.
                options = ("-i", str(fleet), "--forks", str(FORKS))
                runs[number].append(unchanged(SITE, *options))
                if number == floor_size:
                    floors.append(unchanged(PLAYBOOKS["floor"], *options))
    return runs, floors


def gpu(output: Path) -> str:
    """Run the acceptance's time measurement of the facts if this machine has GPUs."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests/gpu/run"), "--only", "timing", "--output", str(output)],
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if "time of facts" in line] or [done.stdout + done.stderr]
    return "this machine has no NVIDIA GPU" if done.returncode == NO_GPU else lines[0].strip()
