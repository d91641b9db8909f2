#!/usr/bin/env bash
# Run a command. At its end, print its wall time and its CPU time: of its processes, and of all containers of the Docker Engine.
# CPU seconds hardly depend on what else the machine does, so the limits of tests are in CPU seconds.
#   cpu.sh COMMAND [ARGUMENT...]      for example: cpu.sh make unit
# Containers that other commands use at the same time are counted, too. The exit status is that of the command.
set -euo pipefail
[ $# -gt 0 ] || { echo "usage: cpu.sh COMMAND [ARGUMENT...]" >&2; exit 2; }
exec python3 -c '
import ctypes
import os
import resource
import subprocess
import sys
import time

# The CPU time of all containers, ended ones included, and its unit in seconds: cgroup v1; cgroup v2 without and with systemd.
GROUPS = (
    ("/sys/fs/cgroup/cpuacct/docker/cpuacct.usage", 1e-9),
    ("/sys/fs/cgroup/docker/cpu.stat", 1e-6),
    ("/sys/fs/cgroup/system.slice/cpu.stat", 1e-6),
)
PR_SET_CHILD_SUBREAPER = 36


def container_seconds():
    for path, unit in GROUPS:
        try:
            with open(path, encoding="ascii") as file:
                return int(file.read().replace("usage_usec", "").split()[0]) * unit
        except OSError:
            continue
    return 0.0


# Processes that lose their parent become children of this one, so that their time is counted.
ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
started, containers = time.monotonic(), container_seconds()
try:
    status = subprocess.run(sys.argv[1:], check=False).returncode
except OSError as error:
    sys.exit(f"cpu.sh: {sys.argv[1]}: {error.strerror}")
while True:
    try:
        if os.waitpid(-1, os.WNOHANG)[0] == 0:
            break
    except ChildProcessError:
        break
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
processes, containers = usage.ru_utime + usage.ru_stime, container_seconds() - containers
print(
    f"cpu.sh: {time.monotonic() - started:.0f} s wall, {processes + containers:.0f} s CPU"
    f" ({processes:.1f} processes, {containers:.1f} containers): {chr(32).join(sys.argv[1:])}",
    file=sys.stderr,
)
sys.exit(status if status >= 0 else 128 - status)
' "$@"
