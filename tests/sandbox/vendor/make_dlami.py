# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build and install what an AWS Deep Learning AMI has and no other stand-in provides, on the host that runs this.

    make_dlami.py --format deb

Installs packages of DCGM and EFA, and writes the files of the persistence daemon, of CUDA toolkits, and of the EFA
installer.
  versions of DCGM, EFA and the newest CUDA: AWS's release notes of the Ubuntu 24.04 base image of 2026-07-17
  libfabric-aws, and the format of /opt/amazon/efa_installed_packages: pull request 1882 of
  aws/aws-parallelcluster-cookbook
inferred: the names of the DCGM packages, the name libfabric1-aws with apt, the version of libfabric, CUDA 12.9 beside
13.2 on x86_64, and that CUDA was installed without packages.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tempfile
from pathlib import Path

import make_repository as stand_ins
import make_ubuntu_archive as ubuntu

CUDA = ("12.9", "13.2")
DCGM = "4.6.0"
EFA = "1.47.0"
PERSISTENCED_UNIT = """[Unit]
Description=NVIDIA Persistence Daemon

[Service]
Type=forking
ExecStart=/usr/bin/nvidia-persistenced --user nvidia-persistenced --persistence-mode --verbose
ExecStopPost=/bin/rm -rf /var/run/nvidia-persistenced

[Install]
WantedBy=multi-user.target
"""


def packages(kind: str) -> list[stand_ins.Package]:
    """Return the packages of DCGM and EFA."""
    full = f"1:{DCGM}-1"
    core = stand_ins.service_package("datacenter-gpu-manager-4-core", full, "nvidia-dcgm.service", "/bin/true")
    same = {"deb": "{} (= {})", "rpm": "{} = {}"}[kind]
    cuda = stand_ins.Package("datacenter-gpu-manager-4-cuda13", full, (same.format(core.name, full),))
    fabric = stand_ins.Package({"deb": "libfabric1-aws", "rpm": "libfabric-aws"}[kind], "2.4.0amzn1.0-1")
    return [core, cuda, fabric]


def install(kind: str) -> None:
    """Build and install the packages."""
    build, command = {
        "deb": (stand_ins.build_deb, ("dpkg", "--install")),
        "rpm": (stand_ins.build_rpm, ("rpm", "--install")),
    }[kind]
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "out"
        out.mkdir()
        for package in packages(kind):
            build(package, out, Path(scratch))
        stand_ins.run(*command, *(str(path) for path in sorted(out.iterdir())))


def write(path: str, text: str, mode: int = 0o644) -> None:
    """Write a file of this host."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")
    target.chmod(mode)


def main() -> None:
    """Install the packages, then write the files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--format", choices=("deb", "rpm"), required=True)
    install(parser.parse_args().format)
    for version in CUDA:
        write(f"/usr/local/cuda-{version}/bin/nvcc", stand_ins.NVCC.replace("@VERSION@", version), 0o755)
    write("/opt/amazon/efa_installed_packages", f"# EFA installer version: {EFA}\n# Debug packages installed: no\n")
    write("/usr/bin/nvidia-persistenced", ubuntu.PERSISTENCED.format(stand_in=stand_ins.STAND_IN), 0o755)
    # The stand-ins of the driver's packages do not have it.
    shutil.copy2(stand_ins.NVIDIA_SMI, "/usr/bin/nvidia-smi")
    # The directory of Amazon Linux, in which Debian's ldconfig does not search.
    write("/etc/ld.so.conf.d/lib64.conf", "/usr/lib64\n")
    stand_ins.run("ldconfig")
    write("/usr/lib/systemd/system/nvidia-persistenced.service", PERSISTENCED_UNIT)
    subprocess.run(("sh", "-c", ubuntu.ADD_USER), check=True)


if __name__ == "__main__":
    main()
