# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Create, repair, register and remove driver volumes, or predict this in check mode.

Module nvidia_driver_volume documents the parameters and the result.
"""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Callable

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import option_limits as base_options
from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import named_volumes, stopped_engine
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import driver_versions as host_driver
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import mount_users as host_processes
from ansible_collections.gpufleet.hosts.plugins.module_utils.volume import driver_files, driver_volume

# The values of the options that are not set.
DEFAULTS = {
    "state": "present",
    "path": driver_volume.DEFAULT_PATH,
    "engine": ["auto"],
    "expected_engines": [],
    "docker_host": named_volumes.DOCKER_HOST,
    "sets": list(driver_files.SETS),
    "driver_root": "/",
    "driver_version": None,
    "prune": False,
    "selinux_type": "container_ro_file_t",
}
ERRORS = (driver_files.DriverFilesError, driver_volume.VolumeError, named_volumes.EngineError, OSError)
REGISTERED_WITH_STOPPED_DOCKER = (
    "Docker, which is stopped and has the volume registered (start Docker; if it is no longer installed, delete "
    "volumes/{name} in its data directory)"
)


def _remedy(engine: str, found: named_volumes.EngineVolume) -> str:
    if found.driver == "nvidia-docker":
        return (
            "It belongs to the volume plugin of nvidia-docker 1.0. Run playbook gpufleet.hosts.site with "
            f"nvidia_container_toolkit_migrate=true, or remove it ({engine} volume rm {found.name}) when no container "
            "uses it."
        )
    return (
        f"Remove that volume ({engine} volume rm {found.name}) when no container uses it, or set `driver_volume_path` "
        "to its directory."
    )


def error_text(error: Exception, path: str) -> str:
    """Return the message for one of `ERRORS`. `path` is the directory for volumes."""
    if isinstance(error, OSError):
        return f"{error.filename or path}: {error.strerror or error}"
    return str(error)


class VolumeRun:
    """One run of the module: its parameters, the host, and the actions taken so far.

    `specifications` returns the CDI specifications that refer to a directory. Package `cdi` imports from this one, so
    the caller passes the function.
    """

    def __init__(
        self,
        params: dict,
        docker: named_volumes.DockerClient,
        podman: named_volumes.PodmanClient,
        specifications: Callable[[str], list[str]],
        *,
        check: bool,
        root: str = "/",
    ) -> None:
        self.params, self.specifications, self.check, self.root = params, specifications, check, root
        self.path = os.path.normpath(params["path"])
        self.loaded = host_driver.loaded_module(root)[0]
        self._validate()
        # Check mode starts no engine. A run starts only the engines that it uses: see _all_engines.
        self.docker, self.podman = (self._for_check_mode(engine) if check else engine for engine in (docker, podman))
        self.engines = named_volumes.chosen(
            params["engine"], self.docker, self.podman, needed=params["state"] == "present"
        )
        self._known_engines: list | None = None
        self.actions: list[str] = []
        # The actions that only remove files, which may be those of removed driver packages.
        self.surplus: list[str] = []
        self.before: dict = {}
        self.after: dict = {}

    def _for_check_mode(self, engine):
        """Return a view of the engine's files if a request would start it, or if it is expected but not available."""
        engine = self._without_starting(engine)
        if engine.name not in self.params["expected_engines"] or not engine.unavailable_reason():
            return engine
        return (
            stopped_engine.docker(self.root) if engine.name == "docker" else stopped_engine.StoppedEngine(engine.name)
        )

    def _without_starting(self, engine):
        """Return a view of the engine's files if a request would start the engine."""
        if engine.name == "podman":
            return engine if engine.unavailable_reason() else stopped_engine.podman(self.root) or engine
        would_start = engine.socket and stopped_engine.is_socket_activated(engine.socket, self.root)
        return stopped_engine.docker(self.root) if would_start else engine

    def _all_engines(self) -> list:
        """Return every engine that may have volumes or containers. A stopped Docker is represented by its files."""
        if self._known_engines is None:
            self._known_engines = list(self.engines)
            for engine in (self.docker, self.podman):
                if engine not in self.engines:
                    self._known_engines += self._unused_engine(engine)
        return self._known_engines

    def _unused_engine(self, engine) -> list:
        """Return a list with an engine that this run does not use, or with the view of its files, if available."""
        if not isinstance(engine, stopped_engine.StoppedEngine):
            engine = self._without_starting(engine)
        if not engine.unavailable_reason():
            return [engine]
        return [stopped_engine.docker(self.root)] if engine.name == "docker" else []

    def _validate(self) -> None:
        version = self.params["driver_version"]
        if version is not None and not driver_files.VERSION.fullmatch(version):
            raise driver_volume.VolumeError(f"driver_version={version} is invalid. Use the form 580.95.05.")
        if not os.path.isabs(self.params["path"]):
            raise driver_volume.VolumeError(
                f"path={self.params['path']} is not an absolute path. Start the path with /."
            )
        fault = base_options.driver_root_fault(self.params["driver_root"])
        # Removing a volume needs no driver.
        if fault and self.params["state"] == "present":
            raise driver_volume.VolumeError(fault)
        driver_files.check_sets(self.params["sets"])

    def apply_state(self) -> dict:
        """Apply the requested state. In check mode, only predict the result."""
        existing = driver_volume.versions(self.path)
        volume = self._present() if self.params["state"] == "present" else None
        removed, kept = self._removals(volume, existing)
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
                "no NVIDIA driver is loaded: /sys/module/nvidia/version does not exist. Load the driver (modprobe "
                "nvidia), or set driver_version to the version of the files."
            )
        directory = driver_volume.volume_directory(self.path, version)
        layout = driver_volume.layout_of(
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
        unregistered = self._unregistered(version, directory)
        self._build(layout, directory)
        for engine in unregistered:
            self.actions.append(f"register {driver_volume.volume_name(version)} with {engine.name}")
            if not self.check:
                engine.create(driver_volume.volume_name(version), directory)
        self.before["engines"] = [engine.name for engine in self.engines if engine not in unregistered]
        self.after["engines"] = [engine.name for engine in self.engines]
        return self._describe(layout, directory)

    def _unregistered(self, version: str, directory: str) -> list:
        """Return the engines that do not have the volume yet. Another volume with its name is an error."""
        name, unregistered = driver_volume.volume_name(version), []
        for engine in self.engines:
            found = engine.volume(name)
            if found is None:
                unregistered.append(engine)
            elif not found.is_bound_to(directory):
                raise named_volumes.EngineError(
                    f"{engine.name} already has a different volume {name} ({found.text()} instead of driver local, "
                    f"device {directory}). {_remedy(engine.name, found)}"
                )
        return unregistered

    def _build(self, layout: driver_volume.Layout, directory: str) -> None:
        label = self._selinux_label()
        if self.check:
            changes, existed = driver_volume.difference(layout, directory, label), os.path.isdir(directory)
            if changes:
                driver_volume.check_destination(layout, directory, changes)
        else:
            with driver_volume.locked(self.path) as base:
                existed = os.path.isdir(directory)
                changes = driver_volume.build(layout, base, label)
        if not changes:
            self.before["files"] = self.after["files"] = []
            return
        name, count = driver_volume.volume_name(layout.version), len(layout.files)
        if existed:
            self.actions.append(
                f"repair volume {name}: add {len(changes.add)}, replace {len(changes.replace)}, "
                f"remove {len(changes.remove)} of its files and links"
            )
            if not (changes.add or changes.replace):
                self.surplus = self.actions[-1:]
        else:
            self.actions.append(f"build volume {name} from {count} files")
        self.before["files"] = sorted([f"{name} ({fault})" for name, fault in changes.replace.items()] + changes.remove)
        self.after["files"] = sorted(
            f"{name} -> {layout.links[name]}" if name in layout.links else name
            for name in [*changes.add, *changes.replace]
        )

    def _selinux_label(self) -> str | None:
        """Return the SELinux label of the volume. It is None if SELinux is not enforcing."""
        with contextlib.suppress(OSError):
            selinux = os.path.join(self.root, "sys/fs/selinux")
            with open(os.path.join(selinux, "enforce"), encoding="ascii") as enforce:
                enforcing = enforce.read().strip() == "1"
            with open(os.path.join(selinux, "mls"), encoding="ascii") as mls:
                level = ":s0" if mls.read().strip() == "1" else ""
            if enforcing:
                return f"system_u:object_r:{self.params['selinux_type']}{level}"
        return None

    def _describe(self, layout: driver_volume.Layout, directory: str) -> dict:
        def names(subdirectory: str) -> list[str]:
            return sorted(name.split("/", 1)[1] for name in layout.files if name.startswith(subdirectory + "/"))

        return {
            "name": driver_volume.volume_name(layout.version),
            "path": directory,
            "version": layout.version,
            "mount": driver_volume.mount_spec(layout.version),
            "bind": f"{directory}:{driver_volume.MOUNT_POINT}:ro",
            "env": driver_volume.container_env(),
            "libraries": names("lib64"),
            "libraries_compat32": names("lib"),
            "binaries": names("bin"),
            "engines": [engine.name for engine in self.engines],
            **driver_volume.sizes(layout, directory),
        }

    def _removals(self, volume: dict | None, existing: list[str]) -> tuple[list[str], list[dict]]:
        """Remove the volumes that `state` and `prune` select. `existing` lists the versions before this run."""
        requested, pruned = [], []
        known = self._known_versions(existing) if volume is None or self.params["prune"] else []
        if volume is None:
            requested = [version for version in known if self.params["driver_version"] in {None, version}]
        if self.params["prune"]:
            current = volume["version"] if volume else None
            pruned = [version for version in known if version not in requested and version != current]
        users = {version: self._users_of(version) for version in [*requested, *pruned]}
        in_use = [f"{driver_volume.volume_name(version)}: {users[version]}" for version in requested if users[version]]
        if in_use:
            raise driver_volume.VolumeError(
                f"the volumes are in use, so nothing was removed: {'; '.join(in_use)}. First remove these containers "
                "and CDI specifications, and stop these processes."
            )
        kept = []
        for version in pruned:
            reason = users[version] or ("its driver is loaded" if version == self.loaded else None)
            if reason:
                kept.append({"name": driver_volume.volume_name(version), "version": version, "reason": reason})
        kept_versions = {item["version"] for item in kept}
        unused = [version for version in [*requested, *pruned] if version not in kept_versions]
        for version in unused:
            self._remove(version)
        created = {volume["version"]} if volume else set()
        self.before["volumes"] = existing
        self.after["volumes"] = sorted({*existing, *created} - set(unused), key=driver_volume.version_key)
        return [driver_volume.volume_name(version) for version in unused], kept

    def _known_versions(self, existing: list[str]) -> list[str]:
        """List the versions on disk and those that only an engine has registered."""
        prefix, known = driver_volume.volume_name(""), set(existing)
        for engine in self._all_engines():
            for volume in engine.volumes(prefix):
                version = volume.name[len(prefix) :]
                directory = driver_volume.volume_directory(self.path, version)
                if driver_files.VERSION.fullmatch(version) and volume.is_bound_to(directory):
                    known.add(version)
        return sorted(known, key=driver_volume.version_key)

    def _users_of(self, version: str) -> str | None:
        """Name the containers, processes and CDI specifications that use the volume of a version."""
        name, directory = driver_volume.volume_name(version), driver_volume.volume_directory(self.path, version)
        engines = self._all_engines()
        users = [f"{engine.name} container {user}" for engine in engines for user in engine.users(name, directory)]
        users += self._mounting_processes(directory, users)
        users += [
            REGISTERED_WITH_STOPPED_DOCKER.format(name=name)
            for engine in engines
            if self._is_read_only(engine) and _has_volume(engine, name, directory)
        ]
        users += [f"CDI specification {path}" for path in self.specifications(directory)]
        return ", ".join(users) or None

    def _mounting_processes(self, directory: str, known: list[str]) -> list[str]:
        """Name other users that have the volume mounted, such as containers that got it through CDI.

        An engine's own mount of the volume is also visible in unrelated processes. If a user is known already, only
        processes in containers count.
        """
        processes = host_processes.mount_users(directory, self.root)
        titles = {}
        if any(process.container for process in processes):
            for engine in self._all_engines():
                titles.update({key: f"{engine.name} container {title}" for key, title in engine.titles().items()})
        found = [
            titles.get(process.container) or str(process) for process in processes if process.container or not known
        ]
        return [user for user in dict.fromkeys(found) if user not in known]

    def _is_read_only(self, engine) -> bool:
        """Return whether a run, in check mode or not, only reads the engine's files and cannot remove its volumes."""
        return isinstance(engine, stopped_engine.StoppedEngine) and engine not in self.engines

    def _remove(self, version: str) -> None:
        name, directory = driver_volume.volume_name(version), driver_volume.volume_directory(self.path, version)
        self.actions.append(f"remove volume {name}")
        if self.check:
            return
        for engine in self._all_engines():
            # A volume that a read-only engine has registered counts as used, so it is not removed here.
            if not self._is_read_only(engine) and _has_volume(engine, name, directory):
                engine.remove(name)
        if not os.path.lexists(directory):
            return
        with driver_volume.locked(self.path) as base:
            driver_volume.remove(base, version)
            if not driver_volume.versions(self.path):
                # The default directory is this collection's, any other one the user's.
                own = [self.path, os.path.dirname(self.path)] if self.path == owned.VOLUMES else []
                with contextlib.suppress(OSError):
                    for directory in (base, *own):
                        os.rmdir(directory)


def _has_volume(engine, name: str, directory: str) -> bool:
    """Return whether an engine has a volume of this name that is bound to the directory."""
    found = engine.volume(name)
    return found is not None and found.is_bound_to(directory)
