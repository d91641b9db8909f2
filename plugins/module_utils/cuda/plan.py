# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is to be done so that a host has the CUDA toolkits that are asked for: data, empty on a converged host.

This file is private to the collection: it may change in any release.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import addresses
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.files import natural_key, upstream_version
from ansible_collections.gpufleet.hosts.plugins.module_utils.cuda import compatibility
from ansible_collections.gpufleet.hosts.plugins.module_utils.cuda import request as cuda_request
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import plan as driver_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import source as driver_source
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import nvidia_repository
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import record as packages_record

PROFILE_FILE = "/etc/profile.d/gpufleet-cuda.sh"
# Debian's toolkit depends on the driver's library, by one of these names.
_DRIVER_LIBRARIES = ("libcuda1", "libnvidia-tesla-cuda1", "libnvidia-tesla-535-cuda1")
_DRIVER_VERSION = r"\d{3}\.\d{2,3}(\.\d+)?"
_TOOLKITS = "cuda-toolkit-[0-9]*-[0-9]*"
_ELSEWHERE = "Install one by your own means and set cuda_toolkit_source=preinstalled."


def plan(
    host: dict[str, t.Any],
    request: dict[str, t.Any],
    distributions: dict[str, t.Any],
    branches: dict[str, int],
    *,
    platform: dict[str, t.Any] | None = None,
    offered: dict[str, list[str]] | None = None,
) -> dict[str, t.Any]:
    """Resolve what the role is to do on this host, and why.

    `distributions` tells packages and version of the toolkits of distributions, `branches` the driver branch that a
    toolkit is made for, `platform` what role nvidia_driver knows of the platform, `offered` the versions on offer by
    package, once the repository has been asked.
    """
    result: dict[str, t.Any] = {
        "source": request.get("source"),
        "toolkits": [],
        "default": None,
        "packages": [],
        "query": [],
        "look": None,
        "repository": None,
        "keyring": None,
        "key": None,
        "files": [],
        "remove_files": [],
        "remove_packages": [],
        "profile": None,
        "unseen": [],
        "untried": [],
        "finish": False,
        "reasons": [],
        "warnings": [],
        "problems": [],
        "summary": [],
        "acts": False,
    }
    try:
        wish = cuda_request.typed(request)
    except cuda_request.RequestError as error:
        return {**result, "problems": [str(error)]}
    result["source"] = wish["source"]
    _SOURCES[wish["source"]](result, host, wish, distributions, platform)
    if not result["problems"]:
        _environment(result, host, wish)
        _offers(result, host, offered)
        _driver(result, host, wish, branches)
    _untried(result, host)
    result["summary"] = _summary(result)
    result["acts"] = bool(result["summary"])
    if result["acts"] and host["uid"] != 0:
        result["problems"].append(f"this needs root, and the host was seen as user {host['uid']}. Set become: true.")
    return result


# --- sources --------------------------------------------------------------------------------------------------------


def _preinstalled(
    result: dict[str, t.Any], host: dict[str, t.Any], wish: dict[str, t.Any], _distributions: t.Any, _platform: t.Any
) -> None:
    if wish["versions"] or wish["default_version"]:
        result["problems"].append(
            "cuda_toolkit_source=preinstalled takes the toolkit in cuda_toolkit_path, whichever version that is. Name "
            "its directory, as /usr/local/cuda-12.6, and leave cuda_toolkit_versions and cuda_toolkit_default_version "
            "out."
        )
        return
    version = re.search(r"cuda-(\d+\.\d+)$", wish["path"])
    _toolkit(result, version.group(1) if version else None, wish["path"])
    result["reasons"].append(f"the toolkit in {wish['path']} is used")
    result["default"] = wish["path"]
    # Looked at before something is changed for its sake.
    nvcc = f"{wish['path']}/bin/nvcc"
    if wish["environment"] and _profile(host, wish["path"]) is not None:
        seen = host["files"].get(nvcc)
        if seen is None:
            result["unseen"].append(nvcc)
        elif not seen["exists"]:
            result["problems"].append(
                f"cuda_toolkit_source=preinstalled: there is no {nvcc} on this host. Set cuda_toolkit_path to where "
                "the toolkit lies, or choose another source."
            )


def _distribution(
    result: dict[str, t.Any],
    host: dict[str, t.Any],
    wish: dict[str, t.Any],
    distributions: dict[str, t.Any],
    _platform: t.Any,
) -> None:
    name, known = host["os"]["name"], distributions.get(host["os"]["key"] or "")
    if known is None:
        result["problems"].append(
            f"cuda_toolkit_source=distribution: the toolkit of {name} is not known (known: "
            f"{', '.join(sorted(distributions))}). Set cuda_toolkit_source=nvidia and the versions that are wanted, as "
            'cuda_toolkit_versions: ["12.6"], or '
            "install one by your own means and set cuda_toolkit_source=preinstalled."
        )
        return
    for place, version in [("versions", item) for item in wish["versions"]] + [
        ("default_version", wish["default_version"] or known["version"])
    ]:
        if version != known["version"]:
            result["problems"].append(
                f"cuda_toolkit_{place}={version}: {name} has {known['version']} and no other. Set {known['version']}, "
                "leave it out, or set cuda_toolkit_source=nvidia."
            )
    _toolkit(result, known["version"], "/usr")
    result["packages"] = [package for package in known["packages"] if package not in host["packages"]]
    result["reasons"].append(f"CUDA {known['version']} of {name}")
    if result["packages"] and not any(library in host["packages"] for library in _DRIVER_LIBRARIES):
        driver = host["driver"]
        result["problems"].append(
            f"the toolkit of {name} would bring the driver library libcuda1 with it, "
            + (
                f"beside the driver {driver['library']} that did not come from packages. Set "
                "cuda_toolkit_source=nvidia, whose toolkits need no driver's package."
                if driver["library"]
                else "and this role never installs a driver. Apply role nvidia_driver first, or set "
                "cuda_toolkit_source=nvidia."
            )
        )
    missing = (host["apt"] or {}).get("missing_components") or []
    if result["packages"] and missing:
        result["problems"].append(
            f"the toolkit lies in components of the archive that are not enabled: {', '.join(missing)}. Enable them "
            "in the host's sources, as role nvidia_driver does."
        )


def _nvidia(
    result: dict[str, t.Any],
    host: dict[str, t.Any],
    wish: dict[str, t.Any],
    _distributions: t.Any,
    platform: dict[str, t.Any] | None,
) -> None:
    versions = sorted(wish["versions"], key=natural_key)
    if not versions:
        result["problems"].append(
            'cuda_toolkit_source=nvidia: say which versions are wanted, as cuda_toolkit_versions: ["12.6", "13.0"].'
        )
        return
    default = wish["default_version"] or versions[-1]
    if default not in versions:
        result["problems"].append(
            f"cuda_toolkit_default_version={default} is none of cuda_toolkit_versions ({', '.join(versions)}). Name "
            "one of them, or leave it out for the newest."
        )
        return
    for version in versions:
        directory, package = f"/usr/local/cuda-{version}", package_of(version)
        _toolkit(result, version, directory)
        if package in host["packages"]:
            result["reasons"].append(f"CUDA {version}: {package} is installed")
            continue
        seen = host["files"].get(f"{directory}/bin/nvcc")
        if seen is None:
            result["unseen"].append(f"{directory}/bin/nvcc")
        if seen is not None and seen["exists"]:
            result["reasons"].append(f"CUDA {version}: the one in {directory}, which came by other means, is kept")
        else:
            result["packages"].append(package)
            result["reasons"].append(f"CUDA {version}: {package} of NVIDIA's repository")
    result["default"] = f"/usr/local/cuda-{default}"
    if result["packages"] or packages_record.read(host, packages_record.TOOLKIT)["key"]:
        _repository(result, host, wish, platform)


_SOURCES = {"preinstalled": _preinstalled, "distribution": _distribution, "nvidia": _nvidia}


def package_of(version: str) -> str:
    """Return NVIDIA's package of a toolkit, which needs no driver."""
    return f"cuda-toolkit-{version.replace('.', '-')}"


def _toolkit(result: dict[str, t.Any], version: str | None, directory: str) -> None:
    result["toolkits"].append({"version": version, "directory": directory, "nvcc": f"{directory}/bin/nvcc"})


def _repository(
    result: dict[str, t.Any], host: dict[str, t.Any], wish: dict[str, t.Any], platform: dict[str, t.Any] | None
) -> None:
    """Plan what the package manager has to know. A host that has all packages needs nothing of it."""
    system = host["os"]
    data = ((platform or {}).get("sources") or {}).get("nvidia")
    arch = data["arches"].get(system["arch"]) if data else None
    if data is None or arch is None:
        if result["packages"]:
            what = f"{system['name']} ({system['arch']})" if data else system["name"]
            result["problems"].append(
                f"cuda_toolkit_source=nvidia: no repository of NVIDIA's for {what} is known. {_ELSEWHERE}"
            )
        return
    repository = nvidia_repository.describe(data["repository"], {"arch": arch}, wish)
    result["keyring"], result["key"] = nvidia_repository.keyring(repository), repository["fingerprint"]
    kept = nvidia_repository.entries_of(host, repository)
    of_the_driver = nvidia_repository.is_used_by(host, packages_record.DRIVER)
    if result["packages"]:
        result["query"] = [_TOOLKITS]
        if not kept and of_the_driver and nvidia_repository.is_ours_elsewhere(host, repository):
            result["problems"].append(
                "role nvidia_driver has NVIDIA's repository from another address than "
                f"{addresses.masked(repository['url'])}. Set "
                "cuda_toolkit_mirror and cuda_toolkit_key_fingerprint as nvidia_driver_mirror and "
                "nvidia_driver_key_fingerprint are."
            )
        clash = nvidia_repository.clash(host, repository)
        result["problems"] += [clash] if clash else []
        result["remove_files"], result["remove_packages"] = nvidia_repository.superseded(host, repository)
    # How the driver reaches the repository stands, and so does its key.
    elsewise = nvidia_repository.is_outdated(host, repository) and not of_the_driver
    adds = (result["packages"] and not kept) or elsewise
    if repository["type"] == "apt":
        # Before the entry, so that there is no moment at which apt has that alone.
        ours = (adds or nvidia_repository.is_ours(host, repository)) and not of_the_driver
        content = _preference(host, platform) if ours else None
        _file(result["files"], host, nvidia_repository.APT_PREFERENCE_FILE, content)
    if adds:
        result["repository"] = repository
        result["files"].append({"state": "present", **nvidia_repository.entry(repository)})
    result["look"] = _look(result)
    if repository["type"] == "apt" and not (of_the_driver and nvidia_repository.has_apt_proxy(host)):
        content = nvidia_repository.apt_proxy(repository)
        _file(result["files"], host, nvidia_repository.APT_PROXY_FILE, content)


def _preference(host: dict[str, t.Any], platform: dict[str, t.Any] | None) -> str | None:
    """Return the preference by which apt takes nothing of a driver that came from elsewhere out of NVIDIA's repository.

    Nothing where there is no such driver, or role nvidia_driver has seen to it.
    """
    sources = (platform or {}).get("sources") or {}
    names = ((sources.get("distribution") or {}).get("patterns") or {}).get("own")
    if not names or (host["files"].get(driver_plan.PIN_FILE) or {}).get("exists"):
        return None
    if driver_source.installed(host, platform) == "nvidia":
        return None
    holds = [data["patterns"]["hold"] for data in sources.values()]
    there = any(
        re.search(hold, name) and re.fullmatch(_DRIVER_VERSION, upstream_version(package["version"]))
        for name, package in host["packages"].items()
        for hold in holds
    )
    if not there:
        return None
    return (
        "# Written by role gpufleet.hosts.cuda_toolkit.\n"
        "# The driver that is here is not from NVIDIA's repository, and no upgrade is to take parts of it from there.\n"
        f"{nvidia_repository.apt_last(names)}"
    )


def _look(result: dict[str, t.Any]) -> dict[str, t.Any]:
    """Say how the repositories are looked into before any is added: as they will be then."""
    repository = result["repository"]
    added = ("url", "key", "fingerprint", "proxy")
    return {
        "repository": {name: repository[name] for name in added if repository[name]} if repository else None,
        "without": [*result["remove_files"], *(nvidia_repository.replaced_files(repository) if repository else [])],
    }


def _offers(result: dict[str, t.Any], host: dict[str, t.Any], offered: dict[str, list[str]] | None) -> None:
    """Refuse versions that the repository has not, before anything is installed."""
    if offered is None or not result["query"]:
        return
    unknown = [package for package in result["packages"] if not offered.get(package)]
    if unknown:
        toolkits = (name for name, versions in offered.items() if versions and re.fullmatch(r"\D+\d+-\d+", name))
        there = sorted((version_of(name) for name in toolkits), key=natural_key)
        result["problems"].append(
            f"cuda_toolkit_versions: NVIDIA's repository for {host['os']['name']} has no "
            f"{', '.join(version_of(name) for name in unknown)}. It has {', '.join(there) or 'no toolkit at all'}."
        )


def version_of(package: str) -> str:
    """Return the version that a package of NVIDIA's is named for."""
    return package.rpartition("toolkit-")[2].replace("-", ".")


# --- the host around it ---------------------------------------------------------------------------------------------


def _environment(result: dict[str, t.Any], host: dict[str, t.Any], wish: dict[str, t.Any]) -> None:
    # A toolkit of the distribution has its programs in the usual directories.
    result["profile"] = _profile(host, result["default"] if wish["environment"] else None)


def _profile(host: dict[str, t.Any], directory: str | None) -> dict[str, t.Any] | None:
    files: list[dict[str, t.Any]] = []
    _file(files, host, PROFILE_FILE, profile(f"{directory}/bin") if directory else None)
    return files[0] if files else None


def _file(files: list[dict[str, t.Any]], host: dict[str, t.Any], path: str, content: str | None) -> None:
    there = host["files"].get(path) or {"exists": False, "content": None}
    if content is None and there["exists"]:
        files.append({"state": "absent", "path": path, "content": ""})
    elif content is not None and there["content"] not in (content, addresses.sealed(content)):
        files.append({"state": "present", "path": path, "content": content})


def profile(directory: str) -> str:
    """Return the text of the file that puts a toolkit's programs on PATH, once, and nothing else."""
    return (
        "# Written by role gpufleet.hosts.cuda_toolkit.\n"
        f'case ":$PATH:" in\n*:{directory}:*) ;;\n*) PATH="{directory}:$PATH" ;;\nesac\n'
    )


def _driver(result: dict[str, t.Any], host: dict[str, t.Any], wish: dict[str, t.Any], branches: dict[str, int]) -> None:
    """Compare the toolkits with the driver, and say how what they compile is tried."""
    driver = host["driver"]["loaded"] or host["driver"]["library"]
    only_compiles = wish["verify"] in ("none", "compile")
    run = not only_compiles and (wish["verify"] == "run" or host["driver"]["loaded"] is not None)
    if wish["verify"] == "run" and host["driver"]["loaded"] is None:
        result["problems"].append(
            "cuda_toolkit_verify=run: no driver is loaded on this host, so nothing can run. Apply role nvidia_driver "
            "first, or set cuda_toolkit_verify to auto."
        )
    for toolkit in result["toolkits"]:
        version = toolkit["version"]
        served = compatibility.serves(driver, version, branches) if driver and version else "fully"
        older = compatibility.dropped(version, host["nvidia"]["device_ids"]) if version else {}
        # CUDA takes the fastest GPU, which may be one of the older ones.
        tried = run and (not older or wish["verify"] == "run")
        # A driver translates no PTX that is newer than itself; then the GPUs' own code has to be compiled.
        toolkit.update(
            verify=wish["verify"] != "none", run=tried, options=["-arch=native"] if tried and served == "minor" else []
        )
        if older and len(older) == len(host["nvidia"]["device_ids"]):
            # No driver would help.
            _all_dropped(result, version, older, only_compiles)
            continue
        if older:
            result["warnings"].append(
                f"CUDA {version} compiles nothing for {', '.join(older)}: what it compiles runs on the other GPUs of "
                f"this host alone{'' if tried or not run else ', and the trial only compiles'}."
            )
        if served == "no":
            text = (
                f"driver {driver} cannot run what CUDA {version} compiles: that needs "
                f"{compatibility.first_branch(version)} or newer"
            )
            if only_compiles:
                result["warnings"].append(f"{text}.")
            else:
                result["problems"].append(
                    f"{text}. Upgrade the driver (nvidia_driver_branch), ask for an older toolkit, or set "
                    "cuda_toolkit_verify=compile on a host that only compiles."
                )
        elif served == "minor":
            result["warnings"].append(
                f"driver {driver} is older than CUDA {version}: what that compiles runs by minor-version "
                "compatibility, without the features that are newer than the driver, and has to be compiled for the "
                "GPUs' own architecture (nvcc -arch=native)."
            )


def _all_dropped(result: dict[str, t.Any], version: str, older: dict[str, int], only_compiles: bool) -> None:
    text = f"CUDA {version} compiles nothing for the GPUs of this host, {', '.join(older)}"
    if only_compiles:
        result["warnings"].append(f"{text}.")
        return
    result["problems"].append(
        f"{text}. Ask for a toolkit of version {min(older.values())}.x, or set cuda_toolkit_verify=compile on a host "
        "that only compiles."
    )


def _untried(result: dict[str, t.Any], host: dict[str, t.Any]) -> None:
    """Have what this role installed tried until it has worked once. Only root can read whether it has."""
    known = packages_record.read(host, packages_record.TOOLKIT)
    # A run that was cut off leaves it to this one to tell what came.
    result["finish"] = packages_record.is_open(host, packages_record.TOOLKIT)
    if known["packages"] or known["uncertain"] or known["pending"]:
        result["untried"] = [
            toolkit["directory"]
            for toolkit in result["toolkits"]
            if toolkit.get("verify") and toolkit["directory"] not in known["verified"]
        ]


def _summary(result: dict[str, t.Any]) -> list[str]:
    changes = [*result["files"], *([result["profile"]] if result["profile"] else [])]
    parts = (
        ("remove {}", result["remove_files"] + result["remove_packages"]),
        ("add the repository {}", [addresses.masked(result["repository"]["url"])] if result["repository"] else []),
        ("install {}", result["packages"]),
        ("write {}", [file["path"] for file in changes if file["state"] == "present"]),
        ("remove {}", [file["path"] for file in changes if file["state"] == "absent"]),
        ("write down what a run that was cut off has brought", result["finish"]),
        ("try {}", result["untried"]),
    )
    return [text.format(", ".join(names) if isinstance(names, list) else "") for text, names in parts if names]
