# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an image asks of the driver and the GPUs, by its labels and its environment, and whether they serve it. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

LABEL_VOLUMES = "com.nvidia.volumes.needed"
LABEL_CUDA = "com.nvidia.cuda.version"

_TRUE = ("1", "t", "T", "TRUE", "true", "True")
_TERM = re.compile(r"^([a-z_]+)\s*(>=|<=|!=|=|<|>)\s*([^\s<>=!]+)$")
_WAY_OUT = "set NVIDIA_DISABLE_REQUIRE: 'true' in env"
_VERSIONS = ("cuda", "driver", "arch")
# From CUDA 11 on, a program built with any toolkit of a major version runs on every driver of that major version.
_COMPATIBLE_WITHIN_MAJOR = 11


class RequirementError(Exception):
    """An image that this host's driver or the chosen GPUs do not serve."""


@dataclass(frozen=True)
class Served:
    """What the host serves: the driver and, for each chosen GPU, its architecture and brand."""

    cuda: str | None
    driver: str | None
    gpus: Sequence[Mapping[str, str | None]] = field(default_factory=tuple)


def wanted_gpus(labels: Mapping[str, str], env: Mapping[str, str]) -> tuple[str, str] | None:
    """Tell which GPUs an image asks for by itself, and by which mark of it; None where it needs no GPU."""
    if (labels.get(LABEL_VOLUMES) or "").strip():
        return "all", f"the image's label {LABEL_VOLUMES}"
    visible = env.get("NVIDIA_VISIBLE_DEVICES")
    if visible is None and env.get("CUDA_VERSION") and "NVIDIA_REQUIRE_CUDA" not in env:
        return "all", "the image's environment CUDA_VERSION"
    value = (visible or "").strip()
    names = {name.strip() for name in value.split(",")}
    if not value or value == "none" or "void" in names:
        return None
    return value, "the image's environment NVIDIA_VISIBLE_DEVICES"


def check(labels: Mapping[str, str], env: Mapping[str, str], served: Served, enforced: bool = False) -> list[str]:
    """Check an image against what is served; the answers are remarks for the user.

    `env` is the container's whole environment, the image's included. `enforced`: the runtime will check the
    requirements itself, to the letter, so minor-version compatibility does not help.
    """
    if env.get("NVIDIA_DISABLE_REQUIRE", "") in _TRUE:
        return []
    remarks = []
    label = labels.get(LABEL_CUDA)
    if label and served.cuda:
        remarks += _check_label(label, served.cuda)
    for name, expression in sorted(_requirements(env).items()):
        remarks += _check_expression(name, expression, served, enforced)
    return remarks


def _requirements(env: Mapping[str, str]) -> dict[str, str]:
    found = {
        name: value
        for name, value in env.items()
        if name.startswith("NVIDIA_REQUIRE_") and not name.startswith("NVIDIA_REQUIRE_JETPACK") and value.strip()
    }
    version = re.match(r"\d+\.\d+", env.get("CUDA_VERSION", ""))
    if version and "NVIDIA_REQUIRE_CUDA" not in env:
        found["CUDA_VERSION"] = f"cuda>={version.group(0)}"
    return found


def _check_label(label: str, driver: str) -> list[str]:
    if re.match(r"^\d+(\.\d+)*$", label.strip()) is None:
        raise RequirementError(f"The image's label {LABEL_CUDA}={label} is no version. Correct it, or {_WAY_OUT}.")
    wanted = _major_minor(label.strip())
    if _version(wanted) <= _version(driver):
        return []
    if _runs_by_compatibility(wanted, driver):
        return [_compatibility_remark(wanted, driver, f"label {LABEL_CUDA}")]
    raise RequirementError(
        f"unsupported CUDA version: driver {driver} < image {wanted}. Upgrade the driver, use an image for CUDA "
        f"{driver} or older, or {_WAY_OUT}."
    )


def _check_expression(name: str, expression: str, served: Served, enforced: bool) -> list[str]:
    alternatives = [
        [_term(name, expression, term) for term in alternative.split(",") if term] for alternative in expression.split()
    ]
    gpus = served.gpus or ({},)
    remarks: list[str] = []
    for gpu in gpus:
        have = {"cuda": served.cuda, "driver": served.driver, "arch": gpu.get("arch"), "brand": gpu.get("brand")}
        if any(all(_holds(term, have) for term in terms) for terms in alternatives):
            continue
        compatible = next(
            (terms for terms in alternatives if all(_holds(t, have) or _is_compatible(t, have) for t in terms)), None
        )
        if compatible is None or enforced:
            raise RequirementError(_unsatisfied(name, expression, alternatives, have, gpu))
        for term in compatible:
            if not _holds(term, have):
                remark = _compatibility_remark(term[2], have["cuda"] or "", name)
                remarks += [] if remark in remarks else [remark]
    return remarks


def _term(name: str, expression: str, term: str) -> tuple[str, str, str]:
    match = _TERM.match(term)
    numeric = match is not None and match.group(1) in _VERSIONS
    if match is None or (not numeric and match.group(1) != "brand") or (numeric and not _is_version(match.group(3))):
        raise RequirementError(
            f"{name}={expression}: {term!r} is no condition on cuda, driver, arch or brand. Correct it, or {_WAY_OUT}."
        )
    if not numeric and match.group(2) not in ("=", "!="):
        raise RequirementError(f"{name}={expression}: {term!r}: a brand can only be compared with = and !=.")
    return match.group(1), match.group(2), match.group(3)


def _holds(term: tuple[str, str, str], have: Mapping[str, str | None]) -> bool:
    prop, operator, value = term
    actual = have.get(prop)
    if prop == "brand":
        return ((actual or "unknown").lower() == value.lower()) is (operator == "=")
    if actual is None:
        return True  # What cannot be known is not held against the image.
    left, right = _padded(_version(actual), _version(value))
    return {
        ">=": left >= right,
        "<=": left <= right,
        ">": left > right,
        "<": left < right,
        "=": left == right,
        "!=": left != right,
    }[operator]


def _is_compatible(term: tuple[str, str, str], have: Mapping[str, str | None]) -> bool:
    return _is_for_newer_cuda(term, have) and _runs_by_compatibility(term[2], have.get("cuda") or "")


def _is_for_newer_cuda(term: tuple[str, str, str], have: Mapping[str, str | None]) -> bool:
    """Tell whether what is wanted is a CUDA that is newer than the driver's."""
    prop, operator, value = term
    if prop != "cuda" or operator not in (">=", "=", ">"):
        return False
    wanted, there = _padded(_version(value), _version(have.get("cuda") or ""))
    return wanted > there


def _runs_by_compatibility(image: str, driver: str) -> bool:
    if not driver:
        return False
    return _version(image)[0] == _version(driver)[0] >= _COMPATIBLE_WITHIN_MAJOR


def _compatibility_remark(image: str, driver: str, mark: str) -> str:
    return (
        f"The image is made for CUDA {image} ({mark}), the driver serves {driver}: it runs by minor-version "
        "compatibility, without the features that are newer than the driver."
    )


def _unsatisfied(
    name: str,
    expression: str,
    alternatives: Sequence[Sequence[tuple[str, str, str]]],
    have: Mapping[str, str | None],
    gpu: Mapping[str, str | None],
) -> str:
    for terms in alternatives:
        for term in terms:
            if _is_for_newer_cuda(term, have) and not _holds(term, have):
                return (
                    f"unsupported CUDA version: driver {have['cuda']} < image {term[2]} ({name}={expression}). "
                    f"Upgrade the driver, use an older image, or {_WAY_OUT}."
                )
    where = f" for GPU {gpu['uuid']}" if gpu.get("uuid") else ""
    there = ", ".join(f"{prop} {value or 'unknown'}" for prop, value in have.items())
    return (
        f"unsatisfied requirement of the image{where}: {name}={expression}; there is {there}. "
        f"Use another image, or {_WAY_OUT}."
    )


def _is_version(text: str) -> bool:
    return re.match(r"^\d+(\.\d+)*$", text) is not None


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text))


def _major_minor(text: str) -> str:
    parts = text.split(".")
    return ".".join([*parts, "0"][:2])


def _padded(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    length = max(len(left), len(right))
    return left + (0,) * (length - len(left)), right + (0,) * (length - len(right))
