# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nvidia-container-runtime: change the OCI configuration of a container that requests GPUs, then run the real runtime.

NVIDIA/nvidia-container-toolkit, internal/runtime, internal/modifier and internal/info (v1.20.0, 5505e2f9). Mode `auto`
is `cdi` if all requested devices have CDI names. Otherwise, it is `jit-cdi`, and `legacy` before 1.18.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from typing import Any

from . import request, settings
from .main import Failure, warn
from .version import VERSION, at_least

JIT = "runtime.nvidia.com/gpu"
HOOKS = ("nvidia-container-runtime-hook", "nvidia-container-toolkit")
_SEARCHED = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def main(argv: list[str]) -> int:
    """Run the real runtime with the same arguments. It replaces this process."""
    if any(word.lstrip("-").partition("=")[0] == "version" for word in argv if word.startswith("-")):
        print(f"NVIDIA Container Runtime version {VERSION}\nspec: 1.2.1\n", flush=True)
    found = settings.load()
    program = low_level(found.get("nvidia-container-runtime.runtimes"))
    if has_create(argv):
        path = os.path.join(bundle_of(argv), "config.json")
        with open(path, encoding="utf-8") as file:
            spec = json.load(file)
        modify(spec, found)
        with open(path, "w", encoding="utf-8") as file:
            json.dump(spec, file)
    sys.stdout.flush()
    os.execv(program, [program, *argv])
    return 1


def low_level(names: list[str]) -> str:
    """Return the path of the first low-level runtime that exists."""
    places = f"{os.environ.get('PATH', '')}:{_SEARCHED}"
    program = next((path for path in (shutil.which(name, path=places) for name in names) if path), None)
    if program is None:
        raise Failure(
            "error constructing low-level runtime: error locating runtime: no runtime binary found from candidate "
            f"list: {names}"
        )
    return program


def _is_bundle_flag(word: str) -> bool:
    return word.startswith("-") and word.lstrip("-") in ("b", "bundle")


def has_create(argv: list[str]) -> bool:
    """Return whether the arguments contain the command `create`, also if a bundle has this name."""
    after_flag = False
    for word in argv:
        if not after_flag and _is_bundle_flag(word):
            after_flag = True
            continue
        if not after_flag and word == "create":
            return True
        after_flag = False
    return False


def bundle_of(argv: list[str]) -> str:
    """Return the directory with the OCI configuration."""
    bundle = ""
    for index, word in enumerate(argv):
        name, equals, value = word.partition("=")
        if not _is_bundle_flag(name):
            continue
        if not equals and index + 1 == len(argv):
            raise Failure("error getting bundle dir from args: bundle option requires an argument")
        bundle = value if equals else argv[index + 1]
    return bundle


# --- the change of the configuration ----------------------------------------------------------------------------------


def mode_of(spec: dict[str, Any], found: settings.Settings) -> str:
    """Return the mode for a container. Raise Failure for an unknown one."""
    known = ("legacy", "csv", "cdi", *(["jit-cdi"] if at_least(1, 18) else []))
    default = "jit-cdi" if at_least(1, 18) else "legacy"
    mode = request.mode(found.mode(), request.devices(spec, found, annotations=True), default)
    if mode not in known:
        raise Failure(f"failed to construct OCI spec modifier: invalid mode {mode!r}")
    return mode


def modify(spec: dict[str, Any], found: settings.Settings) -> None:
    """Change the OCI configuration of a container as the mode requires."""
    mode = mode_of(spec, found)
    if mode == "legacy":
        add_prestart_hook(spec, found.program("nvidia-container-runtime-hook.path"))
        return
    remove_prestart_hooks(spec)
    if mode == "csv":
        warn("The stand-in of nvidia-container-runtime ignores requests in mode csv")
        return
    kind = JIT if mode == "jit-cdi" else found.get("nvidia-container-runtime.modes.cdi.default-kind")
    # Annotations count only in mode cdi.
    wanted = request.devices(spec, found, annotations=mode == "cdi")
    names = list(dict.fromkeys(name if request.is_qualified(name) else f"{kind}={name or 'none'}" for name in wanted))
    if names:
        _inject(spec, names, found)


def _inject(spec: dict[str, Any], names: list[str], found: settings.Settings) -> None:
    from . import cdi  # noqa: PLC0415 - most containers of a host request no GPU

    automatic = [name for name in names if name.startswith(f"{JIT}=")]
    if not automatic:
        cdi.inject(spec, names, cdi.registry(found.get("nvidia-container-runtime.modes.cdi.spec-dirs")))
        return
    if len(automatic) < len(names):
        raise Failure(
            "requesting a CDI device with vendor 'runtime.nvidia.com' is not supported when requesting other CDI "
            "devices"
        )
    from . import gpus, specification  # noqa: PLC0415

    identifiers = [name.partition("=")[2] for name in automatic]
    generated = specification.generate(
        gpus.read().gpus,
        identifiers,
        kind=JIT,
        program=found.program("nvidia-ctk.path"),
        strategies=("index",),
        has_all=False,
        root=found.get("nvidia-container-cli.root", "/"),
    )
    cdi.apply(spec, generated["containerEdits"])
    for device in generated["devices"]:
        cdi.apply(spec, device["containerEdits"])


def _is_hook(hook: dict[str, Any]) -> bool:
    return os.path.basename(hook.get("path", "")) in HOOKS


def add_prestart_hook(spec: dict[str, Any], program: str) -> None:
    """Add the hook that changes the container before it starts, unless it is there."""
    hooks = spec.get("hooks") or {}
    if not any(_is_hook(hook) for hook in hooks.get("prestart") or []):
        hook = {"path": program, "args": [os.path.basename(program), "prestart"]}
        spec["hooks"] = {**hooks, "prestart": [*(hooks.get("prestart") or []), hook]}


def remove_prestart_hooks(spec: dict[str, Any]) -> None:
    """Remove the hook, which for example Docker adds for --gpus."""
    hooks = spec.get("hooks") or {}
    if any(_is_hook(hook) for hook in hooks.get("prestart") or []):
        hooks["prestart"] = [hook for hook in hooks["prestart"] if not _is_hook(hook)]
