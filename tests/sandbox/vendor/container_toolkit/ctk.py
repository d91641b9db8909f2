# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nvidia-ctk: specifications, settings, device nodes.

NVIDIA/nvidia-container-toolkit, cmd/nvidia-ctk (v1.20.0, 5505e2f9). `runtime configure` is not simulated, because the
roles of the collection never call it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import stat
import subprocess
import sys
import tempfile
from typing import Any

from . import cdi, cdi_hooks, settings
from .main import Failure
from .version import VERSION

MODULES = ("nvidia", "nvidia-uvm", "nvidia-modeset")
_SPEC_DIRECTORIES = ["/etc/cdi", "/var/run/cdi"]


def main(argv: list[str]) -> int:
    """Run a command."""
    words = [word for word in argv if word not in ("--quiet", "--debug", "-d")]
    if words[:1] in (["--version"], ["-v"]):
        print(f"NVIDIA Container Toolkit CLI version {VERSION}")
        return 0
    if words[:1] == ["hook"]:
        return cdi_hooks.main(words[1:])
    is_quiet = "--quiet" in argv
    parser = argparse.ArgumentParser(prog="nvidia-ctk")
    commands = parser.add_subparsers(required=True)
    _add_config(commands)
    _add_cdi(commands.add_parser("cdi").add_subparsers(required=True))
    _add_system(commands.add_parser("system").add_subparsers(required=True))
    options = parser.parse_args(words)
    options.act(options, lambda text: None if is_quiet else print(f"level=info msg={text!r}", file=sys.stderr))
    return 0


def _write(path: str, text: str, mode: int = 0o644) -> None:
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=os.path.dirname(path) or ".", delete=False, encoding="utf-8") as file:
        file.write(text)
    os.chmod(file.name, mode)
    os.replace(file.name, path)


# --- nvidia-ctk config ------------------------------------------------------------------------------------------------


def _add_config(commands: Any) -> None:
    parser = commands.add_parser("config")
    parser.add_argument("--config-file", "--config", "-c", default=settings.path())
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--in-place", "-i", action="store_true")
    parser.add_argument("--output", "-o", default="")
    parser.add_argument("default", nargs="?", choices=["default"])
    parser.set_defaults(act=_config)


def _config(options: argparse.Namespace, _log: Any) -> None:
    tree = None if options.default else settings.read(options.config_file)
    tree = settings.defaults() if tree is None else tree
    for item in options.set:
        settings.assign(tree, item)
    text = settings.dump(tree)
    path = options.config_file if options.in_place else options.output
    if path:
        _write(path, text)
    else:
        print(text, end="")


# --- nvidia-ctk cdi ---------------------------------------------------------------------------------------------------


def _variable(name: str, otherwise: str = "") -> str:
    return os.environ.get(f"NVIDIA_CTK_{name}") or otherwise


def _add_cdi(commands: Any) -> None:
    generate = commands.add_parser("generate")
    generate.add_argument("--output", default=_variable("CDI_OUTPUT_FILE_PATH"))
    generate.add_argument("--format", default=_variable("CDI_GENERATE_OUTPUT_FORMAT"))
    generate.add_argument("--mode", "--discovery-mode", default=_variable("CDI_GENERATE_MODE", "auto"))
    generate.add_argument("--device-name-strategy", action="append", default=[])
    generate.add_argument("--driver-root", default=_variable("DRIVER_ROOT"))
    generate.add_argument("--dev-root", default="")
    generate.add_argument("--nvidia-cdi-hook-path", "--nvidia-ctk-path", default=_variable("CDI_HOOK_PATH"))
    generate.add_argument("--ldconfig-path", default="")
    generate.add_argument("--vendor", default=_variable("CDI_GENERATE_VENDOR", "nvidia.com"))
    generate.add_argument("--class", dest="kind", default=_variable("CDI_GENERATE_CLASS", "gpu"))
    generate.add_argument("--device-id", "--device", action="append", default=[])
    generate.add_argument("--disable-hook", action="append", default=[])
    generate.add_argument("--feature-flag", action="append", default=[])
    generate.add_argument("--no-all-device", action="store_true")
    generate.set_defaults(act=_generate)
    listing = commands.add_parser("list")
    listing.add_argument("--spec-dir", action="append", default=[])
    listing.set_defaults(act=_list)


def _format(options: argparse.Namespace) -> str:
    extension = os.path.splitext(options.output)[1].lower()
    inferred = {".json": "json", ".yaml": "yaml", ".yml": "yaml"}.get(extension, "")
    found = options.format.lower() or inferred or "yaml"
    if found not in ("json", "yaml"):
        raise Failure(f"invalid output format: {found}")
    return found


def _generate(options: argparse.Namespace, log: Any) -> None:
    from . import gpus, specification  # noqa: PLC0415 - the other commands need no driver

    form = _format(options)
    if options.mode not in ("auto", "nvml"):
        raise Failure(f"invalid discovery mode: {options.mode} (the stand-in has auto and nvml)")
    try:
        spec = specification.generate(
            gpus.read().gpus,
            options.device_id or [specification.ALL],
            kind=f"{options.vendor}/{options.kind}",
            program=options.nvidia_cdi_hook_path or specification.ENGINE_HOOK,
            strategies=tuple(options.device_name_strategy) or ("index", "uuid"),
            ldconfig=options.ldconfig_path,
            has_all=not options.no_all_device,
            root=options.driver_root or "/",
        )
    except Failure as error:
        raise Failure(f"failed to generate CDI spec: {error}") from error
    _without_hooks(spec, options.disable_hook)
    if "no-additional-gids-for-device-nodes" in options.feature_flag:
        for device in spec["devices"]:
            device["containerEdits"].pop("additionalGids", None)
        spec["cdiVersion"] = "0.5.0"
    text = cdi.to_yaml(spec) if form == "yaml" else json.dumps(spec)
    if options.output:
        _write(options.output, text)
    else:
        print(text, end="")
    log(f"Generated CDI spec with version {spec['cdiVersion']}")


def _without_hooks(spec: dict[str, Any], disabled: list[str]) -> None:
    """Remove hooks by name, or all."""
    for edits in (spec["containerEdits"], *(device["containerEdits"] for device in spec["devices"])):
        if "hooks" in edits:
            edits["hooks"] = [hook for hook in edits["hooks"] if not {"all", *hook["args"]} & {*disabled}]
            if not edits["hooks"]:
                del edits["hooks"]


def _list(options: argparse.Namespace, log: Any) -> None:
    names = sorted(cdi.registry(options.spec_dir or _SPEC_DIRECTORIES))
    log(f"Found {len(names)} CDI devices")
    print("".join(f"{name}\n" for name in names), end="")


# --- nvidia-ctk system ------------------------------------------------------------------------------------------------


def _add_system(commands: Any) -> None:
    nodes = commands.add_parser("create-device-nodes")
    nodes.add_argument("--root", "--driver-root", default="/")
    nodes.add_argument("--dev-root", default="")
    nodes.add_argument("--control-devices", action="store_true")
    nodes.add_argument("--load-kernel-modules", action="store_true")
    nodes.add_argument("--dry-run", action="store_true")
    nodes.set_defaults(act=_create_device_nodes)


def majors(text: str) -> dict[str, int]:
    """Return the major numbers of character devices in /proc/devices."""
    pairs = re.findall(r"^\s*(\d+) (\S+)$", text.partition("Block devices:")[0], re.MULTILINE)
    return {name: int(number) for number, name in pairs}


def control_nodes(known: dict[str, int]) -> dict[str, tuple[int, int]]:
    """Return the control nodes with their numbers, from the major numbers of the kernel."""
    first = next((known[name] for name in ("nvidia-frontend", "nvidia") if name in known), None)
    if first is None or "nvidia-uvm" not in known:
        raise Failure("failed to create NVIDIA control device nodes: no NVIDIA devices in /proc/devices")
    return {
        "nvidiactl": (first, 255),
        "nvidia-modeset": (first, 254),
        "nvidia-uvm": (known["nvidia-uvm"], 0),
        "nvidia-uvm-tools": (known["nvidia-uvm"], 1),
    }


def _create_device_nodes(options: argparse.Namespace, log: Any) -> None:
    if options.load_kernel_modules:
        for module in MODULES:
            log(f"Loading kernel module {module}")
            if not options.dry_run and subprocess.run(["modprobe", module], check=False).returncode:
                raise Failure(f"failed to load NVIDIA kernel modules: failed to load module {module}")
    if not options.control_devices:
        return
    with open("/proc/devices", encoding="utf-8") as file:
        known = majors(file.read())
    directory = os.path.join(options.dev_root or options.root, "dev")
    log(f"Creating control device nodes at {directory}")
    for name, (major, minor) in control_nodes(known).items():
        path = os.path.join(directory, name)
        if os.path.exists(path):
            log(f"Skipping: {path} already exists")
        elif not options.dry_run:
            os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(major, minor))
            os.chmod(path, 0o666)
