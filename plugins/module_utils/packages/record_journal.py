# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The record of package transactions on this host. `record_ownership` decides what it contains.

A transaction writes the record before it changes anything (`begin`), and completes it afterwards (`finish`). The next
run completes the record of an interrupted run.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import errno
import json
import os
import re
import stat
import tempfile
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import (
    atomic_file,
    login_digests,
    owned,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import listing
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.simulation import SimulatedChange
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import (
    damaged_record,
    record_files,
    record_ownership,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages.record_ownership import PackageRemoval
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository.file_writing import RepositoryFile

_NAME = r"[a-z0-9_]+"


class JournalError(Exception):
    """A record is not usable. The message is for the user."""


class Journal:
    """The record `name` below `root`. Only one process may write it: see `transaction_lock`."""

    def __init__(self, name: str, root: str = "/") -> None:
        """Refer to a record. It does not have to exist."""
        if not re.fullmatch(_NAME, name):
            raise JournalError(
                f"{name!r} is not a valid record name. Use lowercase letters, digits and underscores, for example "
                "my_tools."
            )
        self.name = name
        self.root = root
        self.path = f"{owned.STATE_DIRECTORY}/{name}.json"
        if self.path in owned.BESIDE_RECORDS:
            raise JournalError(
                f"{name!r} cannot be the name of a record: a role of gpufleet.hosts uses {self.path}. Use another name."
            )
        # The installed packages at `begin`. None: this process has not begun a transaction.
        self._before: list[str] | None = None

    # --- read -----------------------------------------------------------------------------------------------------

    def exists(self) -> bool:
        """Return whether the record exists."""
        return os.path.lexists(self._real(self.path))

    def read(self) -> dict[str, Any]:
        """Return the content of the record with all keys. It is empty if the record does not exist."""
        return record_ownership.normalized(self._content(self.path) or {})

    def others(self, without: Collection[str] = ()) -> list[dict[str, Any]]:
        """Return the content of all other records on the host. `without` are the paths of records to leave out."""
        records = [path for path in record_files.paths(self.root) if path != self.path and path not in without]
        found = [self._content(path) for path in records if os.path.isfile(self._real(path))]
        return [record_ownership.normalized(content) for content in found if content is not None]

    def is_unfinished(self) -> bool:
        """Return whether an interrupted run left a record that can be finished."""
        return bool(self.read()["pending"])

    def planned(self) -> list[SimulatedChange]:
        """Return the changes that the interrupted run planned."""
        return [SimulatedChange(*change) for change in self.read()["planned"]]

    def previous(self) -> list[RepositoryFile]:
        """Return the files in their state before the transaction. Files without content did not exist."""
        return [
            RepositoryFile(path, None)
            if former is None
            else RepositoryFile(path, base64.b64decode(former["content"]), int(former["mode"], 8))
            for path, former in self.read()["previous"].items()
        ]

    def holds(self) -> list[str]:
        """Return the packages that the record's transactions hold."""
        return list(self.read()["holds"])

    def released(self) -> list[str]:
        """Return the user's holds that an interrupted transaction released."""
        known = self.read()
        return [name for name in known["released"] if name not in known["holds"]]

    def former_streams(self, enabled: Mapping[str, str]) -> list[str]:
        """Return the streams before the transaction, as `module:stream`. `enabled` are those before this run."""
        return record_ownership.former_streams(self.read(), enabled)

    def removal(
        self, state: Mapping[str, Any], *, enabled: Mapping[str, str], without: Collection[str] = ()
    ) -> PackageRemoval:
        """Return what to remove. `state` are the installed packages, `enabled` the enabled streams by module.

        `without` are the paths of the records that leave in the same transaction.
        """
        found = record_ownership.removal(
            self.read(), state["all"], self.others(without), enabled=enabled, config_files=state["config_files"]
        )
        found.holds = [name for name in found.holds if name in state["held"]]
        return found

    # --- write ----------------------------------------------------------------------------------------------------

    def begin(
        self,
        state: Mapping[str, Any],
        *,
        enabled: Mapping[str, str],
        requested: Iterable[str] = (),
        planned: Iterable[SimulatedChange] = (),
        files: Iterable[RepositoryFile] = (),
        repositories: Iterable[str] = (),
        keys: Iterable[str] = (),
        streams: Iterable[str] = (),
        holds: Iterable[str] = (),
        released: Iterable[str] = (),
        further_keys: Iterable[str] = (),
    ) -> None:
        """Write the record before a transaction.

        `state` are the installed packages and holds, `enabled` the enabled streams by module. `files` are all files to
        write or remove, `repositories` the names of all repositories that the transaction uses, and `keys` the
        fingerprints of their keys. `streams` are to be enabled, `holds` to be set and `released` to be released.
        `further_keys` are other keys in the replaced key files.
        """
        known, others = self.read(), self.others()
        of_others = {path for other in others for path in other["written"]}
        wanted = [(stream, stream.partition(":")[0]) for stream in streams]
        previous: dict[str, Any] = {}
        created, changed = [], []
        for file in files:
            previous[file.path] = former = self._former(file.path)
            if file.content is None or file.path in known["written"]:
                continue
            if former is None or file.path in of_others or record_ownership.is_ours(file.path):
                created.append(file.path)
            else:
                changed.append(_difference(file, base64.b64decode(former["content"])))
        content = record_ownership.begin(
            known,
            state["all"],
            others,
            asked=requested,
            keys=keys,
            streams=[
                {"module": module, "name": stream, "before": record_ownership.stream_now(enabled, module)}
                for stream, module in wanted
                if record_ownership.stream_now(enabled, module) != stream
            ],
            changed_files=changed,
            written=created,
            repositories=repositories,
            planned=[dataclasses.astuple(change) for change in planned],
            previous=previous,
            holds=holds,
            released=released,
            further_keys=further_keys,
        )
        self._write(content)
        self._before = list(state["all"])

    def begin_removal(self, names: Iterable[str]) -> None:
        """Record the packages to remove as requested: an interrupted package manager may mark them as the user's."""
        known = self.read()
        self._write({**known, "requested": sorted({*known["requested"], *names})})

    def finish(
        self,
        state: Mapping[str, Any],
        *,
        enabled: Mapping[str, str],
        keys: Iterable[str] = (),
        holds: Iterable[str] = (),
    ) -> None:
        """Complete the record after a transaction that succeeded, failed or was interrupted. Remove an empty record.

        `state` are the installed packages and holds now, `holds` those that the transaction set.
        """
        known = self.read()
        content = record_ownership.finish(
            known,
            state["all"] if self._before is None else self._before,
            state["all"],
            self.others(),
            enabled=enabled,
            keys=keys,
            undone=self._undone(known),
            holds=holds,
            held=state["held"],
        )
        if record_ownership.is_empty(content):
            self.forget()
        else:
            self._write(content)
        self._before = None

    def forget(self) -> None:
        """Remove the record, and the directory if it is empty."""
        directory = self._real(owned.STATE_DIRECTORY)
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._real(self.path))
            self._remove_temporary_files()
            with contextlib.suppress(FileNotFoundError):
                atomic_file.sync(directory)
            try:
                os.rmdir(directory)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT, errno.EBUSY):
                    raise
        except OSError as error:
            raise JournalError(
                f"{self.path} could not be removed: {error.strerror}. Make sure that the file system is writable, then "
                "run the task again."
            ) from error

    # --- details --------------------------------------------------------------------------------------------------

    def _real(self, path: str) -> str:
        return os.path.join(self.root, path.lstrip("/"))

    def _content(self, path: str) -> dict[str, Any] | None:
        """Return the content of a record. None: the file does not exist or is no record."""
        try:
            with open(self._real(path), encoding="utf-8", errors="surrogateescape") as stream:
                text = stream.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise JournalError(f"The record {path} could not be read: {error.strerror}. Set become: true.") from error
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise JournalError(damaged_record.message(path, str(error))) from error
        if path != self.path and not (isinstance(content, dict) and "packages" in content):
            return None
        problem = damaged_record.problem(content)
        if problem:
            raise JournalError(damaged_record.message(path, problem))
        return content

    def _former(self, path: str) -> dict[str, str] | None:
        try:
            with open(self._real(path), "rb") as stream:
                mode = stat.S_IMODE(os.fstat(stream.fileno()).st_mode)
                return {"content": base64.b64encode(stream.read()).decode(), "mode": f"{mode:04o}"}
        except FileNotFoundError:
            return None
        except OSError as error:
            raise JournalError(
                f"{path} could not be read: {error.strerror}. The record must contain the original content of this "
                "file. Make the file readable, then run the task again."
            ) from error

    def _undone(self, known: Mapping[str, Any]) -> set[str]:
        """Return the recorded files that no longer exist, or have their former text again."""
        undone = {path for path in known["written"] if not os.path.lexists(self._real(path))}
        for path, item in known["files"].items():
            former = self._former(path)
            if former is None or login_digests.sealed(_text(base64.b64decode(former["content"]))) == item["before"]:
                undone.add(path)
        return undone

    def _write(self, content: Mapping[str, Any]) -> None:
        """Replace the record. A power cut leaves the former or the new record, never a part of one."""
        directory, temporary = self._real(owned.STATE_DIRECTORY), None
        try:
            if not os.path.isdir(directory):
                os.makedirs(directory)
                os.chmod(directory, 0o755)
                atomic_file.sync(os.path.dirname(directory))
            self._remove_temporary_files()
            # The file has the mode 0600.
            handle, temporary = tempfile.mkstemp(prefix=f".{self.name}.", suffix=".tmp", dir=directory)
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                stream.write(record_ownership.text(content))
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(temporary, self._real(self.path))
            atomic_file.sync(directory)
        except OSError as error:
            if temporary:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
            raise JournalError(
                f"The record {self.path} could not be written: {error.strerror}. Make sure that the file system is "
                "writable and has free space."
            ) from error

    def _remove_temporary_files(self) -> None:
        # An interrupted run leaves them.
        for name in listing(self.root, owned.STATE_DIRECTORY):
            if name.startswith(f".{self.name}.") and name.endswith(".tmp"):
                os.unlink(self._real(f"{owned.STATE_DIRECTORY}/{name}"))


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _difference(file: RepositoryFile, former: bytes) -> dict[str, str]:
    """Return the change of a file of another owner as one of Ansible's diffs, with digests instead of logins."""
    before, after = (login_digests.sealed(_text(data)) for data in (former, file.content or b""))
    return {"after_header": file.path, "before": before, "after": after}
