# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run inside a container: which GPUs are there, what else can be opened, does CUDA compute. Prints JSON.

It needs a Python and nothing else. NVML and CUDA are asked in processes of their own, since each of them keeps what it
saw first.
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
    """Ask NVML, by ctypes, for the UUIDs of the GPUs that it shows."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError as error:
        return {"uuids": [], "error": str(error)}
    code = nvml.nvmlInit_v2()
    if code:
        return {"uuids": [], "error": f"nvmlInit_v2 gave {code}"}
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
    return {"uuids": uuids, "error": f"nvmlDeviceGetCount_v2 gave {code}" if code else None}


def in_a_process(*arguments):
    """Run a program and take its JSON, or what went wrong."""
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    try:
        return json.loads(done.stdout)
    except ValueError:
        return {"error": f"exit {done.returncode}: {(done.stderr or done.stdout).strip()[-300:]}"}


def listed_by_smi():
    """Ask nvidia-smi, found by PATH, for the UUIDs."""
    try:
        done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    except OSError as error:
        return {"uuids": [], "error": str(error)}
    uuids = [line.rsplit("UUID: ", 1)[1].rstrip(")") for line in done.stdout.splitlines() if "UUID: GPU-" in line]
    return {"uuids": uuids, "error": None if done.returncode == 0 else done.stderr.strip() or done.stdout.strip()}


def opening(path):
    """Open a device, and say how that went."""
    try:
        os.close(os.open(path, os.O_RDWR))
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error.errno))
    return "opens"


def own_node(path, minor):
    """Make a GPU's node and open it."""
    try:
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(CONTROL_MAJOR, minor))
    except FileExistsError:
        # The driver's libraries make the nodes of all GPUs themselves where they may. That opens none.
        return opening(path)
    except OSError as error:
        return f"mknod {errno.errorcode.get(error.errno, error.errno)}"
    return opening(path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--minors", default="", help="minor numbers of all the GPUs of the host")
    parser.add_argument("--nvml", action="store_true", help="only what NVML shows")
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
            "smi": listed_by_smi(),
            "cuda": in_a_process(sys.executable, "-m", CUDA_PROBE),
            # Under the driver's own names, so that NVML finds them if they work.
            "own": {minor: own_node(f"/dev/nvidia{minor}", minor) for minor in minors},
            "own_elsewhere": {minor: own_node(f"/tmp/own{minor}", minor) for minor in minors},
            "nvml_afterwards": in_a_process(*me),
        }
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
