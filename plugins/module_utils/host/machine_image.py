# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The prepared image that a host was created from, and its cloud."""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.files import exists, listing, read_text

_CLOUDS = {
    "aws": "Amazon EC2",
    "gcp": "Google Compute Engine",
    "azure": "7783-7084-3265-9085-8269-3286-77",
}
_AGENT = "/opt/aws/amazon-cloudwatch-agent/etc/dlami-amazon-cloudwatch-agent"
# No vendor documents how to detect its image. Any of these paths identifies the image.
_IMAGE_PATHS = {
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
# AWS's Neuron images have one virtual environment per framework.
_NEURON_ENVIRONMENT = "aws_neuronx_venv_"


def read(root: str) -> dict:
    """Return the `kind` of the image (None for a plain system), the `evidence` for it, and the `cloud`."""
    vendor = " ".join(
        (read_text(root, f"/sys/class/dmi/id/{name}") or "").strip()
        for name in ("sys_vendor", "product_name", "chassis_asset_tag")
    )
    cloud = next((name for name, text in _CLOUDS.items() if text in vendor), None)
    for kind, paths in _IMAGE_PATHS.items():
        evidence = [path for path in paths if exists(root, path)]
        if kind == "dlami":
            evidence += [f"/opt/{name}" for name in listing(root, "/opt") if name.startswith(_NEURON_ENVIRONMENT)]
        if evidence:
            return {"kind": kind, "evidence": evidence, "cloud": cloud}
    if "DGX" in vendor:
        return {"kind": "dgx", "evidence": [f"DMI: {vendor.strip()}"], "cloud": cloud}
    return {"kind": None, "evidence": [], "cloud": cloud}
