# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the demo: start the simulated fleet, run playbooks/site.yml, print a table of the fleet, and start containers."""

from __future__ import annotations

import argparse
import json
import re
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RECAP = re.compile(r"^(?P<host>\S+)\s*:\s*(?P<counts>(?:\w+=\d+\s*)+)$")
COLUMNS = ("host", "os", "gpus", "driver", "state", "engine", "changed")
ANSI = re.compile(r"\x1b\[[0-9;]*m")


def play(*arguments: str) -> tuple[int, dict[str, dict[str, int]]]:
    """Run a playbook, print its output, and return its exit status and the recap by host."""
    recap: dict[str, dict[str, int]] = {}
    with subprocess.Popen(
        ["ansible-playbook", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        errors="replace",
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            sys.stdout.write(line)
            sys.stdout.flush()
            match = RECAP.match(ANSI.sub("", line).strip())
            if match:
                pairs = (pair.split("=") for pair in match["counts"].split())
                recap[match["host"]] = {key: int(value) for key, value in pairs}
    return process.returncode, recap


def ask(inventory: str, module: str) -> dict[str, dict]:
    """Run a module on every host, in one ad-hoc call, and return its results by host."""
    with tempfile.TemporaryDirectory() as tree:
        subprocess.run(
            ["ansible", "gpu_hosts", "-i", inventory, "-m", module, "--tree", tree],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            check=False,
        )
        return {path.name: json.loads(path.read_text()) for path in Path(tree).iterdir()}


def models(devices: list[dict]) -> str:
    """Return how many devices a host has of each model. Partitions of a divided GPU follow the whole ones."""
    whole = [item for item in devices if item["partition"]["id"] is None]
    names = ", ".join(sorted({item["model"] or "?" for item in devices}))
    partitions = len(devices) - len(whole)
    parts = [f"{len(whole)} x {names}"] if whole else []
    if partitions:
        parts.append(f"{partitions} partitions" if whole else f"{partitions} partitions of {names}")
    return ", ".join(parts) or "0"


def row(host: str, facts: dict, observed: dict, changed: int | None) -> dict[str, str]:
    """Return the table row of a host. `facts`: those of accelerator_facts."""
    vendors = facts.get("accelerator_vendors") or {}
    found = {name: one for name, one in vendors.items() if one["state"] != "no_hardware"}
    devices = facts.get("accelerators") or []
    platform = observed.get("os") or {}
    engines = [(name, (observed.get("engines") or {}).get(name)) for name in ("docker", "podman")]
    engine = ", ".join(f"{name} {item['version']}" for name, item in engines if item and item.get("version")) or "none"
    return {
        "host": host,
        "os": " ".join(str(platform.get(key)) for key in ("id", "version") if platform.get(key)) or "?",
        "gpus": "; ".join(models([one for one in devices if one["vendor"] == name]) for name in found) or "0",
        "driver": ", ".join(one["driver_version"] for one in found.values() if one["driver_version"]) or "none",
        "state": ", ".join(one["state"] for one in found.values()) or ("no_hardware" if vendors else "unreachable"),
        "engine": engine,
        "changed": "?" if changed is None else str(changed),
    }


def table(rows: list[dict[str, str]]) -> str:
    """Format rows as a table with aligned columns."""
    widths = {column: max(len(column), *(len(item[column]) for item in rows)) for column in COLUMNS}
    lines = ["  ".join(column.upper().ljust(widths[column]) for column in COLUMNS)]
    lines += ["  ".join(item[column].ljust(widths[column]) for column in COLUMNS) for item in rows]
    return "\n".join(line.rstrip() for line in lines)


# Options of `docker run`, and the indexes of the GPUs that the container then has. None: all.
REQUESTS = (
    (("--gpus", "all"), None),
    (("--gpus", '"device=1"'), (1,)),
    (("--runtime", "nvidia", "--env", "NVIDIA_VISIBLE_DEVICES=0,2"), (0, 2)),
    (("--device", "nvidia.com/gpu=3"), (3,)),
)
IMAGE = "localhost/gpu-client:latest"


def docker(host: str, *arguments: str) -> tuple[int, str]:
    """Run Docker's client on a host, and return its exit status with its output, or with its error.

    A container's runtime writes its own warnings to the standard error.
    """
    command = ["docker", "exec", host, "docker", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, (done.stderr if done.returncode else done.stdout).strip()


def containers(host: str, uuids: list[str]) -> list[tuple[str, str, bool]]:
    """Start a container for each request that Docker supports. Return request, seen GPUs and whether they are right."""
    if '"nvidia"' not in docker(host, "info", "--format", "{{json .Runtimes}}")[1]:
        return []
    status, directories = docker(host, "info", "--format", "{{json .CDISpecDirs}}")
    has_cdi = not status and directories not in ("null", "[]")
    found = []
    for options, indexes in REQUESTS:
        wanted = uuids if indexes is None else [uuids[index] for index in indexes if index < len(uuids)]
        if (options[0] == "--device" and not has_cdi) or (indexes and len(wanted) < len(indexes)):
            continue
        status, output = docker(host, "run", "--rm", *options, IMAGE)
        is_right = not status and output.splitlines() == wanted
        numbers = ", ".join(str(uuids.index(line)) if line in uuids else line for line in output.splitlines())
        found.append((f"docker run {shlex.join(options)}", f"GPU {numbers}", is_right))
    return found


def amd_containers(host: str, devices: list[dict]) -> list[tuple[str, str, bool]]:
    """Start a container with the last GPU or partition of AMD, through CDI. The results are those of `containers`."""
    if not devices or docker(host, "info", "--format", "{{json .CDISpecDirs}}")[1] in ("null", "[]", ""):
        return []
    device = devices[-1]
    option = f"gpufleet-amd/gpu={device['stable_id'].replace('/', '-')}"
    status, output = docker(host, "run", "--rm", "--device", option, IMAGE, "ls", "/dev/dri")
    nodes = [node["path"] for node in device["nodes"] if node["path"].startswith("/dev/dri/")]
    is_right = not status and sorted(f"/dev/dri/{name}" for name in output.split()) == sorted(nodes)
    return [(f"docker run --device {option}", ", ".join(output.splitlines()), is_right)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inventory", default="tests/sandbox/inventory.yml")
    inventory = parser.parse_args().inventory
    started = time.monotonic()

    status, _recap = play("-i", inventory, "tests/sandbox/up.yml")
    if status:
        print(
            "demo: The simulated hosts did not start. Fix the error above, then run `make demo` again.",
            file=sys.stderr,
        )
        return status
    status, recap = play("-i", inventory, "playbooks/site.yml")

    read = ask(inventory, "gpufleet.hosts.accelerator_facts")
    facts = {host: result.get("ansible_facts", {}) for host, result in read.items()}
    seen = ask(inventory, "gpufleet.hosts.gpu_host_info")
    rows = [
        row(host, facts[host], seen.get(host, {}).get("host", {}), recap.get(host, {}).get("changed"))
        for host in sorted(facts)
    ]
    if rows:
        print(f"\nThe fleet after {time.monotonic() - started:.0f} s:\n\n{table(rows)}\n")
        for item in rows:
            devices = [one for one in facts[item["host"]].get("accelerators") or [] if one["index"] is not None]
            uuids = [one["stable_id"] for one in devices if one["vendor"] == "nvidia"]
            started_containers = containers(item["host"], uuids) if uuids else []
            started_containers += amd_containers(item["host"], [one for one in devices if one["vendor"] == "amd"])
            for request, seen_gpus, is_right in started_containers:
                print(f"{item['host']}: {request} sees {seen_gpus}{'' if is_right else ', which is wrong'}")
                status = status or int(not is_right)
        print()
        example = next((item["host"] for item in rows if item["state"] == "ready"), rows[0]["host"])
        print(f"Open a shell on a host: docker exec -it {example} bash")
        print(f"Show its GPU facts:     .venv/bin/ansible {example} -i {inventory} -m gpufleet.hosts.accelerator_facts")
        print("Repeat the demo:        make demo   (every host then reports changed=0)")
        print("Remove the hosts:       make sandbox-down   (make clean also removes their images)")
    if status:
        print(
            "demo: playbooks/site.yml or a container failed. Fix the error above, then run `make demo` again.",
            file=sys.stderr,
        )
    return status


if __name__ == "__main__":
    sys.exit(main())
