# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Carry out the steps of a migration from nvidia-docker on the host. Each step can be repeated after a killed run."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import atomic_file, owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import exists, read_bytes, read_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config import file_replacement, json_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.named_volumes import EngineError
from ansible_collections.gpufleet.hosts.plugins.module_utils.migration import (
    expired_copies_of_apt_key,
    observed_leftovers,
    old_runtime_entry,
    old_sources,
    volume_plugin_stub,
)

Run = Callable[["list[str]"], "tuple[int, str, str]"]

_LARGEST = 16 * 1024 * 1024
_FLAG = re.compile(r"""[ \t]*--add-runtime(?:=|[ \t]+)["']?nvidia=[^\s"']+["']?""")


class MigrationError(Exception):
    """A step failed."""


class MigrationDocker(Protocol):
    """What the migration needs of Docker."""

    def inspect(self, identifier: str) -> dict[str, Any] | None:
        """Describe a container, or return None if it does not exist."""

    def remove_container(self, identifier: str) -> None:
        """Remove a container that does not run."""

    def remove(self, name: str) -> None:
        """Remove a volume."""


class Migrator:
    """Carries out steps below a root directory. In check mode, it only says which of them would change something."""

    def __init__(self, root: str, docker: MigrationDocker, run: Run, *, check: bool = False) -> None:
        self._root, self._docker, self._run, self._check = root, docker, run, check

    def apply(self, steps: list[dict[str, Any]]) -> list[str]:
        """Carry out the steps in their order. Return the steps that changed something, as texts."""
        done = []
        actions: dict[str, Callable[[dict[str, Any]], bool]] = {
            "restore": self._restore,
            "save": self._save,
            "remove_container": self._remove_container,
            "remove_volume": self._remove_volume,
            "mark_restart": self._mark_restart,
            "stop_unit": self._stop_unit,
            "remove_entries": self._remove_entries,
            "remove_key": self._remove_key,
            "release_runtime": self._release_runtime,
            "drop_flag": self._drop_flag,
            "remove_file": self._remove_file,
            "remove_user": self._remove_user,
            "reload_systemd": self._reload_systemd,
            "forget": self._forget,
        }
        with self._stub(steps):
            done += [_text(step) for step in steps if _carried_out(actions[step["do"]], step)]
        return done

    def _full(self, path: str) -> str:
        return os.path.join(self._root, path.lstrip("/"))

    @contextlib.contextmanager
    def _stub(self, steps: list[dict[str, Any]]) -> Iterator[None]:
        """Answer in place of the plugin while its volumes are removed, if it does not answer itself."""
        names = [step["name"] for step in steps if step["do"] == "remove_volume" and not self._check]
        paths = [*observed_leftovers.SOCKETS, *self._specified()]
        if not names or any(observed_leftovers.answers(self._full(path)) for path in paths):
            yield
            return
        # Docker remembers the address of a plugin that it has used. Otherwise, it looks for a socket first.
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(
                    volume_plugin_stub.answering([self._full(path) for path in dict.fromkeys(paths)], names)
                )
            except volume_plugin_stub.StubError as error:
                places = " or ".join(observed_leftovers.SPECIFICATIONS)
                raise MigrationError(f"{error}. Correct or remove {places}, then run the role again.") from error
            yield

    def _specified(self) -> list[str]:
        """Return the sockets that the specifications of the plugin name."""
        texts = [(read_text(self._root, path) or "").strip() for path in observed_leftovers.SPECIFICATIONS]
        return [text[len("unix://") :] for text in texts if text.startswith("unix:///") and "\n" not in text]

    # --- files that a purge deletes ---

    def _record(self) -> dict[str, Any]:
        try:
            found = json.loads(read_text(self._root, observed_leftovers.RECORD) or "{}")
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    def _private(self, path: str) -> None:
        """Create a directory that only root can read."""
        parent = os.path.dirname(self._full(path))
        os.makedirs(parent, mode=0o755, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.mkdir(self._full(path), 0o700)
        os.chmod(self._full(path), 0o700)

    def _write(self, path: str, content: bytes, mode: int = 0o600) -> None:
        atomic_file.put(self._full(path), content, lambda temporary: os.chmod(temporary, mode))

    def _save(self, step: dict[str, Any]) -> bool:
        path, copy = step["path"], observed_leftovers.KEPT[step["path"]]
        content = read_bytes(self._root, path, _LARGEST)
        record = self._record()
        if content is None or (path in record and read_bytes(self._root, copy, _LARGEST) == content):
            return False
        if not self._check:
            state = os.stat(self._full(path))
            entry = {"mode": stat.S_IMODE(state.st_mode), "uid": state.st_uid, "gid": state.st_gid}
            self._private(owned.MIGRATION)
            self._write(copy, content)
            # The record makes the copy valid, so it comes last.
            self._write(observed_leftovers.RECORD, json.dumps({**record, path: entry}, sort_keys=True).encode())
        return True

    def _restore(self, step: dict[str, Any]) -> bool:
        path = step["path"]
        content, entry = read_bytes(self._root, observed_leftovers.KEPT[path], _LARGEST), self._record().get(path)
        if content is None or not isinstance(entry, dict) or exists(self._root, path):
            return False
        if not self._check:
            os.makedirs(os.path.dirname(self._full(path)), mode=0o755, exist_ok=True)
            # With a damaged record, only root can read the file.
            private = {"uid": 0, "gid": 0, "mode": 0o600}
            known = {name: entry[name] for name in private if isinstance(entry.get(name), int)}
            atomic_file.put(self._full(path), content, _as(**{**private, **known}))
        return True

    def _forget(self, _step: dict[str, Any]) -> bool:
        found = [
            path for path in (*observed_leftovers.KEPT.values(), observed_leftovers.RECORD) if exists(self._root, path)
        ]
        if not self._check:
            # Without the record, the copies are not valid any more.
            for path in reversed(found):
                os.unlink(self._full(path))
            with contextlib.suppress(OSError):
                os.rmdir(self._full(owned.MIGRATION))
        return bool(found)

    # --- the plugin ---

    def _remove_container(self, step: dict[str, Any]) -> bool:
        found = self._docker.inspect(step["id"])
        if found is None:
            return False
        if (found.get("State") or {}).get("Running"):
            raise MigrationError(f"Container {step['name']} runs now, so it was not removed. Run the playbook again.")
        if not self._check:
            self._private(owned.MIGRATION)
            self._private(owned.MIGRATION_CONTAINERS)
            self._write(
                f"{owned.MIGRATION_CONTAINERS}/{step['id']}.json", json.dumps([found], indent=2).encode() + b"\n"
            )
            self._docker.remove_container(step["id"])
        return True

    def _remove_volume(self, step: dict[str, Any]) -> bool:
        if not self._check:
            self._docker.remove(step["name"])
        return True

    def _mark_restart(self, step: dict[str, Any]) -> bool:
        text = f"{step['since']}\n"
        if read_text(self._root, owned.CONTAINER_TOOLKIT_RESTART_MARKER) == text:
            return False
        if not self._check:
            os.makedirs(self._full(owned.RUNTIME_DIRECTORY), mode=0o755, exist_ok=True)
            self._write(owned.CONTAINER_TOOLKIT_RESTART_MARKER, text.encode(), 0o644)
        return True

    def _stop_unit(self, step: dict[str, Any]) -> bool:
        if not self._check:
            self._call(["systemctl", "disable", "--now", step["unit"]])
        return True

    def _remove_user(self, step: dict[str, Any]) -> bool:
        if f"\n{step['name']}:" not in "\n" + (read_text(self._root, "/etc/passwd") or ""):
            return False
        if not self._check:
            self._call(["userdel", step["name"]])
        return True

    def _reload_systemd(self, _step: dict[str, Any]) -> bool:
        if not self._check:
            self._call(["systemctl", "daemon-reload"])
        return True

    def _call(self, argv: list[str]) -> None:
        rc, out, err = self._run(argv)
        if rc != 0:
            raise MigrationError(f"{' '.join(argv)} failed with status {rc}: {(err or out).strip()}")

    # --- other files ---

    def _remove_file(self, step: dict[str, Any]) -> bool:
        full = self._full(step["path"])
        if not os.path.lexists(full):
            return False
        if not self._check:
            if os.path.isdir(full) and not os.path.islink(full):
                shutil.rmtree(full)
            else:
                os.unlink(full)
        return True

    def _remove_entries(self, step: dict[str, Any]) -> bool:
        text = read_text(self._root, step["path"], newline="")
        return text is not None and self._replace(
            step["path"], text, old_sources.text_without(step["path"], text, step["places"])
        )

    def _remove_key(self, step: dict[str, Any]) -> bool:
        data = read_bytes(self._root, step["path"], _LARGEST)
        if data is None:
            return False
        kept = expired_copies_of_apt_key.without(data)
        if not self._check and kept:
            place = os.path.realpath(self._full(step["path"]))
            state = os.stat(place)
            atomic_file.put(place, kept, _as(state.st_uid, state.st_gid, stat.S_IMODE(state.st_mode)))
        elif not self._check:
            os.unlink(self._full(step["path"]))
        return True

    def _release_runtime(self, step: dict[str, Any]) -> bool:
        text = read_text(self._root, step["path"], newline="")
        tree = {} if text is None else json_text.parse(text, step["path"])
        new = old_runtime_entry.without(tree)
        if text is None or new == tree:
            return False
        if not new and not self._check:
            os.unlink(self._full(step["path"]))
            return True
        return self._replace(step["path"], text, json_text.dump(new, text))

    def _drop_flag(self, step: dict[str, Any]) -> bool:
        text = read_text(self._root, step["path"], newline="")
        return text is not None and self._replace(step["path"], text, _FLAG.sub("", text))

    def _replace(self, path: str, before: str, after: str) -> bool:
        if before == after:
            return False
        if not self._check:
            file_replacement.replace(os.path.realpath(self._full(path)), after, 0o644)
        return True


def _as(uid: int, gid: int, mode: int) -> Callable[[str], None]:
    """Return what gives a new file its owner and its mode."""

    def prepare(temporary: str) -> None:
        os.chown(temporary, uid, gid)
        os.chmod(temporary, mode)

    return prepare


def _carried_out(action: Callable[[dict[str, Any]], bool], step: dict[str, Any]) -> bool:
    try:
        return action(step)
    except (OSError, EngineError, json_text.DaemonConfigError, MigrationError) as error:
        raise MigrationError(
            f"Step '{_text(step)}' of the migration from nvidia-docker failed: {error} Fix the cause and run the "
            "playbook again, which continues the migration."
        ) from error


def _text(step: dict[str, Any]) -> str:
    what = step.get("path") or step.get("name") or step.get("unit") or ""
    return f"{step['do'].replace('_', ' ')} {what}".strip()
