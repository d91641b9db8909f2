# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The CUDA probe: check every GPU in a child process with a time limit, and report the results.

A driver that hangs or crashes ends the child process only. The failure is reported like any other result.

The probe also runs without Ansible, for example in a container. Add the directory that contains `ansible_collections`
to PYTHONPATH and run `python3 -m ansible_collections.gpufleet.hosts.plugins.module_utils.cuda.probe`, which prints
the result as JSON. For this reason, this file, probe_gpu_checks.py, probe_matrix_speed.py and libcuda.py import the
standard library only.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ansible_collections.gpufleet.hosts.plugins.module_utils.cuda.libcuda import LIBRARY, Cuda, ProbeError
from ansible_collections.gpufleet.hosts.plugins.module_utils.cuda.probe_gpu_checks import check, empty_result


class ProbeRequest(NamedTuple):
    """The settings of a probe. `visible` is the value of CUDA_VISIBLE_DEVICES."""

    library: str | None = None
    driver_root: str = "/"
    memory_mib: int = 8
    visible: str | None = None
    skip: frozenset[int] = frozenset()
    only: frozenset[str] | None = None
    matrix_size: int | None = None
    matrix_repetitions: int = 10


def is_selected(index: int, uuid: str | None, only: frozenset[str] | None) -> bool:
    """Return whether `only` selects a GPU by its index, its UUID or the beginning of its UUID."""
    if only is None:
        return True
    return str(index) in only or any(uuid and len(name) > 4 and uuid.lower().startswith(name.lower()) for name in only)


def run_probe(request: ProbeRequest, send: Callable[[dict[str, Any]], None]) -> None:
    """Probe the GPUs. Each step is sent before it starts, so that a hang or a crash can be located."""
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    if request.visible is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = request.visible
    # Number the GPUs like nvidia-smi, and write no compiled kernel to the user's home directory.
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    os.environ["CUDA_CACHE_DISABLE"] = "1"
    try:
        send({"step": "loading " + LIBRARY})
        cuda = Cuda.load(request.library, request.driver_root)
        send({"step": "cuInit", "library": cuda.path})
        cuda.init()
        send({"step": "counting the GPUs", "cuda_version": cuda.driver_version()})
        devices = list(cuda.devices())
        send({"device_count": len(devices)})
    except ProbeError as error:
        send({"error": str(error), "error_code": getattr(error, "code", None)})
        return
    for device in devices:
        if device.index in request.skip:
            continue
        # CUDA calls the only visible MIG device GPU 0, which is usually another device.
        send({"step": request.visible or f"GPU {device.index}", "started": device.index})
        try:
            uuid: str | None = cuda.uuid(device.number)
        except ProbeError:
            uuid = None
        send({"found": device.index, "uuid": uuid})
        if is_selected(device.index, uuid, request.only):
            send({"gpu": check(cuda, device, request.memory_mib, request.matrix_size, request.matrix_repetitions)})
    send({"end": True})


class Outcome(NamedTuple):
    """The messages of a child process, and why it did not complete the probe."""

    messages: list[dict[str, Any]]
    failure: str | None


def run_child(request: ProbeRequest, timeout: float, target: Callable[..., None] = run_probe) -> Outcome:
    """Run `target` in a forked process and collect its messages until it exits or the timeout expires.

    The parent process never loads libcuda: a fork after cuInit would not be usable.
    """
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(read_end)
            devnull = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(devnull, descriptor)
            target(request, lambda message: _send(write_end, message))
            status = 0
        except BaseException as error:
            _send(write_end, {"error": f"{type(error).__name__}: {error}", "error_code": None})
        finally:
            os._exit(status)
    os.close(write_end)
    try:
        text, timed_out = _collect(read_end, time.monotonic() + timeout)
    finally:
        os.close(read_end)
    failure = None
    if timed_out:
        os.kill(pid, signal.SIGKILL)
        failure = f"the driver did not answer within {timeout:g} s"
    status = _wait(pid, 5.0)
    if not timed_out and status is not None and os.WIFSIGNALED(status):
        failure = f"the driver's library crashed ({signal.Signals(os.WTERMSIG(status)).name})"
    messages = [json.loads(line) for line in text.decode().splitlines() if line.endswith("}")]
    if failure is None and not any("end" in message or "error" in message for message in messages):
        failure = "the driver's library ended the process without an error message"
    return Outcome(messages, failure)


def _send(descriptor: int, message: dict[str, Any]) -> None:
    data = (json.dumps(message) + "\n").encode()
    while data:
        data = data[os.write(descriptor, data) :]


def _collect(descriptor: int, deadline: float) -> tuple[bytes, bool]:
    """Return what was read, and whether the deadline passed."""
    chunks = []
    while True:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([descriptor], [], [], left)[0]:
            return b"".join(chunks), True
        chunk = os.read(descriptor, 65536)
        if not chunk:
            return b"".join(chunks), False
        chunks.append(chunk)


def _wait(pid: int, timeout: float) -> int | None:
    """Return the child's exit status, or None if the child does not exit because a system call hangs."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status
        time.sleep(0.01)
    return None


def _last(messages: Sequence[dict[str, Any]], key: str) -> Any:
    return next((message[key] for message in reversed(messages) if key in message), None)


def probe(
    gpus: Sequence[str] | None = None,
    *,
    library: str | None = None,
    driver_root: str = "/",
    memory_mib: int = 8,
    matrix_size: int | None = None,
    matrix_repetitions: int = 10,
    timeout: float = 60.0,
    run: Callable[[ProbeRequest, float], Outcome] = run_child,
) -> dict[str, Any]:
    """Probe all GPUs that CUDA lists, or only the GPUs in `gpus`. The result always has the same keys.

    With `matrix_size`, also measure a matrix product of this size on each of them.

    If a GPU hangs or crashes the child process, it is reported and a new child process probes the remaining GPUs.
    """
    only = None if gpus is None else frozenset(str(g) for g in gpus if not is_mig_uuid(g))
    request = ProbeRequest(
        library, driver_root, memory_mib, only=only, matrix_size=matrix_size, matrix_repetitions=matrix_repetitions
    )
    result: dict[str, Any] = {
        "library": None,
        "cuda_version": None,
        "device_count": None,
        "gpus": [],
        "passed": False,
        "error": None,
        "error_code": None,
    }
    found: dict[str, str | None] = {}
    if only is None or only or not gpus:
        _probe_into(result, found, request, timeout, run)
    for uuid in (g for g in gpus or () if is_mig_uuid(g)):
        # A process can use only one MIG device, which CUDA_VISIBLE_DEVICES selects.
        part: dict[str, Any] = {"gpus": [], "error": None}
        _probe_into(part, {}, request._replace(visible=uuid, only=None), timeout, run)
        result["library"] = result["library"] or part.get("library")
        result["cuda_version"] = result["cuda_version"] or part.get("cuda_version")
        if part["gpus"]:
            result["gpus"] += [{**gpu, "index": None, "uuid": gpu["uuid"] or uuid} for gpu in part["gpus"]]
        else:
            message = part["error"] or f"CUDA does not list MIG device '{uuid}'. Check the UUID with nvidia-smi -L."
            failed = {**empty_result(), "uuid": uuid, "result": message, "error_code": part.get("error_code")}
            result["gpus"].append(failed)
    if only and result["error"] is None:
        result["gpus"] += _missing(only, found)
    probed = result["gpus"]
    result["passed"] = result["error"] is None and bool(probed) and all(gpu["passed"] for gpu in probed)
    if result["error"] is None and not probed:
        result["error"] = "CUDA lists no GPU" if not gpus else "none of the selected GPUs was probed"
    return result


def is_mig_uuid(text: str) -> bool:
    """Return whether a text is the UUID of a MIG device, which may be shortened."""
    return str(text).upper().startswith("MIG-")


def _missing(only: frozenset[str], found: dict[str, str | None]) -> list[dict[str, Any]]:
    """Return a result for each selected GPU that CUDA does not list."""
    listed = ", ".join(f"{index} ({uuid or 'no UUID'})" for index, uuid in found.items()) or "none"
    missing = []
    for name in sorted(only):
        if not any(is_selected(int(index), uuid, frozenset([name])) for index, uuid in found.items()):
            by_index = name.isdigit()
            entry = empty_result(int(name) if by_index else None)
            entry["uuid"] = None if by_index else name
            entry["result"] = f"CUDA does not list GPU '{name}'. Listed GPUs: {listed}."
            missing.append(entry)
    return missing


def _probe_into(
    result: dict[str, Any],
    found: dict[str, str | None],
    request: ProbeRequest,
    timeout: float,
    run: Callable[[ProbeRequest, float], Outcome],
) -> None:
    skip: set[int] = set()
    while True:
        outcome = run(request._replace(skip=frozenset(skip)), timeout)
        messages = outcome.messages
        for key in ("library", "cuda_version", "device_count"):
            value = _last(messages, key)
            if value is not None:
                result[key] = value
        found.update({str(message["found"]): message["uuid"] for message in messages if "found" in message})
        probed = [message["gpu"] for message in messages if "gpu" in message]
        result["gpus"] = sorted(result["gpus"] + probed, key=lambda gpu: gpu["index"])
        error = next((message for message in messages if "error" in message), None)
        started = _last(messages, "started")
        if outcome.failure is None and error is None:
            return
        text = error["error"] if error else f"{_last(messages, 'step') or 'starting'}: {outcome.failure}"
        if started is None or started in skip:
            result["error"] = text
            result["error_code"] = error.get("error_code") if error else None
            return
        # This GPU ended the child process. Continue with the other GPUs.
        skip |= {gpu["index"] for gpu in probed} | {started}
        if started not in {gpu["index"] for gpu in probed}:
            failed = {**empty_result(started), "uuid": found.get(str(started)), "result": text}
            result["gpus"] = sorted([*result["gpus"], failed], key=lambda gpu: gpu["index"])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Probe the GPUs through libcuda and print the result as JSON.")
    parser.add_argument("--gpu", action="append", metavar="INDEX|UUID", help="probe only this GPU; can be repeated")
    parser.add_argument("--library", help="path of libcuda.so.1")
    parser.add_argument("--driver-root", default="/", help="root directory of the driver's files")
    parser.add_argument("--memory-mib", type=int, default=8, help="size of the memory round trip in MiB")
    parser.add_argument("--matrix-size", type=int, help="also measure a matrix product of this size, a multiple of 64")
    parser.add_argument("--matrix-repetitions", type=int, default=10, help="how often to measure it")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds to wait for the driver")
    options = parser.parse_args(arguments)
    result = probe(
        options.gpu,
        library=options.library,
        driver_root=options.driver_root,
        memory_mib=options.memory_mib,
        matrix_size=options.matrix_size,
        matrix_repetitions=options.matrix_repetitions,
        timeout=options.timeout,
    )
    json.dump(result, sys.stdout, indent=1)
    sys.stdout.write("\n")
    return 0 if result["passed"] else 1


if __name__ == "__main__":
    raise SystemExit(main())
