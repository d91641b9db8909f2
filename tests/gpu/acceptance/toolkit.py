# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA's container toolkit: its programs in a directory, its config.toml, and its CDI specification.

The functions that compare two specifications have no side effects. They only read files of the host.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from acceptance.machine import CannotRun, run

HERE = Path(__file__).resolve().parent
REQUIRED = ("nvidia-container-runtime", "nvidia-ctk", "nvidia-cdi-hook")
# Mode legacy also needs these programs. nvidia-container-cli is part of libnvidia-container.
LEGACY = ("nvidia-container-runtime-hook", "nvidia-container-cli")
# Built programs are in the directory itself, and programs from packages in usr/bin.
PROGRAM_DIRECTORIES = ("", "usr/bin", "bin")
LIBRARIES = "libnvidia-container*.so*"
# NVIDIA/nvidia-container-toolkit v1.20.0, pkg/lookup: the directories besides those of PATH.
SYSTEM_DIRECTORIES = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")


class Toolkit:
    """The programs of NVIDIA's container toolkit in a directory of option --toolkit."""

    def __init__(self, directory: Path) -> None:
        if not directory.is_dir():
            raise CannotRun(
                f"--toolkit {directory} is not a directory. docs/acceptance/README.md tells how to create it."
            )
        self.directory = directory
        self.programs = {name: path for name in (*REQUIRED, *LEGACY) if (path := self._program(name))}
        missing = [name for name in REQUIRED if name not in self.programs]
        if missing:
            raise CannotRun(
                f"--toolkit {directory} contains no {', no '.join(missing)}, neither directly nor in usr/bin."
                " docs/acceptance/README.md tells how to create the directory."
            )
        self.libraries = sorted(path for path in directory.rglob(LIBRARIES) if path.is_file())
        self.version = self._version()

    def _program(self, name: str) -> Path | None:
        places = [self.directory / place / name for place in PROGRAM_DIRECTORIES]
        return next((path for path in places if path.is_file()), None)

    def _version(self) -> str:
        program = self.programs["nvidia-ctk"]
        try:
            done = run([program, "--version"])
        except OSError as error:
            raise CannotRun(
                f"{program} does not run on this machine: {error.strerror}. Build or unpack it for this machine, and"
                " make it executable."
            ) from error
        match = re.search(r"version (\S+)", done.stdout)
        if done.returncode or match is None:
            raise CannotRun(
                f"{program} --version exited {done.returncode}: {(done.stderr or done.stdout).strip()[:300]}"
            )
        return match.group(1)

    def missing_for_legacy(self) -> list[str]:
        return [name for name in LEGACY if name not in self.programs]

    def install(self, root: Path, library_directory: str) -> None:
        """Copy the programs to usr/bin below `root`, like NVIDIA's packages, and the libraries to a directory."""
        for name, path in self.programs.items():
            target = root / "usr/bin" / name
            shutil.copy(path, target)
            target.chmod(0o755)
        target = root / library_directory.lstrip("/")
        target.mkdir(parents=True, exist_ok=True)
        for path in self.libraries:
            shutil.copy(path, target / path.name)


class Configuration:
    """The text of config.toml, which only the functions of the role change."""

    def __init__(self, text: str, collections: Path, python: str) -> None:
        self.text: str | None = text
        self._record: str | None = None
        self._argv = [python, "-S", str(HERE / "merge_config.py")]
        self._environment = {**os.environ, "PYTHONPATH": str(collections), "PYTHONDONTWRITEBYTECODE": "1"}

    def change(self, config: Mapping[str, Any]) -> list[str]:
        """Set the keys of the role to `config`, and return the changed keys."""
        question = json.dumps({"text": self.text, "record": self._record, "config": config})
        done = run(self._argv, stdin=None, input=question, env=self._environment)
        if done.returncode:
            raise RuntimeError(f"merge_config.py exited {done.returncode}: {done.stderr.strip()[-500:]}")
        answer = json.loads(done.stdout)
        if answer.get("problems"):
            raise ValueError(" ".join(answer["problems"]))
        self.text, self._record = answer["text"], answer["record"]
        return answer["keys"]


# --- comparison of two specifications -----------------------------------------------------------------------------


class Comparison(NamedTuple):
    """What two specifications have in common, the known differences with their reasons, and the other differences."""

    equal: int
    notes: list[str]
    problems: list[str]


class Reason(NamedTuple):
    pattern: str
    text: str


_X_SERVER = "belongs to the X server, which the module does not support in containers"
_HOST_DAEMON = "belongs to the IMEX daemon, which runs on the host"
_SOCKET = "does not exist while its daemon is stopped, and then no container would start"
_NO_LIBRARY = "names a library that this driver lacks"
_EGL_PLATFORM = "belongs to an EGL platform whose files nvidia-ctk mounts only in versions after 1.20.0"
# Files that only NVIDIA's specification contains. docs/cdi.md has the same list.
ONLY_VENDORS = (
    Reason("libglxserver_nvidia.so*", _X_SERVER),
    Reason("nvidia_drv.so", _X_SERVER),
    Reason("nvidia-xconfig", _X_SERVER),
    Reason("*/10-nvidia.conf", _X_SERVER),
    Reason("*/nvidia-drm-outputclass.conf", _X_SERVER),
    Reason("nvidia-imex", _HOST_DAEMON),
    Reason("nvidia-imex-ctl", _HOST_DAEMON),
    Reason("*/nvidia-persistenced/socket", _SOCKET),
    Reason("*/nvidia-fabricmanager/socket", _SOCKET),
    Reason("/tmp/nvidia-mps", _SOCKET),
    Reason("*/egl_external_platform.d/*.json", _NO_LIBRARY),
)
# Files that only our specification contains. The vendor's lists are in NVIDIA/nvidia-container-toolkit v1.20.0,
# pkg/nvcdi/driver-nvml.go and internal/discover/graphics.go.
ONLY_OURS = (
    Reason("nv-fabricmanager", "is mounted by libnvidia-container, but not by nvidia-ctk"),
    Reason("/dev/dri/by-path", "has the links that nvidia-ctk creates by a hook"),
    Reason("*/20_nvidia_xcb.json", _EGL_PLATFORM),
    Reason("*/20_nvidia_xlib.json", _EGL_PLATFORM),
    Reason("libnvidia-egl-xcb.so.*", _EGL_PLATFORM),
    Reason("libnvidia-egl-xlib.so.*", _EGL_PLATFORM),
    Reason("libnvidia-api.so.1", "is mounted by nvidia-ctk only with the flag enable-explicit-driver-libraries"),
)
_32_BIT = "is a 32-bit library. nvidia-ctk looks only in the directory of the 64-bit libcuda"
_NOT_ON_PATH = "is in a directory that is not on PATH, where nvidia-ctk looks for programs"
_HOOK = "is a hook, which needs NVIDIA's program on the host. The module writes no hooks"


def nodes(spec: Mapping[str, Any]) -> dict[str, dict[str, tuple[Any, Any]]]:
    """Return the device nodes of each device, together with the common ones, and their numbers."""

    def found(edits: Mapping[str, Any] | None) -> dict[str, tuple[Any, Any]]:
        listed = (edits or {}).get("deviceNodes") or []
        return {node["path"]: (node.get("major"), node.get("minor")) for node in listed}

    common = found(spec.get("containerEdits"))
    return {device["name"]: {**common, **found(device.get("containerEdits"))} for device in spec.get("devices") or []}


def compare_nodes(ours: Mapping[str, Any], vendors: Mapping[str, Any]) -> Comparison:
    """Compare the names of the devices, and the device nodes of each."""
    left, right = nodes(ours), nodes(vendors)
    problems = [f"device {name}: only in our specification" for name in sorted(left.keys() - right.keys())]
    problems += [f"device {name}: only in the vendor's specification" for name in sorted(right.keys() - left.keys())]
    equal = 0
    for name in sorted(left.keys() & right.keys()):
        mine, other = left[name], right[name]
        problems += [
            f"device {name}: {path} is only in our specification" for path in sorted(mine.keys() - other.keys())
        ]
        problems += [
            f"device {name}: {path} is only in the vendor's specification"
            for path in sorted(other.keys() - mine.keys())
        ]
        for path in sorted(mine.keys() & other.keys()):
            # NVIDIA's program writes numbers only for some nodes.
            if None not in (*mine[path], *other[path]) and mine[path] != other[path]:
                problems.append(f"device {name}: {path} has numbers {mine[path]}, in the vendor's {other[path]}")
            else:
                equal += 1
    return Comparison(equal, [], problems)


def _edits(spec: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    devices = [device.get("containerEdits") or {} for device in spec.get("devices") or []]
    return [spec.get("containerEdits") or {}, *devices]


def host_paths(spec: Mapping[str, Any]) -> list[str]:
    """Return the host's paths of all mounts."""
    return [mount["hostPath"] for edits in _edits(spec) for mount in edits.get("mounts") or []]


def files(spec: Mapping[str, Any], resolve: Callable[[str], str]) -> dict[str, set[str]]:
    """Return the mounted files of the host, without links: libraries and programs by name, others by path."""
    found: dict[str, set[str]] = {}
    for path in map(resolve, host_paths(spec)):
        directory, name = os.path.split(path)
        by_name = ".so" in name or os.path.basename(directory) in ("bin", "sbin")
        found.setdefault(name if by_name else path, set()).add(path)
    return found


def hooks(spec: Mapping[str, Any]) -> list[str]:
    """Return the names of the hooks: the first argument of NVIDIA's program, which can have the prefix `hook`."""
    found = set()
    for edits in _edits(spec):
        for hook in edits.get("hooks") or []:
            words = [word for word in (hook.get("args") or [])[1:] if word != "hook"]
            found.add(words[0] if words else hook.get("path", "?"))
    return sorted(found)


def elf_is_32_bit(path: str) -> bool:
    """Return whether a file is a 32-bit ELF file."""
    try:
        with open(path, "rb") as stream:
            start = stream.read(5)
    except OSError:
        return False
    return start[:4] == b"\x7fELF" and start[4:] == b"\x01"


def on_path() -> set[str]:
    """Return the directories in which NVIDIA's programs look for the driver's programs, without links."""
    return {os.path.realpath(path) for path in (*os.environ.get("PATH", "").split(":"), *SYSTEM_DIRECTORIES)}


def compare_files(
    ours: Mapping[str, Any],
    vendors: Mapping[str, Any],
    resolve: Callable[[str], str] = os.path.realpath,
    is_32_bit: Callable[[str], bool] = elf_is_32_bit,
) -> Comparison:
    """Compare the mounted files and the hooks. A difference without a known reason is a problem."""
    left, right = files(ours, resolve), files(vendors, resolve)
    notes, problems, equal = [], [], 0
    for name in sorted(left.keys() | right.keys()):
        mine, other = left.get(name, set()), right.get(name, set())
        narrow = {path for path in mine - other if is_32_bit(path)}
        if narrow:
            notes.append(f"{_list(narrow)}: only in our specification. It {_32_BIT}.")
            mine = mine - narrow
        if mine == other:
            equal += bool(mine)
        elif mine and other:
            problems.append(f"{name}: our specification mounts {_list(mine)}, the vendor's {_list(other)}")
        else:
            whose, table = ("our", ONLY_OURS) if mine else ("the vendor's", ONLY_VENDORS)
            reason = next((known.text for known in table if fnmatch.fnmatchcase(name, known.pattern)), None)
            if mine and "/" not in name and ".so" not in name and on_path().isdisjoint(map(os.path.dirname, mine)):
                reason = _NOT_ON_PATH
            why = f"It {reason}." if reason else "No reason is known."
            (notes if reason else problems).append(f"{name}: only in {whose} specification. {why}")
    notes += [f"{name}: only in the vendor's specification. It {_HOOK}." for name in hooks(vendors)]
    problems += [f"{name}: our specification has a hook" for name in hooks(ours)]
    return Comparison(equal, notes, problems)


def _list(paths: set[str]) -> str:
    return ", ".join(sorted(paths))


# --- the runtime --------------------------------------------------------------------------------------------------


def logged_mode(log: str) -> str | None:
    """Return the mode that the runtime logged first. Its CDI library then logs a mode of its own, such as `nvml`."""
    found = re.search(r"(?:Auto-detected mode as|Using requested mode) '([a-z-]+)'", log)
    return found.group(1) if found else None
