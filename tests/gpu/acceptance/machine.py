# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The environment of the checks: the bundle, Ansible, a container engine, and the state of the host."""

from __future__ import annotations

import hashlib
import json
import lzma
import os
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acceptance import engine_root, framework, smi

if TYPE_CHECKING:
    from acceptance.toolkit import Toolkit

HERE = Path(__file__).resolve().parent
IMAGE = "localhost/gpufleet-acceptance:latest"
PREFIX = "gpufleet-acceptance-"
PARTS = 4
# Private file systems while the bundle's podman is used. Other processes do not see the files that the modules write
# there, and the files disappear at the end of the run.
PRIVATE = ("/etc/cdi", "/run/cdi", "/run/gpufleet", "/var/lib/gpufleet")
# Directories of sockets that a CDI specification can contain. They are bind-mounted, because sockets cannot be copied.
IPC = ("/run/nvidia-persistenced", "/run/nvidia-fabricmanager", "/tmp/nvidia-mps")
WATCHED = (
    "/dev",
    "/etc/cdi",
    "/run/cdi",
    "/run/gpufleet",
    "/var/lib/gpufleet",
    "/etc/containers",
    "/etc/nvidia-container-runtime",
    "/root/.nv",
    "~/.nv",
)
# Use sys.path, because modules would inherit PYTHONPATH and find a pynvml that is not installed on the host.
LAUNCHER = (
    "import sys; site, command = sys.argv[1:3]; del sys.argv[1:3]; site and sys.path.insert(0, site);"
    " sys.argv[0] = 'ansible-' + command; import importlib;"
    " importlib.import_module('ansible.cli.' + command).main()"
)


class CannotRun(Exception):
    """A requirement of the acceptance is not met. The message contains the requirement."""


def run(argv: Sequence[str | Path], timeout: float = 120, **more: Any) -> subprocess.CompletedProcess[str]:
    """Run a program. The caller checks the exit status."""
    words = [str(word) for word in argv]
    more.setdefault("stdin", subprocess.DEVNULL)
    try:
        return subprocess.run(words, capture_output=True, text=True, check=False, timeout=timeout, **more)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(words, 124, "", f"{' '.join(words)} did not end after {timeout:g} s")


class Bundle:
    """The bundle of `make gpu-bundle`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def verify(self) -> int:
        """Verify the checksum of every file, and return the number of files."""
        sums = self.directory / "SHA256SUMS"
        lines = sums.read_text(encoding="utf-8").splitlines()
        for line in lines:
            digest, _space, name = line.partition("  ")
            path = self.directory / name
            if not path.is_file():
                raise CannotRun(f"{path} is listed in {sums} but does not exist. Run `make gpu-bundle` again.")
            if hashlib.sha256(path.read_bytes()).hexdigest() != digest:
                raise CannotRun(f"the checksum of {path} differs from {sums}. Run `make gpu-bundle` again.")
        return len(lines)

    def unpack_wheels(self, target: Path) -> None:
        tag = f"-cp{sys.version_info[0]}{sys.version_info[1]}-"
        wheels = sorted((self.directory / "wheels").glob("*.whl"))
        fitting = [wheel for wheel in wheels if "-py3-" in wheel.name or "-py2.py3-" in wheel.name or tag in wheel.name]
        if not any(tag in wheel.name for wheel in fitting):
            there = sorted({part[2:3] + "." + part[3:] for w in wheels for part in w.stem.split("-") if "cp3" in part})
            raise CannotRun(
                f"the bundle has wheels for Python {', '.join(there)}, but this is Python {sys.version.split()[0]}."
                " Run tests/gpu/run with one of these versions."
            )
        for wheel in fitting:
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(target)

    def unpack_collections(self, target: Path) -> None:
        with tarfile.open(self.directory / "collections.tar.xz") as archive:
            archive.extractall(target)

    def unpack_image(self, target: Path) -> None:
        with lzma.open(self.directory / "image.tar.xz") as packed, target.open("wb") as plain:
            shutil.copyfileobj(packed, plain)


class Ansible:
    """ansible-playbook on this host, with the collection of this checkout."""

    def __init__(self, repository: Path, work: Path, bundle: Bundle | None) -> None:
        self.work = work
        self.site = ""
        self.collections = work / "collections"
        ours = self.collections / "ansible_collections/gpufleet"
        ours.mkdir(parents=True)
        (ours / "hosts").symlink_to(repository)
        if bundle:
            self.site = str(work / "site")
            bundle.unpack_wheels(work / "site")
            bundle.unpack_collections(self.collections)
        (work / "ansible.cfg").write_text("[defaults]\n", encoding="utf-8")
        system = Path("/usr/bin/python3")
        self.interpreter = str(system if system.exists() else sys.executable)
        self.environment = {
            **os.environ,
            "ANSIBLE_CALLBACK_PLUGINS": str(HERE / "callback"),
            "ANSIBLE_COLLECTIONS_PATH": str(self.collections),
            "ANSIBLE_CONFIG": str(work / "ansible.cfg"),
            "ANSIBLE_HOME": str(work / "home"),
            "ANSIBLE_LOCALHOST_WARNING": "0",
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_REMOTE_TEMP": str(work / "tmp"),
            "LC_ALL": "C.UTF-8",
        }
        self.environment.pop("PYTHONPATH", None)
        self.count = 0
        self.log = work / "ansible.log"

    def version(self) -> str:
        done = self._launch("adhoc", "--version")
        if done.returncode:
            raise CannotRun(
                f"this Python has no Ansible ({done.stderr.strip().splitlines()[-1:]}). Create the bundle with"
                " `make gpu-bundle` on a connected machine, or use a Python that has ansible-core 2.19."
            )
        return done.stdout.splitlines()[0]

    def _launch(self, command: str, *arguments: str, **more: Any) -> subprocess.CompletedProcess[str]:
        environment = {**self.environment, **more.pop("environment", {})}
        argv = [sys.executable, "-c", LAUNCHER, self.site, command, *arguments]
        done = run(argv, timeout=more.pop("timeout", 540), env=environment, **more)
        with self.log.open("a", encoding="utf-8") as log:
            log.write(f"\n# {command} {' '.join(arguments)}\n{done.stdout}{done.stderr}")
        return done

    def play(self, name: str, /, check: bool = False, **variables: Any) -> list[dict[str, Any]]:
        """Run a playbook in plays/, and return the results of its tasks. An aborted playbook adds a failed result."""
        self.count += 1
        stem = f"{self.count:03}-{name}-{time.monotonic_ns()}"
        events, given = self.work / f"{stem}.jsonl", self.work / f"{stem}.vars.json"
        given.write_text(json.dumps(variables), encoding="utf-8")
        done = self._launch(
            "playbook",
            *("-i", "localhost,", "-c", "local", "-e", f"ansible_python_interpreter={self.interpreter}"),
            *("-e", f"@{given}", *(("--check", "--diff") if check else ()), str(HERE / "plays" / f"{name}.yml")),
            environment={"ACCEPTANCE_EVENTS": str(events)},
        )
        text = events.read_text(encoding="utf-8") if events.exists() else ""
        answers = [json.loads(line) for line in text.splitlines()]
        if done.returncode and not any(answer["status"] == "failed" for answer in answers):
            words = (done.stderr.strip() or done.stdout.strip())[-600:]
            failure = {"msg": f"ansible-playbook exited {done.returncode}: {words}"}
            answers.append({"task": name, "item": None, "status": "failed", "seconds": 0, "result": failure})
        return answers

    def play_parts(self, name: str, key: str, items: Sequence[Any], **variables: Any) -> list[dict[str, Any]]:
        """Run a playbook for parts of a list at the same time, because its loops run one item after the other.

        `key` is the playbook's variable for the list. The results are in the order of the parts.
        """
        parts = [items[start::PARTS] for start in range(min(PARTS, len(items)))]
        with ThreadPoolExecutor(PARTS) as threads:
            played = threads.map(lambda part: self.play(name, **{key: part}, **variables), parts)
            return [event for events in played for event in events]

    def call(self, module: str, keep: bool = False) -> Callable[[], subprocess.CompletedProcess[str]]:
        """Run a module with Ansible, and return a function that repeats the work of Ansible on the host.

        A script that replaces the host's Python interpreter records the arguments and the input of its last call. With
        `keep`, Ansible keeps the files that it copies to the host.
        """
        kept = self.work / "calls" / module
        kept.mkdir(parents=True)
        recorder, words, text = kept / "python", kept / "arguments", kept / "input"
        recorder.write_text(
            f"#!/bin/sh\n: >{words}\nfor word; do printf '%s\\0' \"$word\" >>{words}; done\n"
            f'cat >{text}\nexec {self.interpreter} "$@" <{text}\n',
            encoding="utf-8",
        )
        recorder.chmod(0o755)
        self._launch(
            "adhoc",
            *("localhost", "-c", "local", "-e", f"ansible_python_interpreter={recorder}", "-m", module),
            environment={"ANSIBLE_KEEP_REMOTE_FILES": str(int(keep))},
        )
        if not words.exists():
            raise CannotRun(f"Ansible did not run {module}. See {self.log}.")
        argv = [self.interpreter, *words.read_text(encoding="utf-8").split("\0")[:-1]]

        def again() -> subprocess.CompletedProcess[str]:
            with text.open(encoding="utf-8") as stream:
                return run(argv, stdin=stream, cwd=self.work)

        return again


class Engine:
    """A container engine that is called by its command line, like a user does."""

    def __init__(self, name: str, program: str, description: str) -> None:
        self.name, self.program, self.description = name, program, description

    def __call__(self, *arguments: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        return run([self.program, *arguments], timeout=timeout)

    def inside(self, container: str, *argv: str) -> dict[str, Any]:
        """Run a program in a container, and return the JSON that it prints."""
        done = self("exec", container, *argv)
        try:
            return json.loads(done.stdout)
        except ValueError:
            return {"error": f"exit {done.returncode}: {(done.stderr or done.stdout).strip()[-300:]}"}

    def containers(self) -> list[str]:
        done = self("ps", "--all", "--filter", f"name={PREFIX}", "--format", "{{.Names}}")
        return done.stdout.split()


class Machine:
    """The host during the test. Use it as a context manager, which cleans up at the end."""

    def __init__(
        self, repository: Path, work: Path, bundle: Bundle | None, engine: str, toolkit: Toolkit | None = None
    ) -> None:
        self.repository, self.work, self.bundle, self._wanted = repository, work, bundle, engine
        self.toolkit = toolkit
        self.framework: framework.Framework | None = None
        # Where the engine finds the host's directories.
        self.framework_root = ""
        self.shared = work / "shared"
        self.volumes = self.shared / "volumes"
        self._made: list[Path] = []
        self._root: engine_root.EngineRoot | None = None
        self.engine: Engine
        self.ansible: Ansible

    def __enter__(self) -> Machine:
        try:
            self.ansible = Ansible(self.repository, self.work, self.bundle)
            self.framework = framework.find()
            self.engine = self._an_engine()
            self._prepare_containers()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _an_engine(self) -> Engine:
        for name in ("podman", "docker") if self._wanted in ("auto", "host") else ():
            program = shutil.which(name)
            if program and run([program, "info"]).returncode == 0:
                version = run([program, "--version"]).stdout.strip()
                return Engine(name, program, f"the host's {version}")
        if self._wanted == "host":
            raise CannotRun("neither podman nor docker answers on this host. Omit --engine host.")
        if self.bundle is None:
            raise CannotRun(
                "this host has neither podman nor docker. Create the bundle, which has podman, with `make gpu-bundle`."
            )
        engine_root.private_mounts()
        for directory in PRIVATE:
            self._private(Path(directory))
        self._root = engine_root.EngineRoot(self.work / "root")
        sockets = [Path(place) for place in IPC if Path(place).is_dir()]
        self._root.set_up(
            self.bundle.directory / "rootfs.tar.xz",
            [self.shared, *map(Path, PRIVATE), *sockets],
            [Path(directory) for directory in (self.framework.directories if self.framework else ())],
        )
        self.framework_root = engine_root.HOST
        programs = str(self._root.programs)
        program = f"{programs}/podman"
        version = run([program, "--version"])
        if version.returncode:
            raise CannotRun(f"the bundle's podman does not run on this host: {version.stderr.strip()}")
        return Engine("podman", program, f"the bundle's {version.stdout.strip()}")

    def _private(self, directory: Path) -> None:
        missing = [path for path in (directory, *directory.parents) if not path.exists()]
        for path in reversed(missing):
            path.mkdir()
            self._made.append(path)
        engine_root.mount_tmpfs(directory)

    def _prepare_containers(self) -> None:
        probes = self.shared / "probes"
        probes.mkdir(parents=True)
        shutil.copy(HERE / "inside.py", probes)
        # `inside.py` runs the CUDA probe from this copy, by its module name.
        shutil.copytree(
            self.repository / "plugins/module_utils", probes / "ansible_collections/gpufleet/hosts/plugins/module_utils"
        )
        if self.bundle is None:
            raise CannotRun(
                "the container image is missing. Create the bundle with `make gpu-bundle` on a connected machine."
            )
        image = self.shared / "image.tar"
        self.bundle.unpack_image(image)
        done = self.engine("import", str(image), IMAGE, timeout=300)
        image.unlink()
        if done.returncode:
            raise CannotRun(
                f"{self.engine.name} could not import the bundle's image: {(done.stderr or done.stdout).strip()}"
            )

    @property
    def engine_root(self) -> Path:
        """The root of the bundle's podman."""
        if self._root is None:
            raise CannotRun("this check needs the bundle's podman. Use --engine bundle.")
        return self._root.root

    def in_engine_root(self, *argv: str) -> subprocess.CompletedProcess[str]:
        """Run a program in the root of the bundle's podman."""
        if self._root is None:
            raise CannotRun("this check needs the bundle's podman. Use --engine bundle.")
        return run(self._root.enter(*argv))

    def show_to_the_engine(self, paths: Iterable[str]) -> None:
        """Copy files of the host to the root of the bundle's podman. The host's own engine sees them anyway."""
        for path in map(Path, paths) if self._root is not None else ():
            place = self._root.root / path.relative_to("/")
            if place.exists() or not path.exists() or path.is_socket():
                continue
            place.parent.mkdir(parents=True, exist_ok=True)
            if path.is_dir():
                shutil.copytree(path, place)
            else:
                shutil.copy(path, place)

    def remove_containers(self) -> None:
        names = self.engine.containers()
        if names:
            self.engine("rm", "--force", *names)

    def __exit__(self, *_exception: object) -> None:
        if getattr(self, "engine", None) is not None:
            self.remove_containers()
            self.engine("rmi", "--force", IMAGE)
        if self._root is not None:
            self._root.take_down()
        for directory in PRIVATE if self._root is not None else ():
            engine_root.unmount(Path(directory))
        for path in reversed(self._made):
            path.rmdir()


def smi_report() -> smi.Report:
    """Return the report of `nvidia-smi -q -x`."""
    done = run(["nvidia-smi", "-q", "-x"])
    if done.returncode:
        raise CannotRun(f"nvidia-smi -q -x exited {done.returncode}: {(done.stdout + done.stderr).strip()[:300]}")
    return smi.Report(done.stdout)


def has_gpus() -> bool:
    """Return whether this machine has an NVIDIA GPU, with or without a driver."""
    for device in Path("/sys/bus/pci/devices").glob("*"):
        try:
            vendor, kind = (device / "vendor").read_text().strip(), (device / "class").read_text().strip()
        except OSError:
            continue
        if vendor == "0x10de" and kind[:6] in ("0x0300", "0x0302"):
            return True
    return Path("/dev/nvidiactl").exists() or Path("/dev/dxg").exists()


def belongings() -> dict[str, list[str]]:
    """Return the files in the places where the acceptance could leave files."""
    found = {}
    for place in WATCHED:
        path = Path(place).expanduser()
        if path.is_dir() and place == "/dev":
            found[place] = sorted(str(node) for node in path.rglob("nvidia*"))
        else:
            found[place] = [str(path), *sorted(map(str, path.rglob("*")))] if path.is_dir() else []
    return found


def commit_of(repository: Path) -> str:
    """Return the commit of the checkout, and whether it has uncommitted changes."""
    head = run(["git", "-C", str(repository), "rev-parse", "HEAD"]) if shutil.which("git") else None
    if head is None or head.returncode:
        return "unknown"
    changed = run(["git", "-C", str(repository), "status", "--porcelain", "--untracked-files=no"]).stdout.strip()
    return head.stdout.strip() + (" with uncommitted changes" if changed else "")
