# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run in a container: check the visible GPUs, the access to device nodes, and CUDA. Prints JSON.

The program requires only Python. NVML and CUDA run in separate processes, because each of them keeps the devices that
it found first.
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import json
import os
import stat
import subprocess
import sys

CUDA_PROBE = "ansible_collections.gpufleet.hosts.plugins.module_utils.cuda.probe"
CONTROL_MAJOR = 195
UUID_SIZE = 96


def nvml_uuids():
    """Return the UUIDs of the GPUs that NVML shows, with ctypes."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError as error:
        return {"uuids": [], "error": str(error)}
    code = nvml.nvmlInit_v2()
    if code:
        return {"uuids": [], "error": f"nvmlInit_v2 returned {code}"}
    count, uuids = ctypes.c_uint(), []
    code = nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
    for index in range(count.value):
        handle, text = ctypes.c_void_p(), ctypes.create_string_buffer(UUID_SIZE)
        if nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)):
            uuids.append(f"GPU {index} has no handle")
        elif nvml.nvmlDeviceGetUUID(handle, text, UUID_SIZE):
            uuids.append(f"GPU {index} has no UUID")
        else:
            uuids.append(text.value.decode())
    return {"uuids": uuids, "error": f"nvmlDeviceGetCount_v2 returned {code}" if code else None}


def in_a_process(*arguments, environment=None):
    """Run a program, and return its JSON output or an error."""
    done = subprocess.run(
        arguments, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, env=environment
    )
    try:
        return json.loads(done.stdout)
    except ValueError:
        return {"error": f"exit {done.returncode}: {(done.stderr or done.stdout).strip()[-300:]}"}


def listed_by_smi():
    """Return the UUIDs that nvidia-smi on PATH shows."""
    try:
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    except OSError as error:
        return {"uuids": [], "error": str(error)}
    uuids = [line.rsplit("UUID: ", 1)[1].rstrip(")") for line in done.stdout.splitlines() if "UUID: GPU-" in line]
    return {"uuids": uuids, "error": None if done.returncode == 0 else done.stderr.strip() or done.stdout.strip()}


def opening(path):
    """Open a device. Return `opens`, or the name of the error."""
    try:
        os.close(os.open(path, os.O_RDWR))
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error.errno))
    return "opens"


def own_node(path, minor):
    """Create the device node of a GPU, and open it."""
    try:
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(CONTROL_MAJOR, minor))
    except FileExistsError:
        # The driver's libraries create the nodes of all GPUs if they have permission. This does not open a GPU.
        return opening(path)
    except OSError as error:
        return f"mknod {errno.errorcode.get(error.errno, error.errno)}"
    return opening(path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--minors", default="", help="minor numbers of all GPUs of the host")
    parser.add_argument("--nvml", action="store_true", help="print only the GPUs that NVML shows")
    options = parser.parse_args()
    if options.nvml:
        answer = nvml_uuids()
    else:
        minors = [int(minor) for minor in options.minors.split(",") if minor]
        given = {minor: opening(f"/dev/nvidia{minor}") for minor in minors}
        # The machine copies the collection's module_utils beside this file.
        os.environ["PYTHONPATH"] = os.path.dirname(os.path.abspath(__file__))
        me = (sys.executable, os.path.abspath(__file__), "--nvml")
        answer = {
            "nodes": sorted(name for name in os.listdir("/dev") if name.startswith("nvidia")),
            "given": given,
            "nvml": in_a_process(*me),
            # As in `su -`, sudo and sshd.
            "nvml_without_environment": in_a_process(*me, environment={}),
            "smi": listed_by_smi(),
            "cuda": in_a_process(sys.executable, "-m", CUDA_PROBE),
            # Use the driver's names, so that NVML finds the nodes if they work.
            "own": {minor: own_node(f"/dev/nvidia{minor}", minor) for minor in minors},
            "own_elsewhere": {minor: own_node(f"/tmp/own{minor}", minor) for minor in minors},
            "nvml_afterwards": in_a_process(*me),
        }
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
