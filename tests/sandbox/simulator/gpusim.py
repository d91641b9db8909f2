#!/usr/bin/python3 -EsS
# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Simulate the hardware and the kernel of a GPU host. See docs/simulator.md.

The program runs on the simulated host: `boot` before systemd starts, `load` and `unload` instead of the kernel's module
loader, and `graft` after every dpkg run. `set`, `mig`, `fault`, `refresh` and `show` are for users and tests.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import fcntl
import json
import os
import re
import shutil
import stat
import struct
import subprocess
import sys
import uuid
from pathlib import Path

DESCRIPTION = "/etc/gpusim/host.json"
# What the modules of Debian's kernels say beside their release. A module with other words would not load.
FLAGS = "SMP preempt mod_unload modversions"
HOME = "/usr/lib/gpusim"
RUN = "/run/gpusim"
STATE = f"{RUN}/state"
KEPT = "/var/lib/gpusim/kept"  # settings that survive a power cycle: ECC mode and, on some GPUs, MIG mode
HELD = f"{RUN}/held"
GPU_MAJOR, CONTROL_MINOR, MODESET_MINOR, DRM_MAJOR = 195, 255, 254, 226
TRAILER, TRAILER_SIZE, PAYLOAD_STEP = b"GPUSIM-PAYLOAD ", 32, 64 * 1024
LIBRARY = re.compile(r"libnvidia-(ml|cfg)\.so\.(\d+(?:\.\d+)+)")
PROGRAM = "nvidia-smi"  # simulated, because the real one also uses private calls of the driver
GRAFT_ROOTS = (
    "/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/nvidia/lib64", "/usr/local/nvidia/lib",
    "/usr/local/lib/x86_64-linux-gnu", "/usr/local/lib", "/opt/nvidia", "/usr/bin", "/usr/local/nvidia/bin",
)  # fmt: skip
# Settings that are lost when the driver is unloaded.
VOLATILE = re.compile(
    r"persistence_mode|fabric\.state|compute_mode|power\.limit|clock\.(application|locked)\..*|ecc\.volatile\..*"
)
TURING, VOLTA, AMPERE, HOPPER = 6, 5, 7, 9
NVIDIA_MODULES = ("nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm", "nvidia_peermem")
DEPENDS = {"nvidia_uvm": ["nvidia"], "nvidia_modeset": ["nvidia"], "nvidia_drm": ["nvidia_modeset", "nvidia"],
           "nvidia_peermem": ["nvidia"]}  # fmt: skip
FABRIC_STATES = {"not_started": "1", "in_progress": "2", "completed": "3"}
PCI_DRIVERS = {"nvidia": "nvidia", "nouveau": "nouveau", "nova_core": "nova_core"}
SECURE_BOOT_VARIABLE = "SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"


class Refused(Exception):
    """The simulated kernel rejects a request."""

    def __init__(self, number: int, text: str) -> None:
        """Store the error number and the message for the log."""
        super().__init__(text)
        self.number = number


# ---- files -------------------------------------------------------------------------------------------------


def at(path: str) -> Path:
    """Return a path on the host. Tests set GPUSIM_ROOT to a temporary root directory."""
    root = os.environ.get("GPUSIM_ROOT", "")
    return Path(root + path) if root else Path(path)


def write(path: Path, text: str, mode: int = 0o444) -> None:
    """Replace a small file, and create its directories."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)


def overwrite(path: Path, text: str) -> None:
    """Write into the existing file, because it is bind-mounted elsewhere."""
    with path.open("w", encoding="utf-8") as file:
        file.write(text)


def read(path: Path, otherwise: str = "") -> str:
    """Return the text of a file, or `otherwise` if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return otherwise


def link(path: Path, target: str) -> None:
    """Create a symbolic link, or replace an existing file with it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    path.symlink_to(target)


def log(text: str) -> None:
    """Write a kernel message to the log that `gpusim log` prints."""
    with contextlib.suppress(OSError), at(f"{RUN}/log").open("a", encoding="utf-8") as file:
        file.write(text + "\n")


@contextlib.contextmanager
def locked():
    """Hold the lock that prevents two gpusim processes from changing the host at the same time."""
    at(RUN).mkdir(parents=True, exist_ok=True)
    with at(f"{RUN}/lock").open("w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def description() -> dict:
    """Return the description of the host. A host without a description has no GPU."""
    try:
        return json.loads(at(DESCRIPTION).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {"pci": [], "state": "gpu.count=0\n"}


def kernel_release() -> str:
    """Return the kernel release that `uname -r` prints on this host."""
    return read(at(f"{HOME}/kernel-release")).partition("\n")[0].strip() or os.uname().release


# ---- the state ---------------------------------------------------------------------------------------------


def parse_state(text: str) -> dict:
    """Parse key=value lines. The last line of a key is valid."""
    state = {}
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            state[key] = value
    return state


def state_text(state: dict) -> str:
    """Return the text of a state."""
    return "".join(f"{key}={value}\n" for key, value in state.items())


@contextlib.contextmanager
def changing_state():
    """Read the live state, let the caller change it, and write it in place. The libraries use the same lock."""
    with at(STATE).open("r+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        state = parse_state(file.read())
        before = dict(state)
        yield state
        if state != before:
            file.seek(0)
            file.write(state_text(state))
            file.truncate()


def current_state() -> dict:
    """Return the live state."""
    return parse_state(read(at(STATE)))


def gpus(state: dict) -> list[int]:
    """Return the numbers of the GPUs in a state."""
    return list(range(int(state.get("gpu.count", "0"))))


def of_gpu(state: dict, gpu: int, key: str, otherwise: str = "") -> str:
    """Return the value of a key for one GPU. `gpu.*.` keys apply to GPUs without a value."""
    value = state.get(f"gpu.{gpu}.{key}", state.get(f"gpu.*.{key}", otherwise))
    return otherwise if value == "-" else value


def is_held(bus_id: str) -> bool:
    """Return whether a process, such as the persistence daemon, holds a GPU open."""
    try:
        with at(f"{HELD}/{bus_id}").open(encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
    except OSError:
        pass
    return False


# ---- boot --------------------------------------------------------------------------------------------------


def mount(*arguments: str) -> None:
    """Run mount. Raise OSError if it fails."""
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"mount {' '.join(arguments)}: {done.stderr.strip()}")


def boot(_arguments: argparse.Namespace) -> None:
    """Initialize the hardware: create the PCI functions, set the kernel release, and load modules like udev does."""
    host = description()
    at(RUN).mkdir(parents=True, exist_ok=True)
    at(HELD).mkdir(exist_ok=True)
    at(HELD).chmod(0o777)  # nvidia-persistenced is not root
    at("/var/lib/gpusim").mkdir(parents=True, exist_ok=True)
    write(at(STATE), first_state(host), 0o644)
    mount_kernel(host)
    plug_in(host)
    show_accelerators(host.get("accelerators") or {}, mounts=True)
    offer_kernel_modules(host)
    coldplug(host)
    graft_all()


def first_state(host: dict) -> str:
    """Return the state at power-on: the description, with the settings that survive a power cycle."""
    state = parse_state(host["state"])
    if host.get("holders"):
        state["holders"] = ",".join(host["holders"])
    for key, value in parse_state(read(at(KEPT))).items():
        state[key] = value
        if key.endswith(".pending"):
            current = key.removesuffix("pending") + "current"
            if current in state:
                state[current] = value
    return state_text(state)


def mount_over(directory: str, name: str) -> None:
    """Make a kernel directory writable. Keep its files visible if overlayfs is available."""
    for part in ("upper", "work"):
        at(f"{RUN}/{name}/{part}").mkdir(parents=True, exist_ok=True)
    layers = f"lowerdir={directory},upperdir={RUN}/{name}/upper,workdir={RUN}/{name}/work"
    try:
        mount("-t", "overlay", "-o", layers, "gpusim", directory)
    except OSError:
        mount("-t", "tmpfs", "-o", "mode=755", "gpusim", directory)


def mount_kernel(host: dict) -> None:
    """Mount simulated files over the kernel's own files in /sys and /proc."""
    if not Path("/sys/bus/pci/devices").is_dir():  # a machine without a PCI bus
        mount_over("/sys/bus", "sysbus")
        for name in ("devices", "drivers"):
            Path(f"/sys/bus/pci/{name}").mkdir(parents=True)
    for name in ("devices", "drivers"):
        mount("-t", "tmpfs", "-o", "mode=755,size=16m", "gpusim", f"/sys/bus/pci/{name}")
    if Path("/proc/driver").is_dir():
        mount("-t", "tmpfs", "-o", "mode=555,size=16m", "gpusim", "/proc/driver")
    mount_over("/sys/module", "sysmodule")
    for name in (*NVIDIA_MODULES, "nouveau", "nova_core"):
        shutil.rmtree(f"/sys/module/{name}", ignore_errors=True)
    lines = [*read(at(f"{HOME}/kernel-release")).splitlines(), "", ""]
    release = lines[0].strip() or os.uname().release
    version = lines[1].strip() or os.uname().version
    files = {
        "/proc/modules": ("modules", "".join(
            line for line in read(Path("/proc/modules")).splitlines(keepends=True)
            if not line.startswith(("nvidia", "nouveau", "nova"))
        )),
        "/proc/devices": ("devices", real_devices()),
        "/proc/version": ("version", f"Linux version {release} (debian-kernel@lists.debian.org) (gcc) {version}\n"),
        "/proc/sys/kernel/osrelease": ("osrelease", release + "\n"),
        "/proc/sys/kernel/version": ("osversion", version + "\n"),
        "/proc/sys/kernel/random/boot_id": ("boot_id", f"{uuid.uuid4()}\n"),
    }  # fmt: skip
    for target, (name, text) in files.items():
        write(at(f"{RUN}/{name}"), text)
        if Path(target).exists():
            mount("--bind", f"{RUN}/{name}", target)
    if host.get("secure_boot") is not None and Path("/sys/firmware").is_dir():
        mount("-t", "tmpfs", "-o", "mode=755", "gpusim", "/sys/firmware")
        variable = Path("/sys/firmware/efi/efivars") / SECURE_BOOT_VARIABLE
        variable.parent.mkdir(parents=True)
        variable.write_bytes(bytes([6, 0, 0, 0, int(bool(host["secure_boot"]))]))


def real_devices() -> str:
    """Return the real /proc/devices without the devices of a real NVIDIA driver."""
    return "".join(line for line in read(Path("/proc/devices")).splitlines(keepends=True) if "nvidia" not in line)


def plug_in(host: dict) -> None:
    """Create the PCI functions in sysfs."""
    for function in host["pci"]:
        directory = at("/sys/bus/pci/devices") / function["address"]
        for name, value in function["files"].items():
            write(directory / name, value + "\n")
        write(directory / "driver_override", "(null)\n", 0o644)
        write(directory / "resource", "0x0000000000000000 0x0000000000000000 0x0000000000000000\n" * 13)
        (directory / "config").write_bytes(config_space(function["files"]))
        if function.get("driver"):
            bind(function["address"], function["driver"])


def show_accelerators(tree: dict, mounts: bool = False) -> None:
    """Show the accelerators of other vendors. `mounts`: make the kernel's directories writable first."""
    if not tree:
        return
    import trees  # noqa: PLC0415 (installed beside this program, whose directory is in sys.path only now)

    for directory, name in trees.MOUNTED.items():
        if mounts and name != "sysmodule":  # mount_kernel mounts it
            mount_over(directory, name)
    trees.show(tree, at, RUN)


def drive_accelerators(module: str, *, is_loaded: bool) -> None:
    """Bind the functions of a module for other accelerators, and show what it has in sysfs and /dev while loaded."""
    host = description()
    tree = host.get("accelerators") or {}
    part = (tree.get("modules") or {}).get(module)
    if part is None:
        return
    for address in part["functions"]:
        if is_loaded:
            bind(address, part["driver"])
        else:
            release(address)
    shown = part["tree"] if is_loaded else {}
    show_accelerators(
        {
            "files": {**tree.get("files", {}), **shown.get("files", {})},
            "directories": [*tree.get("directories", []), *shown.get("directories", [])],
            "nodes": [*tree.get("nodes", []), *shown.get("nodes", [])],
        }
    )


def accelerators_command(arguments: argparse.Namespace) -> None:
    """Show other accelerators: those of a file that describe.py wrote. It changes no PCI function."""
    tree = json.loads(Path(arguments.path).read_text(encoding="utf-8"))["accelerators"]
    with locked():
        show_accelerators(tree)


def config_space(files: dict) -> bytes:
    """Return the header of a function's configuration space, which lspci reads."""
    number = {name: int(files[name], 16) for name in ("vendor", "device", "class", "revision")}
    head = struct.pack("<HHHHI", number["vendor"], number["device"], 7, 0x10, number["class"] << 8 | number["revision"])
    subsystem = struct.pack("<HH", int(files["subsystem_vendor"], 16), int(files["subsystem_device"], 16))
    return (head.ljust(44, b"\0") + subsystem).ljust(256, b"\0")


def bind(address: str, driver: str) -> None:
    """Bind a function to a driver."""
    drivers = at("/sys/bus/pci/drivers") / driver
    drivers.mkdir(parents=True, exist_ok=True)
    link(drivers / address, f"../../devices/{address}")
    link(at("/sys/bus/pci/devices") / address / "driver", f"../../drivers/{driver}")


def release(address: str) -> None:
    """Unbind a function from its driver."""
    place = at("/sys/bus/pci/devices") / address / "driver"
    if place.is_symlink():
        driver = place.readlink().name
        place.unlink()
        with contextlib.suppress(FileNotFoundError):
            (at("/sys/bus/pci/drivers") / driver / address).unlink()


def driver_of(address: str) -> str:
    """Return the driver that a function is bound to, or an empty string."""
    place = at("/sys/bus/pci/devices") / address / "driver"
    return place.readlink().name if place.is_symlink() else ""


def offer_kernel_modules(host: dict) -> None:
    """Create the module files of nouveau and nova_core if the description has them. Otherwise, remove the files."""
    modules = at(f"/lib/modules/{kernel_release()}")
    changed = False
    for name in ("nouveau", "nova_core"):
        file = modules / "kernel" / "drivers" / "gpu" / f"{name}.ko"
        if host.get(name) and not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            information = {
                "name": name, "license": "GPL and additional rights" if name == "nouveau" else "GPL",
                "description": f"{name} (simulated)", "intree": "Y", "vermagic": f"{kernel_release()} {FLAGS} ",
                "alias": "pci:v000010DEd*sv*sd*bc03sc*i*",
            }  # fmt: skip
            file.write_bytes(module_file(information))
            changed = True
        elif not host.get(name) and file.exists():
            file.unlink()
            changed = True
    if changed and shutil.which("depmod"):
        for name in ("modules.order", "modules.builtin"):
            (modules / name).touch()
        subprocess.run(["depmod", "-a", kernel_release()], check=False)


def module_file(information: dict) -> bytes:
    """Return a minimal ELF file that modprobe, modinfo and depmod accept as a kernel module."""
    modinfo = b"".join(f"{key}={value}".encode() + b"\0" for key, value in information.items())
    names = b"\0.modinfo\0.shstrtab\0.symtab\0.strtab\0"
    symbols = b"\0" * 24
    offsets = [64, 64 + len(modinfo), 64 + len(modinfo) + len(names)]
    start = (offsets[2] + len(symbols) + 1 + 7) & ~7
    header = b"\x7fELF\2\1\1".ljust(16, b"\0") + struct.pack(
        "<HHIQQQIHHHHHH", 1, 62, 1, 0, 0, start, 0, 64, 0, 0, 64, 5, 2
    )
    section = struct.Struct("<IIQQQQIIQQ").pack
    sections = b"".join((
        section(0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
        section(1, 1, 2, 0, offsets[0], len(modinfo), 0, 0, 1, 0),
        section(10, 3, 0, 0, offsets[1], len(names), 0, 0, 1, 0),
        section(20, 2, 0, 0, offsets[2], len(symbols), 4, 1, 8, 24),
        section(28, 3, 0, 0, offsets[2] + len(symbols), 1, 0, 0, 1, 0),
    ))  # fmt: skip
    return (header + modinfo + names + symbols + b"\0").ljust(start, b"\0") + sections


def coldplug(host: dict) -> None:
    """Run the host's modprobe for every NVIDIA function, like udev does at boot."""
    mine = [function for function in host["pci"] if function["files"]["vendor"] == "0x10de"]
    aliases = sorted({function["files"]["modalias"] for function in mine if not function.get("driver")})
    if aliases and shutil.which("modprobe"):
        done = subprocess.run(["modprobe", "-abq", *aliases], capture_output=True, text=True, check=False)
        if done.stderr:
            log(f"coldplug: {done.stderr.strip()}")


# ---- kernel modules ----------------------------------------------------------------------------------------


def decompress(data: bytes) -> bytes:
    """Decompress a module file: xz, gzip or zstd."""
    if data[:6] == b"\xfd7zXZ\0":
        import lzma  # noqa: PLC0415 - most modules are not compressed

        return lzma.decompress(data)
    if data[:2] == b"\x1f\x8b":
        import gzip  # noqa: PLC0415

        return gzip.decompress(data)
    if data[:4] == b"\x28\xb5\x2f\xfd":
        done = subprocess.run(["zstd", "-dcq"], input=data, capture_output=True, check=False)
        if done.returncode:
            raise Refused(errno.EOPNOTSUPP, "zstd could not decompress the module")
        return done.stdout
    return data


def module_information(data: bytes) -> dict:
    """Return the .modinfo section of a 64-bit ELF file, as lists by key. A signed module also has the key `signer`."""
    try:
        if data[:5] != b"\x7fELF\2":
            raise Refused(errno.ENOEXEC, "not a 64-bit ELF file")
        table, size, count, names = struct.unpack_from("<Q", data, 40) + struct.unpack_from("<HHH", data, 58)
        sections = [struct.unpack_from("<IIQQQQ", data, table + size * number) for number in range(count)]
        strings = sections[names][4]
        found = [
            (section[4], section[5]) for section in sections if data.startswith(b".modinfo\0", strings + section[0])
        ]
        if not found:
            raise Refused(errno.ENOEXEC, "the module has no .modinfo section")
        offset, length = found[0]
    except (struct.error, IndexError, ValueError, OverflowError):
        raise Refused(errno.ENOEXEC, "the ELF file is damaged") from None
    information: dict = {}
    for entry in data[offset : offset + length].split(b"\0"):
        key, equals, value = entry.decode("utf-8", "replace").partition("=")
        if equals:
            information.setdefault(key, []).append(value)
    if data.endswith(b"~Module signature appended~\n"):
        information["signer"] = [signer_of(data)]
    return information


def signer_of(data: bytes) -> str:
    """Return the common name in the PKCS#7 signature at the end of a module, found without a full parser."""
    size = struct.unpack(">I", data[-32:-28])[0]
    signature = data[-(40 + size) :]
    found = signature.rfind(b"\x06\x03\x55\x04\x03")  # commonName
    if found < 0 or found + 7 > len(signature):
        return ""
    return signature[found + 7 : found + 7 + signature[found + 6]].decode("utf-8", "replace")


def load(arguments: argparse.Namespace) -> None:
    """Load a module file like the kernel. The exit status is the error number."""
    with open(arguments.path, "rb") as file:
        information = module_information(decompress(file.read()))
    file_name = Path(os.path.realpath(arguments.path)).name
    name = information.get("name", [re.sub(r"\.ko(\.\w+)?$", "", file_name)])[0].replace("-", "_")
    with locked():
        check_module(name, information)
        parameters = dict(word.partition("=")[::2] for word in arguments.parameters.split())
        if name == "nvidia":
            start_driver(information, parameters)
        elif name in PCI_DRIVERS:
            take_gpus(name)
        show_module(name, information, parameters)
        drive_accelerators(name, is_loaded=True)
        if name in ("nvidia", "nvidia_uvm", "nvidia_modeset"):
            make_nodes(current_state())
        if name == "nvidia_drm":
            make_drm()
        count_users()
    log(f"loaded {name} {information.get('version', [''])[0]}".rstrip())
    if name == "nvidia":
        graft_all()


def check_module(name: str, information: dict) -> None:
    """Reject modules that the kernel rejects before it runs their code."""
    magic = information.get("vermagic", [""])[0].split(" ")[0]
    if magic != kernel_release():
        raise Refused(errno.ENOEXEC, f"{name}: version magic '{magic}' should be '{kernel_release()}'")
    host = description()
    signer = information.get("signer", [None])[0]
    trusted = information.get("intree") == ["Y"] or signer in host.get("mok", [])
    if host.get("secure_boot") and not trusted:
        raise Refused(errno.EKEYREJECTED, f"{name}: the key of signer {signer!r} is not enrolled")
    if name in ("nouveau", "nova_core") and not host.get(name):
        # The file may come from a kernel package although the description does not contain the module.
        raise Refused(errno.ENODEV, f"{name}: the description of the host does not contain this module")
    if at(f"/sys/module/{name}/initstate").exists():
        raise Refused(errno.EEXIST, f"{name}: already loaded")
    for needed in DEPENDS.get(name, []):
        if not at(f"/sys/module/{needed}/initstate").exists():
            raise Refused(errno.ENOENT, f"{name}: unknown symbol of {needed}")
        loaded = read(at(f"/sys/module/{needed}/version")).strip()
        if loaded and information.get("version", [loaded])[0] != loaded:
            raise Refused(errno.EINVAL, f"{name}: {information['version'][0]} disagrees with {needed} {loaded}")


def gpu_functions(host: dict) -> list[str]:
    """Return the addresses of the NVIDIA GPUs on the PCI bus."""
    return [
        function["address"] for function in host["pci"]
        if function["files"]["vendor"] == "0x10de" and function["files"]["class"][:6] in ("0x0300", "0x0302")
    ]  # fmt: skip


def take_gpus(module: str) -> None:
    """Bind the unbound GPUs to a driver of the kernel: nouveau or nova_core."""
    free = [address for address in gpu_functions(description()) if not driver_of(address)]
    for address in free:
        bind(address, PCI_DRIVERS[module])


def start_driver(information: dict, parameters: dict) -> None:
    """Initialize NVIDIA's module: bind its GPUs, and make them visible in /proc and to NVML."""
    version = information.get("version", ["0"])[0]
    flavor = "open" if "GPL" in information.get("license", [""])[0] else "proprietary"
    host = description()
    with changing_state() as state:
        mine = []
        for gpu in gpus(state):
            address = of_gpu(state, gpu, "pci.bus_id")
            why = unsupported(int(of_gpu(state, gpu, "architecture", "0")), flavor, version)
            # The module is not loaded, so a binding to it is the rest of an interrupted load.
            if driver_of(address) not in ("", "nvidia"):
                why = f"bound to {driver_of(address)}"
            if why:
                log(f"NVRM: {address}: {why}")
            else:
                mine.append(gpu)
        if not mine:
            raise Refused(errno.ENODEV, "NVRM: no NVIDIA GPU is usable with this module")
        for gpu in gpus(state):
            if gpu not in mine:
                state[f"gpu.{gpu}.return.*"] = "28"
            firmware = int(of_gpu(state, gpu, "architecture", "0")) >= TURING and (
                flavor == "open" or parameters.get("NVreg_EnableGpuFirmware") != "0"
            )
            state[f"gpu.{gpu}.gsp.enabled"] = str(int(firmware))
        state["module.version"] = version
        state["module.flavor"] = flavor
        state.update({f"module.parameter.{key}": value for key, value in parameters.items()})
        for gpu in mine:
            bind(of_gpu(state, gpu, "pci.bus_id"), "nvidia")
        snapshot = dict(state)
    for function in host["pci"]:
        if function["files"]["vendor"] == "0x10de" and function["files"]["class"].startswith("0x0680"):
            bind(function["address"], "nvidia-nvswitch")
    show_in_proc(snapshot, host)


def branch_of(version: str) -> int:
    """Return the branch of a driver version."""
    return int(version.partition(".")[0])


def unsupported(architecture: int, flavor: str, version: str) -> str:
    """Return why a driver does not support a GPU, or an empty string."""
    if flavor == "open" and architecture < TURING:
        return "not supported by open modules"
    if flavor == "proprietary" and architecture > HOPPER:
        return "supported by open modules only"
    if architecture <= VOLTA and branch_of(version) >= 590:
        return "supported up to branch 580"
    return ""


def reset_gpu(state: dict, gpu: int, described: dict) -> None:
    """Reset the state of a GPU: pending modes take effect, and volatile settings are lost."""
    for mode in ("ecc", "mig"):
        if f"gpu.{gpu}.{mode}.pending" in state:
            state[f"gpu.{gpu}.{mode}.current"] = state[f"gpu.{gpu}.{mode}.pending"]
    if state.get(f"gpu.{gpu}.mig.current") == "0":
        drop_migs(state, gpu)
    for key in [key for key in state if key.startswith(f"gpu.{gpu}.") and VOLATILE.fullmatch(key.split(".", 2)[2])]:
        if key in described:
            state[key] = described[key]
        else:
            del state[key]


def drop_migs(state: dict, gpu: int) -> None:
    """Remove the MIG devices of a GPU."""
    for key in [key for key in state if re.match(rf"gpu\.{gpu}\.mig\.\d+\.", key)]:
        del state[key]


def show_module(name: str, information: dict, parameters: dict) -> None:
    """Show a loaded module in /sys/module and /proc/modules."""
    directory = at(f"/sys/module/{name}")
    write(directory / "initstate", "live\n")
    write(directory / "refcnt", "0\n")
    write(directory / "coresize", "56807424\n" if name == "nvidia" else "65536\n")
    write(directory / "taint", "" if information.get("intree") == ["Y"] else "POE\n")
    for key in ("version", "srcversion"):
        if key in information:
            write(directory / key, information[key][0] + "\n")
    (directory / "holders").mkdir(exist_ok=True)
    for key, value in parameters.items():
        write(directory / "parameters" / key, value + "\n")
    if name == "nvidia_drm":
        write(directory / "parameters" / "modeset", parameters.get("modeset", "N").replace("1", "Y") + "\n")
    for needed in DEPENDS.get(name, []):
        link(at(f"/sys/module/{needed}/holders/{name}"), f"../../{name}")
    if name in PCI_DRIVERS:
        link(directory / "drivers" / f"pci:{PCI_DRIVERS[name]}", f"../../../bus/pci/drivers/{PCI_DRIVERS[name]}")
        at(f"/sys/bus/pci/drivers/{PCI_DRIVERS[name]}").mkdir(exist_ok=True)
    with at(f"{RUN}/modules.loaded").open("a", encoding="utf-8") as file:
        file.write(f"{name}\n")


def loaded_modules() -> list[str]:
    """Return the modules that gpusim loaded, the oldest first."""
    return read(at(f"{RUN}/modules.loaded")).split()


def users_of(name: str, state: dict) -> tuple[list[str], int]:
    """Return the modules that depend on a module, and the number of its other users."""
    modules = [other for other in loaded_modules() if name in DEPENDS.get(other, [])]
    others = 0
    if name == "nvidia":
        others = sum(is_held(of_gpu(state, gpu, "pci.bus_id")) for gpu in gpus(state)) + len(holders(state))
    return modules, others


def holders(state: dict) -> list[str]:
    """Return the names of the processes in the state that hold the driver."""
    return [name for name in state.get("holders", "").split(",") if name]


def count_users() -> None:
    """Update the reference counts and /proc/modules."""
    state = current_state()
    lines = []
    for name in reversed(loaded_modules()):
        modules, others = users_of(name, state)
        directory = at(f"/sys/module/{name}")
        count = f"{len(modules) + others}\n"
        if read(directory / "refcnt") != count:
            write(directory / "refcnt", count)
        size, taint = read(directory / "coresize", "0").strip(), read(directory / "taint").strip()
        users = "".join(f"{user}," for user in modules) or "-"
        lines.append(
            f"{name} {size} {count.strip()} {users} Live 0x0000000000000000" + (f" ({taint})" if taint else "")
        )
    real = [line for line in read(at(f"{RUN}/modules")).splitlines() if line.split(" ")[0] not in module_names_ever()]
    overwrite_if_changed(at(f"{RUN}/modules"), "".join(line + "\n" for line in lines + real))


def module_names_ever() -> set[str]:
    """Return all modules that gpusim has loaded since boot, including unloaded modules."""
    return set(loaded_modules()) | set(read(at(f"{RUN}/modules.unloaded")).split())


def overwrite_if_changed(path: Path, text: str) -> None:
    """Write into a file if its content differs."""
    if read(path) != text:
        if path.exists():
            path.chmod(0o644)
        overwrite(path, text)


def unload(arguments: argparse.Namespace) -> None:
    """Unload a module like the kernel."""
    name = arguments.name.replace("-", "_")
    with locked():
        state = current_state()
        if name not in loaded_modules():
            raise Refused(errno.ENOENT, f"{name}: not loaded")
        modules, others = users_of(name, state)
        if modules or others:
            raise Refused(errno.EWOULDBLOCK, f"{name}: in use by {', '.join(modules) or f'{others} processes'}")
        if name == "nvidia":
            stop_driver()
        for address in [path.name for path in at(f"/sys/bus/pci/drivers/{PCI_DRIVERS.get(name, '-')}").glob("*:*")]:
            release(address)
        drive_accelerators(name, is_loaded=False)
        for needed in DEPENDS.get(name, []):
            with contextlib.suppress(FileNotFoundError):
                at(f"/sys/module/{needed}/holders/{name}").unlink()
        shutil.rmtree(at(f"/sys/module/{name}"), ignore_errors=True)
        left = [other for other in loaded_modules() if other != name]
        with at(f"{RUN}/modules.unloaded").open("a", encoding="utf-8") as file:
            file.write(f"{name}\n")
        overwrite(at(f"{RUN}/modules.loaded"), "".join(other + "\n" for other in left))
        if name in NVIDIA_MODULES:
            remove_nodes(name)
        count_users()
    log(f"unloaded {name}")
    if name == "nvidia":
        graft_all()


def stop_driver() -> None:
    """Remove the driver from the state and from /proc."""
    with changing_state() as state:
        for key in [key for key in state if key.startswith("module.")]:
            del state[key]
        described = parse_state(description()["state"])
        for gpu in gpus(state):
            reset_gpu(state, gpu, described)
            if state.get(f"gpu.{gpu}.return.*") == "28" and f"gpu.{gpu}.return.*" not in described:
                del state[f"gpu.{gpu}.return.*"]
    for name in ("nvidia", "nvidia-caps", "nvidia-nvswitch"):
        shutil.rmtree(at(f"/proc/driver/{name}"), ignore_errors=True)
    for path in at("/sys/bus/pci/drivers/nvidia-nvswitch").glob("*:*"):
        release(path.name)
    overwrite_if_changed(at(f"{RUN}/devices"), real_devices_before())


def real_devices_before() -> str:
    """Return /proc/devices without the devices that gpusim added."""
    return "".join(line for line in read(at(f"{RUN}/devices")).splitlines(keepends=True) if "nvidia" not in line)


# ---- files and devices of the driver -----------------------------------------------------------------------


def show_in_proc(state: dict, host: dict) -> None:
    """Create the files in /proc/driver, and update /proc/devices."""
    version, flavor = state["module.version"], state["module.flavor"]
    proc = at("/proc/driver/nvidia")
    kind = "UNIX Open Kernel Module for x86_64" if flavor == "open" else "UNIX x86_64 Kernel Module"
    build = "Release Build" if flavor == "open" else "Thu Jan  1 00:00:00 UTC 1970"
    write(proc / "version", f"NVRM version: NVIDIA {kind}  {version}  {build}\nGCC version:  gcc (Debian)\n")
    write(proc / "params", driver_parameters(state))
    write(proc / "registry", 'Binary: ""\n', 0o644)
    for gpu in gpus(state):
        address = of_gpu(state, gpu, "pci.bus_id")
        if driver_of(address) == "nvidia":
            write(proc / "gpus" / address / "information", gpu_information(state, gpu))
            write(proc / "gpus" / address / "registry", 'Binary: ""\n', 0o644)
            write(proc / "gpus" / address / "power", "Runtime D3 status:          Disabled by default\n")
    for minor, name in enumerate(("config", "monitor"), start=1):
        write(proc / "capabilities" / "mig" / name, capability(minor, 0o400))
    show_migs(state)
    write(at("/proc/driver/nvidia-caps/mig-minors"), mig_minors(len(gpus(state))))
    write(at("/proc/driver/nvidia-caps/sys-minors"), "fabric-imex-mgmt 0\n")
    switches = [
        function["address"] for function in host["pci"]
        if function["files"]["vendor"] == "0x10de" and function["files"]["class"].startswith("0x0680")
    ]  # fmt: skip
    if switches:
        for minor, address in enumerate(switches):
            write(
                at(f"/proc/driver/nvidia-nvswitch/devices/{address}/information"),
                f"Device instance: {minor}\nPCI Bus Location: {address}\n",
            )
        write(
            at("/proc/driver/nvidia-nvswitch/permissions"), "DeviceFileUID: 0\nDeviceFileGID: 0\nDeviceFileMode: 438\n"
        )
    show_devices(branch_of(version), bool(switches))


def kernel_number(text: str) -> int | None:
    """Parse a number like the kernel parses a module parameter: 0x10, 020 and 16 are equal."""
    with contextlib.suppress(ValueError):
        return int(text, 8) if re.fullmatch(r"0[0-7]+", text) else int(text, 0)
    return None


def driver_parameters(state: dict) -> str:
    """Return the text of /proc/driver/nvidia/params, with the parameters of the loaded module."""
    known = {
        "ResmanDebugLevel": "4294967295", "RmLogonRC": "1", "ModifyDeviceFiles": "1", "DeviceFileUID": "0",
        "DeviceFileGID": "0", "DeviceFileMode": "438", "InitializeSystemMemoryAllocations": "1",
        "UsePageAttributeTable": "4294967295", "EnableMSI": "1", "EnablePCIeGen3": "0", "MemoryPoolSize": "0",
        "RestrictProfilingToAdminUsers": "1", "PreserveVideoMemoryAllocations": "0", "EnableGpuFirmware": "18",
        "DynamicPowerManagement": "3", "EnableUserNUMAManagement": "1", "CreateImexChannel0": "0",
    }  # fmt: skip
    for key, value in state.items():
        if key.startswith("module.parameter.NVreg_"):
            number = kernel_number(value)
            known[key.split("NVreg_", 1)[1]] = value if number is None else str(number)
    return "".join(f"{key}: {value}\n" for key, value in known.items())


def gpu_information(state: dict, gpu: int) -> str:
    """Return the text of /proc/driver/nvidia/gpus/<address>/information."""
    lines = {
        "Model": of_gpu(state, gpu, "name"),
        "IRQ": of_gpu(state, gpu, "irq", "0"),
        "GPU UUID": of_gpu(state, gpu, "uuid"),
        "Video BIOS": of_gpu(state, gpu, "vbios"),
        "Bus Type": "PCIe",
        "DMA Size": "47 bits",
        "DMA Mask": "0x7fffffffffff",
        "Bus Location": of_gpu(state, gpu, "pci.bus_id"),
        "Device Minor": of_gpu(state, gpu, "minor"),
        "GPU Firmware": state["module.version"] if of_gpu(state, gpu, "gsp.enabled") == "1" else "N/A",
        "GPU Excluded": "No",
    }
    return "".join(f"{key}:".ljust(16) + f" {value}\n" for key, value in lines.items())


def capability(minor: int, mode: int = 0o444) -> str:
    """Return the text of a capability file, which describes the device node of the capability."""
    return f"DeviceFileMinor: {minor}\nDeviceFileMode: {mode}\nDeviceFileModify: 1\n"


def show_migs(state: dict) -> None:
    """Create the capability files of the existing GPU instances and compute instances."""
    base = at("/proc/driver/nvidia/capabilities")
    for directory in base.glob("gpu*"):
        shutil.rmtree(directory)
    for gpu, mig in mig_devices(state):
        minor, gi, ci, gi_cap, ci_cap = (mig[key] for key in ("minor", "gi", "ci", "gi_cap", "ci_cap"))
        instance = base / f"gpu{minor}" / "mig" / f"gi{gi}"
        write(instance / "access", capability(int(gi_cap)))
        write(instance / f"ci{ci}" / "access", capability(int(ci_cap)))
        del gpu


def mig_devices(state: dict) -> list[tuple[int, dict]]:
    """Return the MIG devices of the GPUs with enabled MIG mode."""
    found: dict = {}
    for key, value in state.items():
        match = re.fullmatch(r"gpu\.(\d+)\.mig\.(\d+)\.(\w+)", key)
        if match and of_gpu(state, int(match[1]), "mig.current") == "1":
            found.setdefault((int(match[1]), int(match[2])), {})[match[3]] = value
    return [
        (gpu, {**mig, "minor": of_gpu(state, gpu, "minor", str(gpu))})
        for (gpu, _number), mig in sorted(found.items()) if "gi_cap" in mig
    ]  # fmt: skip


def mig_minors(gpu_count: int) -> str:
    """Return the text of /proc/driver/nvidia-caps/mig-minors: a number for every possible instance."""
    import mig_layout  # noqa: PLC0415 - not needed for most calls

    lines = ["config 1", "monitor 2"]
    for gpu in range(max(8, gpu_count)):
        for gi in range(mig_layout.GI_A_GPU):
            lines.append(f"gpu{gpu}/gi{gi}/access {mig_layout.gi_capability(gpu, gi)}")
            lines += [
                f"gpu{gpu}/gi{gi}/ci{ci}/access {mig_layout.ci_capability(gpu, gi, ci)}"
                for ci in range(mig_layout.CI_A_GI)
            ]
    return "\n".join(lines) + "\n"


def show_devices(branch: int, switches: bool) -> None:
    """Add the driver's character devices to /proc/devices, with free major numbers."""
    lines = real_devices_before().splitlines()
    taken = {int(line.split()[0]) for line in lines if re.match(r"\s*\d+ ", line)}
    new = [(GPU_MAJOR, "nvidia-frontend")] if branch <= 545 else [
        (GPU_MAJOR, "nvidia"), (GPU_MAJOR, "nvidia-modeset"), (GPU_MAJOR, "nvidiactl")
    ]  # fmt: skip
    names = ["nvidia-caps", *(["nvidia-nvswitch"] if switches else []), "nvidia-nvlink", "nvidia-uvm"]
    if branch >= 550:
        names.insert(0, "nvidia-caps-imex-channels")
    free = (number for number in range(511, 200, -1) if number not in taken)
    new += [(next(free), name) for name in names]
    character, block = lines[: lines.index("Block devices:")], lines[lines.index("Block devices:") :]
    while character and not character[-1]:
        character.pop()
    added = character[1:] + [f"{major:3d} {name}" for major, name in new]
    added.sort(key=lambda line: int(line.split()[0]))
    overwrite_if_changed(at(f"{RUN}/devices"), "\n".join([character[0], *added, "", *block]) + "\n")


def major_of(name: str) -> int | None:
    """Return the major number of a character device."""
    match = re.search(rf"^\s*(\d+) {re.escape(name)}$", read(at(f"{RUN}/devices")), re.M)
    return int(match[1]) if match else None


def node(path: str, major: int, minor: int, mode: int = 0o666, owner: tuple[int, int] = (0, 0)) -> None:
    """Create a character device. An existing node of the same device is not changed."""
    place = at(path)
    place.parent.mkdir(parents=True, exist_ok=True)
    wanted = os.makedev(major, minor)
    with contextlib.suppress(FileNotFoundError):
        there = place.lstat()
        if stat.S_ISCHR(there.st_mode) and there.st_rdev == wanted:
            return
        place.unlink()
    os.mknod(place, mode | stat.S_IFCHR, wanted)
    place.chmod(mode)
    os.chown(place, *owner)


def make_nodes(state: dict) -> None:
    """Create the device nodes of the loaded modules, like nvidia-modprobe and udev."""
    given = {key.split("NVreg_")[1]: value for key, value in state.items() if "NVreg_" in key}
    if given.get("ModifyDeviceFiles") == "0" or "module.version" not in state:
        return
    mode = kernel_number(given.get("DeviceFileMode", "")) or 0o666
    owner = (kernel_number(given.get("DeviceFileUID", "")) or 0, kernel_number(given.get("DeviceFileGID", "")) or 0)
    node("/dev/nvidiactl", GPU_MAJOR, CONTROL_MINOR, mode, owner)
    for gpu in gpus(state):
        if driver_of(of_gpu(state, gpu, "pci.bus_id")) == "nvidia":
            minor = int(of_gpu(state, gpu, "minor", str(gpu)))
            node(f"/dev/nvidia{minor}", GPU_MAJOR, minor, mode, owner)
    loaded = loaded_modules()
    if "nvidia_modeset" in loaded:
        node("/dev/nvidia-modeset", GPU_MAJOR, MODESET_MINOR, mode, owner)
    if "nvidia_uvm" in loaded and (major := major_of("nvidia-uvm")) is not None:
        node("/dev/nvidia-uvm", major, 0, mode, owner)
        node("/dev/nvidia-uvm-tools", major, 1, mode, owner)
    if (major := major_of("nvidia-nvswitch")) is not None:
        node("/dev/nvidia-nvswitchctl", major, 255)
        for number, _path in enumerate(sorted(at("/proc/driver/nvidia-nvswitch/devices").glob("*"))):
            node(f"/dev/nvidia-nvswitch{number}", major, number)
    make_capability_nodes(state)


def make_capability_nodes(state: dict) -> None:
    """Create the capability nodes of the MIG instances, and remove the nodes of removed instances."""
    major = major_of("nvidia-caps")
    if major is None:
        return
    wanted = {1: 0o400, 2: 0o444}
    for _gpu, mig in mig_devices(state):
        wanted.update({int(mig["gi_cap"]): 0o444, int(mig["ci_cap"]): 0o444})
    for path in at("/dev/nvidia-caps").glob("nvidia-cap*"):
        if int(path.name[len("nvidia-cap") :]) not in wanted:
            path.unlink()
    for minor, mode in wanted.items():
        node(f"/dev/nvidia-caps/nvidia-cap{minor}", major, minor, mode)


def make_drm() -> None:
    """Create the DRM nodes of nvidia_drm."""
    state = current_state()
    number = 0
    for gpu in gpus(state):
        address = of_gpu(state, gpu, "pci.bus_id")
        if driver_of(address) != "nvidia":
            continue
        card, render = f"card{number}", f"renderD{128 + number}"
        node(f"/dev/dri/{card}", DRM_MAJOR, number, 0o660)
        node(f"/dev/dri/{render}", DRM_MAJOR, 128 + number, 0o660)
        link(at(f"/dev/dri/by-path/pci-{address}-card"), f"../{card}")
        link(at(f"/dev/dri/by-path/pci-{address}-render"), f"../{render}")
        for name in (card, render):
            at(f"/sys/bus/pci/devices/{address}/drm/{name}").mkdir(parents=True, exist_ok=True)
        number += 1


def remove_nodes(module: str) -> None:
    """Remove the device nodes of an unloaded module."""
    if module == "nvidia":
        # Like the real driver, keep the other nodes. Opening them fails.
        shutil.rmtree(at("/dev/nvidia-caps"), ignore_errors=True)
    if module == "nvidia_drm":
        shutil.rmtree(at("/dev/dri"), ignore_errors=True)
        for directory in at("/sys/bus/pci/devices").glob("*/drm"):
            shutil.rmtree(directory)


# ---- grafting ----------------------------------------------------------------------------------------------


def is_graftable(name: str) -> bool:
    """Return whether the simulator replaces files with this name."""
    return name == PROGRAM or bool(LIBRARY.fullmatch(name))


def graftable(roots: list[str]) -> list[Path]:
    """Return the driver's files to replace: nvidia-smi, and libraries with a driver version in the name. Skip links."""
    found: dict[tuple[int, int], Path] = {}
    pending = [at(root) for root in roots]
    while pending:
        directory = pending.pop()
        try:
            entries = list(os.scandir(directory))
        except OSError:
            continue
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                # Below the usual library directories, search only NVIDIA's own directories.
                if "nvidia" in entry.path[len(os.environ.get("GPUSIM_ROOT", "")) :]:
                    pending.append(Path(entry.path))
            elif is_graftable(entry.name) and entry.is_file(follow_symlinks=False):
                status = entry.stat(follow_symlinks=False)
                found.setdefault((status.st_dev, status.st_ino), Path(entry.path))
    return sorted(found.values())


def volume_libraries(roots: list[str]) -> list[Path]:
    """Return the libraries in driver volumes. A volume can contain copies, which do not share the host's file."""
    return [
        path for root in roots for path in at(root).rglob("libnvidia-*.so.*")
        if LIBRARY.fullmatch(path.name) and path.is_file() and not path.is_symlink()
    ]  # fmt: skip


def payload() -> bytes:
    """Return the state for containers, which cannot read /run/gpusim. Add the persistence mode from the host."""
    state = current_state()
    for gpu in gpus(state):
        if is_held(of_gpu(state, gpu, "pci.bus_id")):
            state[f"gpu.{gpu}.persistence_mode"] = "1"
    return state_text(state).encode()


def padded(text: bytes, least: int = 0) -> bytes:
    """Pad a payload, so that it can change in place, and append its length."""
    if not text:
        return TRAILER + f"{0:016x}\n".encode()
    size = max(least, -(-(len(text) + TRAILER_SIZE) // PAYLOAD_STEP) * PAYLOAD_STEP - TRAILER_SIZE)
    return text.ljust(size, b"\n") + TRAILER + f"{size:016x}\n".encode()


def with_version(text: bytes, path: Path) -> bytes:
    """Add the library's version to a payload, for containers that mount the file under its SONAME."""
    return f"library.version={path.name.partition('.so.')[2]}\n".encode() + text


def grafted_size(file) -> int | None:
    """Return the size of the payload in an open library, or None if the library is not simulated."""
    end = file.seek(0, os.SEEK_END)
    if end <= TRAILER_SIZE:
        return None
    file.seek(end - TRAILER_SIZE)
    trailer = file.read(TRAILER_SIZE)
    return int(trailer[len(TRAILER) :], 16) if trailer.startswith(TRAILER) else None


def graft(path: Path, text: bytes) -> bool:
    """Replace a real file with the simulated one, or update the state in a simulated library."""
    library = LIBRARY.fullmatch(path.name)
    text = with_version(text, path) if library else b""
    with path.open("rb") as file:
        head = file.read(20)
        size = grafted_size(file)
    if size is not None:
        return bool(library) and refresh_file(path, size, text)
    if head[:5] != b"\x7fELF\2" or struct.unpack_from("<H", head, 18)[0] != 62:
        return False
    ours = at(f"{HOME}/{f'libnvidia-{library[1]}.so.1' if library else PROGRAM}").read_bytes()
    status = path.stat()
    beside = path.with_name(f".{path.name}.gpusim")
    beside.write_bytes(ours + padded(text))
    beside.chmod(stat.S_IMODE(status.st_mode))
    os.chown(beside, status.st_uid, status.st_gid)
    os.utime(beside, ns=(status.st_atime_ns, status.st_mtime_ns))
    beside.rename(path)
    return True


def refresh_file(path: Path, size: int, text: bytes) -> bool:
    """Write the state into a simulated library in place, so that hard links to the file see it, too."""
    with path.open("r+b") as file:
        file.seek(-(size + TRAILER_SIZE), os.SEEK_END)
        start = file.tell()
        new = padded(text, size)
        if file.read() == new:
            return False
        file.seek(start)
        file.write(new)
    return True


def graft_all() -> list[Path]:
    """Replace the files that dpkg installed, update all copies, and return the changed files."""
    host = description()
    text = payload()
    changed = [path for path in graftable([*GRAFT_ROOTS, *host.get("library_roots", [])]) if graft(path, text)]
    for path in volume_libraries(host.get("volume_roots", [])):
        with path.open("rb") as file:
            size = grafted_size(file)
        if size is not None and refresh_file(path, size, with_version(text, path)):
            changed.append(path)
    return changed


def graft_command(arguments: argparse.Namespace) -> None:
    """Replace the driver's libraries. An error is printed, but does not fail the dpkg run."""
    if not at(STATE).exists():
        return  # the image is being built, and the host has not booted yet
    try:
        with locked():
            changed = graft_all()
            count_users()
    except OSError as error:
        print(f"gpusim graft: {error}", file=sys.stderr)
        return
    if not arguments.quiet:
        for path in changed:
            print(path)


# ---- changing the state ------------------------------------------------------------------------------------


def after_change() -> None:
    """Update device nodes, /proc, reference counts and libraries after a change of the state."""
    state = current_state()
    if "module.version" in state:
        show_migs(state)
        make_nodes(state)
    count_users()
    graft_all()


def keep(assignments: list[str]) -> None:
    """Store settings that survive a power cycle."""
    at(KEPT).parent.mkdir(parents=True, exist_ok=True)
    with at(KEPT).open("a", encoding="utf-8") as file:
        file.writelines(f"{assignment}\n" for assignment in assignments)


def set_command(arguments: argparse.Namespace) -> None:
    """Set keys of the live state. KEY= removes a key."""
    with locked():
        with changing_state() as state:
            for assignment in arguments.assignments:
                key, equals, value = assignment.partition("=")
                if not equals or not key:
                    raise Refused(errno.EINVAL, f"{assignment!r} does not have the form KEY=VALUE")
                if value:
                    state[key] = value
                else:
                    state.pop(key, None)
        if arguments.keep:
            keep(arguments.assignments)
        after_change()


def mig_command(arguments: argparse.Namespace) -> None:
    """Set the MIG mode of a GPU, and create its instances."""
    import mig_layout  # noqa: PLC0415

    shape = description().get("mig", {}).get(str(arguments.gpu))
    if shape is None:
        raise Refused(errno.ENODEV, f"GPU {arguments.gpu} does not support MIG")
    with locked():
        with changing_state() as state:
            gpu = f"gpu.{arguments.gpu}"
            on = arguments.layout != ["off"]
            wanted = [] if arguments.layout in (["on"], ["off"]) else arguments.layout
            try:
                devices = mig_layout.place(wanted, shape["profiles"], shape["slices"])
            except mig_layout.LayoutError as error:
                raise Refused(errno.EINVAL, str(error)) from error
            drop_migs(state, arguments.gpu)
            state[f"{gpu}.mig.current"] = state[f"{gpu}.mig.pending"] = str(int(on))
            minor = int(of_gpu(state, arguments.gpu, "minor", str(arguments.gpu)))
            new = mig_layout.device_state(state[f"{gpu}.uuid"], state[f"{gpu}.name"], minor, devices)
            state.update({f"{gpu}.{key}": str(value) for key, value in new.items()})
            if (
                state.get(f"{gpu}.mig.resetless") != "1"
            ):  # Ampere keeps the mode over a power cycle, but not the instances
                keep([f"{gpu}.mig.pending={int(on)}"])
        after_change()


def fabric_command(arguments: argparse.Namespace) -> None:
    """Set the fabric state of the GPUs with an NVLink fabric, like the fabric manager."""
    with locked():
        with changing_state() as state:
            for key in [key for key in state if re.fullmatch(r"gpu\.\d+\.fabric\.state", key)]:
                state[key] = FABRIC_STATES[arguments.state]
        after_change()


def reset_command(arguments: argparse.Namespace) -> None:
    """Reset a GPU like `nvidia-smi --gpu-reset`: pending modes take effect, and a required reset is done."""
    with locked():
        with changing_state() as state:
            if arguments.gpu not in gpus(state):
                raise Refused(errno.ENODEV, f"the host has no GPU {arguments.gpu}")
            prefix = f"gpu.{arguments.gpu}."
            if is_held(of_gpu(state, arguments.gpu, "pci.bus_id")) or of_gpu(state, arguments.gpu, "processes.compute"):
                raise Refused(errno.EBUSY, f"GPU {arguments.gpu} is in use")
            reset_gpu(state, arguments.gpu, parse_state(description()["state"]))
            if state.get(f"{prefix}return.*") == "16":
                del state[f"{prefix}return.*"]
            for key in ("recovery_action", "reset.required", "remapped.pending", "retired.pending"):
                if f"{prefix}{key}" in state:
                    state[f"{prefix}{key}"] = "0"
        after_change()


def fault_command(arguments: argparse.Namespace) -> None:
    """Make NVML calls fail, hang or return wrong data, or remove these faults."""
    prefix = f"gpu.{arguments.gpu}." if arguments.gpu is not None else ""
    with locked():
        with changing_state() as state:
            if arguments.clear:
                for key in [
                    key
                    for key in state
                    if re.fullmatch(r"(gpu\.[\d*]+\.(mig\.\d+\.)?)?(return|delay|garbage)\..*", key)
                ]:
                    del state[key]
            for kind in ("return", "delay", "garbage"):
                value = getattr(arguments, kind + "_value")
                if value is not None:
                    state[f"{prefix}{kind}.{arguments.call}"] = value
        after_change()


def refresh_command(_arguments: argparse.Namespace) -> None:
    """Update the host to match the live state."""
    with locked():
        after_change()


def show_command(arguments: argparse.Namespace) -> None:
    """Print the live state, or the keys that begin with a prefix."""
    state = current_state()
    for key in sorted(state):
        if not arguments.key or key.startswith(arguments.key):
            print(f"{key}={state[key]}")


def log_command(_arguments: argparse.Namespace) -> None:
    """Print the messages of the simulated kernel since boot."""
    print(read(at(f"{RUN}/log")), end="")


def parse(arguments: list[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="gpusim", description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)

    def command(name: str, function) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=function.__doc__)
        sub.set_defaults(function=function)
        return sub

    command("boot", boot)
    sub = command("load", load)
    sub.add_argument("path")
    sub.add_argument("parameters", nargs="?", default="")
    sub = command("unload", unload)
    sub.add_argument("name")
    sub.add_argument("flags", nargs="?")
    command("graft", graft_command).add_argument("--quiet", action="store_true")
    command("refresh", refresh_command)
    sub = command("set", set_command)
    sub.add_argument("--keep", action="store_true", help="keep the change after a reboot")
    sub.add_argument("assignments", nargs="+", metavar="KEY=VALUE")
    sub = command("mig", mig_command)
    sub.add_argument("gpu", type=int)
    sub.add_argument("layout", nargs="+", help="on, off, or profiles such as 3g.20gb 1g.5gb")
    command("fabric", fabric_command).add_argument("state", choices=FABRIC_STATES)
    command("reset", reset_command).add_argument("gpu", type=int)
    sub = command("fault", fault_command)
    sub.add_argument("call", nargs="?", default="*", help="name of an NVML function, or * for all")
    sub.add_argument("--gpu")
    sub.add_argument("--return", dest="return_value", metavar="CODE")
    sub.add_argument("--delay", dest="delay_value", metavar="SECONDS")
    sub.add_argument("--garbage", dest="garbage_value", metavar="BYTE")
    sub.add_argument("--clear", action="store_true", help="remove all faults first")
    command("show", show_command).add_argument("key", nargs="?", default="")
    command("log", log_command)
    command("accelerators", accelerators_command).add_argument("path")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Run a command. If the simulated kernel rejects it, the exit status is the error number."""
    sys.path.insert(0, HOME)
    parsed = parse(arguments)
    try:
        parsed.function(parsed)
    except Refused as refusal:
        log(str(refusal))
        if "GPUSIM_AS_KERNEL" not in os.environ:
            print(f"gpusim {parsed.command}: {refusal}", file=sys.stderr)
        return refusal.number
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
