# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nvidia-container-runtime-hook: read the request of a container that is being created, and run nvidia-container-cli.

NVIDIA/nvidia-container-toolkit, cmd/nvidia-container-runtime-hook (v1.20.0, 5505e2f9).
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from typing import Any

from . import request, settings
from .main import Failure
from .version import VERSION

_USAGE = "Usage of nvidia-container-runtime-hook: [-config FILE] [-debug] [-version] prestart|poststart|poststop"
_REFUSAL = (
    "invoking the NVIDIA Container Runtime Hook directly (e.g. specifying the docker --gpus flag) is not supported. "
    "Please use the NVIDIA Container Runtime (e.g. specify the --runtime=nvidia flag) instead"
)


def main(argv: list[str]) -> int:
    """Run a command of the hook."""
    words = [word for word in argv if not word.startswith("-")]
    if any(word.lstrip("-") == "version" for word in argv):
        print(f"NVIDIA Container Runtime Hook version {VERSION}")
        return 0
    if words not in (["prestart"], ["poststart"], ["poststop"]):
        print(_USAGE, file=sys.stderr)
        return 2
    if words != ["prestart"]:
        return 0
    state = json.load(sys.stdin)
    with open(os.path.join(state.get("bundle") or state["bundlePath"], "config.json"), encoding="utf-8") as file:
        spec = json.load(file)
    command = command_for(spec, settings.load(), state["pid"])
    if command:
        os.execv(command[0], command)
    return 0


def command_for(spec: dict[str, Any], found: settings.Settings, pid: int) -> list[str]:
    """Return the call of nvidia-container-cli for a container, or [] if it requests nothing."""
    devices = request.devices(spec, found, annotations=False)
    if not devices:
        return []
    skips = found.get("nvidia-container-runtime-hook.skip-mode-detection")
    if not skips and request.mode(found.mode(), devices, "legacy") != "legacy":
        raise Failure(_REFUSAL)
    env = request.environment(spec)
    try:
        capabilities = request.capabilities(env, found.get("supported-driver-capabilities"))
    except ValueError as error:
        raise Failure(str(error)) from error
    program = found.get("nvidia-container-cli.path") or shutil.which("nvidia-container-cli")
    if not program:
        raise Failure("couldn't find binary nvidia-container-cli in PATH")
    options = {
        "--load-kmods": found.get("nvidia-container-cli.load-kmods"),
        "--no-pivot": found.get("nvidia-container-cli.no-pivot"),
    }
    values = {"root": "--root", "debug": "--debug", "ldcache": "--ldcache", "user": "--user"}
    command = [program, *(flag for flag, is_set in options.items() if is_set)]
    for key, flag in values.items():
        value = found.get(f"nvidia-container-cli.{key}")
        command += [f"{flag}={value}"] if value else []
    command += ["configure", f"--ldconfig={found.get('nvidia-container-cli.ldconfig')}"]
    command += ["--no-cgroups"] if found.get("nvidia-container-cli.no-cgroups") else []
    listed = ",".join(devices)
    command += [f"--device={listed}"] if listed else []
    command += [f"--{name}" for name in sorted(capabilities)]
    return [*command, f"--pid={pid}", os.path.abspath(spec["root"]["path"])]
