# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA's CUDA network repository: its URL, its key and former setups on each platform, and its entries on a host.

Both roles add the repository with the same files. The record of each role shows whether it uses the repository, so that
removing one role keeps the repository for the other.

Add a platform below `_PLATFORMS` with its repository, the key file, and the fingerprint or the digest of that key, with
the public sources of both values.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import observed_files, owned, url_logins
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import record_of_role
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import key_trust, role_file_paths
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import proxy_and_logins as repository_access

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host

APT_PROXY_FILE = role_file_paths.apt_proxy(owned.REPOSITORY_ID)
APT_LOGIN_FILE = role_file_paths.apt_login(owned.REPOSITORY_ID)
ZYPPER_LOGIN_FILE = role_file_paths.zypper_login(owned.REPOSITORY_ID)
APT_PREFERENCE_FILE = owned.TOOLKIT_APT_PREFERENCES
# The entry by package manager, and the key that signs the repository.
_ENTRY_FILES = {
    manager: role_file_paths.repository_entry(owned.REPOSITORY_ID, manager) for manager in role_file_paths.MANAGERS
}
_KEYRINGS = {
    manager: role_file_paths.repository_key(owned.REPOSITORY_ID, manager) for manager in role_file_paths.MANAGERS
}
# The network repository, mirrors with its layout, and the local repositories of NVIDIA's installers.
_OF_NVIDIA = re.compile(
    r"/compute/cuda/repos/|/(debian|ubuntu)\d+/(x86_64|sbsa|arm64)/*$|/(cuda-repo|nvidia-driver-local-repo)-"
)
# The URL in an entry of any package manager, and the lines with proxy and logins.
_ADDRESS = r"^(?:URIs:|baseurl\s*=)\s*([^\s?]+)"
_ACCESS = re.compile(r"^(?:URIs:|baseurl\s*=|proxy\s*=|# login:).*", re.MULTILINE)
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


def of_platform(key: str | None) -> dict[str, Any] | None:
    """Return what is known about NVIDIA's repository on a platform. `key` is `host["os"]["key"]`."""
    return _PLATFORMS.get(key or "")


def describe(data: dict, names: dict, settings: dict) -> dict[str, Any]:
    """Return the requested repository from the platform's data and the user's settings.

    `fingerprint` is the trusted fingerprint of its key, or the digest of the key file.
    """
    url = f"{(settings['mirror'] or data['base']).rstrip('/')}/{data['path'].format(**names)}"
    key_url = settings["key_url"] or f"{url}/{data['key']}"
    username, password = repository_access.login_for(url, settings) if settings["mirror"] else ("", "")
    key_username, key_password = repository_access.login_for(key_url, settings) if username else ("", "")
    repository = {
        "type": data["type"],
        "url": url,
        "key": key_url,
        "fingerprint": key_trust.normalized(settings["key_fingerprint"] or data["fingerprint"]),
        "proxy": settings["proxy"] or None,
        "username": username,
        "password": password,
        "key_username": key_username,
        "key_password": key_password,
        "proxy_username": str(settings.get("proxy_username") or ""),
        "proxy_password": str(settings.get("proxy_password") or ""),
        "legacy_files": [path.format(**names) for path in data["legacy_files"]],
        "legacy_packages": data["legacy_packages"],
        "module_hotfixes": data.get("module_hotfixes", False),
    }
    return {**repository, "keyring": keyring(repository), "entry": entry(repository)}


def to_query(repository: dict) -> dict[str, str]:
    """Return how the repository is reached, as options of a module."""
    names = ("url", "key", "fingerprint", "proxy", "username", "password", "proxy_username", "proxy_password")
    return {name: repository[name] for name in names if repository[name]}


def definition(repository: dict) -> dict[str, Any]:
    """Return the options of module package_transaction that define the repository."""
    options = to_query(repository)
    if options["url"].startswith("file:"):
        # The login is for the URL of NVIDIA's installer.
        options = {name: value for name, value in options.items() if name not in ("username", "password")}
    return {
        "name": owned.REPOSITORY_ID,
        "description": "NVIDIA CUDA",
        **options,
        **({"module_hotfixes": True} if repository.get("module_hotfixes") else {}),
        "replaces": repository["legacy_files"],
    }


def entries_of(host: Host, repository: dict) -> list[dict]:
    """Return the enabled entries with the repository's URL that the role keeps.

    apt rejects entries with one URL and different keys, so with apt, all kept entries have the same key.
    """
    if repository["type"] == "apt":
        return _of_one_key(_apt_entries(host, repository), repository)
    url = repository["url"].rstrip("/")
    # zypper has the proxy as a parameter of the URL.
    same = [entry for entry in host["repositories"] if (entry["url"] or "").partition("?")[0].rstrip("/") == url]
    return [entry for entry in same if entry["enabled"]]


def mirror_on_host(host: Host, repository: dict) -> str | None:
    """Return the URL of a mirror of the repository that the host already uses, or None.

    Our entry has the URL of the mirror. If our entry does not exist, the URL is from an entry of the user. If the user
    also has an entry for the repository itself, the function returns None.
    """
    own = url_logins.plain(repository["url"]).rstrip("/")
    entries = host["repositories"] if host["apt"] is None else host["apt"]["sources"]
    urls = [
        (entry["file"], (url or "").partition("?")[0].rstrip("/"))
        for entry in entries
        if entry["enabled"]
        for url in entry.get("uris") or [entry.get("url")]
    ]
    found = [url for file, url in urls if file == _ENTRY_FILES[repository["type"]]]
    if not found and own not in [url for _file, url in urls]:
        # Other repositories have the same paths, for example those of NVIDIA's machine learning packages.
        found = [url for _file, url in urls if "cuda" in url.lower()]
    # After an upgrade of the distribution, our entry may have the path of the former release.
    path = "/".join(own.split("/")[-2:])
    return next((url for url in found if url != own and url.endswith(f"/{path}")), None)


def _apt_entries(host: Host, repository: dict) -> list[dict]:
    return [entry for entry in host["apt"]["sources"] if any(_is_at(repository, entry)) and entry["enabled"]]


def _is_at(repository: dict, entry: dict) -> list[bool]:
    """Return for each URL of an apt entry whether it is the URL of the repository."""
    url = repository["url"].rstrip("/")
    return [uri.rstrip("/") == url for uri in entry["uris"]]


def _of_one_key(entries: list[dict], repository: dict) -> list[dict]:
    """Return the entries that have the key of our entry.

    If our entry does not exist, return those that have the key of the user's first entry. If the user has no entry, and
    all legacy entries have one key, return the legacy entries.
    """
    keyed = [entry for entry in entries if entry["signed_by"]]
    older = [entry for entry in keyed if entry["file"] in repository["legacy_files"]]
    own = [entry for entry in keyed if entry not in older]
    own.sort(key=lambda entry: entry["file"] != _ENTRY_FILES["apt"])
    if own:
        return [entry for entry in own if entry["signed_by"] == own[0]["signed_by"]]
    return older if len({entry["signed_by"] for entry in older}) == 1 else []


def _clashing(host: Host, repository: dict) -> tuple[list[str], list[str]]:
    """Return apt's files whose entries have the repository's URL, but not the key of the kept entries.

    The first list has the files to remove. The second list has the files that also have other entries, so the role does
    not remove them.
    """
    if repository["type"] != "apt":
        return [], []
    kept = entries_of(host, repository)
    leaving = set(repository["legacy_files"]) - {entry["file"] for entry in kept}
    others = [entry for entry in _apt_entries(host, repository) if entry not in kept]
    paths = sorted({entry["file"] for entry in others} - leaving)
    entries = [entry for entry in host["apt"]["sources"] if entry["file"] in paths]
    mixed = {entry["file"] for entry in entries if entry in kept or not all(_is_at(repository, entry))}
    return [path for path in paths if path not in mixed], sorted(mixed)


def clash(host: Host, repository: dict) -> str | None:
    """Return a message about files that must be fixed by hand before the repository can be used, or None."""
    _removable, mixed = _clashing(host, repository)
    if not mixed:
        return None
    return (
        f"{', '.join(mixed)} has an entry for NVIDIA's repository {repository['url']} and other "
        "entries. apt rejects a repository that is listed with two different keys, or with and without a key. Remove "
        "that entry: the role writes its own file for the repository."
    )


def apt_files(host: Host) -> list[str]:
    """Return apt's source files that only have NVIDIA's repositories or mirrors of them."""
    by_file: dict[str, list[dict]] = {}
    for entry in host["apt"]["sources"] if host["apt"] is not None else []:
        if entry["enabled"]:
            by_file.setdefault(entry["file"], []).append(entry)
    ours = _ENTRY_FILES["apt"]
    return sorted(
        path
        for path, entries in by_file.items()
        if path == ours or all(_OF_NVIDIA.search(uri) for entry in entries for uri in entry["uris"])
    )


def is_reached_otherwise(host: Host, repository: dict, record: str) -> bool:
    """Return whether our entry's login or proxy differs from the request of a role.

    `record` is the path of the role's record.
    """
    requested = entry(repository)
    current = observed_files.content(host, requested["path"])
    if not current or is_moved(host, repository):
        return False
    if _access_lines(current) not in (
        _access_lines(requested["content"]),
        _access_lines(repository_access.sealed_file(requested["path"], requested["content"])),
    ):
        return True
    files = access_files(host, repository, record).items()
    return not all(is_written(host, path, text) for path, text in files)


def is_moved(host: Host, repository: dict) -> bool:
    """Return whether our entry has another URL than the repository."""
    current = observed_files.content(host, _ENTRY_FILES[repository["type"]])
    return bool(current) and url_logins.plain(_first(_ADDRESS, current)).rstrip("/") != repository["url"].rstrip("/")


def _access_lines(text: str) -> list[str]:
    return [unquote(line).rstrip("/") for line in _ACCESS.findall(text)]


def access_files(host: Host, repository: dict | None, record: str) -> dict[str, str | None]:
    """Return the text of the files that have the repository's proxy and logins. None: the file must not exist.

    Both roles can use the repository, and `record` is the path of the requesting role's record. Existing files of role
    nvidia_driver stay unchanged for role cuda_toolkit. Role nvidia_driver does not remove a file that role cuda_toolkit
    may use.
    """
    reached = repository_access.access(repository) if repository else repository_access.RepositoryAccess("")
    files = {
        "apt": {
            APT_PROXY_FILE: _noted("//", repository_access.apt_proxy(reached)),
            APT_LOGIN_FILE: _noted("#", repository_access.apt_logins(reached)),
        },
        "zypper": {ZYPPER_LOGIN_FILE: _noted("#", repository_access.zypper_logins(reached))},
    }.get(host["os"]["package_manager"], {})
    if record == record_of_role.TOOLKIT:
        used = is_used_by(host, record_of_role.DRIVER)
        return {path: text for path, text in files.items() if not (used and observed_files.exists(host, path))}
    used = is_used_by(host, record_of_role.TOOLKIT)
    return {path: text for path, text in files.items() if text is not None or not used}


def _noted(comment: str, text: str) -> str | None:
    return f"{comment} Written by Ansible collection gpufleet.hosts.\n{text}" if text else None


def is_written(host: Host, path: str, text: str | None) -> bool:
    """Return whether a file has this text. For None, return whether the file is missing.

    In observed files, digests replace logins.
    """
    if text is None:
        return not observed_files.exists(host, path)
    current = observed_files.content(host, path)
    has_logins = path in role_file_paths.with_logins(owned.REPOSITORY_ID)
    return current == text or (has_logins and current == repository_access.sealed_file(path, text))


def mode(path: str) -> str:
    """Return the mode of a file that the roles write beside the entry."""
    return "0600" if role_file_paths.is_login(path) else "0644"


def package_file(path: str, content: str | None) -> dict[str, str]:
    """Return an item of option `files` of module package_transaction, which does not log `secret_content`."""
    name = "secret_content" if content and mode(path) == "0600" else "content"
    state = "absent" if content is None else "present"
    return {"path": path, "state": state, name: content or "", "mode": mode(path)}


def is_outdated(host: Host, repository: dict, record: str) -> bool:
    """Return whether our entry, its logins or its key differ from the request of the role that writes `record`."""
    return is_reached_otherwise(host, repository, record) or _has_another_key(host, repository)


def _has_another_key(host: Host, repository: dict) -> bool:
    """Return whether the key file of our entry for this URL is missing or not trusted."""
    ours = _ENTRY_FILES[repository["type"]]
    if not is_ours(host, repository) or ours not in [item["file"] for item in entries_of(host, repository)]:
        return False
    return not key_trust.is_trusted(host["keyrings"].get(keyring(repository)), repository["fingerprint"])


def is_ours_elsewhere(host: Host, repository: dict) -> bool:
    """Return whether our entry exists and has another URL."""
    return is_ours(host, repository) and not any(
        item["file"] == _ENTRY_FILES[repository["type"]] for item in entries_of(host, repository)
    )


def is_used_by(host: Host, record: str) -> bool:
    """Return whether the role that writes `record` uses the repository."""
    known = record_of_role.read(host, record)
    # A transaction that uses the repository of the other role records only the name.
    return bool(known["key"]) or owned.REPOSITORY_ID in known["repositories"]


def superseded(host: Host, repository: dict) -> tuple[list[str], list[str]]:
    """Return the files and packages to remove: those that other setups of the repository added, except kept entries."""
    entries = host["apt"]["sources"] if host["apt"] is not None else host["repositories"]
    kept = {entry["file"] for entry in entries_of(host, repository)}
    listed = {entry["file"] for entry in entries}
    files = [path for path in repository["legacy_files"] if path in listed and path not in kept]
    files += _clashing(host, repository)[0]
    # The kept entry of the user may use a key of these packages.
    if kept - {_ENTRY_FILES[repository["type"]]}:
        return files, []
    names = [rf"{re.escape(name)}(-\d.*)?" for name in repository["legacy_packages"]]
    packages = sorted(
        package for package in host["installed_packages"] if any(re.fullmatch(name, package) for name in names)
    )
    return files + [path for path in _sources_inside(packages, entries) if path not in files], packages


def _sources_inside(packages: list[str], entries: list[dict]) -> list[str]:
    """Return the source files that only have repositories inside these packages."""
    inside = tuple(f"file:///var/{name}" for name in packages) or ("nowhere",)
    urls = [(entry["file"], url or "") for entry in entries for url in entry.get("uris") or [entry.get("url")]]
    others = {path for path, url in urls if not url.startswith(inside)}
    return sorted({path for path, _url in urls} - others)


def apt_last(names: list[str]) -> str:
    """Return an apt preference that gives the repository the lowest priority for these packages."""
    return f"Package: {' '.join(names)}\nPin: release o=NVIDIA\nPin-Priority: 100\n"


def is_ours(host: Host, repository: dict) -> bool:
    """Return whether our entry exists."""
    return observed_files.content(host, _ENTRY_FILES[repository["type"]]) is not None


def keyring(repository: dict) -> str:
    """Return the path of the repository's key."""
    return _KEYRINGS[repository["type"]]


def entry(repository: dict) -> dict[str, str]:
    """Return path, content and mode of the repository's entry for the package manager."""
    kind, reached = repository["type"], repository_access.access(repository)
    secret = ""
    if kind == "apt":
        text = f"Types: deb\nURIs: {reached.url}\nSuites: /\nSigned-By: {keyring(repository)}\n"
    else:
        lines = [f"[{owned.REPOSITORY_ID}]", "name=NVIDIA CUDA", "enabled=1"]
        if kind == "zypper":
            secret = reached.proxy_password
            lines += ["autorefresh=1", *repository_access.zypper_lines(reached, owned.REPOSITORY_ID)]
        else:
            secret = reached.password or reached.proxy_password
            lines += repository_access.dnf_lines(reached)
        lines += ["module_hotfixes=1"] if repository.get("module_hotfixes") else []
        text = "\n".join([*lines, "gpgcheck=1", f"gpgkey=file://{keyring(repository)}", ""])
    return {
        "path": _ENTRY_FILES[kind],
        "content": f"# Written by Ansible collection gpufleet.hosts.\n{text}",
        "mode": "0600" if secret else "0644",
    }


def _first(pattern: str, text: str) -> str:
    found = re.search(pattern, text, re.MULTILINE)
    return found.group(1) if found else ""
