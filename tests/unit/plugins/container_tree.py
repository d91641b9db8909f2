# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of a GPU host that isolation and access of its containers depend on."""

from __future__ import annotations

import json

from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi.nvidia import stale_driver_version
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.inventory import inventory_from_facts
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.isolation_host import IsolationHost
from ansible_collections.gpufleet.hosts.tests.unit.plugins.gpu_hosts import CDI_CONTROL, DRIVER, UUIDS, gpu, mig, slice_

WHOLE = inventory_from_facts([gpu(index) for index in range(4)]).by_uuid()
SLICES = inventory_from_facts([gpu(0, mig=mig(slice_(0), slice_(1)))]).by_uuid()
ONE = [WHOLE[UUIDS[1]]]  # its minor is 2
NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", *(f"/dev/nvidia{minor}" for minor in range(4)))
CDI_DIRS = ("/etc/cdi", "/var/run/cdi")
# What the packages of an engine and of the toolkit install beside the runtime and the hook.
PROGRAMS = ("/usr/bin/runc", "/usr/bin/nvidia-container-cli")


class Tree:
    """A host's files."""

    def __init__(self, directory):
        self.directory = directory
        self.files(*NODES, *PROGRAMS)

    def files(self, *paths, text=""):
        for path in paths:
            file = self.directory / path.lstrip("/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        return self

    def remove(self, path):
        (self.directory / path.lstrip("/")).unlink()
        return self

    def spec(self, names=(UUIDS[1],), node="/dev/nvidia2", version="0.5.0", mounts=(), kind="nvidia.com/gpu"):
        edits = {"deviceNodes": [{"path": node}, *CDI_CONTROL], "mounts": [{"hostPath": path} for path in mounts]}
        devices = [{"name": name, "containerEdits": edits} for name in names]
        text = json.dumps({"cdiVersion": version, "kind": kind, "devices": devices})
        return self.files(f"/etc/cdi/{kind.replace('/', '-')}.json", text=text)

    def mig_minors(self):
        lines = ["config 1", "monitor 2"]
        lines += [
            f"gpu3/gi{7 + one}/access {21 + 10 * one}\ngpu3/gi{7 + one}/ci0/access {22 + 10 * one}" for one in (0, 1)
        ]
        self.files("/proc/driver/nvidia-caps/mig-minors", text="\n".join(lines) + "\n")
        return self.files(*(f"/dev/nvidia-caps/nvidia-cap{number}" for number in (21, 22, 31, 32)))

    def host(self, version=DRIVER):
        root = str(self.directory)
        return IsolationHost(driver_version=version, root=root, specs=stale_driver_version.read(CDI_DIRS, root))
