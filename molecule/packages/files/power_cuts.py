# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kill a whole host while module package_transaction runs on it. Check that the next run completes the transaction.

    power_cuts.py HOST MANAGER

kills.py on the host starts the module, waits for the moment, and checks the host afterwards. Runs on the controller.
"""

from __future__ import annotations

import subprocess
import sys
import time

CONNECT = "import socket; socket.create_connection(('127.0.0.1', 8080))"
MOMENTS = (
    ("install", "download"),
    ("change", "script:slow 2.0-1 before_install+1"),
    ("absent", "script:slow 2.0-1 after_removal+1"),
    ("install", "script:slow 1.0-1 after_install+1"),
    ("change", "script:notes 1.0-1 after_removal"),
    ("absent", "script:slow 2.0-1 before_removal"),
)


def docker(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run docker."""
    return subprocess.run(
        ["docker", *arguments], check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def cut(host: str, manager: str, request: str, moment: str) -> bool:
    """Cut the power at a moment. Return whether the next run completes the transaction."""
    kills = ("docker", "exec", host, "python3", "/srv/packages/kills.py", manager)
    with subprocess.Popen([*kills, "start", request, moment], stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout
        line = started.stdout.readline().strip()
        docker("kill", host)
    docker("start", host)
    # The repository is available when its server runs.
    for _attempt in range(120):
        if (
            docker(
                "exec", host, "python3", "-c", "import socket; socket.create_connection(('127.0.0.1', 8080))"
            ).returncode
            == 0
        ):
            break
        time.sleep(0.5)
    if line != "now":
        print(f"FAIL {request} {moment}: {line}", flush=True)
    done = subprocess.run([*kills, "finish", request, moment], check=False)
    return line == "now" and done.returncode == 0


def main() -> int:
    """Cut the power at each moment. After a problem, kills.py resets the host, and the next `install` continues."""
    host, manager = sys.argv[1:]
    problems, skips = 0, False
    for request, moment in MOMENTS:
        skips = skips and request != "install"
        if not skips and not cut(host, manager, request, moment):
            problems += 1
            skips = True
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
