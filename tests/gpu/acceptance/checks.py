# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The checks. Each yields results with evidence. Expected values come from nvidia-smi, never from the tested module."""

from __future__ import annotations

import itertools
import re
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from acceptance import smi
from acceptance.machine import IMAGE, PREFIX, Machine, run, smi_report

REPEATS = 15
# Seconds after which an engine kills a container that does not stop.
STOP_TIMEOUT = 10
CONTAINER_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# A UUID that no GPU has.
NOBODY = "GPU-00000000-dead-4bad-8bad-000000000000"
INJECTIONS = {
    "ghost-gpu": "expect a GPU that does not exist",
    "extra-gpu": "assign a GPU to the container that must see none",
    "wrong-fact": "change the serial number and the memory size in the output of nvidia-smi",
}


class Result(NamedTuple):
    """The result of a check."""

    check: str
    passed: bool
    evidence: str
    problems: tuple[str, ...] = ()
    seconds: float = 0.0
    # Known differences, each with its reason.
    notes: tuple[str, ...] = ()
    skipped: bool = False


class Bench:
    """Data that the checks share: the machine, the nvidia-smi report from the start, and earlier results."""

    def __init__(self, machine: Machine, report: smi.Report, inject: str | None) -> None:
        self.machine, self.report, self.inject = machine, report, inject
        self.uuids = [gpu.uuid for gpu in report.gpus]
        self.minors = {gpu.uuid: int(gpu.text("minor_number") or 0) for gpu in report.gpus}
        self.timings: dict[str, Any] = {}
        self.notes: dict[str, Any] = {}

    def expected(self) -> list[str]:
        """Return the expected UUIDs. With --inject ghost-gpu, add one that does not exist."""
        return [*self.uuids, NOBODY] if self.inject == "ghost-gpu" else list(self.uuids)


def answers(events: Sequence[dict[str, Any]], task: str) -> list[dict[str, Any]]:
    return [event for event in events if event["task"] == task]


def failures(events: Sequence[dict[str, Any]]) -> list[str]:
    """Return the error messages of the failed tasks."""
    return [
        f"{event['task']}{' ' + _label(event['item']) if event['item'] else ''}: {event['result'].get('msg', event)}"
        for event in events
        if event["status"] in ("failed", "unreachable")
    ]


def _label(item: Any) -> str:
    return str(item["name"]) if isinstance(item, dict) and "name" in item else str(item)


def changes(events: Sequence[dict[str, Any]], expected: dict[str, bool]) -> list[str]:
    """Return the tasks whose `changed` differs from the expected value."""
    problems = []
    for task, should in expected.items():
        found = answers(events, task)
        if not found:
            problems.append(f"{task}: there is no result")
        for event in found:
            if event["status"] == "ok" and bool(event["result"].get("changed")) is not should:
                what = "did not say that it changes something" if should else "says that it changed something"
                problems.append(f"{task} {_label(event['item']) if event['item'] else ''}: {what}".replace(" :", ":"))
    return problems


def so(problems: Sequence[str], claim: str) -> str:
    """Return the claim if there are no problems."""
    return "" if problems else claim


def short(uuid: str) -> str:
    return uuid[:12]


# --- facts --------------------------------------------------------------------------------------------------------


def facts(bench: Bench) -> Iterator[Result]:
    """Compare every field of nvidia_gpu_facts that `nvidia-smi -q -x` also prints."""
    before = smi_report()
    events = bench.machine.ansible.play("facts")
    after = smi_report()
    problems = failures(events)
    told = {event["task"]: event["result"] for event in events}
    found = (told.get("Gather the default facts") or {}).get("ansible_facts") or {}
    bench.notes["facts"] = found
    if bench.inject == "wrong-fact":
        for report in (before, after):
            element = report.gpus[0].element
            for path, text in (("serial", "42"), ("fb_memory_usage/total", "7 MiB")):
                node = element.find(path)
                if node is not None:
                    node.text = text
    driver = found.get("nvidia_driver") or {}
    for what, fact, printed in (
        ("nvidia_gpu_state", found.get("nvidia_gpu_state"), "ready"),
        ("nvidia_driver.version", driver.get("version"), before.top("driver_version")),
        ("nvidia_driver.cuda_version", driver.get("cuda_version"), before.top("cuda_version")),
        ("nvidia_driver.library_version", driver.get("library_version"), before.top("driver_version")),
    ):
        if fact != printed:
            problems.append(f"{what}: the fact is {fact!r}, expected {printed!r}")
    gpus = found.get("nvidia_gpus") or []
    have, want = [gpu.get("uuid") for gpu in gpus], bench.expected()
    if have != want:
        problems.append(f"nvidia_gpus: the UUIDs are {have}, expected {want}")
    equal = near = 0
    for gpu in gpus:
        sides = before.gpu(gpu.get("uuid")), after.gpu(gpu.get("uuid"))
        if None in sides:
            continue
        comparison = smi.compare(gpu, *sides)
        equal, near = equal + len(comparison.equal), near + len(comparison.near)
        problems += [f"GPU {gpu['index']} {difference}" for difference in comparison.differences]
        health = gpu.get("health") or {}
        if health.get("state") != "ok":
            problems.append(f"GPU {gpu['index']} health is {health.get('state')}: {health.get('reasons')}")
    binding = (told.get("Gather the default facts") or {}).get("nvml_binding")
    evidence = (
        f"{len(gpus)} GPUs, {equal} fields equal, {near} varying fields between the two reports of nvidia-smi;"
        f" pynvml from the {binding}"
    )
    yield Result("facts against nvidia-smi -q -x", not problems, evidence, tuple(problems))
    yield _topology((told.get("Gather the topology") or {}).get("ansible_facts") or {}, bench)


def _topology(found: dict[str, Any], bench: Bench) -> Result:
    topology = found.get("nvidia_topology") or {}
    printed = run(["nvidia-smi", "topo", "-m"]).stdout
    rows = [line.split("\t") for line in printed.splitlines() if line.lstrip("\x1b[4m").startswith("GPU")]
    relations = {"X": "self", "PIX": "pix", "PXB": "pxb", "PHB": "phb", "NODE": "node", "SYS": "sys"}
    problems = [] if topology.get("gpus") == bench.uuids else [f"nvidia_topology.gpus is {topology.get('gpus')}"]
    compared = 0
    for i, row in enumerate(rows):
        for j, cell in enumerate(word.strip() for word in row[1 : len(bench.uuids) + 1]):
            links = int(cell[2:]) if cell.startswith("NV") and cell[2:].isdigit() else 0
            try:
                have_links, have = topology["nvlinks"][i][j], topology["pcie"][i][j]
            except (KeyError, IndexError, TypeError):
                problems.append(f"nvidia_topology has no entry for GPU {i} and GPU {j}")
                continue
            compared += 1
            if cell in relations and have != relations[cell]:
                problems.append(f"GPU {i} to GPU {j}: the fact is {have}, nvidia-smi topo prints {cell}")
            if have_links != links and i != j:
                problems.append(f"GPU {i} to GPU {j}: the fact is {have_links} NVLinks, nvidia-smi topo prints {cell}")
    if compared != len(bench.uuids) ** 2:
        problems.append(f"nvidia-smi topo -m prints {compared} relations for {len(bench.uuids)} GPUs: {printed!r}")
    return Result("topology against nvidia-smi topo -m", not problems, f"{compared} relations equal", tuple(problems))


# --- timing -------------------------------------------------------------------------------------------------------


def median(seconds: Sequence[float]) -> float:
    return round(statistics.median(seconds), 4)


def interleaved(programs: dict[str, Callable[[], Any]], repeats: int = REPEATS) -> dict[str, float]:
    """Time programs in turns, so that other load affects all of them. The first round is not counted."""
    taken: dict[str, list[float]] = {name: [] for name in programs}
    for turn in range(repeats + 1):
        for name, program in programs.items():
            started = time.perf_counter()
            program()
            if turn:
                taken[name].append(time.perf_counter() - started)
    return {name: median(seconds) for name, seconds in taken.items()}


def timing(bench: Bench) -> Iterator[Result]:
    """Compare the time of the facts on the host with the time of `nvidia-smi -q -x`."""
    ansible = bench.machine.ansible
    facts_call = ansible.call("gpufleet.hosts.nvidia_gpu_facts")
    nothing = ansible.call("ansible.builtin.ping", keep=True)
    first = facts_call()
    problems = []
    if '"nvidia_gpu_state": "ready"' not in first.stdout:
        problems.append(f"the call exited {first.returncode}: {(first.stdout + first.stderr)[-300:]}")
    taken = interleaved(
        {
            "nvidia-smi -q -x": lambda: run(["nvidia-smi", "-q", "-x"]),
            "nvidia_gpu_facts": facts_call,
            "ansible.builtin.ping": nothing,
            "python3 -c pass": lambda: run([ansible.interpreter, "-c", "pass"]),
        }
    )
    ratio = taken["nvidia_gpu_facts"] / taken["nvidia-smi -q -x"]
    bench.timings["facts"] = {
        "what": (
            "Wall time of a default call of the module on the host (a Python process and its child process, which calls"
            " NVML), compared with `nvidia-smi -q -x`. The values are medians of"
            f" {REPEATS} interleaved runs after a warm-up run. ansible.builtin.ping shows the time of a module that"
            " does nothing. The time on the controller is not included."
        ),
        "seconds": taken,
        "ratio": round(ratio, 2),
    }
    evidence = (
        f"{taken['nvidia_gpu_facts'] * 1000:.0f} ms / {taken['nvidia-smi -q -x'] * 1000:.0f} ms = {ratio:.2f}"
        f" (a module that does nothing: {taken['ansible.builtin.ping'] * 1000:.0f} ms)"
    )
    if ratio > 1.0:
        problems.append(f"the ratio is {ratio:.2f}, more than 1.0")
    yield Result("time of facts against nvidia-smi", not problems, evidence, tuple(problems))


def container_timing(bench: Bench) -> Iterator[Result]:
    """Compare the start time of a container with a GPU with that of a container without one."""
    engine = bench.machine.engine
    made = bench.notes.get("volume") or {}
    device = [f"--device=nvidia.com/gpu={bench.uuids[0]}"] if engine.name == "podman" else []
    plain = [
        *([f"--volume={made['mount']}"] if made else []),
        *(f"--device=/dev/{node}" for node in ("nvidiactl", "nvidia-uvm", f"nvidia{bench.minors[bench.uuids[0]]}")),
    ]
    begin, end = ("run", "--rm", "--network=none"), (IMAGE, "sleep", "0")
    ways = {"without a GPU": (), "with a GPU by volume": plain}
    if device:
        ways["with a GPU by CDI"] = device
    problems = []
    for name, options in ways.items():
        done = engine(*begin, *options, *end)
        if done.returncode:
            problems.append(f"{name}: {engine.name} run exited {done.returncode}: {done.stderr.strip()[-300:]}")
    taken = interleaved({name: lambda o=options: engine(*begin, *o, *end) for name, options in ways.items()}, 5)
    bench.timings["container_start"] = {
        "what": f"`{engine.name} run --rm IMAGE sleep 0`, start to end; medians of 5 interleaved runs.",
        "seconds": taken,
        "ratio": {name: round(taken[name] / taken["without a GPU"], 2) for name in ways if name != "without a GPU"},
    }
    evidence = ", ".join(f"{name} {seconds * 1000:.0f} ms" for name, seconds in taken.items())
    yield Result("container start with and without a GPU", not problems, evidence, tuple(problems))


# --- volume, CDI, CUDA --------------------------------------------------------------------------------------------


def volume(bench: Bench) -> Iterator[Result]:
    """Create the driver volume, and check that it is complete."""
    machine = bench.machine
    events = machine.ansible.play("volume", volumes=str(machine.volumes), engine=machine.engine.name)
    problems = failures(events) + changes(events, {"Predict": True, "Make": True, "Make again": False})
    made = next((event["result"].get("volume") for event in answers(events, "Make")), None) or {}
    bench.notes["volume"] = made
    version = bench.report.top("driver_version")
    if made.get("version") != version or made.get("name") != f"nvidia_driver_{version}":
        problems.append(
            f"the volume is {made.get('name')} with version {made.get('version')}, but the driver version is {version}"
        )
    place = Path(made.get("path") or "/nonexistent")
    for library in ("libcuda.so.1", "libnvidia-ml.so.1", "libnvidia-ptxjitcompiler.so.1"):
        file = place / "lib64" / library
        if not file.exists():
            problems.append(f"{file} does not exist")
        elif file.resolve().parent != (place / "lib64").resolve():
            problems.append(f"{file} points out of the volume, to {file.resolve()}")
    listed = machine.engine("volume", "inspect", made.get("name", "?"))
    if listed.returncode:
        problems.append(f"{machine.engine.name} volume inspect failed: {listed.stderr.strip()}")
    evidence = (
        f"{made.get('name')}: {len(made.get('libraries') or [])} libraries,"
        f" {len(made.get('binaries') or [])} programs, {(made.get('total_bytes') or 0) >> 20} MiB"
        f" ({(made.get('hard_linked_bytes') or 0) >> 20} MiB hard-linked)"
    )
    evidence += so(problems, "; check mode correct, created, second run unchanged")
    yield Result("nvidia_driver_volume", not problems, evidence, tuple(problems))


def cdi(bench: Bench) -> Iterator[Result]:
    """Create the CDI specification, and check that it names every GPU."""
    machine = bench.machine
    events = machine.ansible.play("cdi", volumes=str(machine.volumes))
    problems = failures(events) + changes(events, {"Predict": True, "Write": True, "Write again": False})
    files = [path for place in ("/etc/cdi", "/run/cdi") for path in sorted(Path(place).glob("*"))]
    text = "".join(path.read_text(encoding="utf-8", errors="replace") for path in files if path.is_file())
    machine.show_to_the_engine(host_paths(text))
    problems += [f"no CDI specification names {uuid}" for uuid in bench.expected() if uuid not in text]
    evidence = ", ".join(map(str, files)) or "no file"
    evidence += so(problems, f" names all {len(bench.uuids)} GPUs; check mode correct, written, second run unchanged")
    yield Result("nvidia_cdi_spec", not problems, evidence, tuple(problems))


def host_paths(specification: str) -> list[str]:
    """Return the host paths that a CDI specification in JSON mounts."""
    return re.findall(r'"hostPath": *"(/[^"]+)"', specification)


def cuda(bench: Bench) -> Iterator[Result]:
    """Probe CUDA on the host."""
    events = bench.machine.ansible.play("cuda", missing=NOBODY)
    problems = failures(events)
    probe = next((event["result"] for event in answers(events, "Probe")), {})
    problems += cuda_problems(probe, bench.expected())
    absent = next((event["result"] for event in answers(events, "Probe a missing GPU")), {})
    words = next((gpu.get("result") for gpu in absent.get("gpus") or []), None)
    if absent.get("passed") is not False or "CUDA does not list GPU" not in str(words):
        problems.append(f"the result for a missing GPU is {words!r}")
    yield Result("nvidia_cuda_probe on the host", not problems, cuda_evidence(probe), tuple(problems))


def cuda_problems(probe: dict[str, Any], uuids: Sequence[str]) -> list[str]:
    """Return the reasons why a probe did not pass on exactly these GPUs."""
    problems = [f"CUDA: {probe['error']}"] if probe.get("error") else []
    shown = [gpu.get("uuid") for gpu in probe.get("gpus") or []]
    if sorted(map(str, shown)) != sorted(uuids):
        problems.append(f"CUDA shows {shown}, expected {list(uuids)}")
    problems += [
        f"CUDA on {gpu.get('uuid')}: {gpu.get('result')}" for gpu in probe.get("gpus") or [] if not gpu.get("passed")
    ]
    return problems


def cuda_evidence(probe: dict[str, Any]) -> str:
    gpus = probe.get("gpus") or []
    passed = [gpu for gpu in gpus if gpu.get("passed")]
    kernel = max((gpu.get("kernel_ms") or 0 for gpu in passed), default=0)
    return f"{len(passed)} of {len(gpus)} GPUs PASS (CUDA {probe.get('cuda_version')}, kernel at most {kernel:.0f} ms)"


# --- containers ---------------------------------------------------------------------------------------------------


class Wanted(NamedTuple):
    """A container, and the GPUs that it must see."""

    name: str
    isolation: str
    gpus: Any
    uuids: list[str]

    @property
    def given(self) -> str:
        return "none" if self.gpus == "none" else "all" if self.gpus == "all" else f"{len(self.gpus)}"


def wanted_containers(bench: Bench, isolation: str) -> list[Wanted]:
    """Return containers for each single GPU, each pair, all GPUs and no GPU. Alternate between indexes and UUIDs."""
    everything = list(enumerate(bench.uuids))
    sets = [[one] for one in everything]
    sets += [list(pair) for pair in itertools.combinations(everything, 2)]
    found = []
    for number, members in enumerate(sets):
        uuids = [uuid for _index, uuid in members]
        # Pass strings. A template would convert indexes to numbers, and the module accepts both.
        gpus = uuids if number % 2 else [str(index) for index, _uuid in members]
        label = "-".join(str(index) for index, _uuid in members)
        found.append(Wanted(f"{PREFIX}{isolation}-{label}", isolation, gpus, uuids))
    found.append(Wanted(f"{PREFIX}{isolation}-all", isolation, "all", list(bench.uuids)))
    found.append(Wanted(f"{PREFIX}{isolation}-none", "auto", "none", []))
    return found


def containers(bench: Bench, isolation: str) -> Iterator[Result]:
    """Start containers with every set of GPUs. In each, check the visible GPUs, the access to devices, and CUDA."""
    machine = bench.machine
    wanted = wanted_containers(bench, isolation)
    asked = [{"name": one.name, "gpus": one.gpus, "isolation": one.isolation} for one in wanted]
    if bench.inject == "extra-gpu":
        # The last container must see no GPU. Assign one to it.
        asked[-1].update(gpus=["0"], isolation=isolation)
    if bench.inject == "ghost-gpu":
        wanted[0] = wanted[0]._replace(uuids=[*wanted[0].uuids, NOBODY])
    common = {
        "engine": machine.engine.name,
        "image": IMAGE,
        "probes": str(machine.shared / "probes"),
        "volumes": str(machine.volumes),
    }
    events = machine.ansible.play_parts("containers", "containers", asked, **common)
    started = [event for event in answers(events, "Start") if event["status"] == "ok"]
    by_name = {_label(event["item"]): event for event in events if event["task"] == "Start" and event["item"]}
    overall = [text for text in failures(events) if not any(one.name in text for one in wanted)]
    for one in wanted:
        mine = [event for event in events if event["item"] and _label(event["item"]) == one.name]
        problems = failures(mine) + changes(mine, {"Predict": True, "Start": True, "Start again": False})
        evidence, more = _look_inside(bench, one, (by_name.get(one.name) or {}).get("result") or {})
        problems += more
        what = "no GPU" if not one.uuids else "GPU " + ", ".join(one.name.rpartition(f"{isolation}-")[2].split("-"))
        yield Result(f"gpu_container by {isolation}: {what}", not problems, evidence, tuple(problems))
    names = [one.name for one in wanted]
    events = machine.ansible.play_parts("remove", "names", names, engine=machine.engine.name)
    overall += failures(events) + changes(events, {"Remove": True, "Remove again": False})
    overall += slow_stops(events)
    left = machine.engine.containers()
    overall += [f"{name} still exists" for name in left]
    machine.remove_containers()
    yield Result(
        f"removal of containers by {isolation}",
        not overall,
        f"{len(started)} started{so(overall, ', all removed, second removal unchanged')}",
        tuple(overall),
    )


def slow_stops(events: Sequence[dict[str, Any]]) -> list[str]:
    """Return the containers that the engine had to kill because they did not stop."""
    return [
        f"the removal of {event['item']} took {event['seconds']:.0f} s: the engine killed the container"
        for event in answers(events, "Remove")
        if event["seconds"] >= STOP_TIMEOUT
    ]


def _look_inside(bench: Bench, wanted: Wanted, result: dict[str, Any]) -> tuple[str, list[str]]:
    evidence, problems = look_inside(bench, wanted.name, wanted.uuids)
    assigned = (result.get("gpu_assignment") or {}).get("uuids")
    if result and sorted(assigned or []) != sorted(wanted.uuids):
        problems.append(f"gpu_assignment.uuids is {assigned}, expected {wanted.uuids}")
    return evidence, problems


def look_inside(
    bench: Bench, container: str, uuids: Sequence[str], programs: Sequence[str] = ()
) -> tuple[str, list[str]]:
    """Return what a container sees, and its problems. `programs` are more directories of its PATH."""
    minors = sorted(bench.minors.values())
    path = ("env", f"PATH={':'.join((*programs, CONTAINER_PATH))}") if programs else ()
    seen = bench.machine.engine.inside(
        container, *path, "python3", "/acceptance/inside.py", "--minors", ",".join(map(str, minors))
    )
    if "nvml" not in seen:
        return "the probe did not run in the container", [f"in {container}: {seen.get('error')}"]
    problems = judge_inside(seen, uuids, bench.minors)
    others = [minor for uuid, minor in bench.minors.items() if uuid not in uuids]
    denied = ", ".join(f"nvidia{minor}: {seen['own'][str(minor)]}" for minor in others) or "no other GPU"
    shown = ", ".join(short(uuid) for uuid in seen["nvml"]["uuids"]) or "none"
    work = cuda_evidence(seen["cuda"]) if uuids else "CUDA shows no GPU"
    return f"NVML: {shown}; created nodes of other GPUs: {denied}; {work}", problems


def judge_inside(seen: dict[str, Any], uuids: Sequence[str], minors: dict[str, int]) -> list[str]:
    """Return the problems of a container: it must see and use exactly the assigned GPUs."""
    problems = []
    for source in ("nvml", "nvml_without_environment", "smi", "nvml_afterwards"):
        shown = (seen.get(source) or {}).get("uuids") or []
        if sorted(shown) != sorted(uuids):
            error = (seen.get(source) or {}).get("error")
            problems.append(f"{source} shows {shown}, expected {list(uuids)}{f' ({error})' if error else ''}")
    for uuid, minor in minors.items():
        opened = seen["given"].get(str(minor))
        own = [seen[way].get(str(minor)) for way in ("own", "own_elsewhere")]
        if uuid in uuids and opened != "opens":
            problems.append(f"/dev/nvidia{minor} was given and cannot be opened: {opened}")
        if uuid not in uuids and opened != "ENOENT":
            problems.append(f"/dev/nvidia{minor} was not given and is there: {opened}")
        if uuid not in uuids and not all(str(word).endswith(("EPERM", "EACCES")) for word in own):
            problems.append(f"GPU {minor} was not given, and a node that the container made itself: {', '.join(own)}")
    cuda_probe = seen.get("cuda") or {}
    if uuids:
        problems += cuda_problems(cuda_probe, uuids)
    elif cuda_probe.get("gpus"):
        problems.append(f"CUDA shows {[gpu.get('uuid') for gpu in cuda_probe['gpus']]} in a container without a GPU")
    return problems


# --- exclusive ----------------------------------------------------------------------------------------------------


def exclusive(bench: Bench) -> Iterator[Result]:
    """Request exclusive GPUs: two containers at the same time, then one that requests more GPUs than are free."""
    machine = bench.machine
    common = {
        "engine": machine.engine.name,
        "image": IMAGE,
        "probes": str(machine.shared / "probes"),
        "volumes": str(machine.volumes),
    }
    names = [f"{PREFIX}exclusive-{letter}" for letter in "ab"]
    played: dict[str, list[dict[str, Any]]] = {}

    def play(name: str, gpus: int) -> None:
        played[name] = machine.ansible.play("exclusive", container=name, gpus=gpus, **common)

    threads = [threading.Thread(target=play, args=(name, 1)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    held = {
        name: (event["result"].get("gpu_assignment") or {}).get("uuids") or []
        for name in names
        for event in answers(played[name], "Start")
        if event["status"] == "ok"
    }
    problems = []
    room = min(len(names), len(bench.expected()))
    if len(held) != room:
        problems.append(f"{len(held)} of {len(names)} containers got a GPU, expected {room}")
        problems += [text for name in names for text in failures(played[name])]
    given = [uuid for uuids in held.values() for uuid in uuids]
    if len(set(given)) != len(given) or len(given) != len(held):
        problems.append(f"each container must have its own GPU, found {held}")
    problems += [text for name in held for text in changes(played[name], {"Start": True, "Start again": False})]
    probes: dict[str, dict[str, Any]] = {}

    def look(name: str) -> None:
        minors = ",".join(map(str, sorted(bench.minors.values())))
        probes[name] = machine.engine.inside(name, "python3", "/acceptance/inside.py", "--minors", minors)

    threads = [threading.Thread(target=look, args=(name,)) for name in held]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name, seen in probes.items():
        if "nvml" in seen:
            problems += [f"{name}: {text}" for text in judge_inside(seen, held[name], bench.minors)]
        else:
            problems.append(f"{name}: {seen.get('error')}")
    where = ", ".join(f"{name[-1]} has {' '.join(map(short, uuids))}" for name, uuids in held.items())
    refused = [text for name in names if name not in held for text in failures(played[name])]
    problems += [
        f"the error does not name a container that holds a GPU: {text}"
        for text in refused
        if not any(name in text for name in held)
    ]
    evidence = (
        where
        + so(problems, "; CUDA computes in all containers at the same time")
        + (f"; rejected: {refused[0][:160]}" if refused else "")
    )
    yield Result("two exclusive containers at the same time", not problems, evidence, tuple(problems))

    too_many = f"{PREFIX}exclusive-c"
    events = machine.ansible.play("exclusive", container=too_many, gpus=len(bench.uuids), **common)
    said = " ".join(failures(events))
    problems = [] if said else [f"{too_many} got {len(bench.uuids)} GPUs although other containers hold some of them"]
    if said and (not held or not all(name in said for name in held)):
        problems.append(f"the error does not name the containers {sorted(held)}: {said[:300]}")
    yield Result("too many exclusive GPUs are rejected", not problems, said[:200], tuple(problems))
    machine.remove_containers()


# --- roles, clean -------------------------------------------------------------------------------------------------


def roles(bench: Bench) -> Iterator[Result]:
    """Run the roles in check mode. They must adopt the installed driver and daemon, and change nothing."""
    for play, what in (("driver", "nvidia_driver, preinstalled"), ("persistenced", "nvidia_persistenced")):
        events = bench.machine.ansible.play(play, check=True)
        problems = failures(events)
        problems += [
            f"{event['task']} would change something: {event['result'].get('msg') or event['result'].get('diff')}"
            for event in events
            if event["status"] == "ok" and event["result"].get("changed")
        ]
        done = len([event for event in events if event["status"] == "ok"])
        evidence = f"{done} tasks{so(problems, ', nothing to change')}"
        yield Result(f"check mode of {what}", not problems, evidence, tuple(problems))


def clean(bench: Bench) -> Iterator[Result]:
    """Remove the CDI specification and the volume."""
    machine = bench.machine
    events = machine.ansible.play("clean", volumes=str(machine.volumes), engine=machine.engine.name)
    problems = failures(events)
    for what in ("specification", "volume"):
        problems += changes(events, {f"Remove the {what}": True, f"Remove the {what} again": False})
    left = [str(path) for place in ("/etc/cdi", "/run/cdi") for path in Path(place).glob("*gpufleet*")]
    left += [str(path) for path in machine.volumes.rglob("*") if path.is_file() and path.suffix != ".lock"]
    problems += [f"{path} still exists" for path in left[:10]]
    claim = so(problems, "removed, second removal unchanged")
    yield Result("removal of specification and volume", not problems, claim, tuple(problems))


def nvidia_toolkit(bench: Bench) -> Iterator[Result]:
    """Compare with NVIDIA's own container toolkit, and run containers with its runtime."""
    from acceptance import toolkit_checks  # noqa: PLC0415 - it uses this module

    yield from toolkit_checks.check(bench)


def pytorch(bench: Bench) -> Iterator[Result]:
    """Run PyTorch of the host in containers, and compare its speed with the host."""
    from acceptance import framework_checks  # noqa: PLC0415 - it uses this module

    yield from framework_checks.check(bench)


# The checks run in this order.
CHECKS: dict[str, Callable[[Bench], Iterator[Result]]] = {
    "facts": facts,
    "timing": timing,
    "cuda": cuda,
    "volume": volume,
    "cdi": cdi,
    "containers-volume": lambda bench: containers(bench, "volume"),
    "containers-cdi": lambda bench: containers(bench, "cdi"),
    "start": container_timing,
    "exclusive": exclusive,
    "framework": pytorch,
    "clean": clean,
    "roles": roles,
    "toolkit": nvidia_toolkit,
}
# The checks that must run before a check.
NEEDS = {
    "containers-volume": ("volume",),
    "containers-cdi": ("volume", "cdi"),
    "start": ("volume", "cdi"),
    "exclusive": ("volume",),
    "framework": ("volume",),
    "clean": ("volume", "cdi"),
}


def chosen(only: Sequence[str]) -> list[str]:
    """Return the requested checks and the checks that they depend on, in order."""
    if not only:
        return list(CHECKS)
    names = set(only) | {need for name in only for need in NEEDS.get(name, ())}
    return [name for name in CHECKS if name in names]


def perform(bench: Bench, names: Sequence[str], say: Callable[[Result], None]) -> list[Result]:
    """Run checks. An exception in a check is reported as a failed result."""
    results = []
    for name in names:
        started = time.monotonic()
        try:
            for result in CHECKS[name](bench):
                now = time.monotonic()
                timed = result._replace(seconds=round(now - started, 1))
                started = now
                results.append(timed)
                say(timed)
        except Exception as error:
            kind, line = type(error).__name__, _where(sys.exc_info()[2])
            broken = Result(name, False, f"the check raised {kind}", (f"{kind} at {line}: {error}",))
            results.append(broken._replace(seconds=round(time.monotonic() - started, 1)))
            say(results[-1])
    return results


def _where(trace: Any) -> str:
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}" if trace else "?"
