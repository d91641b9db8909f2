# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Create a part of Ubuntu's archive with installable packages, on the host that will use it: kernels and the driver.

    make_ubuntu_archive.py --age 1 --out /srv/vendor/ubuntu

Names, versions and relations come from archives/ubuntu.yml. --age 0, 1 or 2 selects the time. Like Ubuntu's
archive, this one has all kernels until then and their prebuilt modules, but only the newest driver. The kernels do
not boot; the host simulates them. Their headers are a copy of the headers of the host with another release, so that
DKMS can build modules.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path
from typing import Any

import archives
import make_repository as stand_ins
import yaml

VARIANT = "ubuntu-24.04"
# Unit, scripts and options of Ubuntu's persistence daemon: canonical/nvidia-graphics-drivers, branch 580-server-noble
# (24d7353e), debian/templates/nvidia-compute-utils-flavour.*.in. The udev rule that starts the daemon is left out,
# because no device appears in a simulated host.
PERSISTENCED_UNIT = """[Unit]
Description=NVIDIA Persistence Daemon
Wants=syslog.target
StopWhenUnneeded=true

[Service]
Type=forking
ExecStart=/usr/bin/nvidia-persistenced --user nvidia-persistenced --no-persistence-mode --verbose
ExecStopPost=/bin/rm -rf /var/run/nvidia-persistenced
"""
ADD_USER = """if ! id nvidia-persistenced >/dev/null 2>&1; then
    useradd --system --user-group --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin nvidia-persistenced
fi
systemctl daemon-reload || true
"""
REMOVE_USER = "userdel nvidia-persistenced 2>/dev/null || true\nsystemctl daemon-reload || true\n"
# Holds each GPU through the driver's library, as NVIDIA's daemon does.
PERSISTENCED = """#!/usr/bin/python3
# {stand_in}
import argparse, ctypes, os, pwd, signal, sys

class Pci(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int) for name in ("domain", "bus", "device", "function")]

parser = argparse.ArgumentParser()
parser.add_argument("--user")
parser.add_argument("--persistence-mode", action=argparse.BooleanOptionalAction, default=True)
parser.add_argument("--verbose", action="store_true")
options = parser.parse_args()
library = ctypes.CDLL("libnvidia-cfg.so.1")
count, devices = ctypes.c_int(), ctypes.POINTER(Pci)()
if not library.nvCfgGetPciDevices(ctypes.byref(count), ctypes.byref(devices)):
    sys.exit("Failed to query NVIDIA devices.")
os.makedirs("/run/nvidia-persistenced", exist_ok=True)
if options.user:
    user = pwd.getpwnam(options.user)
    os.chown("/run/nvidia-persistenced", user.pw_uid, user.pw_gid)
    os.setgid(user.pw_gid)
    os.setuid(user.pw_uid)
if os.fork():
    os._exit(0)
os.setsid()
for device in devices[: count.value] if options.persistence_mode else []:
    handle = ctypes.c_void_p()
    place = (device.domain, device.bus, device.device, device.function)
    if not library.nvCfgAttachPciDevice(*place, ctypes.byref(handle)):
        sys.exit("Failed to open a device.")
signal.sigwait([signal.SIGTERM])
"""
# The rest of the archive is Debian's on a simulated host.
FLAVOR = "generic"
BRANCHES = (580,)


def rows_at(age: int, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the kernels or drivers as they are at a time."""
    known = [row for row in rows if row["age"] <= age]
    return [{**row, "newest": row["age"] == age} for row in known]


def packages_at(age: int) -> list[archives.Package]:
    """Return the packages of the archive at a time, without those that a simulated host has from Debian."""
    data = yaml.safe_load((archives.DIRECTORY / "ubuntu.yml").read_text(encoding="utf-8"))
    values = data["variants"][VARIANT]
    kernels = [row for row in values["kernels"] if row["flavor_"] == FLAVOR]
    drivers = [row for row in values["drivers"] if row["branch"] in BRANCHES and "line" not in row]
    values["kernels"] = rows_at(age, kernels)
    values["drivers"] = [{**row, "gone": row["age"] < age} for row in rows_at(age, drivers)]
    values["transitional"] = []
    found = archives.expand(data, VARIANT).offered
    return [one for one in found if one.driver or one.release or one.name == "linux-firmware"]


def package(known: archives.Package) -> stand_ins.Package:
    """Return a package with files, for its role in the driver or in the kernel."""
    name, version, release = known.name, known.driver, known.release
    if name.startswith("nvidia-dkms-"):
        built = stand_ins.kernel_package(name, version, known.version, known.flavor, ())
    elif name.startswith(("nvidia-fabricmanager-",)):
        joins = "/usr/lib/gpusim/gpusim fabric completed"
        built = stand_ins.service_package(name, known.version, "nvidia-fabricmanager.service", joins)
    else:
        built = stand_ins.Package(name, known.version)
    libraries = {
        "libnvidia-compute-": ("libcuda", "libnvidia-ml", "libnvidia-ptxjitcompiler"),
        "libnvidia-cfg1-": ("libnvidia-cfg",),
        "libnvidia-nscq-": ("libnvidia-nscq",),
    }
    if name.startswith("nvidia-utils-"):
        built.copies["/usr/bin/nvidia-smi"] = stand_ins.NVIDIA_SMI
    if name.startswith("nvidia-compute-utils-"):
        built.files["/usr/bin/nvidia-persistenced"] = PERSISTENCED.format(stand_in=stand_ins.STAND_IN)
        built.files["/usr/lib/systemd/system/nvidia-persistenced.service"] = PERSISTENCED_UNIT
        built.after_install, built.after_removal = ADD_USER, REMOVE_USER
        built.before_removal = "systemctl stop --no-block nvidia-persistenced || true\n"
    for start, names in libraries.items():
        if name.startswith(start):
            stand_ins.library_files(built, names, version, "/usr/lib/x86_64-linux-gnu")
    if name == f"linux-image-{release}":
        built.files[f"/boot/vmlinuz-{release}"] = ""
        built.files[f"/usr/lib/modules/{release}/modules.order"] = ""
        built.after_removal = f"rm -rf /usr/lib/modules/{release}\n"
    elif name == f"linux-headers-{release}":
        stand_ins.add_headers(built, release)
    elif name.startswith("linux-modules-nvidia-") and name.endswith(release) and release:
        stand_ins.prebuilt_modules(built, release, version, known.flavor, "kernel/nvidia")
    for field in ("depends", "conflicts", "provides", "replaces", "breaks"):
        setattr(built, field, (*getattr(known, field),))
    return built


def main() -> None:
    """Build the packages, and write the indexes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--age", type=int, choices=(0, 1, 2), required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--gnupg", type=Path, default=Path("/srv/vendor/gnupg"))
    options = parser.parse_args()
    stand_ins.key(options.gnupg)
    shutil.rmtree(options.out, ignore_errors=True)
    components: dict[str, list[archives.Package]] = {}
    for one in packages_at(options.age):
        components.setdefault(one.component, []).append(one)
    with tempfile.TemporaryDirectory() as scratch:
        for component, members in components.items():
            place = options.out / "pool" / component
            place.mkdir(parents=True)
            for one in members:
                stand_ins.build_deb(package(one), place, Path(scratch))
    stand_ins.sign_suite(options.out, "noble", "Ubuntu", sorted(components), options.gnupg)


if __name__ == "__main__":
    main()
