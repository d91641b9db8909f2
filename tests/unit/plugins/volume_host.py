# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host on which module nvidia_driver_volume runs."""

from __future__ import annotations

import functools
import json
import os
import shutil
from pathlib import Path

from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import specification_files as cdi_file
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import stopped_engine
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.named_volumes import DockerClient, PodmanClient
from ansible_collections.gpufleet.hosts.plugins.module_utils.volume.volume_changes import DEFAULTS, VolumeRun
from ansible_collections.gpufleet.hosts.tests.unit.plugins import driver_tree
from ansible_collections.gpufleet.hosts.tests.unit.plugins.fake_engines import FakeDocker, FakePodman

VERSION = "580.95.05"
OLDER = "570.133.20"
NAME = f"nvidia_driver_{VERSION}"
OLD_NAME = f"nvidia_driver_{OLDER}"

HOST_MOUNTS = "22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw\n"


class VolumeHost:
    """A host with a driver, Docker and Podman, on which module nvidia_driver_volume runs."""

    def __init__(self, root, path="volumes", socket="docker.sock"):
        self.root = root
        self.path = root / path
        (root / socket).parent.mkdir(parents=True, exist_ok=True)
        self.docker = FakeDocker(root / socket)
        self.podman = FakePodman()
        self.has_podman = True
        driver_tree.ubuntu(root, VERSION)
        driver_tree.loaded(root, VERSION)
        self.process(1, HOST_MOUNTS)
        (root / "proc/self").symlink_to("1")

    def process(self, pid, mounts):
        """Add a process with its own mount namespace."""
        directory = self.root / "proc" / str(pid)
        (directory / "ns").mkdir(parents=True)
        (directory / "ns/mnt").symlink_to(f"mnt:[{pid}]")
        (directory / "mountinfo").write_text(mounts)
        (directory / "comm").write_text("trainer\n")

    def podman_path(self):
        """Return the path of Podman's command, None if it is not installed."""
        return "/usr/bin/podman" if self.has_podman else None

    def run_podman(self, argv):
        """Run Podman, which creates its storage on the first call."""
        Path(stopped_engine.podman_data(str(self.root))[0]).mkdir(parents=True, exist_ok=True)
        return self.podman.run(argv)

    def write_docker_files(self):
        """Write Docker's volumes and containers to its data directory."""
        data = self.root / "var/lib/docker"
        shutil.rmtree(data, ignore_errors=True)
        for name, volume in self.docker.volumes.items():
            (data / "volumes" / name / "_data").mkdir(parents=True)
            options = volume["Options"]
            if options:
                kept = {"MountType": "none", "MountOpts": options["o"], "MountDevice": options["device"]}
                (data / "volumes" / name / "opts.json").write_text(json.dumps(kept))
        for container in self.docker.containers:
            directory = data / "containers" / container["Id"]
            directory.mkdir(parents=True)
            mounts = {mount.get("Destination", "/usr/local/nvidia"): mount for mount in container["Mounts"]}
            state = {"Running": container["State"] == "running", "StartedAt": "2026-11-21T01:02:03.4Z"}
            kept = {"Name": container["Names"][0], "State": state, "MountPoints": mounts}
            (directory / "config.v2.json").write_text(json.dumps(kept))

    def stop_docker(self):
        """Stop Docker and close its socket."""
        self.write_docker_files()
        self.docker.close()
        Path(self.docker.host[7:]).unlink()

    def stop_docker_service(self):
        """Stop Docker, but not its socket: systemd listens there and starts Docker on a connection."""
        self.write_docker_files()
        self.docker.requests.clear()
        (self.root / "proc/net").mkdir(exist_ok=True)
        (self.root / "proc/net/unix").write_text(
            "Num       RefCount Protocol Flags    Type St Inode Path\n"
            f"0000000000000000: 00000002 00000000 00010000 0001 01 4711 {self.docker.host[7:]}\n"
        )
        (self.root / "proc/1/comm").write_text("systemd\n")

    def start_docker_service(self):
        """Start Docker again."""
        (self.root / "proc/net/unix").unlink()

    def run(self, check=False, **params):
        """Run the module."""
        run = VolumeRun(
            {**DEFAULTS, "path": str(self.path), "driver_root": str(self.root), **params},
            DockerClient(self.docker.host),
            PodmanClient(self.run_podman, self.podman_path()),
            functools.partial(cdi_file.referring_to, root=str(self.root)),
            check=check,
            root=str(self.root),
        )
        return run.apply_state()

    def upgrade(self):
        """Create the volume of an older driver, then load the new driver."""
        shutil.rmtree(self.root / "usr")
        (self.root / "lib").unlink()
        driver_tree.ubuntu(self.root, OLDER)
        driver_tree.loaded(self.root, OLDER)
        self.run()
        shutil.rmtree(self.root / "usr")
        (self.root / "lib").unlink()
        driver_tree.ubuntu(self.root, VERSION)
        driver_tree.loaded(self.root, VERSION)

    def volumes(self):
        """List the volumes on disk, in Docker and in Podman."""
        base = self.path / "nvidia_driver"
        return (
            sorted(os.listdir(base)) if base.exists() else [],
            sorted(self.docker.volumes),
            sorted(self.podman.volumes),
        )
