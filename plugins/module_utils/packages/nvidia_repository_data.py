# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA's CUDA network repository per platform: what roles nvidia_driver and cuda_toolkit both need to know.

Add a platform here with its repository, the key file, and the fingerprint or the digest of that key, with the public
sources of both values.
"""

from __future__ import annotations

from typing import Any

BASE = "https://developer.download.nvidia.com/compute/cuda/repos"
# Names of architectures in the paths of the repository.
_ARCHES = {"x86_64": "x86_64", "aarch64": "sbsa"}
# NVIDIA's repository contains these packages, too, but its versions do not fit the distribution's driver.
_DRIVER_OF_DISTRIBUTION = ["dkms", "*nvidia*", "libcuda*", "libnvcuvid*", "libnvoptix*"]
# Packages that identify a driver from this repository. Other repositories also have the `shared` names.
_DEBIAN_MARKS = [
    {"name": r"libcuda1|libnvidia-ml1|nvidia-smi|nvidia-kernel-dkms", "shared": True},
    {"name": r"nvidia-driver-cuda|nvidia-kernel-open-dkms|nvidia-open|cuda-drivers(-\d+)?"},
]
_UBUNTU_MARKS = [
    {"name": r"(nvidia-dkms|libnvidia-compute)-\d+(-open)?", "shared": True},
    {"name": r"nvidia-dkms|nvidia-dkms-open|libnvidia-compute|nvidia-open(-\d+)?|cuda-drivers(-\d+)?"},
]
_RPM_MARKS = [{"name": r"nvidia-driver-cuda|kmod-nvidia-(open|latest)-dkms|nvidia-open|cuda-drivers(-\d+)?"}]
_SLES_MARKS = [{"name": r"nvidia-(open-)?driver-G\d\d.*|nvidia-compute(-utils)?-G\d\d"}]

# NVIDIA's DKMS packages need dkms 3.1.8 or newer from this driver on. Debian 12 has 3.0.10, and Ubuntu 22.04 has 2.8.7.
# NVIDIA's repositories for apt contain a newer dkms. Sources: stackhpc/ansible-slurm-appliance, pull request 703, and
# the pins of other public set-ups, which stop at 570.133.20 because of it.
DKMS_MINIMUM = "3.1.8"
FIRST_WITH_DKMS_MINIMUM = "570.148.08"
# Before this driver, the open modules of the rpm packages are called nvidia-open in DKMS, as the proprietary ones are
# called nvidia. Source: awslabs/amazon-eks-ami, templates/al2023/provisioners/install-nvidia-driver.sh (81fec2e).
FIRST_WITH_COMMON_DKMS_NAME = "570.148.08"


def _apt(folder: str, key: str, fingerprint: str, *, marks: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    # apt rejects a repository that is listed with two different keys.
    legacy_files = [
        "/etc/apt/sources.list.d/cuda.list",
        f"/etc/apt/sources.list.d/cuda-{folder}.list",
        f"/etc/apt/sources.list.d/cuda-{folder}-{{arch}}.list",
        "/etc/apt/sources.list.d/nvidia-ml.list",
        f"/etc/apt/trusted.gpg.d/cuda-{folder}-keyring.gpg",
        "/etc/apt/trusted.gpg.d/7fa2af80.gpg",
    ]
    legacy_packages = ["cuda-keyring", f"cuda-repo-{folder}"]
    repository = _repository("apt", folder, (key, fingerprint), legacy_files, legacy_packages)
    return {**_platform(repository, marks=marks, **more), "driver_of_distribution": _DRIVER_OF_DISTRIBUTION}


def _dnf(folder: str, key: str, fingerprint: str, *, module_hotfixes: bool = False) -> dict[str, Any]:
    legacy_files = [
        "/etc/yum.repos.d/cuda.repo",
        f"/etc/yum.repos.d/cuda-{folder}.repo",
        f"/etc/yum.repos.d/cuda-{folder}-{{arch}}.repo",
    ]
    repository = _repository("dnf", folder, (key, fingerprint), legacy_files, [f"cuda-repo-{folder}"])
    repository["module_hotfixes"] = module_hotfixes
    return _platform(repository, marks=_RPM_MARKS)


def _zypper(folder: str, key: str, fingerprint: str, *, marks: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    legacy_files = [f"/etc/zypp/repos.d/cuda-{folder}.repo", f"/etc/zypp/repos.d/cuda-{folder}-{{arch}}.repo"]
    repository = _repository("zypper", folder, (key, fingerprint), legacy_files, [f"cuda-repo-{folder}"])
    return _platform(repository, marks=marks, **more)


def _repository(
    kind: str, folder: str, trust: tuple[str, str], legacy_files: list[str], legacy_packages: list[str]
) -> dict[str, Any]:
    return {
        "type": kind,
        "base": BASE,
        "path": f"{folder}/{{arch}}",
        "key": trust[0],
        "fingerprint": trust[1],
        # Files and packages of older setups of the same repository.
        "legacy_files": legacy_files,
        "legacy_packages": legacy_packages,
    }


def _platform(
    repository: dict[str, Any],
    *,
    marks: list[dict[str, Any]],
    components: list[str] | None = None,
) -> dict[str, Any]:
    source = {"arches": _ARCHES, "repository": repository, "marks": marks}
    return {
        # The keys of source nvidia in the data of a platform.
        "nvidia": {**source, "components": components} if components else source,
    }


_PLATFORMS = {
    # Key file: NVIDIA's listing of debian12/x86_64; takumin/mitamae-cloud-image, cookbooks/nvidia-cuda/default.rb
    # (0688d1d). Fingerprint: NVIDIA/cuda-repo-management, SIGNATURES.md (2944b7a); computed from nvidia.pub of
    # pardus/pardus-nvidia-installer (cff549d). No citable source has the file for sbsa. NVIDIA uses one key per
    # distribution.
    # nvidia-modprobe, glx-alternative-nvidia and similar packages are in the contrib component of Debian's archive.
    "debian-12": _apt(
        "debian12",
        "3bf863cc.pub",
        "EB693B3035CD5710E231E123A4B469963BF863CC",
        marks=_DEBIAN_MARKS,
        components=["main", "contrib"],
    ),
    # Key file: NVIDIA/cuda-repo-management, issue 39; takumin/mitamae-cloud-image, cookbooks/nvidia-cuda/default.rb
    # (0688d1d). Fingerprint: the second source; computed from nvidia.pub of pardus/pardus-nvidia-installer (cff549d).
    # No citable source has the file for sbsa. NVIDIA uses one key per distribution.
    "debian-13": _apt(
        "debian13",
        "8793F200.pub",
        "02182E60104FCDC26EAE1B8597A5D4CB8793F200",
        marks=_DEBIAN_MARKS,
        components=["main", "contrib"],
    ),
    # Key file, both architectures: Azure/AgentBaker, parts/linux/cloud-init/artifacts/ubuntu/cse_install_ubuntu.sh
    # (06836ee); takumin/mitamae-cloud-image, cookbooks/nvidia-cuda/default.rb (32456bd). Fingerprint:
    # NVIDIA/cuda-repo-management, SIGNATURES.md (2944b7a); computed from nvidia.pub of
    # pardus/pardus-nvidia-installer (cff549d).
    "ubuntu-22.04": _apt("ubuntu2204", "3bf863cc.pub", "EB693B3035CD5710E231E123A4B469963BF863CC", marks=_UBUNTU_MARKS),
    # Key file, both architectures: NVIDIA's listings of ubuntu2404/x86_64 and ubuntu2404/sbsa; Azure/AgentBaker,
    # parts/linux/cloud-init/artifacts/ubuntu/cse_install_ubuntu.sh (06836ee). Fingerprint: NVIDIA/cuda-repo-management,
    # SIGNATURES.md (2944b7a); takumin/mitamae-cloud-image, cookbooks/nvidia-cuda/default.rb (0688d1d).
    "ubuntu-24.04": _apt("ubuntu2404", "3bf863cc.pub", "EB693B3035CD5710E231E123A4B469963BF863CC", marks=_UBUNTU_MARKS),
    # Key file: Azure/AgentBaker, parts/linux/cloud-init/artifacts/ubuntu/cse_install_ubuntu.sh (06836ee; tested there
    # for sbsa); takumin/mitamae-cloud-image, cookbooks/nvidia-cuda/default.rb (0688d1d, x86_64). Fingerprint: the
    # second source. Other public files agree, but their repositories are unknown, so there is no second citable source.
    "ubuntu-26.04": _apt("ubuntu2604", "60DF8A40.pub", "14BAFBC7562AD710CA04E69905FBB6DA60DF8A40", marks=_UBUNTU_MARKS),
    # Key file: NVIDIA's listings of rhel8/x86_64 and rhel8/sbsa; NVIDIA/gpu-driver-container, rhel8/Dockerfile
    # (06a208c). Fingerprint: NVIDIA/cuda-repo-management, SIGNATURES.md (2944b7a). Other public files agree, but their
    # repositories are unknown, so there is no second citable source.
    "el-8": _dnf("rhel8", "D42D0685.pub", "610C7B14E068A878070DA4E99CD0A493D42D0685"),
    # Key file: NVIDIA's listing of rhel9/x86_64; NVIDIA/gpu-driver-container, rhel9/Dockerfile (06a208c, both
    # architectures). Fingerprint: NVIDIA/cuda-repo-management, SIGNATURES.md (2944b7a). Other public files agree, but
    # their repositories are unknown, so there is no second citable source.
    "el-9": _dnf("rhel9", "D42D0685.pub", "610C7B14E068A878070DA4E99CD0A493D42D0685"),
    # Key file: NVIDIA's listings of rhel10/x86_64 and rhel10/sbsa; NVIDIA/gpu-driver-container, rhel10/Dockerfile
    # (06a208c). Digest of the file without its Version lines, for both architectures: the same Dockerfile. One other
    # public Dockerfile agrees, but its repository is unknown. No source has the fingerprint.
    # This repository has no module streams, but dnf's modular filtering hid its packages: rocky-linux/rockylinux.org,
    # issue 201 (580.65.06, 2025-08).
    "el-10": _dnf(
        "rhel10",
        "CDF6BA43.pub",
        "sha256:afbea87d3b979b3788ef34223aeeb323ade481128e2c133723ae99b8a51368bb",
        module_hotfixes=True,
    ),
    # Key file: NVIDIA's listing of amzn2023/sbsa; NVIDIA/cuda-repo-management, README.md, table of GPG keys (April
    # 2026). Fingerprint: NVIDIA/cuda-repo-management, SIGNATURES.md (2944b7a). Other public files agree, but their
    # repositories are unknown, so there is no second citable source.
    "amazon-2023": _dnf("amzn2023", "D42D0685.pub", "610C7B14E068A878070DA4E99CD0A493D42D0685"),
    # Key file, both architectures: SUSE/BCI-dockerfile-generator, src/bci_build/package/nvidia.py (bcb9ba8). No other
    # citable source. Fingerprint: NVIDIA/cuda-repo-management, SIGNATURES.md (2944b7a). Other public files agree, but
    # their repositories are unknown, so there is no second citable source.
    "sles-15": _zypper("sles15", "D42D0685.pub", "610C7B14E068A878070DA4E99CD0A493D42D0685", marks=_SLES_MARKS),
}


def of(key: str | None) -> dict[str, Any] | None:
    """Return what is known about NVIDIA's repository on a platform. `key` is `host["os"]["key"]`."""
    return _PLATFORMS.get(key or "")
