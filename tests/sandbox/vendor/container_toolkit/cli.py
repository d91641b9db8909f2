# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nvidia-container-cli: show the driver and its GPUs, list its files, and give both to a new container.

NVIDIA/libnvidia-container, src/cli (1f2ad796, 042e7f85, 5decca39), src/nvc_container.c (12a66bbb) and src/nvc_ldcache.c
(0f8e13d6). Not simulated: separate privileges, requirements of images, and the files in /proc of a container.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import re
import subprocess

from . import cgroups, gpus, specification
from .main import Failure
from .version import VERSION

_CONTROL = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
CAPABILITIES = ("compat32", "compute", "display", "graphics", "ngx", "utility", "video")
# The libraries and programs of each capability, without their versions: NVIDIA/libnvidia-container, src/nvc_info.c.
LIBRARIES = {
    "utility": ("libnvidia-ml", "libnvidia-cfg", "libnvidia-nscq"),
    "compute": ("libcuda", "libcudadebugger", "libnvidia-opencl", "libnvidia-gpucomp", "libnvidia-ptxjitcompiler",
                "libnvidia-fatbinaryloader", "libnvidia-allocator", "libnvidia-compiler", "libnvidia-pkcs11",
                "libnvidia-pkcs11-openssl3", "libnvidia-nvvm"),
    "video": ("libvdpau_nvidia", "libnvidia-encode", "libnvidia-opticalflow", "libnvcuvid"),
    "graphics": ("libnvidia-eglcore", "libnvidia-glcore", "libnvidia-tls", "libnvidia-glsi", "libnvidia-fbc",
                 "libnvidia-rtcore", "libnvoptix", "libGLX_nvidia", "libEGL_nvidia", "libGLESv2_nvidia",
                 "libGLESv1_CM_nvidia", "libnvidia-glvkspirv", "libnvidia-cbl"),
    "ngx": ("libnvidia-ngx",),
}  # fmt: skip
PROGRAMS = {
    "utility": ("nvidia-smi", "nvidia-debugdump", "nvidia-persistenced", "nv-fabricmanager"),
    "compute": ("nvidia-cuda-mps-control", "nvidia-cuda-mps-server"),
}
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REMOUNT, _MS_BIND = 1, 2, 4, 8, 32, 4096


def main(argv: list[str]) -> int:
    """Run a command."""
    if any(word in ("-V", "--version") for word in argv):
        print(f"cli-version: {VERSION}\nlib-version: {VERSION}")
        return 0
    parser = argparse.ArgumentParser(prog="nvidia-container-cli")
    for flags in (("--load-kmods", "-k"), ("--no-pivot", "-n"), ("--no-create-imex-channels",)):
        parser.add_argument(*flags, action="store_true")
    for flags in (("--debug", "-d"), ("--ldcache", "-l"), ("--user", "-u"), ("--root", "-r")):
        parser.add_argument(*flags)
    commands = parser.add_subparsers(dest="command", required=True)
    info = commands.add_parser("info")
    info.add_argument("--csv", action="store_true")
    listing = commands.add_parser("list")
    configure = commands.add_parser("configure")
    for command in (listing, configure):
        command.add_argument("--device", "-d", action="append", default=[])
        for name in ("--mig-config", "--mig-monitor"):
            command.add_argument(name)
    for flags in (("--libraries", "-l"), ("--binaries", "-b"), ("--ipcs", "-i"), ("--compat32",)):
        listing.add_argument(*flags, action="store_true")
    for name in ("--pid", "--ldconfig", "--imex-channel", "--cuda-compat-mode"):
        configure.add_argument(name)
    configure.add_argument("--require", action="append", default=[])
    for name in ("no-cgroups", "no-devbind", *CAPABILITIES):
        configure.add_argument(f"--{name}", action="store_true")
    configure.add_argument("rootfs")
    options = parser.parse_args(argv)
    if options.load_kmods:
        subprocess.run(["modprobe", "-q", "-a", "nvidia", "nvidia-uvm"], check=False)
    {"info": show, "list": list_files, "configure": configure_container}[options.command](options)
    return 0


def _read() -> gpus.Host:
    try:
        return gpus.read()
    except Failure as error:
        text = str(error).partition(": ")[2] or str(error)
        raise Failure(f"initialization error: nvml error: {text.lower()}") from error


def show(options: argparse.Namespace) -> None:
    """Print the versions of the driver and of CUDA, and the GPUs."""
    host = _read()
    if options.csv:
        print(f"NVRM version,CUDA version\n{host.driver},{host.cuda}\n")
        print("Device Index,Device Minor,Model,GPU UUID,Bus Location")
        for gpu in host.gpus:
            print(f"{gpu.index},{gpu.minor},{gpu.name},{gpu.uuid},{gpu.bus_id}")
        return
    print(f"{'NVRM version:':<15} {host.driver}\n{'CUDA version:':<15} {host.cuda}")
    for gpu in host.gpus:
        rows = {"Device Index:": gpu.index, "Device Minor:": gpu.minor, "Model:": gpu.name, "GPU UUID:": gpu.uuid,
                "Bus Location:": gpu.bus_id}  # fmt: skip
        print("\n" + "\n".join(f"{title:<15} {value}" for title, value in rows.items()))


# --- what a container gets --------------------------------------------------------------------------------------------


def nodes(host: gpus.Host, identifiers: list[str], root: str) -> list[str]:
    """Return the device nodes for the GPUs and MIG devices that are requested, with those of every container."""
    found = [path for path in _CONTROL if os.path.exists(specification.at(root, path))]
    chosen = []
    for identifier in identifiers:
        if identifier == specification.ALL:
            chosen += [(gpu, None) for gpu in host.gpus if gpu.migs is None]
            chosen += [(gpu, mig) for gpu in host.gpus for mig in gpu.migs or ()]
        elif identifier and identifier != "none":
            try:
                chosen.append(gpus.select(host.gpus, identifier))
            except Failure:
                raise Failure(f"device error: {identifier}: unknown device") from None
    for gpu, mig in chosen:
        # In legacy mode, containers get no DRM nodes from this program.
        found += [path for path in specification.paths_of(gpu, mig, root) if not path.startswith("/dev/dri/")]
    return list(dict.fromkeys(found))


def files(capabilities: list[str], root: str) -> tuple[list[str], list[str]]:
    """Return the libraries and the programs of driver capabilities."""
    _version, known = specification.libraries(root)
    names = {name for capability in capabilities for name in LIBRARIES.get(capability, ())}
    libraries = [path for path in known if re.sub(r"\.so\..*", "", os.path.basename(path)) in names]
    programs = [f"/usr/bin/{name}" for capability in capabilities for name in PROGRAMS.get(capability, ())]
    return libraries, [path for path in programs if os.access(specification.at(root, path), os.X_OK)]


def _sockets(root: str) -> list[str]:
    paths = ("/run/nvidia-persistenced/socket", "/run/nvidia-fabricmanager/socket", "/tmp/nvidia-mps")
    return [path for path in paths if os.path.exists(specification.at(root, path))]


def list_files(options: argparse.Namespace) -> None:
    """Print the device nodes and files."""
    host, root = _read(), options.root or "/"
    everything = not any((options.device, options.libraries, options.binaries, options.ipcs))
    libraries, programs = files(list(CAPABILITIES), root)
    found: list[str] = []
    if options.device or everything:
        identifiers = [part for item in options.device or ["all"] for part in item.split(",")]
        found += nodes(host, identifiers, root)
    found += programs if options.binaries or everything else []
    found += libraries if options.libraries or everything else []
    found += _sockets(root) if options.ipcs or everything else []
    print("\n".join(found))


# --- configure --------------------------------------------------------------------------------------------------------


def configure_container(options: argparse.Namespace) -> None:
    """Mount the driver's files and device nodes into a container, and let it open the nodes."""
    host, root = _read(), options.root or "/"
    identifiers = [part for item in options.device for part in item.split(",")]
    paths = nodes(host, identifiers, root)
    libraries, programs = files([name for name in CAPABILITIES if getattr(options, name)], root)
    sockets = _sockets(root)
    pid = int(options.pid or os.getppid())
    if not options.no_cgroups:
        numbers = [os.stat(specification.at(root, path)).st_rdev for path in paths]
        cgroups.allow(pid, [(os.major(number), os.minor(number)) for number in numbers])
    if options.pid:
        _enter(pid)
    target = options.rootfs.rstrip("/")
    debian = os.path.exists(f"{target}/etc/debian_version")
    directory = f"/usr/lib/{os.uname().machine}-linux-gnu" if debian else "/usr/lib64"
    _mount(target, {path: f"{directory}/{os.path.basename(path)}" for path in libraries}, root, _MS_RDONLY | _MS_NODEV)
    _mount(target, {path: path for path in programs}, root, _MS_RDONLY | _MS_NODEV)
    _mount(target, {path: path for path in sockets}, root, _MS_NODEV | _MS_NOEXEC)
    if not options.no_devbind:
        _mount(target, {path: path for path in paths}, root, _MS_NOEXEC)
    if any(path.startswith("libcuda.so.") for path in map(os.path.basename, libraries)):
        _link(f"{target}{directory}/libcuda.so", "libcuda.so.1")
    ldconfig = (options.ldconfig or "@/sbin/ldconfig").lstrip("@")
    run_ldconfig(ldconfig, target, [directory])


def run_ldconfig(program: str, rootfs: str, directories: list[str]) -> None:
    """Write the loader's cache of a container with the host's ldconfig."""
    command = [program, "-r", rootfs, "-f", "/etc/ld.so.conf", "-C", "/etc/ld.so.cache", *directories]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        text = done.stderr.strip()
        raise Failure(f"ldcache error: process {program} failed with error code: {done.returncode}: {text}")


def _library() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _enter(pid: int) -> None:
    """Enter the mount namespace of a process. Its root is still that of the host, so the host's files are visible."""
    with open(f"/proc/{pid}/ns/mnt", "rb") as file:
        if _library().setns(file.fileno(), 0x00020000):
            raise Failure(f"container error: could not enter the namespaces: {os.strerror(ctypes.get_errno())}")


def _mount(rootfs: str, pairs: dict[str, str], root: str, flags: int) -> None:
    for source, target in pairs.items():
        place = within(rootfs, target)
        origin = specification.at(root, source)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        if os.path.isdir(origin):
            os.makedirs(place, exist_ok=True)
        elif not os.path.exists(place):
            with open(place, "ab"):
                pass
        _bind(origin, place, _MS_BIND)
        _bind(origin, place, _MS_BIND | _MS_REMOUNT | _MS_NOSUID | flags)


def _bind(source: str, place: str, flags: int) -> None:
    words = (os.fsencode(source), os.fsencode(place))
    if _library().mount(*words, None, ctypes.c_ulong(flags), None):
        raise Failure(f"mount error: mount operation failed: {place}: {os.strerror(ctypes.get_errno())}")


def within(rootfs: str, path: str) -> str:
    """Return a path of a container, with its symbolic links resolved below the container's root."""
    place, pending = "/", [part for part in path.split("/") if part]
    for _step in range(255):
        if not pending:
            return rootfs + place
        part = pending.pop(0)
        if part in (".", ".."):
            place = os.path.dirname(place) if part == ".." else place
            continue
        joined = os.path.join(place, part)
        if os.path.islink(rootfs + joined):
            link = os.readlink(rootfs + joined)
            pending = [item for item in link.split("/") if item] + pending
            place = "/" if link.startswith("/") else place
        else:
            place = joined
    raise Failure(f"mount error: too many symbolic links in {path}")


def _link(place: str, target: str) -> None:
    if not os.path.lexists(place):
        os.symlink(target, place)
