# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The GPUs that an image requests, and its requirements on the driver and the GPUs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

LABEL_VOLUMES = "com.nvidia.volumes.needed"
LABEL_CUDA = "com.nvidia.cuda.version"

_TRUE = ("1", "t", "T", "TRUE", "true", "True")
_TERM = re.compile(r"^([a-z_]+)\s*(>=|<=|!=|=|<|>)\s*([^\s<>=!]+)$")
_DISABLE_HINT = "set NVIDIA_DISABLE_REQUIRE: 'true' in env"
_VERSIONS = ("cuda", "driver", "arch")
# From this major version on, a program runs on every driver that supports the same major version of CUDA.
_MINOR_COMPATIBLE_SINCE = 11


class RequirementError(Exception):
    """The driver or the selected GPUs do not meet the image's requirements."""


@dataclass(frozen=True)
class Support:
    """The CUDA version and version of the driver, and the architecture and brand of each selected GPU."""

    cuda: str | None
    driver: str | None
    gpus: Sequence[Mapping[str, str | None]] = field(default_factory=tuple)


def requested_gpus(labels: Mapping[str, str], env: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the GPUs that an image requests and the source of the request, or None if it requests no GPU."""
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


def check_requirements(
    labels: Mapping[str, str], env: Mapping[str, str], support: Support, enforced: bool = False
) -> list[str]:
    """Check an image's requirements and return warnings.

    `env` combines the environments of the image and the user. With `enforced`, the runtime checks the requirements
    itself and does not accept minor-version compatibility.
    """
    if env.get("NVIDIA_DISABLE_REQUIRE", "") in _TRUE:
        return []
    warnings = []
    label = labels.get(LABEL_CUDA)
    if label and support.cuda:
        warnings += _check_label(label, support.cuda)
    for name, expression in sorted(_requirements(env).items()):
        warnings += _check_expression(name, expression, support, enforced)
    return warnings


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
        raise RequirementError(
            f"The image's label {LABEL_CUDA}={label} is not a version. Correct the label, or {_DISABLE_HINT}."
        )
    required = _major_minor(label.strip())
    if _version(required) <= _version(driver):
        return []
    if _is_minor_compatible(required, driver):
        return [_compatibility_warning(required, driver, f"label {LABEL_CUDA}")]
    raise RequirementError(
        f"unsupported CUDA version: driver {driver} < image {required}. Upgrade the driver, use an image for CUDA "
        f"{driver} or older, or {_DISABLE_HINT}."
    )


def _check_expression(name: str, expression: str, support: Support, enforced: bool) -> list[str]:
    alternatives = [
        [_parse_term(name, expression, term) for term in alternative.split(",") if term]
        for alternative in expression.split()
    ]
    gpus = support.gpus or ({},)
    warnings: list[str] = []
    for gpu in gpus:
        actual = {"cuda": support.cuda, "driver": support.driver, "arch": gpu.get("arch"), "brand": gpu.get("brand")}
        if any(all(_is_met(term, actual) for term in terms) for terms in alternatives):
            continue
        compatible = next(
            (terms for terms in alternatives if all(_is_met(t, actual) or _is_compatible(t, actual) for t in terms)),
            None,
        )
        if compatible is None or enforced:
            raise RequirementError(_unmet_message(name, expression, alternatives, actual, gpu))
        for term in compatible:
            if not _is_met(term, actual):
                warning = _compatibility_warning(term[2], actual["cuda"] or "", name)
                warnings += [] if warning in warnings else [warning]
    return warnings


def _parse_term(name: str, expression: str, term: str) -> tuple[str, str, str]:
    match = _TERM.match(term)
    numeric = match is not None and match.group(1) in _VERSIONS
    if match is None or (not numeric and match.group(1) != "brand") or (numeric and not _is_version(match.group(3))):
        raise RequirementError(
            f"{name}={expression}: {term!r} is not a condition on cuda, driver, arch or brand. Correct {name}, "
            f"or {_DISABLE_HINT}."
        )
    if not numeric and match.group(2) not in ("=", "!="):
        raise RequirementError(
            f"{name}={expression}: {term!r}: a brand supports only = and !=. Correct {name}, or {_DISABLE_HINT}."
        )
    return match.group(1), match.group(2), match.group(3)


def _is_met(term: tuple[str, str, str], actual: Mapping[str, str | None]) -> bool:
    key, operator, value = term
    present = actual.get(key)
    if key == "brand":
        return ((present or "unknown").lower() == value.lower()) is (operator == "=")
    if present is None:
        return True  # An unknown version must not prevent the container from running.
    left, right = _padded(_version(present), _version(value))
    return {
        ">=": left >= right,
        "<=": left <= right,
        ">": left > right,
        "<": left < right,
        "=": left == right,
        "!=": left != right,
    }[operator]


def _is_compatible(term: tuple[str, str, str], actual: Mapping[str, str | None]) -> bool:
    return _requires_newer_cuda(term, actual) and _is_minor_compatible(term[2], actual.get("cuda") or "")


def _requires_newer_cuda(term: tuple[str, str, str], actual: Mapping[str, str | None]) -> bool:
    key, operator, value = term
    if key != "cuda" or operator not in (">=", "=", ">"):
        return False
    required, supported = _padded(_version(value), _version(actual.get("cuda") or ""))
    return required > supported


def _is_minor_compatible(image: str, driver: str) -> bool:
    if not driver:
        return False
    return _version(image)[0] == _version(driver)[0] >= _MINOR_COMPATIBLE_SINCE


def _compatibility_warning(image: str, driver: str, source: str) -> str:
    return (
        f"The image is built for CUDA {image} ({source}), but the driver supports {driver}. With minor-version "
        "compatibility, the image cannot use features that are newer than the driver."
    )


def _unmet_message(
    name: str,
    expression: str,
    alternatives: Sequence[Sequence[tuple[str, str, str]]],
    actual: Mapping[str, str | None],
    gpu: Mapping[str, str | None],
) -> str:
    for terms in alternatives:
        for term in terms:
            if _requires_newer_cuda(term, actual) and not _is_met(term, actual):
                return (
                    f"unsupported CUDA version: driver {actual['cuda']} < image {term[2]} ({name}={expression}). "
                    f"Upgrade the driver, use an older image, or {_DISABLE_HINT}."
                )
    subject = f"GPU {gpu['uuid']}" if gpu.get("uuid") else "This host"
    versions = ", ".join(f"{key} {value or 'unknown'}" for key, value in actual.items())
    return (
        f"{subject} does not meet the image's requirement {name}={expression}: it has {versions}. "
        f"Use another image, or {_DISABLE_HINT}."
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
