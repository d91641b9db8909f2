# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which NVIDIA driver a host shall have, and why.

A pure function from what was observed of the host (`gpu_host_info`), what was asked for, and what is known of the
platform (data of role `nvidia_driver`) to a source, a flavor, a branch, packages and reasons. It looks at nothing else,
so every rule is a row of a table in the unit tests. What has to be done to get there is worked out by `driver_plan`.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from ansible_collections.gpufleet.hosts.plugins.module_utils import driver_request, gpu_generations
from ansible_collections.gpufleet.hosts.plugins.module_utils.host_files import natural_key, upstream_version

DEFAULTS: dict[str, Any] = {
    "source": "auto",
    "branch": None,
    "version": None,
    "minimum_version": None,
    "flavor": "auto",
    "module_build": "auto",
    "components": ["compute"],
    "extra_packages": [],
    "kernel_packages": None,
    "fabric_manager": "auto",
    "imex": False,
    "peermem": False,
    "mirror": None,
    "proxy": None,
    "key_fingerprint": None,
    "runfile_url": None,
    "runfile_checksum": None,
    "secure_boot_key_enrolled": False,
    "module_options": {},
    "reboot_timeout": None,
    "lock_timeout": None,
}


class _Refused(Exception):
    """What was asked for cannot be had on this host."""


class _Case(NamedTuple):
    """One question: what is known, what is asked, and the answer as it grows."""

    host: dict
    wish: dict
    platform: dict | None
    generations: dict
    window: tuple[int, int | None, str, str]
    result: dict


def resolve(host: dict, request: dict, platform: dict | None) -> dict:
    """Return what the host shall have; `errors` says why not, where it cannot be had.

    `action` is `none` (nothing to do here), `adopt` (keep the driver that is there) or `install`.
    """
    wish = {**DEFAULTS, **{name: value for name, value in request.items() if value not in (None, "")}}
    # YAML reads an unquoted branch as a number.
    wish.update({name: str(wish[name]) for name in driver_request.TEXTS if wish[name] is not None})
    result: dict[str, Any] = {
        "action": "none",
        "source": None,
        "flavor": None,
        "branch": None,
        "module_build": None,
        "packages": [],
        "optional": [],
        "lockstep": [],
        "prebuilt": [],
        "signed": False,
        "prerequisites": [],
        "kernel_packages": [],
        "repository": None,
        "stream": None,
        "services": [],
        "build_limit": None,
        "replaces": [],
        "reasons": [],
        "errors": [],
    }
    ids = host["nvidia"]["device_ids"]
    if not ids:
        result["reasons"].append("no NVIDIA GPU on the PCI bus: nothing of NVIDIA's is needed here")
        return result
    generations = {device: gpu_generations.of(device) for device in ids}
    try:
        driver_request.check(wish)
        _resolve(_Case(host, wish, platform, generations, _branch_window(generations), result))
    except (_Refused, driver_request.RequestError) as refused:
        result["errors"].append(str(refused))
    return result


def _resolve(case: _Case) -> None:
    installed = installed_source(case.host, case.platform)
    source = _source(case, installed)
    case.result["source"] = source
    if source == "preinstalled":
        _adopt(case)
        return
    data = _runfile_data(case) if source == "runfile" else _source_data(case, source)
    case.result["flavor"] = _flavor(case, data, installed == source)
    case.result["build_limit"] = _build_limit(case.host, data, case.result["flavor"])
    case.result["branch"] = _branch(case, data, installed == source)
    case.result["action"] = "install"
    if source == "runfile":
        case.result["module_build"] = "dkms"
        case.result["version"] = case.wish["version"]
    else:
        case.result["module_build"] = _module_build(case, data)
    _packages(case, data)
    _secure_boot(case)


# --- the source ---------------------------------------------------------------------------------------------------


def installed_source(host: dict, platform: dict | None) -> str | None:
    """Tell where the driver that is there came from; nothing where there is none."""
    names = host["packages"]
    sources = (platform or {}).get("sources") or {}
    # NVIDIA's own names first: on Debian its repository has packages of the distribution's names, too.
    for source in sorted(sources, key=lambda name: name != "nvidia"):
        if any(_marked(name, package, mark) for mark in sources[source]["marks"] for name, package in names.items()):
            return source
    if host["driver"]["runfile"]:
        return "runfile"
    if host["driver"]["library"] or host["driver"]["loaded"] or host["driver"]["on_disk"]:
        return "preinstalled"
    return None


def _marked(name: str, package: dict, mark: dict) -> bool:
    return bool(
        re.fullmatch(mark["name"], name)
        and ("version" not in mark or re.search(mark["version"] + "$", package["version"]))
    )


def _source(case: _Case, installed: str | None) -> str:
    asked = case.wish["source"]
    if asked == "preinstalled" and installed is None:
        raise _Refused(
            "nvidia_driver_source is preinstalled, but no driver is on this host (no libnvidia-ml.so.1, no kernel "
            "module, no package). Choose another source or install the driver first."
        )
    if asked == "runfile" and installed not in (None, "runfile"):
        raise _Refused(
            f"nvidia_driver_source is runfile, but driver packages are installed (from: {installed}). NVIDIA's "
            "installer and packages overwrite each other's files: remove the packages first with nvidia_driver_state "
            "absent, or keep to the packages."
        )
    if asked in ("distribution", "nvidia") and installed == "runfile":
        raise _Refused(
            f"nvidia_driver_source is {asked}, but the driver on this host was put there by NVIDIA's installer (there "
            "is an nvidia-uninstall). Run 'nvidia-uninstall' first, or adopt the driver with nvidia_driver_source "
            "preinstalled."
        )
    if asked != "auto":
        if asked in ("distribution", "nvidia") and installed in ("distribution", "nvidia") and installed != asked:
            raise _Refused(
                f"nvidia_driver_source is {asked}, but the driver packages on this host came from the source "
                f"{installed}; the two sets overwrite each other's files. Remove them first with nvidia_driver_state "
                f"absent and nvidia_driver_source {installed}, or keep that source."
            )
        return asked
    if installed in ("distribution", "nvidia"):
        case.result["reasons"].append(f"source {installed}: the driver packages that are installed came from there")
        return installed
    if installed is not None:
        how = "by NVIDIA's installer" if installed == "runfile" else "by the image or by hand"
        case.result["reasons"].append(f"source preinstalled: a driver is there already, put there {how}; it is kept")
        return "preinstalled"
    if case.platform is None:
        raise _Refused(_unknown_platform(case.host))
    order = [
        name
        for name in case.platform["source_order"]
        if case.host["os"]["arch"] in case.platform["sources"][name]["arches"]
    ]
    if not order:
        raise _Refused(_unknown_arch(case.host, case.platform))
    only_open = case.wish["flavor"] == "open" or any(
        not generation.proprietary_modules for generation in case.generations.values()
    )
    for source in order:
        data = case.platform["sources"][source]
        limit = _build_limit(case.host, data, "open") if only_open else None
        if limit:
            case.result["reasons"].append(
                f"not source {source}: the open kernel modules are needed, but {limit['reason']}, and this host has "
                f"{', '.join(limit['kernels'])}"
            )
            continue
        if _fitting(data, case.window) and (
            not case.wish["branch"] or not data.get("fixed") or case.wish["branch"] in data["branches"]
        ):
            case.result["reasons"].append(
                f"source {source}: the first of {case.platform['title']} that serves this hardware"
            )
            return source
    return order[0]


def _source_data(case: _Case, source: str) -> dict:
    if case.platform is None:
        raise _Refused(_unknown_platform(case.host))
    data = case.platform["sources"].get(source)
    if data is None:
        known = ", ".join(sorted(case.platform["sources"]))
        why = case.platform.get("absent_sources", {}).get(source, "is not known for it")
        raise _Refused(
            f"nvidia_driver_source {source}: {case.platform['title']}: {why}. Sources there: {known}, preinstalled."
        )
    if case.host["os"]["arch"] not in data["arches"]:
        raise _Refused(_unknown_arch(case.host, case.platform, source))
    return data


def _unknown_platform(host: dict) -> str:
    if host["os"]["key"] == "el-8":
        return (
            f"{host['os']['name']}: packages cannot be installed on Enterprise Linux 8, whose dnf is driven by Python "
            "3.6 alone, which ansible-core 2.19 has left behind. Upgrade the host to release 9 or 10, or install the "
            "driver by its own means and set nvidia_driver_source to preinstalled."
        )
    return (
        f"{host['os']['name']} ({host['os']['key'] or 'no version'}) is not a platform that this role knows a driver "
        "for. Install the driver by its own means and set nvidia_driver_source to preinstalled."
    )


def _unknown_arch(host: dict, platform: dict, source: str | None = None) -> str:
    arches = sorted({arch for data in platform["sources"].values() for arch in data["arches"]})
    where = f" from source {source}" if source else ""
    return (
        f"{platform['title']} has no driver{where} for the architecture {host['os']['arch']} (known: "
        f"{', '.join(arches)})."
    )


# --- the flavor of the kernel modules -----------------------------------------------------------------------------


def _flavor(case: _Case, data: dict, is_installed: bool) -> str:
    needs_open = _named(case.generations, lambda generation: not generation.proprietary_modules)
    needs_proprietary = _named(case.generations, lambda generation: not generation.open_modules)
    modern = _named(case.generations, lambda generation: generation.open_modules)
    if needs_open and needs_proprietary:
        raise _Refused(
            f"this host mixes GPUs that only the open kernel modules drive ({needs_open}) with GPUs that only the "
            f"proprietary ones drive ({needs_proprietary}); one host can load one kind. Take one sort of card out."
        )
    asked = case.wish["flavor"]
    if needs_proprietary and modern and asked == "auto":
        raise _Refused(
            f"this host mixes GPUs that want the open kernel modules ({modern}) with GPUs that only the proprietary "
            f"ones drive ({needs_proprietary}). Proprietary modules of branch 580 or older serve them all: set "
            "nvidia_driver_flavor to proprietary to say that this is what you want."
        )
    if asked == "open" and needs_proprietary:
        raise _Refused(
            f"nvidia_driver_flavor is open, but the open kernel modules do not drive {needs_proprietary}. Set it to "
            "auto or proprietary."
        )
    if asked == "proprietary" and needs_open:
        raise _Refused(
            f"nvidia_driver_flavor is proprietary, but only the open kernel modules drive {needs_open}. Set it to auto "
            "or open."
        )
    if asked != "auto":
        case.result["reasons"].append(f"{asked} kernel modules: asked for")
        return asked
    if needs_proprietary:
        case.result["reasons"].append(f"proprietary kernel modules: the open ones do not drive {needs_proprietary}")
        return "proprietary"
    if needs_open:
        case.result["reasons"].append(f"open kernel modules: the only ones for {needs_open}")
        return "open"
    present = _installed_flavor(case.host, data) if is_installed else None
    if present:
        case.result["reasons"].append(f"{present} kernel modules: installed already, and they drive {modern}")
        return present
    preferred = data.get("preferred_flavor")
    if preferred:
        case.result["reasons"].append(f"{preferred['flavor']} kernel modules: {preferred['reason']}")
        return preferred["flavor"]
    limit = _build_limit(case.host, data, "open")
    if limit:
        case.result["reasons"].append(
            f"proprietary kernel modules: {limit['reason']}, and this host has {', '.join(limit['kernels'])}"
        )
        return "proprietary"
    case.result["reasons"].append(f"open kernel modules: they drive {modern}")
    return "open"


def _build_limit(host: dict, data: dict, flavor: str | None) -> dict | None:
    """Tell which kernels of a host the source's modules are known not to build for, up to which version, and why."""
    there = {entry["release"] for entry in host["kernel"]["kernels"] if entry["nvidia_module"]}
    for limit in data.get("build_limits", []):
        new = [
            name
            for name in _kernels(host)
            if name not in there and natural_key(name) >= natural_key(limit["kernel_from"])
        ]
        if limit["flavor"] == flavor and new:
            return {**limit, "kernels": new}
    return None


def _installed_flavor(host: dict, data: dict) -> str | None:
    for rule in data["packages"]:
        if rule.get("flavor") and any(re.fullmatch(pattern(rule["name"]), name) for name in host["packages"]):
            return rule["flavor"]
    return None


def _named(generations: dict, test: Any) -> str:
    return ", ".join(f"{device} ({generation.name})" for device, generation in generations.items() if test(generation))


# --- branch and version -------------------------------------------------------------------------------------------


def _branch_window(generations: dict) -> tuple[int, int | None, str, str]:
    """Return the lowest and the highest branch that serve all GPUs, and the GPU that sets each."""
    lowest = max(generations, key=lambda device: generations[device].first_branch)
    ends = [device for device in generations if generations[device].last_branch]
    highest = min(ends, key=lambda device: generations[device].last_branch or 0) if ends else None
    return (
        generations[lowest].first_branch,
        generations[highest].last_branch if highest else None,
        f"{lowest} ({generations[lowest].name})",
        f"{highest} ({generations[highest].name})" if highest else "",
    )


def _fits(branch: str, window: tuple) -> bool:
    return int(branch) >= window[0] and (window[1] is None or int(branch) <= window[1])


def _fitting(data: dict, window: tuple) -> list[str]:
    return [branch for branch in data["branches"] if _fits(branch, window)]


def _branch(case: _Case, data: dict, is_installed: bool) -> str:
    version = case.wish["version"]
    asked = case.wish["branch"] or (upstream_version(version).partition(".")[0] if version else None)
    if version and case.wish["branch"] and upstream_version(version).partition(".")[0] != case.wish["branch"]:
        raise _Refused(
            f"nvidia_driver_version {version} is not of nvidia_driver_branch {case.wish['branch']}. Set one of them."
        )
    minimum = case.wish["minimum_version"]
    if asked is None:
        present = _installed_branch(case.host) if is_installed else None
        if present and _fits(present, case.window) and not (minimum and _older(case.host, minimum)):
            case.result["reasons"].append(f"branch {present}: installed already")
            return present
        fitting = [
            branch
            for branch in _fitting(data, case.window)
            if not minimum or int(branch) >= int(upstream_version(minimum).partition(".")[0])
        ]
        if fitting:
            why = (
                "the source's default"
                if fitting[0] == data["branches"][0]
                else "the source's first that serves the GPUs"
            )
            case.result["reasons"].append(f"branch {fitting[0]}: {why}")
            return fitting[0]
        raise _Refused(_no_branch(data, case.window, case.result["source"], minimum))
    if not _fits(asked, case.window):
        raise _Refused(_wrong_branch(asked, case.window))
    if data.get("fixed") and asked not in data["branches"]:
        raise _Refused(
            f"branch {asked} was asked for, but source {case.result['source']} has {', '.join(data['branches'])} "
            "only. Ask for that one or choose another nvidia_driver_source."
        )
    last = data.get("last_proprietary_branch")
    if case.result["flavor"] == "proprietary" and last and int(asked) > int(last):
        raise _Refused(
            f"branch {asked} has no proprietary kernel modules; {last} is the last that has. Ask for that one."
        )
    case.result["reasons"].append(f"branch {asked}: asked for")
    return asked


def _installed_branch(host: dict) -> str | None:
    version = host["driver"]["library"] or host["driver"]["on_disk"] or host["driver"]["loaded"]
    return version.partition(".")[0] if version else None


def _older(host: dict, minimum: str) -> bool:
    version = host["driver"]["library"] or host["driver"]["on_disk"] or host["driver"]["loaded"]
    return version is None or natural_key(version) < natural_key(upstream_version(minimum))


def _wrong_branch(branch: str, window: tuple) -> str:
    if int(branch) < window[0]:
        return f"branch {branch} was asked for, but {window[2]} needs {window[0]} or newer. Ask for one of those."
    return (
        f"branch {branch} was asked for, but {window[3]} is served by branches up to {window[1]}. Ask for one of those."
    )


def _no_branch(data: dict, window: tuple, source: str, minimum: str | None) -> str:
    has = ", ".join(data["branches"])
    if minimum:
        return (
            f"nvidia_driver_minimum_version {minimum} was asked for, but source {source} has the branches {has}. Lower "
            "it or choose another nvidia_driver_source."
        )
    if all(int(branch) < window[0] for branch in data["branches"]):
        return (
            f"{window[2]} needs branch {window[0]} or newer, but source {source} has {has}. Choose another "
            "nvidia_driver_source."
        )
    return (
        f"{window[3]} is served by branches up to {window[1]}, but source {source} has {has}. Choose another "
        "nvidia_driver_source."
    )


# --- kernel modules and packages ----------------------------------------------------------------------------------


def _module_build(case: _Case, data: dict) -> str:
    flavor, branch, source = case.result["flavor"], case.result["branch"], case.result["source"]
    upcoming = case.host["kernel"]["next_boot"]
    context = {"flavor": flavor, "branch": branch, "arch": case.host["os"]["arch"]}
    builds = [
        build
        for build in data["builds"]
        if any(rule.get("build") == build and _applies(rule, context) for rule in data["packages"])
    ]
    if not builds:
        raise _Refused(
            f"source {source} has no {flavor} kernel modules of branch {branch} for {case.host['os']['arch']}."
        )
    kernel = _kernel(upcoming, data)
    asked = case.wish["module_build"]
    if asked != "auto":
        if asked not in builds:
            raise _Refused(
                f"nvidia_driver_module_build is {asked}, but source {source} has {' and '.join(builds)} only."
            )
        if asked == "precompiled" and not kernel.get("precompiled"):
            raise _Refused(
                f"nvidia_driver_module_build is precompiled, but there are no prebuilt modules for kernel "
                f"{upcoming}. Boot a kernel of the distribution's or set it to dkms."
            )
        return asked
    present = _installed_build(case.host, data, builds)
    if present:
        return present
    for build in builds:
        if build != "precompiled" or kernel.get("precompiled"):
            if len(builds) > 1:
                why = (
                    "prebuilt and signed by the distribution"
                    if build == "precompiled"
                    else "no prebuilt ones fit this kernel"
                )
                case.result["reasons"].append(f"{build} modules: {why}")
            return build
    raise _Refused(
        f"there are no prebuilt modules for kernel {upcoming}, and source {source} has no others. Boot a kernel of "
        "the distribution's."
    )


def _installed_build(host: dict, data: dict, builds: list[str]) -> str | None:
    for build in builds:
        rules = [rule for rule in data["packages"] if rule.get("build") == build and rule.get("module")]
        if any(re.fullmatch(pattern(rule["name"]), name) for rule in rules for name in host["packages"]):
            return build
    return None


def _kernels(host: dict) -> list[str]:
    """Return the releases that the driver has to be there for: the running one and the one that boots next."""
    return list(dict.fromkeys([host["kernel"]["running"], host["kernel"]["next_boot"]]))


def _kernel(release: str, data: dict) -> dict:
    """Return what the platform's data says of a kernel: names to fill in, headers, prebuilt modules."""
    for rule in data["kernels"]:
        match = re.search(rule["match"], release)
        if match:
            return {**rule, "names": {**match.groupdict(), "release": release}}
    return {"names": {"release": release}, "headers": None, "precompiled": False}


def pattern(name: str) -> str:
    """Turn a rule's name into a pattern that matches it with any branch, kernel or architecture filled in."""
    return ".+".join(re.escape(part) for part in re.split(r"\{\w+\}", name))


def _applies(rule: dict, context: dict) -> bool:
    branch = context.get("branch")
    return (
        rule.get("flavor") in (None, context.get("flavor"))
        and ("build" not in rule or "build" not in context or rule["build"] == context["build"])
        and ("arch" not in rule or rule["arch"] == context["arch"])
        and ("component" not in rule or rule["component"] in context.get("components", [rule["component"]]))
        and ("when" not in rule or rule["when"] in context.get("features", [rule["when"]]))
        and ("from" not in rule or int(branch) >= int(rule["from"]))
        and ("until" not in rule or int(branch) <= int(rule["until"]))
    )


def _packages(case: _Case, data: dict) -> None:
    kernel = _kernel(case.host["kernel"]["next_boot"], data)
    features = _features(case, data)
    context = {
        "flavor": case.result["flavor"],
        "branch": case.result["branch"],
        "build": case.result["module_build"],
        "arch": case.host["os"]["arch"],
        "components": case.wish["components"],
        "features": features,
    }
    names = {"branch": case.result["branch"], "arch": data["arches"][case.host["os"]["arch"]], **kernel["names"]}
    chosen = [
        {**rule, "name": name}
        for rule in data["packages"]
        if _applies(rule, context)
        for name in _fill(case, data, rule["name"], names)
    ]
    case.result["packages"] = [rule["name"] for rule in chosen if not rule.get("optional")]
    case.result["packages"] += case.wish["extra_packages"]
    case.result["optional"] = [rule["name"] for rule in chosen if rule.get("optional")]
    case.result["lockstep"] = [rule["name"] for rule in chosen if rule.get("lockstep", True)]
    case.result["replaces"] = _replaced(case.host, data, {rule["name"] for rule in chosen})
    case.result["prebuilt"] = [rule["name"] for rule in chosen if rule.get("build") == "precompiled"]
    case.result["signed"] = case.result["module_build"] == "precompiled" and not any(
        rule.get("unsigned") for rule in chosen
    )
    case.result["services"] = [rule["service"] for rule in chosen if rule.get("service")]
    case.result["prerequisites"] = data.get("prerequisites", [])
    case.result["stream"] = _stream(data, context, names)
    case.result["repository"] = _repository(case, data, names)
    case.result["components"] = data.get("components", [])
    case.result["patterns"] = {
        key: value if key == "hold" else [_only(name, names) for name in value]
        for key, value in data.get("patterns", {}).items()
    }
    case.result["blacklists"] = data.get("blacklists", [])
    if case.result["module_build"] == "dkms":
        _headers(case, data, names)


def _replaced(host: dict, data: dict, chosen: set[str]) -> list[str]:
    """Name the installed packages whose place the chosen ones take: modules of the other flavor, another branch."""
    rivals = [
        re.compile(pattern(rule["name"]))
        for rule in data["packages"]
        if rule.get("module") or "{branch}" in rule["name"]
    ]
    others = (name for name in host["packages"] if name not in chosen)
    return sorted(name for name in others if any(rival.fullmatch(name) for rival in rivals))


def _fill(case: _Case, data: dict, name: str, names: dict) -> list[str]:
    """Fill a rule's name in; one that names a kernel release once for each kernel of the distribution's."""
    if "{release}" not in name:
        return [name.format(**names)]
    kernels = [_kernel(release, data) for release in _kernels(case.host)]
    return [name.format(**{**names, **kernel["names"]}) for kernel in kernels if kernel.get("precompiled")]


def _only(text: str, names: dict) -> str:
    return text.replace("{branch}", names["branch"])


def _headers(case: _Case, data: dict, names: dict) -> None:
    """Name the headers that are missing, of the host's own kernels and by exact name.

    A meta package may stand for a kernel that the host does not have, and on some platforms it brings that kernel in.
    The plan adds it where it stands for the installed one.
    """
    if case.wish["kernel_packages"] is not None:
        case.result["kernel_packages"] = list(case.wish["kernel_packages"])
        return
    there = {entry["release"] for entry in case.host["kernel"]["kernels"] if entry["headers"]}
    for release in _kernels(case.host):
        kernel = _kernel(release, data)
        if release not in there and kernel["headers"]:
            case.result["kernel_packages"] += [
                name.format(**{**names, **kernel["names"]}) for name in kernel["headers"]
            ]
        elif release not in there and release == case.host["kernel"]["next_boot"]:
            raise _Refused(
                f"kernel {release} is not one of the distribution's, and it has no headers to build modules with (no "
                f"/lib/modules/{release}/build). Install its headers, or name their packages in "
                "nvidia_driver_kernel_packages."
            )
    upcoming = _kernel(case.host["kernel"]["next_boot"], data)
    if upcoming.get("meta"):
        case.result["kernel_meta"] = {key: name.format(**names) for key, name in upcoming["meta"].items()}


def _features(case: _Case, data: dict) -> list[str]:
    features = []
    switches, managed = case.host["nvidia"]["nvswitches"], case.host["nvidia"]["nvlink5_switches"]
    available = {rule["when"] for rule in data["packages"] if "when" in rule}
    if case.wish["fabric_manager"] != "disabled" and (switches or managed or case.wish["fabric_manager"] == "enabled"):
        if "fabric" in available:
            features.append("fabric")
            count = len(switches or managed)
            why = f"{count} NVSwitch{'es' if count != 1 else ''} here" if count else "asked for"
            case.result["reasons"].append(f"fabric manager: {why}")
        elif case.wish["fabric_manager"] == "enabled":
            raise _Refused(
                f"nvidia_driver_fabric_manager is enabled, but source {case.result['source']} has no fabric manager. "
                "Choose "
                "nvidia_driver_source nvidia."
            )
        else:
            case.result["reasons"].append(
                f"no fabric manager: this host has NVSwitches, but source {case.result['source']} has no fabric "
                "manager, so "
                "CUDA will not start (error 802) until one of the driver's version runs; source nvidia has it"
            )
    if managed and "fabric" in features:
        features.append("nvlink5")
    for name in ("imex",):
        if case.wish[name]:
            if name not in available:
                raise _Refused(f"nvidia_driver_{name} is on, but source {case.result['source']} has no package for it.")
            features.append(name)
    return features


def _stream(data: dict, context: dict, names: dict) -> str | None:
    for rule in data.get("streams", []):
        if _applies(rule, context):
            return rule["name"].format(**names)
    return None


def _repository(case: _Case, data: dict, names: dict) -> dict | None:
    repository = data.get("repository")
    if repository is None:
        return None
    base = (case.wish["mirror"] or repository["base"]).rstrip("/")
    url = f"{base}/{repository['path'].format(**names)}"
    return {
        "type": repository["type"],
        "id": repository["id"],
        "url": url,
        "key": f"{url}/{repository['key']}",
        "fingerprint": case.wish["key_fingerprint"] or repository["fingerprint"],
        "proxy": case.wish["proxy"],
        "legacy_files": [path.format(**names) for path in repository["legacy_files"]],
        "legacy_packages": repository["legacy_packages"],
    }


# --- Secure Boot, the runfile, and what is there already ----------------------------------------------------------


def _secure_boot(case: _Case) -> None:
    state = case.host["secure_boot"]
    if not (state["enabled"] or state["signatures_enforced"]) or case.result["signed"]:
        return
    trusted = [
        signer for signer in state["trusted_signers"] if re.search("dkms|mok|secure boot module", signer, re.IGNORECASE)
    ]
    if trusted:
        case.result["reasons"].append(
            f"Secure Boot is on, and the kernel trusts a key for modules built here ({trusted[0]})"
        )
        return
    if case.wish["secure_boot_key_enrolled"]:
        case.result["reasons"].append(
            "Secure Boot is on, and nvidia_driver_secure_boot_key_enrolled says the key is enrolled"
        )
        return
    key = state["dkms_key"] or "/var/lib/dkms/mok.pub"
    raise _Refused(
        "Secure Boot is on and the modules would be built here, signed with a key that this machine does not trust: "
        "the "
        f"kernel would refuse to load them. Enrol the key once at the console ('mokutil --import {key}', reboot, "
        "confirm), or set nvidia_driver_secure_boot_key_enrolled when that is done, or choose a source with prebuilt "
        "signed modules, or turn Secure Boot off."
    )


def _runfile_data(case: _Case) -> dict:
    """Return what NVIDIA's installer is as a source: one version, and whatever builds modules on this platform."""
    missing = [f"nvidia_driver_{name}" for name in ("version", "runfile_checksum") if not case.wish[name]]
    if missing:
        raise _Refused(
            f"nvidia_driver_source is runfile, but {' and '.join(missing)} {'are' if len(missing) > 1 else 'is'} not "
            "set. An installer runs as root: its version and its checksum (sha256:...) have to be named."
        )
    arch = case.host["os"]["arch"]
    if arch not in ("x86_64", "aarch64"):
        raise _Refused(f"there is no installer of NVIDIA's for the architecture {arch} (known: aarch64, x86_64).")
    others = list((case.platform or {"sources": {}})["sources"].values())
    built = next((data for data in others if "dkms" in data["builds"]), {"kernels": [], "packages": []})
    return {
        "arches": {arch: arch},
        "branches": [upstream_version(case.wish["version"]).partition(".")[0]],
        "builds": ["dkms"],
        "kernels": built["kernels"],
        "packages": [rule for rule in built["packages"] if rule["name"] == "dkms"],
        "prerequisites": built.get("prerequisites", []),
    }


def _adopt(case: _Case) -> None:
    driver = case.host["driver"]
    version = driver["library"] or driver["loaded"] or driver["on_disk"]
    case.result["action"] = "adopt"
    case.result["flavor"] = driver["kernel_module_flavor"] or driver["on_disk_flavor"]
    case.result["branch"] = version.partition(".")[0] if version else None
    if version is None:
        return
    case.result["version"] = version
    wanted = case.wish["version"]
    if wanted and upstream_version(wanted) != version:
        raise _Refused(
            f"nvidia_driver_version is {wanted}, but the driver that is there is {version}, and it was not put there "
            "by "
            "this role. Drop the version, or replace the driver by its own means."
        )
    if case.wish["branch"] and case.wish["branch"] != case.result["branch"]:
        raise _Refused(
            f"nvidia_driver_branch is {case.wish['branch']}, but the driver that is there is {version}, and it was "
            "not put "
            "there by this role. Drop the branch, or replace the driver by its own means."
        )
    if case.wish["minimum_version"] and _older(case.host, case.wish["minimum_version"]):
        raise _Refused(
            f"nvidia_driver_minimum_version is {case.wish['minimum_version']}, but the driver that is there is "
            f"{version}, and it "
            "was not put there by this role. Lower it, or replace the driver by its own means."
        )
    if not _fits(case.result["branch"], case.window):
        gpu = case.window[2] if int(case.result["branch"]) < case.window[0] else case.window[3]
        raise _Refused(
            f"the driver that is there is {version}, which does not serve {gpu}. Replace it by its own means."
        )
    if case.result["flavor"] == "open":
        unfit = _named(case.generations, lambda generation: not generation.open_modules)
    else:
        unfit = (
            _named(case.generations, lambda generation: not generation.proprietary_modules)
            if case.result["flavor"]
            else ""
        )
    if unfit:
        raise _Refused(
            f"the {case.result['flavor']} kernel modules that are there do not drive {unfit}. Replace them by their "
            "own means."
        )
