# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which packages a driver is made of on a host, and where they come from."""

from __future__ import annotations

import re

from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import fabric, metas, rivals
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.case import Case, Refused
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.rules import applies, kernel_rule, kernels
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import generations
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import nvidia_repository

# What some hosts need beside the driver, by the word that marks its packages in a platform's data.
_COMPANIONS = {"fabric": "fabric manager", "nvlink5": "subnet manager for NVLink 5 (nvlsm)", "imex": "IMEX"}


def choose(case: Case, data: dict) -> None:
    """Put packages, headers, stream, repository and services of the driver into the answer."""
    kernel = kernel_rule(case.host["kernel"]["next_boot"], data)
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
        if applies(rule, context) and not rule.get("meta")
        for name in _fill(case, data, rule["name"], names)
    ]
    case.result["packages"] = [rule["name"] for rule in chosen if not rule.get("optional")]
    case.result["packages"] += case.wish["extra_packages"]
    case.result["optional"] = [rule["name"] for rule in chosen if rule.get("optional")]
    case.result["lockstep"] = [rule["name"] for rule in chosen if rule.get("lockstep", True)]
    case.result["kin"] = _kin(data, context)
    case.result["core"] = [
        rule["name"]
        for rule in data["packages"]
        if rule.get("lockstep", True)
        and not {"optional", "when", "from", "until", "component"} & set(rule)
        and "{" not in rule["name"]
        and applies(rule, context)
    ]
    # Where users name the packages of their kernel, they know what comes with it.
    if case.result["module_build"] != "dkms" or case.wish["kernel_packages"] is None:
        case.result["kernel_meta"] = metas.wanted(case.host, data, kernel, context)
    mine = {*(rule["name"] for rule in chosen), *metas.names(case.result)}
    case.result["rivals"] = rivals.may_go(case.host, data, mine, context)
    case.result["replaces"] = rivals.must_go(case.host, data, context)
    case.result["replaced_modules"] = rivals.modules(case.result["replaces"], data)
    case.result["left_behind"] = rivals.left_behind(case.host, data, context)
    case.result["prebuilt"] = [rule["name"] for rule in chosen if rule.get("build") == "precompiled"]
    case.result["signed"] = case.result["module_build"] == "precompiled" and not any(
        rule.get("unsigned") for rule in chosen
    )
    # The subnet manager reaches the switches through it, and nothing loads it by itself.
    case.result["modules"] = ["ib_umad"] if "nvlink5" in features else []
    case.result["hold_needs"] = data.get("hold_needs", []) if case.wish.get("hold", True) else []
    case.result["prerequisites"] = [*data.get("prerequisites", []), *case.result["hold_needs"]]
    case.result["prerequisites_bring"] = data.get("prerequisites_bring", [])
    case.result["prerequisites_hint"] = (case.platform or {}).get("prerequisites_hint")
    case.result["services"] = fabric.services(case, [rule["service"] for rule in chosen if rule.get("service")])
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


def _kin(data: dict, context: dict) -> list[str]:
    """Return patterns of the names that the libraries have in all branches, where the names have the branch in them.

    By these the branches are found that a repository has.
    """
    user_space = [rule for rule in data["packages"] if rule.get("lockstep", True) and not {"build", "when"} & set(rule)]
    chosen = {_stem(rule["name"]) for rule in user_space if applies(rule, context) and not rule.get("optional")}
    with_branch = [_stem(rule["name"]) for rule in user_space if "{branch}" in rule["name"]]
    stem = next((stem for stem in with_branch if stem in chosen), None)
    names = [rule["name"] for rule in user_space if _stem(rule["name"]) == stem]
    return [name.replace("{branch}", "[0-9][0-9][0-9]") for name in names]


def _stem(name: str) -> str:
    return name.replace("-{branch}", "")


def _fill(case: Case, data: dict, name: str, names: dict) -> list[str]:
    """Fill a rule's name in; one that names a kernel release once for each kernel of the distribution's."""
    if "{release}" not in name:
        return [name.format(**names)]
    rules = [kernel_rule(release, data) for release in kernels(case.host)]
    return [name.format(**{**names, **rule["names"]}) for rule in rules if rule.get("precompiled")]


def _only(text: str, names: dict) -> str:
    return text.replace("{branch}", names["branch"])


def _headers(case: Case, data: dict, names: dict) -> None:
    """Name the headers that are missing, of the host's own kernels and by exact name.

    A meta package may stand for a kernel that the host does not have, and on some platforms it brings that kernel in.
    The plan adds it where it stands for the installed one.
    """
    if case.wish["kernel_packages"] is not None:
        _named_headers(case, data, names)
        return
    there = _with_headers(case.host)
    for release in kernels(case.host):
        kernel = kernel_rule(release, data)
        if release not in there and kernel.get("headers"):
            case.result["headers"][release] = [
                name.format(**{**names, **kernel["names"]}) for name in kernel["headers"]
            ]
            case.result["kernel_packages"] += case.result["headers"][release]
        elif release not in there and release == case.host["kernel"]["next_boot"]:
            raise Refused(
                f"kernel {release} has no headers to build modules with (no /lib/modules/{release}/build), and the "
                "names of their packages are not known for such a kernel. Install them, or name them in "
                "nvidia_driver_kernel_packages."
            )


def _with_headers(host: dict) -> set[str]:
    return {entry["release"] for entry in host["kernel"]["kernels"] if entry["headers"]}


def _named_headers(case: Case, data: dict, names: dict) -> None:
    """Take the packages that were named, one that has a release in its full name with those of the host's kernels.

    Without, the package manager takes the newest that it knows: headers of a kernel that is not there.
    """
    bound: dict[str, dict[str, str]] = {}
    for release in kernels(case.host):
        kernel = kernel_rule(release, data)
        filled = {**names, **kernel["names"]}
        for template in kernel.get("headers") or []:
            stem = re.sub(r"-\{(release|base)\}$", "", template).format(**filled)
            bound.setdefault(stem, {})[release] = template.format(**filled)
    for name in case.wish["kernel_packages"]:
        for release, exact in bound.get(name, {}).items():
            if release not in _with_headers(case.host):
                case.result["headers"].setdefault(release, []).append(exact)
                case.result["kernel_packages"].append(exact)
        case.result["kernel_packages"] += [] if name in bound else [name]


def lacking(case: Case, data: dict) -> list[str]:
    """Name what a source does not have of that which the host needs beside the driver itself."""
    available = _available(data)
    return [_COMPANIONS[name] for name in fabric.needs(case) if name not in available]


def _available(data: dict) -> set[str]:
    return {rule["when"] for rule in data["packages"] if "when" in rule}


def _features(case: Case, data: dict) -> list[str]:
    """Return what of the companions the source has and the host needs; refuse what was asked for and is not there."""
    available, source, needs = _available(data), case.result["source"], fabric.needs(case)
    fabric.say_what_was_not_found(case)
    count = len(case.host["nvidia"]["nvswitches"] or case.host["nvidia"]["nvlink5_switches"])
    why = f"{count} NVSwitch{'es' if count != 1 else ''} here" if count else "asked for"
    across = fabric.gpus_with(case, generations.spans_machines)
    if "imex" in needs and "imex" in available:
        case.result["reasons"].append(f"IMEX: {f'{across} share NVLink across machines' if across else 'asked for'}")
    elif "imex" in needs and case.wish["imex"] == "auto":
        case.result["reasons"].append(
            f"no IMEX: {across} share NVLink across machines, but source {source} has no package for it; source nvidia "
            "has it"
        )
    elif "imex" in needs:
        raise Refused(
            f"nvidia_driver_imex is on, but source {source} has no package for it. Choose nvidia_driver_source nvidia."
        )
    if "fabric" in needs and "fabric" in available:
        case.result["reasons"].append(f"fabric manager: {why}")
    elif "fabric" in needs and case.wish["fabric_manager"] == "enabled":
        raise Refused(
            f"nvidia_driver_fabric_manager is enabled, but source {source} has no fabric manager. Choose "
            "nvidia_driver_source nvidia."
        )
    elif "fabric" in needs:
        case.result["reasons"].append(
            f"no fabric manager: this host has NVSwitches, but source {source} has no fabric manager, so CUDA will not "
            "start (error 802) until one of the driver's version runs; source nvidia has it"
        )
    if "nvlink5" in needs and "nvlink5" not in available and "fabric" in available:
        case.result["reasons"].append(
            f"no {_COMPANIONS['nvlink5']}: source {source} does not have it, and without it the fabric manager of this "
            "host does not start (CUDA error 802); source nvidia has it"
        )
    return [name for name in needs if name in available]


def _stream(data: dict, context: dict, names: dict) -> str | None:
    for rule in data.get("streams", []):
        if applies(rule, context):
            return rule["name"].format(**names)
    return None


def _repository(case: Case, data: dict, names: dict) -> dict | None:
    repository = data.get("repository")
    if repository is None:
        return None
    return nvidia_repository.describe(repository, names, case.wish)
