# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The GPUs that an image requests, and its requirements on the driver and the GPUs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.versions import whole_number
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.device_inventory import Unit
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.isolation_choice import DEVICE_REQUESTS, RUNTIME
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.device_requests_by_cdi_or_hook import (
    requests_use_cdi,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.isolation_host import IsolationHost
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.toolkit_refusals import runtime_mode
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection.gpus_option import (
    Request,
    list_request,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.vendor_protocol import RequirementError
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import EngineState

_CDI_NAME = re.compile(r"^nvidia\.com/(?:gpu|mig)=")
LABEL_VOLUMES = "com.nvidia.volumes.needed"
LABEL_CUDA = "com.nvidia.cuda.version"

_TRUE = ("1", "t", "T", "TRUE", "true", "True")
_TERM = re.compile(r"^([A-Za-z0-9_.-]+)\s*(>=|<=|!=|=|<|>)\s*([^\s<>=!]+)$")
_DISABLE_HINT = "set NVIDIA_DISABLE_REQUIRE: 'true' in env"
_VERSIONS = ("cuda", "driver", "arch")
# From this major version on, a program runs on every driver that supports the same major version of CUDA.
_MINOR_COMPATIBLE_SINCE = 11


# Whose rules count: those of this module; those of NVIDIA's hook (libnvidia-container), which reads only the
# environment; or none, because NVIDIA's runtime checks nothing in its modes cdi and jit-cdi (NVIDIA/
# nvidia-container-toolkit at d34b304: only internal/modifier/csv.go checks requirements, and the hook's --require).
MODULE, HOOK, NOBODY = "module", "hook", "nobody"
# The directory of the CUDA compatibility package in an image.
COMPAT_DIRECTORY = "/usr/local/cuda/compat"
# NVIDIA supports the package on data-center GPUs: docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html.
# It also names selected RTX cards, which NVML does not tell from others.
DATA_CENTER_BRANDS = ("nvidia", "tesla")
# Brands of nvidia_gpu_facts that images name differently. Other brands only lose their underscore.
_IMAGE_BRANDS = {
    "nvidia_cloud_gaming": "cloudgaming",
    "nvidia_vapps": "vapps",
    "nvidia_vcs": "vcs",
    "nvidia_vpc": "vpc",
    "nvidia_vws": "vws",
}
# A property, an operator and a value.
Term = tuple[str, str, str]


@dataclass(frozen=True)
class Support:
    """The CUDA version and version of the driver, and the architecture and brand of each selected GPU."""

    cuda: str | None
    driver: str | None
    gpus: Sequence[Mapping[str, str | None]] = field(default_factory=tuple)


@dataclass(frozen=True)
class ImageVerdict:
    """The result of a check that found no reason to refuse the image."""

    warnings: tuple[str, ...] = ()
    # Whether the container requires the libraries of the image's CUDA compatibility package.
    needs_compat: bool = False


def image_brand(brand: str | None) -> str | None:
    """Return the name that images use for a brand of nvidia_gpu_facts."""
    return _IMAGE_BRANDS.get(brand or "", (brand or "").replace("_", "")) or None


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
    return value, "the environment variable NVIDIA_VISIBLE_DEVICES"


def parse_visible_devices(value: str) -> Request:
    """Parse NVIDIA_VISIBLE_DEVICES, where a number is always an index and never a count."""
    names = [_CDI_NAME.sub("", part.strip()) for part in value.split(",") if part.strip()]
    return Request(kind="all") if "all" in names else list_request(names)


def check_requirements(
    labels: Mapping[str, str], env: Mapping[str, str], support: Support, checker: str = MODULE
) -> ImageVerdict:
    """Check an image's requirements. Raise RequirementError if the container must not be created.

    `env` combines the environments of the image and the user. `checker` says whose rules count.
    """
    if env.get("NVIDIA_DISABLE_REQUIRE", "") in _TRUE:
        return ImageVerdict()
    if checker != NOBODY:
        return _check(labels, env, support, exact=checker == HOOK)
    try:
        return _check(labels, env, support, exact=False)
    except RequirementError as error:
        return ImageVerdict((f"{error} NVIDIA's runtime does not check this requirement and starts the container.",))


def _check(labels: Mapping[str, str], env: Mapping[str, str], support: Support, *, exact: bool) -> ImageVerdict:
    """Check all requirements. With `exact`, minor-version compatibility is no reason to accept an image."""
    warnings: list[str] = []
    needs_compat = False
    for name, expression in sorted(_requirements(env).items()):
        verdict = _check_expression(name, expression, support, exact)
        warnings += verdict.warnings
        needs_compat |= verdict.needs_compat
    label = labels.get(LABEL_CUDA)
    if label and support.cuda and not needs_compat:
        try:
            warnings += _check_label(label, support.cuda)
        except RequirementError as error:
            if not exact:
                raise
            # NVIDIA's hook does not read the label.
            warnings.append(str(error))
    return ImageVerdict(tuple(dict.fromkeys(warnings)), needs_compat)


def _requirements(env: Mapping[str, str]) -> dict[str, str]:
    found = {
        name: value
        for name, value in env.items()
        if name.startswith("NVIDIA_REQUIRE_") and not name.startswith("NVIDIA_REQUIRE_JETPACK") and value.strip()
    }
    version = re.match(r"[0-9]+\.[0-9]+", env.get("CUDA_VERSION", ""))
    if version and "NVIDIA_REQUIRE_CUDA" not in env:
        found["CUDA_VERSION"] = f"cuda>={version.group(0)}"
    return found


def _check_label(label: str, driver: str) -> list[str]:
    if not _is_version(label.strip()):
        raise RequirementError(
            f"The image's label {LABEL_CUDA}={_shown(label)} is not a version. Correct the label, or {_DISABLE_HINT}."
        )
    required = _major_minor(label.strip())
    if _version(required) <= _version(driver):
        return []
    if _is_minor_compatible(required, driver):
        return [_compatibility_warning(required, driver, f"label {LABEL_CUDA}")]
    raise RequirementError(
        f"unsupported CUDA version: driver {driver} < image {_shown(required)}. Upgrade the driver, use an image "
        f"for CUDA {driver} or older, or {_DISABLE_HINT}."
    )


def _check_expression(name: str, expression: str, support: Support, exact: bool) -> ImageVerdict:
    alternatives, warnings = _parse(name, expression)
    needs_compat = False
    for gpu in (support.gpus or ({},)) if alternatives else ():
        actual = {"cuda": support.cuda, "driver": support.driver, "arch": gpu.get("arch"), "brand": gpu.get("brand")}
        met = [terms for terms in alternatives if all(_is_met(term, actual) for term in terms)]
        by_compat = bool(met) and all(_is_for_compat(terms, alternatives, actual) for terms in met)
        if met and (not by_compat or exact):
            continue
        if by_compat and gpu.get("brand") in DATA_CENTER_BRANDS:
            needs_compat = True
            continue
        by_minor_version = next(
            (
                terms
                for terms in alternatives
                if terms not in met and all(_is_met(term, actual) or _is_compatible(term, actual) for term in terms)
            ),
            None,
        )
        if exact or by_minor_version is None:
            raise RequirementError(
                _compat_message(name, actual, gpu)
                if by_compat
                else _unmet_message(name, expression, alternatives, actual, gpu)
            )
        for term in by_minor_version:
            if not _is_met(term, actual):
                warnings.append(_compatibility_warning(term[2], actual["cuda"] or "", name))
    return ImageVerdict(tuple(dict.fromkeys(warnings)), needs_compat)


def _is_for_compat(
    terms: Sequence[Term], alternatives: Sequence[Sequence[Term]], actual: Mapping[str, str | None]
) -> bool:
    """Return whether an alternative only holds with the CUDA compatibility package of the image.

    NVIDIA's images list the driver branches that their package supports, for example `brand=tesla,driver>=535,
    driver<536`, as alternatives to the CUDA version. The package's libcuda.so lists the same branches.
    """
    if any(key == "cuda" for key, _operator, _value in terms):
        return False
    return any(_requires_newer_cuda(term, actual) for other in alternatives for term in other)


def _parse(name: str, expression: str) -> tuple[list[list[Term]], list[str]]:
    """Return the alternatives of an expression, and warnings about skipped conditions."""
    alternatives: list[list[Term]] = []
    warnings = []
    for alternative in expression.split():
        terms = []
        for text in filter(None, alternative.split(",")):
            term = _parse_term(name, expression, text)
            if term is None:
                warnings.append(f"{name}: the condition {_shown(text)} is skipped because its property is unknown.")
            else:
                terms.append(term)
        alternatives += [terms] if terms else []
    return alternatives, warnings


def _parse_term(name: str, expression: str, term: str) -> Term | None:
    """Parse a condition. Return None if its property is unknown."""
    place = f"{name}={_shown(expression)}: {_shown(term)!r}"
    match = _TERM.match(term)
    numeric = match is not None and match.group(1) in _VERSIONS
    if match is None or (numeric and not _is_version(match.group(3))):
        raise RequirementError(f"{place} is not a condition such as cuda>=12.0. Correct {name}, or {_DISABLE_HINT}.")
    if not numeric and match.group(1) != "brand":
        return None
    if not numeric and match.group(2) not in ("=", "!="):
        raise RequirementError(f"{place}: a brand supports only = and !=. Correct {name}, or {_DISABLE_HINT}.")
    return match.group(1), match.group(2), match.group(3)


def _is_met(term: Term, actual: Mapping[str, str | None]) -> bool:
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


def _is_compatible(term: Term, actual: Mapping[str, str | None]) -> bool:
    return _requires_newer_cuda(term, actual) and _is_minor_compatible(term[2], actual.get("cuda") or "")


def _requires_newer_cuda(term: Term, actual: Mapping[str, str | None]) -> bool:
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
        f"The image is built for CUDA {_shown(image)} ({source}), but the driver supports {driver}. With minor-version "
        "compatibility, the image cannot use features that are newer than the driver."
    )


def _compat_message(name: str, actual: Mapping[str, str | None], gpu: Mapping[str, str | None]) -> str:
    return (
        f"{name}: with driver {actual['driver']} (CUDA {actual['cuda']}), the image requires its CUDA compatibility "
        f"package, which NVIDIA supports only on data-center GPUs. GPU {gpu.get('uuid')} has brand "
        f"{actual['brand'] or 'unknown'}. Upgrade the driver, or use an older image. If NVIDIA supports the package on "
        f"this GPU, {_DISABLE_HINT}, and set LD_LIBRARY_PATH: {COMPAT_DIRECTORY}."
    )


def _unmet_message(
    name: str,
    expression: str,
    alternatives: Sequence[Sequence[Term]],
    actual: Mapping[str, str | None],
    gpu: Mapping[str, str | None],
) -> str:
    for terms in alternatives:
        for term in terms:
            if _requires_newer_cuda(term, actual) and not _is_met(term, actual):
                return (
                    f"unsupported CUDA version: driver {actual['cuda']} < image {_shown(term[2])} ({name}="
                    f"{_shown(expression)}). Upgrade the driver, use an older image, or {_DISABLE_HINT}."
                )
    subject = f"GPU {gpu['uuid']}" if gpu.get("uuid") else "This host"
    versions = ", ".join(f"{key} {value or 'unknown'}" for key, value in actual.items())
    return (
        f"{subject} does not meet the image's requirement {name}={_shown(expression)}: it has {versions}. "
        f"Use another image, or {_DISABLE_HINT}."
    )


def _shown(text: str) -> str:
    """Return a text of an image as messages show it. A long one would hide the rest of the message."""
    return text if len(text) <= 200 else f"{text[:100]}... ({len(text)} characters)"


def _is_version(text: str) -> bool:
    return re.fullmatch(r"[0-9]+(\.[0-9]+)*", text) is not None


def _version(text: str) -> tuple[int, ...]:
    return tuple(whole_number(part) for part in re.findall(r"[0-9]+", text))


def _major_minor(text: str) -> str:
    parts = text.split(".")
    return ".".join([*parts, "0"][:2])


def _padded(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    length = max(len(left), len(right))
    return left + (0,) * (length - len(left)), right + (0,) * (length - len(right))


def requirement_checker(name: str, engine: EngineState, host: IsolationHost, units: Sequence[Unit]) -> str:
    """Return whose rules count for the requirements of an image: see the constants."""
    if name not in (RUNTIME, DEVICE_REQUESTS):
        return MODULE
    by_hook = runtime_mode(host) == "legacy" if name == RUNTIME else not requests_use_cdi(engine, host, units)
    return HOOK if by_hook and not host.toolkit.disables_requirements else NOBODY
