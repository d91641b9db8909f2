# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The checks with NVIDIA's own container toolkit: its CDI specification, and containers with its runtime.

Only the root file system of the bundle's podman has the toolkit. The checks change no file of the host, and load no
kernel module.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from acceptance import checks, toolkit
from acceptance.checks import Bench, Result
from acceptance.machine import IMAGE, PREFIX, Machine, run

NOT_CHECKED = "not checked: no --toolkit"
SPECIFICATION = "nvidia_cdi_spec against nvidia-ctk cdi generate"
RUNTIME = "nvidia-container-runtime"
CONFIG = "/etc/nvidia-container-runtime/config.toml"
LOG = "/var/log/nvidia-container-runtime.log"
LIBRARIES = "/usr/lib/nvidia-container-toolkit"
LOADER = "/etc/ld.so.conf.d/00-acceptance.conf"
OUR_FILE = Path("/etc/cdi/gpufleet-nvidia.json")
VENDORS_FILE = Path("/etc/cdi/nvidia.json")
# The keys of the role in all modes. The bundle has only crun.
KEYS = {f"{RUNTIME}.debug": LOG, f"{RUNTIME}.runtimes": ["crun", "runc"]}
PODMAN_RUNTIME = '\n[engine.runtimes]\nnvidia = ["/usr/bin/nvidia-container-runtime"]\n'


class Mode(NamedTuple):
    """A mode of the runtime: the role's keys, and the modes that the runtime may log."""

    title: str
    keys: dict[str, Any]
    logged: tuple[str, ...]
    # Whether nvidia-ctk's specification replaces that of nvidia_cdi_spec.
    vendors_file: bool = False
    # Whether the runtime must ignore the request of the container.
    ignored: bool = False


class Request(NamedTuple):
    """A value of NVIDIA_VISIBLE_DEVICES, and the GPUs that the container must see. None: the variable is not set."""

    title: str
    value: str | None
    uuids: list[str]


MODES = (
    Mode("auto", {f"{RUNTIME}.mode": "auto"}, ("jit-cdi", "legacy")),
    Mode("jit-cdi", {f"{RUNTIME}.mode": "jit-cdi"}, ("jit-cdi",)),
    Mode("cdi with the file of nvidia_cdi_spec", {f"{RUNTIME}.mode": "cdi"}, ("cdi",)),
    Mode("cdi with the file of nvidia-ctk", {f"{RUNTIME}.mode": "cdi"}, ("cdi",), vendors_file=True),
    Mode(
        "auto without requests of unprivileged containers",
        {f"{RUNTIME}.mode": "auto", "accept-nvidia-visible-devices-envvar-when-unprivileged": False},
        ("jit-cdi", "legacy"),
        ignored=True,
    ),
)
# libnvidia-container must load no kernel modules, because it would also create device nodes of the host.
LEGACY = Mode("legacy", {f"{RUNTIME}.mode": "legacy", "nvidia-container-cli.load-kmods": False}, ("legacy",))


def requests(uuids: Sequence[str], ignored: bool = False) -> list[Request]:
    """Return the first GPU by index, the last one by UUID, all GPUs, and no GPU."""
    last = len(uuids) - 1
    if ignored:
        return [Request("0, which is ignored", "0", [])]
    found = [Request("0", "0", [uuids[0]]), Request(f"UUID of GPU {last}", uuids[last], [uuids[last]])]
    if len(uuids) > 1:
        found += [Request(f"0,{last}", f"0,{last}", [uuids[0], uuids[last]]), Request("all", "all", list(uuids))]
    return [*found, Request("void", "void", []), Request("not set", None, [])]


def check(bench: Bench) -> Iterator[Result]:
    """Compare the specifications, then run containers with the runtime in each of its modes."""
    kit = bench.machine.toolkit
    if kit is None:
        yield Result(SPECIFICATION, True, NOT_CHECKED, skipped=True)
        yield Result(RUNTIME, True, NOT_CHECKED, skipped=True)
        return
    machine = bench.machine
    kit.install(machine.engine_root, LIBRARIES)
    events = machine.ansible.play("toolkit", state="present")
    ours, vendors = _our_specification(), generate(machine)
    yield _compared(kit, checks.failures(events), ours, vendors)
    share(machine, [*toolkit.host_paths(ours), *toolkit.host_paths(vendors)])
    with (machine.engine_root / "etc/containers/containers.conf").open("a", encoding="utf-8") as stream:
        stream.write(PODMAN_RUNTIME)
    configuration = toolkit.Configuration(default_config(machine), machine.ansible.collections, sys.executable)
    default = configuration.text
    for mode in MODES:
        if mode.vendors_file:
            problems = checks.failures(machine.ansible.play("toolkit", state="absent"))
            if problems:
                raise RuntimeError("; ".join(problems))
            VENDORS_FILE.write_text(json.dumps(vendors), encoding="utf-8")
        yield from _with_mode(bench, mode, configuration)
    VENDORS_FILE.unlink(missing_ok=True)
    missing = kit.missing_for_legacy()
    if missing:
        evidence = f"not checked: --toolkit has no {', no '.join(missing)}"
        yield Result(f"{RUNTIME}: legacy", True, evidence, skipped=True)
    else:
        yield from _with_mode(bench, LEGACY, configuration)
    configuration.change({})
    restored = configuration.text == default
    problems = () if restored else (f"the file is {configuration.text!r}, the toolkit's own file is {default!r}",)
    yield Result("config.toml without the role's keys", restored, "equal to the toolkit's own file", problems)


# --- the specification --------------------------------------------------------------------------------------------


def _our_specification() -> dict[str, Any]:
    return json.loads(OUR_FILE.read_text(encoding="utf-8")) if OUR_FILE.exists() else {}


def generate(machine: Machine) -> dict[str, Any]:
    """Return what nvidia-ctk of the toolkit generates on the host, with paths of the podman's root for its hooks."""
    program = machine.engine_root / "usr/bin/nvidia-ctk"
    hooks = ("--nvidia-cdi-hook-path=/usr/bin/nvidia-cdi-hook", "--ldconfig-path=/sbin/ldconfig")
    done = run([program, "cdi", "generate", "--format=json", *hooks])
    if done.returncode:
        raise RuntimeError(f"nvidia-ctk cdi generate exited {done.returncode}: {done.stderr.strip()[-500:]}")
    return json.loads(done.stdout)


def _compared(kit: toolkit.Toolkit, failures: Sequence[str], ours: dict[str, Any], vendors: dict[str, Any]) -> Result:
    devices, mounted = toolkit.compare_nodes(ours, vendors), toolkit.compare_files(ours, vendors)
    problems = (*failures, *devices.problems, *mounted.problems)
    if not ours:
        problems = (*failures, "nvidia_cdi_spec wrote no specification")
    evidence = (
        f"toolkit {kit.version}: {len(toolkit.nodes(vendors))} devices with {devices.equal} equal device nodes,"
        f" {mounted.equal} equal files, {len(mounted.notes)} known differences"
    )
    return Result(SPECIFICATION, not problems, evidence, problems, notes=tuple(mounted.notes))


# --- the runtime --------------------------------------------------------------------------------------------------


def share(machine: Machine, paths: Sequence[str]) -> None:
    """Copy the driver's files and the links to them to podman's root, and update its loader's cache."""
    root = machine.engine_root
    machine.show_to_the_engine(paths)
    libraries = {os.path.realpath(path): path for path in paths if ".so" in Path(path).name}
    directories = {str(Path(path).parent) for path in (*libraries, *libraries.values())}
    for directory in sorted(directories):
        for link in filter(Path.is_symlink, Path(directory).iterdir()):
            copy = root / str(link).lstrip("/")
            if os.path.realpath(link) in libraries and not os.path.lexists(copy):
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(link, copy, follow_symlinks=False)
    (root / LOADER.lstrip("/")).write_text("".join(f"{path}\n" for path in [*sorted(directories), LIBRARIES]), "utf-8")
    # -X: change no links, because the directory of the driver can be one of the host.
    done = machine.in_engine_root("/sbin/ldconfig", "-X")
    if done.returncode:
        raise RuntimeError(f"ldconfig exited {done.returncode}: {done.stderr.strip()[-300:]}")


def default_config(machine: Machine) -> str:
    """Create config.toml with the command of the toolkit's packages, and return its text."""
    file = machine.engine_root / CONFIG.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    command = ("/usr/bin/nvidia-ctk", "--quiet", "config", f"--config-file={CONFIG}", "--in-place")
    done = machine.in_engine_root(*command)
    if done.returncode or not file.exists():
        raise RuntimeError(f"{' '.join(command)} exited {done.returncode}: {done.stderr.strip()[-300:]}")
    return file.read_text(encoding="utf-8")


def _with_mode(bench: Bench, mode: Mode, configuration: toolkit.Configuration) -> Iterator[Result]:
    keys = {**KEYS, **mode.keys}
    configuration.change(keys)
    again = configuration.change(keys)
    (bench.machine.engine_root / CONFIG.lstrip("/")).write_text(configuration.text or "", encoding="utf-8")
    extra = [f"the second merge of config.toml changes {', '.join(again)}"] if again else []
    for number, request in enumerate(requests(bench.uuids, mode.ignored)):
        name = f"{PREFIX}runtime-{number}"
        try:
            evidence, problems = run_container(bench, mode, request, name)
        finally:
            bench.machine.remove_containers()
        problems = [*extra, *problems]
        yield Result(f"{RUNTIME}, {mode.title}: {request.title}", not problems, evidence, tuple(problems))


def run_container(bench: Bench, mode: Mode, request: Request, name: str) -> tuple[str, list[str]]:
    """Start a container with the runtime, look inside, and read the mode from the runtime's log."""
    machine = bench.machine
    log = machine.engine_root / LOG.lstrip("/")
    log.unlink(missing_ok=True)
    done = machine.engine(
        *("--runtime", "nvidia", "run", "--detach", "--name", name, "--network=none", "--cap-add=MKNOD"),
        # `sleep` as the first process ignores other signals.
        "--stop-signal=KILL",
        f"--volume={machine.shared / 'probes'}:/acceptance:ro",
        *(() if request.value is None else ("--env", f"NVIDIA_VISIBLE_DEVICES={request.value}")),
        *(IMAGE, "sleep", "infinity"),
    )
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    if done.returncode:
        problem = f"podman run exited {done.returncode}: {done.stderr.strip()[-600:]}; the runtime's log: {text[-600:]}"
        return "the container did not start", [problem]
    logged = toolkit.logged_mode(text)
    evidence, problems = checks.look_inside(bench, name, request.uuids, programs=smi_directories())
    if logged not in mode.logged:
        problems.append(f"the runtime logged mode {logged}, expected {' or '.join(mode.logged)}: {text[-300:]}")
    return f"mode {logged}; {evidence}", problems


def smi_directories() -> list[str]:
    """Return the directories of the host's nvidia-smi, at whose path NVIDIA's runtime mounts it."""
    found = shutil.which("nvidia-smi")
    return list(dict.fromkeys(str(path.parent) for path in (Path(found), Path(found).resolve()))) if found else []
