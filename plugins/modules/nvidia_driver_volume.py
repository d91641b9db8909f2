#!/usr/bin/python
# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nvidia_driver_volume
short_description: Collect the NVIDIA driver's user-space files into a volume for containers
version_added: 0.1.0
description:
  - Collects the libraries and programs of the loaded NVIDIA driver into a directory that containers mount read-only
    at C(/usr/local/nvidia), and registers that directory with the container engine as a named volume. Neither the
    image needs a driver, nor the host a toolkit of the vendor's.
  - Files are hard links to the host's own where the file systems allow that, and copies elsewhere.
  - Each driver version has a volume of its own. Containers of an older version keep it until it is pruned.
  - A volume is built beside its place and renamed into it. One that is damaged is mended without taking files away
    from containers that run on it.
attributes:
  check_mode:
    support: full
    description: Can run in check_mode and return changed status prediction without modifying target.
  diff_mode:
    support: full
    description: Will return details on what has changed (or possibly needs changing in check_mode), when in diff mode.
  idempotent:
    support: full
    description:
      - When run twice in a row outside check mode, with the same arguments, the second invocation indicates no change.
options:
  state:
    description:
      - V(present) makes the volume of O(driver_version), or of the loaded driver, whole and known to the engine.
      - V(absent) removes the volume of O(driver_version), or of every version where none is given. It fails, before
        anything is removed, if one of them is used by a container, or if a Docker that does not run has it
        registered and is not to be started.
    type: str
    choices: [present, absent]
    default: present
  path:
    description:
      - Directory for volumes. The volume of driver 580.95.05 is C(nvidia_driver/580.95.05) below it.
      - On the file system of the driver's own files a volume takes no space.
      - Other modules of this collection call it C(driver_volume_path), so that does, too.
    type: path
    aliases: [driver_volume_path]
    default: /var/lib/gpufleet/volumes
  engine:
    description:
      - Container engines to register the volume with.
      - V(auto) means each that is there. If none is, O(state=present) fails.
      - V(none) makes the directory alone. It stands alone.
      - In check mode, and where it is not named, an engine is not started to be asked. What a Docker that does not run
        has registered, and which of its containers use what, is read from its directory then.
    type: list
    elements: str
    choices: [auto, docker, podman, none]
    default: [auto]
  expected_engines:
    description:
      - Engines that check mode takes for there although they are not, because something before this task would have
        installed or started them. What such a Docker has registered is read from its directory.
      - Without effect outside check mode.
    type: list
    elements: str
    choices: [docker, podman]
    default: []
  docker_host:
    description: Address of Docker's API, C(unix:///path) or C(tcp://host:port) without TLS.
    type: str
    default: unix:///var/run/docker.sock
  sets:
    description:
      - Which libraries and programs to collect.
      - V(utility) is nvidia-smi and NVML, V(compute) is CUDA and OpenCL, V(video) is the codecs, V(graphics) is OpenGL,
        Vulkan and OptiX, V(ngx) is DLSS.
      - V(compat32) adds the 32-bit libraries of the other sets, where the host has them.
    type: list
    elements: str
    choices: [utility, compute, video, graphics, ngx, compat32]
    default: [utility, compute, video, graphics, ngx, compat32]
  driver_root:
    description:
      - Root of the driver's files where they are not the host's own, for example V(/run/nvidia/driver).
      - With O(state=absent) it need not be there.
    type: path
    default: /
  driver_version:
    description:
      - Version of the driver whose files to collect. Without it that of the loaded kernel module.
      - Set it to build a volume before the reboot that a driver upgrade needs, or on a machine without the module.
    type: str
  prune:
    description:
      - Remove the volumes of other versions.
      - Kept are those that a container uses, running or not, that a process has mounted, that a CDI specification
        names, that a Docker which does not run has registered, and that of the loaded driver. RV(kept) says which
        and why. A container that has the volume by CDI is named like one that mounts it.
    type: bool
    default: false
  selinux_type:
    description:
      - SELinux type for the volume's directories and copies, set only where SELinux is enforcing.
      - Hard links keep the type of the host's file, which they share.
    type: str
    default: container_ro_file_t
author:
  - gpufleet maintainers (@gpufleet)
seealso:
  - module: gpufleet.hosts.gpu_container
  - module: gpufleet.hosts.nvidia_cdi_spec
"""

EXAMPLES = r"""
- name: Give containers the loaded driver, and drop volumes of older ones that nothing uses
  gpufleet.hosts.nvidia_driver_volume:
    prune: true
  register: driver

- name: Run a program of the driver in a container
  ansible.builtin.command:
    argv: [docker, run, --rm, -v, "{{ driver.volume.mount }}", --device, /dev/nvidiactl, --device, /dev/nvidia0,
           -e, LD_LIBRARY_PATH=/usr/local/nvidia/lib64, debian:12, /usr/local/nvidia/bin/nvidia-smi, -L]
  changed_when: false

- name: Prepare the volume of an upgraded driver before the reboot, with compute libraries alone
  gpufleet.hosts.nvidia_driver_volume:
    driver_version: 580.95.05
    sets: [utility, compute]

- name: Remove every driver volume
  gpufleet.hosts.nvidia_driver_volume:
    state: absent
"""

RETURN = r"""
volume:
  description: The volume that is there now, or would be outside check mode. Null for O(state=absent).
  returned: success
  type: dict
  contains:
    name:
      description: Name by which the engine knows it.
      type: str
      returned: always
      sample: nvidia_driver_580.95.05
    path:
      description: Its directory.
      type: str
      returned: always
      sample: /var/lib/gpufleet/volumes/nvidia_driver/580.95.05
    version:
      description: The driver's version.
      type: str
      returned: always
      sample: 580.95.05
    mount:
      description: What an engine's C(--volume) takes to mount it by name.
      type: str
      returned: always
      sample: nvidia_driver_580.95.05:/usr/local/nvidia:ro
    bind:
      description: What C(--volume) takes to mount it by path, with O(engine=none) for example.
      type: str
      returned: always
      sample: /var/lib/gpufleet/volumes/nvidia_driver/580.95.05:/usr/local/nvidia:ro
    env:
      description: Variables by which a container finds the volume's libraries.
      type: dict
      returned: always
      sample: {LD_LIBRARY_PATH: "/usr/local/nvidia/lib64:/usr/local/nvidia/lib"}
    libraries:
      description: Names of the 64-bit libraries.
      type: list
      elements: str
      returned: always
      sample: [libcuda.so.580.95.05, libnvidia-ml.so.580.95.05]
    libraries_compat32:
      description: Names of the 32-bit libraries.
      type: list
      elements: str
      returned: always
      sample: []
    binaries:
      description: Names of the programs.
      type: list
      elements: str
      returned: always
      sample: [nvidia-smi]
    engines:
      description: Engines that know the volume.
      type: list
      elements: str
      returned: always
      sample: [docker]
    total_bytes:
      description: Size of its files in bytes.
      type: int
      returned: always
      sample: 612368384
    hard_linked_bytes:
      description: Bytes of RV(volume.total_bytes) that are hard links to the host's files, and take no space.
      type: int
      returned: always
      sample: 612368384
    copied_bytes:
      description: Bytes of RV(volume.total_bytes) that are copies.
      type: int
      returned: always
      sample: 0
removed:
  description: Names of the volumes that were removed.
  returned: success
  type: list
  elements: str
  sample: [nvidia_driver_570.133.20]
kept:
  description: Volumes that O(prune) left, with the reason.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Name of the volume.
      type: str
      returned: always
      sample: nvidia_driver_570.133.20
    version:
      description: The driver's version.
      type: str
      returned: always
      sample: 570.133.20
    reason:
      description: Why it was kept.
      type: str
      returned: always
      sample: "docker container trainer (running)"
actions:
  description: What was done, or would be.
  returned: success
  type: list
  elements: str
  sample: ["build volume nvidia_driver_580.95.05 of 31 files", "register nvidia_driver_580.95.05 with docker"]
"""

import contextlib
import os
import platform

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import options as base_options
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import file as cdi_file
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import stopped, volumes
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import driver as host_driver
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import mount_users
from ansible_collections.gpufleet.hosts.plugins.module_utils.volume import driver_files, driver_volume

CDI_DIRECTORIES = ("etc/cdi", "run/cdi")
REMEMBERED = (
    "Docker, which does not run and has it registered (start it; where it is gone for good, remove volumes/{name} from "
    "its directory)"
)


def main() -> None:
    """Run the module."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "path": {"type": "path", "aliases": ["driver_volume_path"], "default": driver_volume.DEFAULT_PATH},
            "engine": {
                "type": "list",
                "elements": "str",
                "choices": ["auto", "docker", "podman", "none"],
                "default": ["auto"],
            },
            "expected_engines": {"type": "list", "elements": "str", "choices": ["docker", "podman"], "default": []},
            "docker_host": {"type": "str", "default": volumes.DOCKER_HOST},
            "sets": {
                "type": "list",
                "elements": "str",
                "choices": list(driver_files.SETS),
                "default": list(driver_files.SETS),
            },
            "driver_root": {"type": "path", "default": "/"},
            "driver_version": {"type": "str"},
            "prune": {"type": "bool", "default": False},
            "selinux_type": {"type": "str", "default": "container_ro_file_t"},
        },
        supports_check_mode=True,
    )
    podman = volumes.Podman(module.run_command, module.get_bin_path("podman"))
    try:
        docker = volumes.Docker(module.params["docker_host"])
        result = Run(module.params, docker, podman, module.check_mode).result()
    except (driver_files.DriverFilesError, driver_volume.VolumeError, volumes.EngineError) as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        module.fail_json(msg=f"{error.filename or module.params['path']}: {error.strerror or error}")
    module.exit_json(**result)


class Run:
    """One run of the module: what it was asked, the host it acts on, and what it did."""

    def __init__(
        self,
        params: dict,
        docker: volumes.Docker,
        podman: volumes.Podman,
        check: bool,
        root: str = "/",
    ) -> None:
        self.params, self.check, self.root = params, check, root
        self.path = os.path.normpath(params["path"])
        self.loaded = host_driver.loaded_module(root)[0]
        self._validate()
        # A check starts no engine, nor does a run that is not told to use it: see _informants.
        self.docker, self.podman = (self._foreseen(engine) if check else engine for engine in (docker, podman))
        self.engines = volumes.chosen(params["engine"], self.docker, self.podman, needed=params["state"] == "present")
        self._told: list | None = None
        self.actions: list[str] = []
        self.before: dict = {}
        self.after: dict = {}

    def _foreseen(self, engine):
        """Return what a check knows of an engine that is not to be started, or that is expected and not there yet."""
        engine = self._not_started(engine)
        if engine.name not in self.params["expected_engines"] or not engine.unavailable_reason():
            return engine
        return stopped.docker(self.root) if engine.name == "docker" else stopped.StoppedEngine(engine.name)

    def _not_started(self, engine):
        """Return what an engine has on disk, where a question would start it."""
        if engine.name == "podman":
            return engine if engine.unavailable_reason() else stopped.podman(self.root) or engine
        asleep = engine.socket and stopped.is_socket_activated(engine.socket, self.root)
        return stopped.docker(self.root) if asleep else engine

    def _informants(self) -> list:
        """Return those who know of volumes and containers: the engines that answer, and what a silent Docker has."""
        if self._told is None:
            self._told = list(self.engines)
            for engine in (self.docker, self.podman):
                if engine not in self.engines:
                    self._told += self._bystander(engine)
        return self._told

    def _bystander(self, engine) -> list:
        """Return who tells what an engine has that this run does not use."""
        if not isinstance(engine, stopped.StoppedEngine):
            engine = self._not_started(engine)
        if not engine.unavailable_reason():
            return [engine]
        return [stopped.docker(self.root)] if engine.name == "docker" else []

    def _validate(self) -> None:
        version = self.params["driver_version"]
        if version is not None and not driver_files.VERSION.fullmatch(version):
            raise driver_volume.VolumeError(f"driver_version={version} is not a driver version such as 580.95.05")
        if not os.path.isabs(self.params["path"]):
            raise driver_volume.VolumeError(f"path={self.params['path']} is not an absolute path")
        fault = base_options.driver_root_fault(self.params["driver_root"])
        # What removes a volume needs no driver.
        if fault and self.params["state"] == "present":
            raise driver_volume.VolumeError(fault)
        driver_files.check_sets(self.params["sets"])

    def result(self) -> dict:
        """Do what was asked, or find out what that would be."""
        there = driver_volume.versions(self.path)
        volume = self._present() if self.params["state"] == "present" else None
        removed, kept = self._removals(volume, there)
        return {
            "changed": bool(self.actions),
            "volume": volume,
            "removed": removed,
            "kept": kept,
            "actions": self.actions,
            "diff": {"before": self.before, "after": self.after},
        }

    def _present(self) -> dict:
        version = self.params["driver_version"] or self.loaded
        if version is None:
            raise driver_volume.VolumeError(
                "no NVIDIA driver is loaded: /sys/module/nvidia/version is not there. Load it (modprobe nvidia), or "
                "say with driver_version whose files to collect."
            )
        place = driver_volume.directory(self.path, version)
        want = driver_volume.wanted(
            version,
            driver_files.find(
                version,
                platform.machine(),
                self.params["driver_root"],
                sets=self.params["sets"],
                search_path=os.environ.get("PATH", "").split(":") if self.params["driver_root"] == "/" else (),
                ignore=[os.path.join(self.path, driver_volume.KIND)],
            ),
        )
        register = self._unregistered(version, place)
        self._fill(want, place)
        for engine in register:
            self.actions.append(f"register {driver_volume.volume_name(version)} with {engine.name}")
            if not self.check:
                engine.create(driver_volume.volume_name(version), place)
        self.before["engines"] = [engine.name for engine in self.engines if engine not in register]
        self.after["engines"] = [engine.name for engine in self.engines]
        return self._describe(want, place)

    def _unregistered(self, version: str, place: str) -> list:
        """Return the engines that don't know the volume yet; a stranger under its name is an error."""
        name, unregistered = driver_volume.volume_name(version), []
        for engine in self.engines:
            found = engine.volume(name)
            if found is None:
                unregistered.append(engine)
            elif not found.is_bound_to(place):
                raise volumes.EngineError(
                    f"{engine.name} has a volume {name} that is not ours ({found.text()} instead of driver local, "
                    f"device {place}). Remove it ({engine.name} volume rm {name}) once no container uses it, or set "
                    "`path` to where its directory is."
                )
        return unregistered

    def _fill(self, want: driver_volume.Wanted, place: str) -> None:
        label = self._label()
        if self.check:
            changes, was = driver_volume.difference(want, place, label), os.path.isdir(place)
            if changes:
                driver_volume.refuse_hopeless(want, place, changes)
        else:
            with driver_volume.locked(self.path) as base:
                was = os.path.isdir(place)
                changes = driver_volume.build(want, base, label)
        if not changes:
            self.before["files"] = self.after["files"] = []
            return
        name, count = driver_volume.volume_name(want.version), len(want.files)
        if was:
            self.actions.append(
                f"mend volume {name}: add {len(changes.add)}, replace {len(changes.replace)}, "
                f"remove {len(changes.remove)} of its files and links"
            )
        else:
            self.actions.append(f"build volume {name} of {count} files")
        self.before["files"] = sorted([f"{name} ({fault})" for name, fault in changes.replace.items()] + changes.remove)
        self.after["files"] = sorted(
            f"{name} -> {want.links[name]}" if name in want.links else name for name in [*changes.add, *changes.replace]
        )

    def _label(self) -> str | None:
        """Return the SELinux label for what is ours, None where SELinux does not enforce."""
        with contextlib.suppress(OSError):
            selinux = os.path.join(self.root, "sys/fs/selinux")
            with open(os.path.join(selinux, "enforce"), encoding="ascii") as enforce:
                enforcing = enforce.read().strip() == "1"
            with open(os.path.join(selinux, "mls"), encoding="ascii") as mls:
                level = ":s0" if mls.read().strip() == "1" else ""
            if enforcing:
                return f"system_u:object_r:{self.params['selinux_type']}{level}"
        return None

    def _describe(self, want: driver_volume.Wanted, place: str) -> dict:
        def names(where: str) -> list[str]:
            return sorted(name.split("/", 1)[1] for name in want.files if name.startswith(where + "/"))

        return {
            "name": driver_volume.volume_name(want.version),
            "path": place,
            "version": want.version,
            "mount": driver_volume.mount_spec(want.version),
            "bind": f"{place}:{driver_volume.MOUNT_POINT}:ro",
            "env": driver_volume.container_env(),
            "libraries": names("lib64"),
            "libraries_compat32": names("lib"),
            "binaries": names("bin"),
            "engines": [engine.name for engine in self.engines],
            **driver_volume.sizes(want, place),
        }

    def _removals(self, volume: dict | None, there: list[str]) -> tuple[list[str], list[dict]]:
        """Remove what state and prune say, of the versions that were there."""
        version, asked, pruned = self.params["driver_version"], [], []
        known = self._known(there) if volume is None or self.params["prune"] else []
        if volume is None:
            asked = [one for one in known if version in {None, one}]
        if self.params["prune"]:
            pruned = [one for one in known if one not in asked and (volume is None or one != volume["version"])]
        used = {version: self._used(version) for version in [*asked, *pruned]}
        held = [f"{driver_volume.volume_name(version)}: {used[version]}" for version in asked if used[version]]
        if held:
            raise driver_volume.VolumeError(
                f"in use, so nothing was removed: {'; '.join(held)}. Remove what uses it first."
            )
        kept = []
        for version in pruned:
            reason = used[version] or ("its driver is the loaded one" if version == self.loaded else None)
            if reason:
                kept.append({"name": driver_volume.volume_name(version), "version": version, "reason": reason})
        doomed = [version for version in [*asked, *pruned] if version not in {item["version"] for item in kept}]
        for version in doomed:
            self._remove(version)
        made = {volume["version"]} if volume else set()
        self.before["volumes"] = there
        self.after["volumes"] = sorted({*there, *made} - set(doomed), key=driver_volume.version_key)
        return [driver_volume.volume_name(version) for version in doomed], kept

    def _known(self, there: list[str]) -> list[str]:
        """List the versions on disk, and those that only an engine remembers."""
        prefix, known = driver_volume.volume_name(""), set(there)
        for engine in self._informants():
            for volume in engine.volumes(prefix):
                version = volume.name[len(prefix) :]
                place = driver_volume.directory(self.path, version)
                if driver_files.VERSION.fullmatch(version) and volume.is_bound_to(place):
                    known.add(version)
        return sorted(known, key=driver_volume.version_key)

    def _used(self, version: str) -> str | None:
        """Say who uses the volume of a version."""
        name, place = driver_volume.volume_name(version), driver_volume.directory(self.path, version)
        told = self._informants()
        users = [f"{engine.name} container {user}" for engine in told for user in engine.users(name, place)]
        users += self._mounting(place, users)
        users += [
            REMEMBERED.format(name=name)
            for engine in told
            if self._is_out_of_reach(engine) and _binds(engine, name, place)
        ]
        users += [f"CDI specification {path}" for path in self._specifications(place)]
        return ", ".join(users) or None

    def _mounting(self, place: str, known: list[str]) -> list[str]:
        """Name who else has the volume mounted: containers that got it by CDI or from an engine that is not asked.

        What an engine mounts for a container is to be seen in other processes, too, and says nothing of those then.
        """
        processes = mount_users.users(place, self.root)
        titles = {}
        if any(process.container for process in processes):
            for engine in self._informants():
                titles.update({key: f"{engine.name} container {title}" for key, title in engine.titles().items()})
        found = [
            titles.get(process.container) or str(process) for process in processes if process.container or not known
        ]
        return [one for one in dict.fromkeys(found) if one not in known]

    def _is_out_of_reach(self, engine) -> bool:
        """Tell whether an engine can't be told to forget a volume, by a run that is no check either."""
        return isinstance(engine, stopped.StoppedEngine) and engine not in self.engines

    def _specifications(self, place: str) -> list[str]:
        """List the CDI specifications that name the volume's directory, by whichever path."""
        inside = os.path.realpath(place) + os.sep
        return [
            path
            for path in cdi_file.files([os.path.join(self.root, directory) for directory in CDI_DIRECTORIES])
            if any((os.path.realpath(name) + os.sep).startswith(inside) for name in cdi_file.named_in(path))
        ]

    def _remove(self, version: str) -> None:
        name, place = driver_volume.volume_name(version), driver_volume.directory(self.path, version)
        self.actions.append(f"remove volume {name}")
        if self.check:
            return
        for engine in self._informants():
            # One that is out of reach does not have it, or we would not be here.
            if not self._is_out_of_reach(engine) and _binds(engine, name, place):
                engine.remove(name)
        if not os.path.lexists(place):
            return
        with driver_volume.locked(self.path) as base:
            driver_volume.remove(base, version)
            if not driver_volume.versions(self.path):
                with contextlib.suppress(OSError):
                    os.rmdir(base)


def _binds(engine, name: str, place: str) -> bool:
    """Tell whether an engine has the volume, and it is ours."""
    found = engine.volume(name)
    return found is not None and found.is_bound_to(place)


if __name__ == "__main__":
    main()
