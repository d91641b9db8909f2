# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Create a signed apt repository with stand-ins for Intel Gaudi's packages.

    make_gaudi_repository.py --version 1.23.0-695 --version 1.24.0-1007 --suite jammy --out /srv/vendor/gaudi

OUT has the layout of the vendor's server: debian/ and api/gpg/key/public. Prints the fingerprint of the key.

Names of packages and modules: Intel Gaudi documentation 1.23.0, Custom_Driver_and_Software_Installation. Paths of the
runtime: HabanaAI/gaudi-container-runtime, packaging/.nfpm-cd.yaml (5e3298a). The modules have a version but no
function; the simulator shows the accelerators while habanalabs is loaded. Invented, because the vendor does not publish
it: relations of the packages, the name of the DKMS module, and that the package installs modules for all kernels.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from pathlib import Path

import make_repository as stand_ins

MODULES = ("habanalabs", "habanalabs_cn", "habanalabs_ib", "habanalabs_en")
COMMIT = "0abc123"
AFTER_INSTALL = """\
dkms add habanalabs/{version} >/dev/null || true
for kernel in /lib/modules/*/build; do
    [ -e "$kernel/Makefile" ] || continue
    dkms install --force habanalabs/{version} -k "$(basename "$(dirname "$kernel")")"
done
depmod
"""
BEFORE_REMOVAL = "dkms remove habanalabs/{version} --all || true\n"
# The vendor's runtime 1.24.0 reads the module IDs, unless a variable has indexes. This one only knows module IDs.
RUNTIME = """\
#!/usr/bin/python3
import glob, json, os, sys
words = sys.argv[1:]
if "create" in words:
    bundle = words[words.index("--bundle") + 1] if "--bundle" in words else "."
    path = os.path.join(bundle, "config.json")
    with open(path) as file:
        config = json.load(file)
    given = dict(text.partition("=")[::2] for text in config["process"].get("env", []))
    wanted = given.get("HABANA_VISIBLE_MODULES", "").split(",")
    for place in glob.glob("/sys/class/accel/accel[0-9]"):
        with open(place + "/device/module_id") as file:
            if file.read().strip() not in wanted:
                continue
        node = "/dev/accel/" + os.path.basename(place)
        number = os.stat(node).st_rdev
        one = {"type": "c", "major": os.major(number), "minor": os.minor(number)}
        config["linux"].setdefault("devices", []).append({"path": node, "fileMode": 0o666, **one})
        config["linux"]["resources"].setdefault("devices", []).append({"allow": True, "access": "rwm", **one})
    with open(path, "w") as file:
        json.dump(config, file)
os.execvp("runc", ["runc", *words])
"""
CONFIG = "/etc/habana-container-runtime/config.toml"
CONFIG_TEXT = """\
mount_accelerators = true
mount_uverbs = true

[habana-container-runtime]
visible_devices_all_as_default = true
log_file = "/var/log/habana-container-runtime.log"
"""
HOOK = {
    "version": "1.0.0",
    "hook": {"path": "/usr/bin/habana-container-hook", "args": ["habana-container-hook", "prestart"]},
    "when": {"always": True, "commands": [".*"]},
    "stages": ["prestart"],
}
# The hook leaves a trace instead of devices.
HOOK_PROGRAM = "#!/bin/sh\necho ran >>/var/lib/habana-hook-ran\n"


def driver(version: str) -> stand_ins.Package:
    """Return the package with the sources of the kernel modules."""
    package = stand_ins.Package("habanalabs-dkms", version, ("dkms",))
    source = f"/usr/src/habanalabs-{version}"
    conf = [f'PACKAGE_NAME="habanalabs"\nPACKAGE_VERSION="{version}"\nAUTOINSTALL="yes"']
    conf.append('MAKE[0]="make -C $kernel_source_dir M=$dkms_tree/$module/$module_version/build modules"')
    number = version.partition("-")[0]
    for position, name in enumerate(MODULES):
        text = stand_ins.module_source(name, f"{number}-{COMMIT}", "GPL")
        package.files[f"{source}/{name}.c"] = text.replace(
            f"extern int gpufleet_stand_in;\nint *gpufleet_{name} = &gpufleet_stand_in;\n", ""
        )
        conf.append(f'BUILT_MODULE_NAME[{position}]="{name}"\nDEST_MODULE_LOCATION[{position}]="/updates/dkms"')
    package.files[f"{source}/Makefile"] = "".join(f"obj-m += {name}.o\n" for name in MODULES)
    package.files[f"{source}/dkms.conf"] = "\n".join(conf) + "\n"
    package.after_install = AFTER_INSTALL.format(version=version)
    package.before_removal = BEFORE_REMOVAL.format(version=version)
    return package


def firmware(version: str) -> list[stand_ins.Package]:
    found = []
    for name, path in (
        ("habanalabs-firmware", "/lib/firmware/habanalabs/gaudi3/gaudi3-boot-fit.itb"),
        ("habanalabs-firmware-tools", "/usr/share/doc/habanalabs-firmware-tools/README"),
    ):
        package = stand_ins.Package(name, version)
        package.files[path] = f"stand-in {version}\n"
        found.append(package)
    return found


def runtime(version: str, scratch: Path) -> stand_ins.Package:
    package = stand_ins.Package("habanalabs-container-runtime", version)
    for path, text in (
        ("/usr/bin/habana-container-runtime", RUNTIME),
        ("/usr/bin/habana-container-hook", HOOK_PROGRAM),
    ):
        program = scratch / f"{version}-{path.rpartition('/')[2]}"
        program.write_text(text, encoding="utf-8")
        program.chmod(0o755)
        package.copies[path] = program
    package.files["/usr/share/containers/oci/hooks.d/oci-habana-hook.json"] = json.dumps(HOOK, indent=2)
    package.files[CONFIG] = CONFIG_TEXT
    package.settings = (CONFIG,)
    return package


def main() -> None:
    """Build the packages, sign the suite, and print the fingerprint of the key."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--version", action="append", required=True)
    parser.add_argument("--suite", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--gnupg", type=Path, default=Path("/srv/vendor/gnupg"))
    options = parser.parse_args()
    shutil.rmtree(options.out, ignore_errors=True)
    place = options.out / "debian"
    pool = place / "pool/main"
    pool.mkdir(parents=True)
    fingerprint = stand_ins.key(options.gnupg)
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        for version in options.version:
            for package in (driver(version), *firmware(version), runtime(version, scratch)):
                stand_ins.build_deb(package, pool, scratch)
    stand_ins.sign_suite(place, options.suite, "Intel Gaudi (stand-in)", ["main"], options.gnupg)
    key = options.out / "api/gpg/key/public"
    key.parent.mkdir(parents=True)
    (place / "key.asc").rename(key)
    print(fingerprint)


if __name__ == "__main__":
    main()
