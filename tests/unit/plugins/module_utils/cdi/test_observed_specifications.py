# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The specifications of NVIDIA's GPUs in an observation."""

from __future__ import annotations

import json

from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi.directories import marker_path
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi.nvidia.observed_specifications import observed
from ansible_collections.gpufleet.hosts.tests.unit.plugins.cdi_specifications import LIBRARY, YAML, spec


def write(root, path, text):
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def test_only_specifications_of_nvidia_gpus_are_observed(tmp_path):
    own = "/etc/cdi/gpufleet-nvidia.json"
    write(tmp_path, own, json.dumps(spec("/var/lib/gpufleet/volumes/nvidia_driver/580.95.05"), indent=2))
    write(tmp_path, marker_path(own), "ours")
    write(tmp_path, "/run/cdi/nvidia.yaml", YAML)
    write(tmp_path, "/etc/cdi/net.json", json.dumps(spec(LIBRARY, kind="vendor.com/net")))
    write(tmp_path, "/etc/cdi/mofed.json", json.dumps(spec(LIBRARY, kind="nvidia.com/mofed")))
    write(tmp_path, "/etc/cdi/nvidia.yml", YAML)
    write(tmp_path, "/etc/cdi/broken.json", "{")
    write(tmp_path, "/srv/cdi/b.json", json.dumps(spec(LIBRARY), separators=(",", ":")))
    (tmp_path / "var").mkdir(exist_ok=True)
    (tmp_path / "var/run").symlink_to("../run")
    found = observed(str(tmp_path), ["/etc/cdi", "/var/run/cdi", "/run/cdi", "/srv/cdi", "/nowhere"])
    assert [{**entry, "digest": None} for entry in found] == [
        {"path": path, "driver_versions": [version], "uuids": [], "ours": path == own, "digest": None}
        for path, version in (
            (own, "580.95.05"),
            ("/var/run/cdi/nvidia.yaml", "535.261.03"),
            ("/srv/cdi/b.json", "535.261.03"),
        )
    ]
    assert len({entry["digest"] for entry in found}) == 3
    write(tmp_path, "/srv/cdi/b.json", json.dumps(spec(LIBRARY), indent=1))
    changed = observed(str(tmp_path), ["/etc/cdi", "/var/run/cdi", "/run/cdi", "/srv/cdi", "/nowhere"])
    assert [one == other for one, other in zip(found, changed)] == [True, True, False]
