# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Create a signed apt repository with stand-ins for AWS Neuron's packages.

    make_neuron_repository.py --version 2.30.2.0:2.32.28.0 --suite bookworm --out /srv/vendor/neuron

A version is that of the driver, a colon, and that of the tools. Prints the fingerprint of the key.

Names, conflicts, paths and what the scripts do: aws-neuron-driver 2.24.7.0 (fca19f7), dkms.conf, preinstall and
postinstall, and aws-neuron-sdk (81ce03a). The module has a version but no function; the simulator shows the chips while
it is loaded. Invented, because the vendor does not document it: the content of docker-daemon.json and of the hook.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

import make_repository as stand_ins

KEY_FILE = "GPG-PUB-KEY-AMAZON-AWS-NEURON.PUB"
HOOK_VERSION = "2.19.65.0"
RULE, MODULES = "/lib/udev/rules.d/neuron-udev.rules", "/etc/modules-load.d/neuron.conf"
BEFORE_INSTALL = f"""\
echo 'KERNEL=="neuron*", MODE="0666"' > {RULE}
update-pciids || true
[ ! -e /sys/module/neuron ] || rmmod neuron
"""
AFTER_INSTALL = """\
dkms add aws-neuronx/{version} >/dev/null || true
for kernel in /lib/modules/*/build; do
    [ -e "$kernel/Makefile" ] || continue
    dkms install --force aws-neuronx/{version} -k "$(basename "$(dirname "$kernel")")"
done
echo neuron > {modules}
depmod
modprobe neuron
"""
BEFORE_REMOVAL = """\
[ ! -e /sys/module/neuron ] || rmmod neuron
dkms remove aws-neuronx/{version} --all || true
"""
DKMS_CONF = """\
PACKAGE_NAME="aws-neuronx"
PACKAGE_VERSION="{version}"
AUTOINSTALL="yes"
BUILT_MODULE_NAME[0]="neuron"
DEST_MODULE_LOCATION[0]="/kernel/drivers/neuron/"
MAKE[0]="make -C $kernel_source_dir M=$dkms_tree/$module/$module_version/build modules"
"""
# The simulated driver numbers the chips in the reverse order of the bus.
NEURON_LS = """\
#!/usr/bin/python3
import json, os
chips = sorted(os.listdir("/sys/class/neuron_device"), key=lambda name: int(name[6:]))
functions = sorted(name for name in os.listdir("/sys/bus/pci/drivers/neuron-driver") if ":" in name)
print(json.dumps([
    {"neuron_device": number, "bdf": address.partition(":")[2], "neuron_processes": []}
    for number, address in enumerate(reversed(functions[:len(chips)]))
]))
"""
WRAPPER = """\
#!/usr/bin/python3
import json, os, sys
words = sys.argv[1:]
if "create" in words:
    bundle = words[words.index("--bundle") + 1] if "--bundle" in words else "."
    path = os.path.join(bundle, "config.json")
    with open(path) as file:
        config = json.load(file)
    given = dict(text.partition("=")[::2] for text in config["process"].get("env", []))
    visible = given.get("AWS_NEURON_VISIBLE_DEVICES", "")
    chips = sorted(os.listdir("/sys/class/neuron_device")) if visible.lower() == "all" else [
        "neuron" + number for number in visible.split(",") if number
    ]
    for chip in chips:
        number = os.stat("/dev/" + chip).st_rdev
        one = {"type": "c", "major": os.major(number), "minor": os.minor(number)}
        config["linux"].setdefault("devices", []).append({"path": "/dev/" + chip, "fileMode": 0o666, **one})
        config["linux"]["resources"].setdefault("devices", []).append({"allow": True, "access": "rwm", **one})
    with open(path, "w") as file:
        json.dump(config, file)
os.execvp("runc", ["runc", *words])
"""
WRAPPER_PATH = "/opt/aws/neuron/bin/oci_neuron_hook_wrapper.sh"
DAEMON_JSON = (
    '{\n    "default-runtime": "neuron",\n    "log-level": "debug",\n'
    f'    "runtimes": {{"neuron": {{"path": "{WRAPPER_PATH}", "runtimeArgs": []}}}}\n}}\n'
)


def driver(version: str) -> stand_ins.Package:
    """Return the package with the source of the kernel module."""
    package = stand_ins.Package("aws-neuronx-dkms", version, ("dkms",), ("aws-neuron-dkms",))
    source = f"/usr/src/aws-neuronx-{version}"
    package.files[f"{source}/neuron.c"] = stand_ins.module_source("neuron", version, "GPL").replace(
        "extern int gpufleet_stand_in;\nint *gpufleet_neuron = &gpufleet_stand_in;\n", ""
    )
    package.files[f"{source}/Makefile"] = "obj-m += neuron.o\n"
    package.files[f"{source}/dkms.conf"] = DKMS_CONF.format(version=version)
    package.before_install = BEFORE_INSTALL
    package.after_install = AFTER_INSTALL.format(version=version, modules=MODULES)
    package.before_removal = BEFORE_REMOVAL.format(version=version)
    return package


def tools(version: str) -> stand_ins.Package:
    package = stand_ins.Package("aws-neuronx-tools", version)
    package.files["/opt/aws/neuron/bin/neuron-ls"] = NEURON_LS
    return package


def hook() -> stand_ins.Package:
    package = stand_ins.Package("aws-neuronx-oci-hook", HOOK_VERSION)
    package.files[WRAPPER_PATH] = WRAPPER
    package.files["/opt/aws/neuron/share/docker-daemon.json"] = DAEMON_JSON
    return package


def main() -> None:
    """Build the packages, sign the suite, and print the fingerprint of the key."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--version", action="append", required=True, help="DRIVER:TOOLS")
    parser.add_argument("--suite", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--gnupg", type=Path, default=Path("/srv/vendor/gnupg"))
    options = parser.parse_args()
    shutil.rmtree(options.out, ignore_errors=True)
    pool = options.out / "pool/main"
    pool.mkdir(parents=True)
    fingerprint = stand_ins.key(options.gnupg)
    packages = [hook()]
    for text in options.version:
        dkms, _colon, other = text.partition(":")
        packages += [driver(dkms), tools(other)]
    with tempfile.TemporaryDirectory() as scratch:
        for package in packages:
            stand_ins.build_deb(package, pool, Path(scratch))
    stand_ins.sign_suite(options.out, options.suite, "AWS Neuron (stand-in)", ["main"], options.gnupg)
    (options.out / "key.asc").rename(options.out / KEY_FILE)
    print(fingerprint)


if __name__ == "__main__":
    main()
