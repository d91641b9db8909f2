# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read the license of a vGPU in its virtual machine. Without a license, the driver limits the vGPU's performance."""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml.call_results import member, number

LICENSED, UNLICENSED, UNKNOWN = "licensed", "unlicensed", "unknown"
_MOST_FEATURES = 3
# nvmlGridLicenseExpiry_t. Other values say that NVML knows no time.
_VALID, _PERMANENT = 2, 4
_TIME = "{:04d}-{:02d}-{:02d}T{:02d}:{:02d}:{:02d}Z"
_LIMITS = (("year", 9999), ("month", 12), ("day", 31), ("hour", 23), ("min", 59), ("sec", 60))


def read(gpu) -> dict:
    """Return the `state` of the license, and its `expiry`: a time (UTC), `permanent`, or None if it is unknown."""
    features = gpu.first_answer("nvmlDeviceGetGridLicensableFeatures_v4", "nvmlDeviceGetGridLicensableFeatures")
    count = number(member(features, "licensableFeaturesCount"), most=_MOST_FEATURES)
    if not number(member(features, "isGridLicenseSupported")) or not count:
        return {"state": UNKNOWN, "expiry": None}
    found = [features.gridLicensableFeatures[index] for index in range(int(count))]
    # NVML also lists features that this type of vGPU does not use.
    found = [feature for feature in found if number(member(feature, "featureEnabled"))] or found
    states = [number(member(feature, "featureState")) for feature in found]
    licensed = next((feature for feature, state in zip(found, states) if state), None)
    if licensed is not None:
        return {"state": LICENSED, "expiry": _expiry(member(licensed, "licenseExpiry"))}
    return {"state": UNKNOWN if None in states else UNLICENSED, "expiry": None}


def _expiry(expiry) -> str | None:
    status = number(member(expiry, "status"))
    if status == _PERMANENT:
        return "permanent"
    parts = [number(member(expiry, name), most=most) for name, most in _LIMITS]
    return _TIME.format(*map(int, parts)) if status == _VALID and None not in parts else None
