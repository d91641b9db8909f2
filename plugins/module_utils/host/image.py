# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which prepared image a host was made from, and which cloud it runs in."""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.files import exists, listing, read_text

_CLOUDS = {
    "aws": "Amazon EC2",
    "gcp": "Google Compute Engine",
    "azure": "7783-7084-3265-9085-8269-3286-77",
}
_AGENT = "/opt/aws/amazon-cloudwatch-agent/etc/dlami-amazon-cloudwatch-agent"
# No vendor documents one mark; any of these will do.
_MARKS = {
    "dlami": (
        "/opt/dlami",
        "/etc/dlami/dlami_version",
        "/etc/systemd/system/dlami-cloudwatch-agent@.service",
        *(f"{_AGENT}-{scope}.json" for scope in ("minimal", "partial", "all")),
    ),
    "azure_hpc": ("/opt/azurehpc/component_versions.txt",),
    "dgx": ("/etc/dgx-release",),
    "gcp_deeplearning": ("/opt/deeplearning/metadata/env_version",),
}
# The environments of AWS's images for Neuron, one a framework.
_NEURON_ENVIRONMENT = "aws_neuronx_venv_"


def read(root: str) -> dict:
    """Return `kind` (null for a plain system), the `evidence` for it, and the `cloud`."""
    vendor = " ".join(
        (read_text(root, f"/sys/class/dmi/id/{name}") or "").strip()
        for name in ("sys_vendor", "product_name", "chassis_asset_tag")
    )
    cloud = next((name for name, mark in _CLOUDS.items() if mark in vendor), None)
    for kind, paths in _MARKS.items():
        evidence = [path for path in paths if exists(root, path)]
        if kind == "dlami":
            evidence += [f"/opt/{name}" for name in listing(root, "/opt") if name.startswith(_NEURON_ENVIRONMENT)]
        if evidence:
            return {"kind": kind, "evidence": evidence, "cloud": cloud}
    if "DGX" in vendor:
        return {"kind": "dgx", "evidence": [f"DMI: {vendor.strip()}"], "cloud": cloud}
    return {"kind": None, "evidence": [], "cloud": cloud}
