# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure the cost of a converged run, compared with fact gathering. Prints tables and writes JSON.

Exit status: 0 all limits are met, 1 a limit is exceeded, 2 the measurement failed.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PLAYBOOK = ROOT / "playbooks/site.yml"
GATHER = HERE / "gather.yml"
INVENTORIES = (ROOT / "tests/sandbox/inventory.yml", HERE / "ssh.yml")

CALLS_MAX = 8
RATIO_MAX = 3.0
# Maximum ratio of the time per host in a large fleet to the time per host in a small fleet.
GROWTH_MAX = 1.25
SIZES = (1, 2, 5, 10, 25, 50)
FORKS = 10
# Connections that a host opened, and datagrams that it sent. Ansible's connections to the host do not count.
COUNTERS = (("Tcp", "ActiveOpens"), ("Udp", "OutDatagrams"))


class CannotMeasure(Exception):
    """A run failed or changed something, so its time cannot be used."""


def ansible(program: str, *arguments: str, calls: Path | None = None) -> tuple[float, subprocess.CompletedProcess[str]]:
    """Run a program of Ansible, and return its wall time and result."""
    environment = {**os.environ, "ANSIBLE_NOCOLOR": "1", "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")}
    if calls:
        environment |= {"REMOTE_CALLS": str(calls), "ANSIBLE_CALLBACK_PLUGINS": str(HERE / "callback")}
    started = time.perf_counter()
    done = subprocess.run([program, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    return time.perf_counter() - started, done


def playbook(path: Path, *arguments: str, calls: Path | None = None) -> float:
    seconds, done = ansible("ansible-playbook", *arguments, str(path), calls=calls)
    if done.returncode:
        raise CannotMeasure(f"{path.relative_to(ROOT)} failed:\n{(done.stdout + done.stderr)[-2000:]}")
    return seconds


def entries(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def counted(taken: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the executed modules, their number, and the number of changes for each host."""
    hosts: dict[str, dict[str, Any]] = {}
    for entry in taken:
        host = hosts.setdefault(entry["host"], {"modules": Counter(), "changed": 0})
        if "recap" in entry:
            host["changed"] = entry["recap"]["changed"]
        else:
            host["modules"][entry["module"]] += 1
    for host in hosts.values():
        host["calls"] = sum(host["modules"].values())
        host["modules"] = dict(host["modules"])
    return hosts


def counters(text: str) -> dict[str, int]:
    """Return the counters of /proc/net/snmp for traffic that the host initiated."""
    found: dict[str, int] = {}
    lines = text.splitlines()
    for names, values in zip(lines[::2], lines[1::2]):
        group = names.partition(":")[0]
        row = dict(zip(names.split()[1:], values.split()[1:]))
        found.update({f"{one}.{name}": int(row[name]) for one, name in COUNTERS if one == group})
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


def converged(inventory: Sequence[str], hosts: str, limit: Sequence[str]) -> dict[str, Any]:
    """Count the executed modules and the network traffic of a converged run on each host."""
    playbook(PLAYBOOK, *inventory, *limit)
    with tempfile.TemporaryDirectory() as directory:
        calls = Path(directory) / "calls.jsonl"
        before = network(inventory, hosts)
        playbook(PLAYBOOK, *inventory, *limit, calls=calls)
        sent = traffic(before, network(inventory, hosts))
        taken = counted(entries(calls))
    changed = [host for host, found in taken.items() if found["changed"]]
    if changed:
        raise CannotMeasure(f"the second run changed {', '.join(changed)}, so it is not idempotent")
    return {host: {**found, "network": sent.get(host)} for host, found in taken.items()}


def ratio(inventory: Sequence[str], limit: Sequence[str], repeats: int) -> dict[str, Any]:
    """Time a converged run and fact gathering in turns."""
    taken: dict[str, list[float]] = {"converged": [], "facts": []}
    for _turn in range(repeats):
        taken["converged"].append(playbook(PLAYBOOK, *inventory, *limit))
        taken["facts"].append(playbook(GATHER, *inventory, *limit))
    seconds = {name: round(statistics.median(values), 2) for name, values in taken.items()}
    return {
        "what": f"wall time of ansible-playbook, median of {repeats} interleaved runs",
        "seconds": seconds,
        "spread": {name: [round(min(values), 2), round(max(values), 2)] for name, values in taken.items()},
        "ratio": round(seconds["converged"] / seconds["facts"], 2),
    }


def aliases(inventory: Sequence[str], host: str, number: int, directory: Path) -> Path:
    """Write an inventory with many names for one converged host. Ansible treats each name as a separate host."""
    _seconds, done = ansible("ansible-inventory", *inventory, "--host", host)
    if done.returncode:
        raise CannotMeasure(f"the inventory has no host {host}: {done.stderr[-500:]}")
    # The variables are not templated. Replace `inventory_dir`, because the new inventory is in another directory.
    written = done.stdout.replace("{{ inventory_dir }}", str(Path(inventory[1]).resolve().parent))
    variables = {"ansible_host": host, **json.loads(written)}
    hosts = {f"{host}-{index:03}": variables for index in range(number)}
    path = directory / f"{number}.json"
    path.write_text(json.dumps({"all": {"children": {"gpu_hosts": {"hosts": hosts}}}}), encoding="utf-8")
    return path


def scale(inventory: Sequence[str], host: str, sizes: Sequence[int]) -> dict[str, Any]:
    """Time the converged run on an increasing number of hosts."""
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        for number in sizes:
            many = aliases(inventory, host, number, Path(directory))
            seconds = playbook(PLAYBOOK, "-i", str(many), "--forks", str(FORKS))
            rows.append({"hosts": number, "seconds": round(seconds, 2), "seconds_a_host": round(seconds / number, 3)})
    # With fewer hosts than forks, some cores are idle. Compare with the smallest fleet that has a host for each fork.
    full = [row for row in rows if row["hosts"] >= FORKS] or rows
    return {
        "what": f"names of one converged host ({host}), {FORKS} forks, {os.cpu_count()} cores",
        "rows": rows,
        "growth": round(rows[-1]["seconds_a_host"] / full[0]["seconds_a_host"], 2),
    }


def table(rows: Sequence[Sequence[Any]]) -> str:
    widths = [max(len(str(row[column])) for row in rows) for column in range(len(rows[0]))]
    return "\n".join("  ".join(str(cell).ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)


def mark(value: float, most: float) -> str:
    return f"{value} (limit: {most:g}, {'ok' if value <= most else 'EXCEEDED'})"


def misses(found: dict[str, Any]) -> list[str]:
    """Return the exceeded limits."""
    missed = []
    for host, taken in found.get("converged", {}).items():
        if taken["calls"] > CALLS_MAX:
            missed.append(f"{host}: {taken['calls']} module calls exceed the limit of {CALLS_MAX}")
        busy = {name: number for name, number in (taken["network"] or {}).items() if number}
        if taken["network"] is None:
            missed.append(f"{host}: its network counters could not be read")
        elif busy:
            missed.append(f"{host}: the run used the network: {busy}")
    if found.get("ratio", {}).get("ratio", 0) > RATIO_MAX:
        missed.append(
            f"the converged run takes {found['ratio']['ratio']} times as long as fact gathering (limit: {RATIO_MAX:g})"
        )
    if found.get("scale", {}).get("growth", 0) > GROWTH_MAX:
        missed.append(f"the time per host grows by {found['scale']['growth']} in a large fleet (limit: {GROWTH_MAX:g})")
    return missed


def show(found: dict[str, Any]) -> None:
    """Print the results."""
    if "converged" in found:
        rows: list[Sequence[Any]] = [("HOST", "MODULE CALLS", "CONNECTIONS", "DATAGRAMS", "MODULES")]
        for host, taken in found["converged"].items():
            sent = taken["network"] or {}
            modules = ", ".join(f"{name}{f' x{n}' if n > 1 else ''}" for name, n in taken["modules"].items())
            opened, datagrams = (sent.get(f"{group}.{name}", "?") for group, name in COUNTERS)
            rows.append((host, mark(taken["calls"], CALLS_MAX), opened, datagrams, modules))
        print(f"\nModule calls and network traffic of a converged run:\n\n{table(rows)}")
    if "ratio" in found:
        seconds = found["ratio"]["seconds"]
        print(
            f"\nConverged run {seconds['converged']} s, fact gathering {seconds['facts']} s:"
            f" {mark(found['ratio']['ratio'], RATIO_MAX)}; {found['ratio']['what']}"
        )
    if "scale" in found:
        rows = [("HOSTS", "SECONDS", "SECONDS PER HOST")]
        rows += [(row["hosts"], row["seconds"], row["seconds_a_host"]) for row in found["scale"]["rows"]]
        print(f"\nTime by fleet size, {found['scale']['what']}:\n\n{table(rows)}")
        print(f"\nGrowth of the time per host: {mark(found['scale']['growth'], GROWTH_MAX)}")
    print(f"\nFacts compared with nvidia-smi: {found.get('gpu', 'not measured')}")


def gpu(output: Path) -> str:
    """Run the acceptance's time measurement of the facts if this machine has GPUs."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests/gpu/run"), "--only", "timing", "--output", str(output)],
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if "time of facts" in line] or [done.stdout + done.stderr]
    return "this machine has no NVIDIA GPU" if done.returncode == 77 else lines[0].strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inventory", action="append", help="path of an inventory; can be repeated")
    parser.add_argument("--limit", help="limit the run to these hosts, like in ansible-playbook")
    parser.add_argument("--only", action="append", choices=["converged", "ratio", "scale", "gpu"], default=[])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--scale-host", default="sim-a100", help="the converged host that is listed under many names")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--json", type=Path, default=ROOT / "tests/output/benchmark.json")
    options = parser.parse_args()
    inventory = [word for path in options.inventory or INVENTORIES for word in ("-i", str(path))]
    limit = ["--limit", options.limit] if options.limit else []
    hosts = options.limit or "gpu_hosts"
    parts = options.only or ["converged", "ratio", "scale", "gpu"]
    found: dict[str, Any] = {"cores": os.cpu_count(), "date": time.strftime("%Y-%m-%d", time.gmtime())}
    try:
        if "converged" in parts:
            found["converged"] = converged(inventory, hosts, limit)
        if "ratio" in parts:
            found["ratio"] = ratio(inventory, limit, options.repeats)
        if "scale" in parts:
            found["scale"] = scale(inventory, options.scale_host, sorted(options.sizes))
    except CannotMeasure as problem:
        print(f"bench: {problem}", file=sys.stderr)
        return 2
    options.json.parent.mkdir(parents=True, exist_ok=True)
    if "gpu" in parts:
        found["gpu"] = gpu(options.json.parent)
    show(found)
    missed = found["missed"] = misses(found)
    options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(f"\nbench: {options.json}")
    for text in missed:
        print(f"bench: {text}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
