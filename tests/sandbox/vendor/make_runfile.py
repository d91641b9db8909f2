# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Create a stand-in for NVIDIA's installer, on the host that will run it.

    make_runfile.py --version 580.82.07 --out /srv/vendor

The options, file locations, log and uninstaller are like those of NVIDIA's installer. The kernel modules and libraries
are those of make_repository.py and have no function. Prints the checksum of the file.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import io
import tarfile
import tempfile
from pathlib import Path

from make_repository import ARCH, LIBRARIES, LICENCES, STAND_IN, Package, kernel_package, write_tree

INSTALLER = r"""#!/bin/sh
# {stand_in}
set -eu
# The program in the archive runs in a temporary directory.
directory=$(mktemp -d "${{TMPDIR:-/tmp}}/makeself.XXXXXX")
printf '#!/bin/sh\n' >"$directory/nvidia-installer"
chmod 700 "$directory/nvidia-installer"
"$directory/nvidia-installer" || {{ echo "ERROR: $directory does not allow to execute programs" >&2; exit 1; }}
rm -r "$directory"
version={version}
flavor=open
beside_loaded=
for option; do
    case "$option" in
        --silent | --dkms | --no-nouveau-check) ;;
        --allow-installation-with-running-driver) beside_loaded=yes ;;
        --kernel-module-type=open | --kernel-module-type=proprietary) flavor=${{option#*=}} ;;
        *) echo "ERROR: $option is no option of this installer" >&2; exit 1 ;;
    esac
done
# Unload unused modules. If a module cannot be unloaded, --silent aborts the installation.
for module in nvidia_uvm nvidia_drm nvidia_modeset nvidia; do
    [ -d "/sys/module/$module" ] || continue
    rmmod "$module" 2>/dev/null || true
    [ -d "/sys/module/$module" ] || continue
    [ -z "$beside_loaded" ] || break
    echo "ERROR: kernel module '$module' is loaded and in use: installation aborted" >&2
    exit 1
done
command -v dkms >/dev/null || {{ echo "ERROR: there is no dkms" >&2; exit 1; }}
[ -d "/lib/modules/$(uname -r)/build" ] || {{ echo "ERROR: Unable to find the kernel source tree" >&2; exit 1; }}
exec 3>&2 >>/var/log/nvidia-installer.log 2>&1
trap 'echo "ERROR: Installation has failed." >&3' EXIT
echo "installing $version, $flavor"
[ ! -x /usr/bin/nvidia-uninstall ] || /usr/bin/nvidia-uninstall --silent
sed '1,/^PAYLOAD$/d' "$0" | base64 -d | tar -xz -C / --strip-components=2 "./$flavor" ./common
chmod 755 /usr/bin/nvidia-uninstall
dkms add "nvidia/$version"
dkms install --force "nvidia/$version" -k "$(uname -r)"
ldconfig
[ ! -x /usr/lib/gpusim/gpusim ] || /usr/lib/gpusim/gpusim graft --quiet
trap - EXIT
exit 0
PAYLOAD
"""

UNINSTALLER = r"""#!/bin/sh
# {stand_in}
set -eu
[ "$*" = --silent ] || {{ echo "ERROR: this uninstaller is not interactive, use --silent" >&2; exit 1; }}
dkms remove nvidia/{version} --all
rm -rf /usr/src/nvidia-{version} {files} /usr/bin/nvidia-uninstall
ldconfig
"""


def payload(version: str) -> bytes:
    """Return the archive of the installer: the common files, and the sources of the modules by flavor."""
    directory = f"/usr/lib/{ARCH}-linux-gnu"
    common = Package("nvidia-installer", version)
    for name in LIBRARIES:
        common.libraries[f"{directory}/{name}.so.{version}"] = f"{name}.so.1"
        common.links[f"{directory}/{name}.so.1"] = f"{name}.so.{version}"
    readme = f"/usr/share/doc/{common.name}"
    files = " ".join([*common.libraries, *common.links, readme])
    common.files["/usr/bin/nvidia-uninstall"] = UNINSTALLER.format(stand_in=STAND_IN, version=version, files=files)
    packed = io.BytesIO()
    with tempfile.TemporaryDirectory() as scratch, tarfile.open(fileobj=packed, mode="w:gz") as archive:
        root = Path(scratch)
        write_tree(common, root / "common")
        for flavor in LICENCES:
            modules = kernel_package(common.name, version, version, flavor, ())
            write_tree(modules, root / flavor)
        archive.add(root, arcname=".")
    return packed.getvalue()


def main() -> None:
    """Write the installer and print its checksum."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--version", required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    script = INSTALLER.format(stand_in=STAND_IN, version=options.version).encode()
    content = script + base64.encodebytes(payload(options.version))
    (options.out / f"NVIDIA-Linux-{ARCH}-{options.version}.run").write_bytes(content)
    print(f"sha256:{hashlib.sha256(content).hexdigest()}")


if __name__ == "__main__":
    main()
