# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A migration that is killed between any two of its steps continues, and ends as one that was not killed.

The hosts are directory trees. Docker, dpkg and systemd are simulated by what they do to the files of these trees.
"""

from __future__ import annotations

import json
import tempfile
import typing as t
from pathlib import Path

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.migration import (
    leftovers,
    observed_leftovers,
    steps_on_host,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.migration import planned_steps as migration_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.observe import observation
from ansible_collections.gpufleet.hosts.tests.unit.plugins import declared
from ansible_collections.gpufleet.hosts.tests.unit.plugins import old_nvidia_docker as old
from ansible_collections.gpufleet.hosts.tests.unit.plugins.gpu_trees import Tree

USERS = {"log-driver": "json-file", "data-root": "/var/lib/docker", "runtimes": {"kata": {"path": "/usr/bin/kata"}}}
SHIPPED = {"path": "nvidia-container-runtime", "runtimeArgs": []}
MINE = {"path": "/usr/bin/nvidia-container-runtime", "runtimeArgs": ["--debug"]}
DROP_IN = "etc/systemd/system/docker.service.d/nvidia.conf"
PROGRAM = "/usr/bin/nvidia-container-runtime"
FLAG = f"[Service]\nExecStart=\nExecStart=/usr/sbin/dockerd -H fd:// --add-runtime=nvidia={PROGRAM}\n"


class Killed(BaseException):
    """The run was killed."""


class World:
    """A host with Docker, dpkg and systemd."""

    def __init__(
        self, root: Path, packages: dict[str, str], removed: t.Iterable[str] = (), *, running: bool = True
    ) -> None:
        root.mkdir()
        self.tree, self.path = Tree(root), root
        self.tree.file("etc/os-release", 'ID=debian\nVERSION_ID="12"\nVERSION_CODENAME=bookworm\n')
        self.tree.file("etc/passwd", "root:x:0:0::/root:/bin/sh\n")
        self.packages, self.removed = dict(packages), set(removed)
        self.volumes: dict[str, str] = {"data": "local"}
        self.containers: dict[str, tuple[dict[str, t.Any], dict[str, t.Any]]] = {}
        self.units = {"docker.service": "active", observed_leftovers.UNIT: "active" if running else "inactive"}
        self.left: int | None = None
        self.write()

    def write(self) -> None:
        status = [
            f"Package: {n}\nStatus: install ok installed\nArchitecture: amd64\nVersion: {v}\n"
            for n, v in self.packages.items()
        ]
        status += [
            f"Package: {n}\nStatus: deinstall ok config-files\nArchitecture: amd64\nVersion: 1\n" for n in self.removed
        ]
        self.tree.file("var/lib/dpkg/status", "\n".join(status))
        self.tree.file("var/lib/docker/volumes/metadata.db", old.database(self.volumes))
        for identifier, (config, settings) in self.containers.items():
            self.tree.file(f"var/lib/docker/containers/{identifier}/config.v2.json", json.dumps(config))
            self.tree.file(f"var/lib/docker/containers/{identifier}/hostconfig.json", json.dumps(settings))

    # --- programs ---

    def run(self, argv: list[str]) -> tuple[int, str, str]:
        if argv[:2] == ["systemctl", "show"]:
            names = argv[argv.index("--") + 1 :]
            known = [(name, self.units.get(name, "inactive")) for name in names]
            return (
                0,
                "\n".join(f"Id={n}\nLoadState=loaded\nActiveState={s}\nUnitFileState=disabled\n" for n, s in known),
                "",
            )
        if argv[:3] == ["systemctl", "disable", "--now"]:
            self.units[argv[3]] = "inactive"
            return 0, "", ""
        if argv[0] == "userdel":
            self.tree.file("etc/passwd", "root:x:0:0::/root:/bin/sh\n")
            return 0, "", ""
        return (0, "", "") if argv == ["systemctl", "daemon-reload"] else (127, "", "unknown")

    def inspect(self, identifier: str) -> dict[str, t.Any] | None:
        if identifier not in self.containers:
            return None
        config, settings = self.containers[identifier]
        return {"Id": identifier, "State": config["State"], "Config": {"Env": ["TOKEN=s3cret"]}, "HostConfig": settings}

    def remove_container(self, identifier: str) -> None:
        assert not self.containers[identifier][0]["State"]["Running"]
        del self.containers[identifier]
        folder = self.path / "var/lib/docker/containers" / identifier
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()

    def remove(self, name: str) -> None:
        mounts = [config["MountPoints"].values() for config, _settings in self.containers.values()]
        assert not any(point.get("Name") == name for points in mounts for point in points), "in use"
        del self.volumes[name]
        self.write()

    def purge(self, names: list[str]) -> None:
        """Do what dpkg does: the old configuration files of a package go with the user's changes."""
        for name in names:
            self.packages.pop(name, None)
            self.removed.discard(name)
            if name == "nvidia-docker2":
                (self.path / owned.DAEMON_JSON[1:]).unlink(missing_ok=True)
            if name == "nvidia-container-runtime-hook":
                (self.path / "etc/nvidia-container-runtime/config.toml").unlink(missing_ok=True)
        self.write()

    # --- runs of the role ---

    def observe(self) -> t.Any:
        host = observation.observe(
            self.tree.root, declared=declared.PLACES, machine="x86_64", kernel=self.tree.kernel, run=self.run
        )
        if leftovers.may_exist(host):
            host["nvidia_docker"] = observed_leftovers.read(self.tree.root, host["docker_data"]["root"], self.run)
        return host

    def plan(self, **options: t.Any) -> migration_plan.Migration:
        return migration_plan.plan(self.observe(), **{"remove_containers": True, **options})

    def step(self, *steps: dict[str, t.Any]) -> None:
        for one in steps:
            steps_on_host.Migrator(self.tree.root, self, self.run).apply([one])
            self.tick()

    def tick(self) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise Killed

    def role(self, kill_after: int | None = None, **options: t.Any) -> None:
        """Run the steps of the role, as roles/nvidia_container_toolkit/tasks/present.yml does."""
        self.left = kill_after
        done = self.plan(**options)
        self.step(*done.before)
        if any(step["do"] == "restore" for step in done.before):
            done = self.plan(**options)
            self.step(*done.before)
        if done.purge or done.files:
            for path in done.files:
                (self.path / path[1:]).unlink()
                self.tick()
            for name in done.purge:
                self.purge([name])
                self.tick()
            self.step(*(step for step in done.after if step["do"] == "restore"))
            done = self.plan(**options)
            assert done.before == []
        self.step(*done.after)
        self.register()
        self.tick()
        self.step(*done.last)
        self.left = None

    def register(self) -> None:
        path = self.path / owned.DAEMON_JSON[1:]
        content = json.loads(path.read_text()) if path.exists() else {}
        content.setdefault("runtimes", {}).setdefault("nvidia", {"path": "/usr/bin/nvidia-container-runtime"})
        self.tree.file(owned.DAEMON_JSON[1:], json.dumps(content))

    def files(self) -> dict[str, t.Any]:
        """Return every file with its mode. Of Docker's database, only the volumes count."""
        found = {}
        for path in self.path.rglob("*"):
            name = str(path.relative_to(self.path))
            if path.is_file() and not name.endswith("metadata.db"):
                found[name] = (path.read_bytes(), path.stat().st_mode & 0o777)
        return {**found, "volumes": self.volumes}


def daemon_json(world: World, content: t.Any, mode: int = 0o640) -> World:
    world.tree.file(owned.DAEMON_JSON[1:], json.dumps(content)).chmod(mode)
    return world


def wrapper(root: Path) -> World:
    world = World(root, {"nvidia-docker2": "2.6.0-1", "nvidia-container-runtime": "3.4.2-1"})
    world.tree.file(
        "etc/apt/sources.list.d/nvidia-docker.list", "deb https://nvidia.github.io/nvidia-docker/debian10/amd64 /\n"
    )
    return daemon_json(world, {**USERS, "runtimes": {**USERS["runtimes"], "nvidia": SHIPPED}})  # type: ignore[dict-item]


def oldest(root: Path) -> World:
    packages = {
        "nvidia-docker2": "2.0.3-1",
        "nvidia-container-runtime": "2.0.0-1",
        "nvidia-container-runtime-hook": "1.4.0-1",
    }
    world = World(root, packages)
    world.tree.file("etc/nvidia-container-runtime/config.toml", "disable-require = true\n")
    world.tree.file("usr/share/containers/oci/hooks.d/oci-nvidia-hook.json", "{}")
    return daemon_json(
        world, {"runtimes": {"nvidia": {"path": "/usr/bin/nvidia-container-runtime", "runtimeArgs": []}}}
    )


def empty(root: Path) -> World:
    return daemon_json(
        World(root, {"nvidia-docker2": "2.14.0-1"}),
        {**USERS, "default-runtime": "nvidia", "runtimes": {"nvidia": SHIPPED}},
    )


def half_removed(root: Path) -> World:
    world = daemon_json(World(root, {}, ["nvidia-docker2"]), {"runtimes": {"nvidia": MINE}})
    world.tree.file(DROP_IN, FLAG)
    return world


def plugin(root: Path) -> World:
    world = World(root, {"nvidia-docker": "1.0.1-1"})
    world.volumes |= {old.VOLUME: "nvidia-docker", "nvidia_driver_367.57": "nvidia-docker"}
    world.containers = {"a" * 64: old.container("train", volume=old.VOLUME), "b" * 64: old.container("web")}
    world.tree.file("etc/passwd", "root:x:0:0::/root:/bin/sh\nnvidia-docker:x:9:9::/var/lib/nvidia-docker:/x\n")
    world.tree.file("etc/docker/plugins/nvidia-docker.spec", "unix:///var/lib/nvidia-docker/nvidia-docker.sock")
    world.tree.file("var/lib/nvidia-docker/volumes/nvidia_driver/375.66/lib64/libcuda.so.375.66", "x")
    world.write()
    return world


def dead_plugin(root: Path) -> World:
    world = plugin(root)
    world.packages = {}
    world.units[observed_leftovers.UNIT] = "inactive"
    world.write()
    return world


WORLDS: list[t.Callable[[Path], World]] = [wrapper, oldest, empty, half_removed, plugin, dead_plugin]


@pytest.fixture(name="tmp_path")
def _tmp_path() -> t.Iterator[Path]:
    """Return a directory with a short name, because the path of a socket has at most 107 characters."""
    with tempfile.TemporaryDirectory(prefix="m") as folder:
        yield Path(folder)


@pytest.fixture(autouse=True)
def _as_any_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps_on_host.os, "chown", lambda *_arguments: None)


@pytest.mark.parametrize("make", WORLDS, ids=lambda make: make.__name__)
def test_migration_ends_clean_and_the_second_run_has_nothing_to_do(make: t.Any, tmp_path: Path) -> None:
    world = make(tmp_path / "host")
    world.role()
    seen = world.observe()
    assert leftovers.texts(seen) == []
    assert world.plan().changes == []
    assert not set(world.volumes) - {"data"}
    kept = tmp_path / "host/var/lib/gpufleet/migration"
    assert sorted(path.name for path in kept.rglob("*.json")) == (
        ["a" * 64 + ".json"] if "plugin" in make.__name__ else []
    )
    assert seen["nvidia_docker"] is None


@pytest.mark.parametrize("make", WORLDS, ids=lambda make: make.__name__)
def test_killed_run_continues_from_every_step(make: t.Any, tmp_path: Path) -> None:
    whole = make(tmp_path / "whole")
    whole.role()
    for number in range(40):
        world = make(tmp_path / f"killed-{number}")
        try:
            world.role(kill_after=number)
        except Killed:
            world.role()
            assert world.files() == whole.files(), f"killed after {number} steps"
        else:
            assert number > 2
            return
    raise AssertionError("the run has no end")


@pytest.mark.parametrize("make", WORLDS, ids=lambda make: make.__name__)
def test_run_that_is_killed_twice_continues(make: t.Any, tmp_path: Path) -> None:
    whole = make(tmp_path / "whole")
    whole.role()
    for first in range(8):
        for second in range(6):
            world, kills = make(tmp_path / f"{first}-{second}"), 0
            for number in (first, second, None):
                try:
                    world.role(kill_after=number)
                except Killed:
                    kills += 1
                    continue
                break
            assert world.files() == whole.files(), f"killed after {first} and then after {second} steps"
            assert kills == 2 or first + second > 2
            if kills < 2:
                # The run has fewer steps, so it would be the same with a higher number.
                break
        if kills == 0:
            break


def test_user_options_are_never_lost_even_for_a_moment_without_a_copy(tmp_path: Path) -> None:
    for number in range(20):
        world = wrapper(tmp_path / str(number))
        try:
            world.role(kill_after=number)
        except Killed:
            paths = [owned.DAEMON_JSON, owned.MIGRATION_DAEMON_JSON]
            texts = [(world.path / path[1:]).read_text() for path in paths if (world.path / path[1:]).exists()]
            assert any(json.loads(text)["log-driver"] == "json-file" for text in texts)


def test_files_keep_their_mode_and_the_copy_is_private(tmp_path: Path) -> None:
    world = wrapper(tmp_path / "host")
    world.step(*world.plan().before)
    copy = world.path / owned.MIGRATION_DAEMON_JSON[1:]
    assert (copy.stat().st_mode & 0o777, copy.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    before = (world.path / owned.DAEMON_JSON[1:]).read_bytes()
    world.purge(["nvidia-docker2"])
    world.step({"do": "restore", "path": owned.DAEMON_JSON})
    after = world.path / owned.DAEMON_JSON[1:]
    assert (after.read_bytes(), after.stat().st_mode & 0o777) == (before, 0o640)


def test_changed_file_is_saved_again(tmp_path: Path) -> None:
    world = wrapper(tmp_path / "host")
    world.step(*world.plan().before)
    daemon_json(world, {"log-driver": "local"})
    assert {"do": "save", "path": owned.DAEMON_JSON} in world.plan().before
    world.role()
    assert json.loads((world.path / owned.DAEMON_JSON[1:]).read_text())["log-driver"] == "local"


def test_check_mode_changes_nothing_and_names_the_same_steps(tmp_path: Path) -> None:
    for make in WORLDS:
        world = make(tmp_path / make.__name__)
        done, before = world.plan(), world.files()
        steps = [*done.before, *(step for step in done.after if step["do"] != "restore")]
        predicted = steps_on_host.Migrator(world.tree.root, world, world.run, check=True).apply(steps)
        assert world.files() == before
        world.left = None
        assert steps_on_host.Migrator(world.tree.root, world, world.run).apply(steps) == predicted


def test_descriptions_of_removed_containers_are_private(tmp_path: Path) -> None:
    world = plugin(tmp_path / "host")
    world.role()
    file = world.path / owned.MIGRATION_CONTAINERS[1:] / f"{'a' * 64}.json"
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    (found,) = json.loads(file.read_text())
    assert found["Config"]["Env"] == ["TOKEN=s3cret"]
    assert list(world.containers) == ["b" * 64]
