# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host with a package manager in memory, for tests of package transactions."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.package_to_install import (
    item,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import (
    removal_transaction,
    selectors_of_allowed_packages,
    transaction,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages.record_journal import Journal
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import openpgp, role_file_paths
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository.repository_options import Repository
from ansible_collections.gpufleet.hosts.tests.unit.plugins.module_utils.packages.fake_manager import (
    READS,
    SOURCES,
    FakeManager,
    Package,
)

SELECTORS = ("hold", "release", "may_change", "keep")


def packets(fill: bytes) -> bytes:
    """Return a key file with one public key."""
    body = b"\x04" + fill * 60
    return b"\x99" + len(body).to_bytes(2, "big") + body


KEY, OTHER_KEY = packets(b"k"), packets(b"o")


def request(**options: Any) -> transaction.TransactionRequest:
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}
    parse = selectors_of_allowed_packages.parse
    values.update({name: tuple(map(parse, options[name])) for name in SELECTORS if name in options})
    if "install" in options:
        values["install"] = tuple(map(item, options["install"]))
    return transaction.TransactionRequest(**{"lock_timeout": 0, **values})


@dataclass
class Host:
    root: Path
    manager: FakeManager
    record: str = "tools"

    @property
    def journal(self) -> Journal:
        return Journal(self.record, str(self.root))

    def present(self, check_mode: bool = False, **options: Any) -> transaction.TransactionResult:
        self.manager.calls.clear()
        return transaction.present(request(**options), self.manager, self.journal, check_mode=check_mode)

    def absent(self, check_mode: bool = False, **options: Any) -> transaction.TransactionResult:
        self.manager.calls.clear()
        return removal_transaction.absent(request(**options), self.manager, self.journal, check_mode=check_mode)

    def changing_calls(self) -> set[str]:
        return {*self.manager.calls} - READS

    def repository(self, name: str = "tools", packages: tuple[Package, ...] = (), **options: Any) -> Repository:
        """Define a repository whose key file is on the host."""
        key = self.root / f"{name}.asc"
        key.write_bytes(options.pop("key_file", KEY))
        entry = role_file_paths.repository_entry(name, self.manager.name)
        self.manager.repositories.setdefault(entry, []).extend(packages)
        url = options.pop("url", f"https://{name}.example/x")
        return Repository(
            **{"name": name, "url": url, "key": str(key), "trust": openpgp.fingerprints(KEY)[0], **options}
        )

    def files(self) -> dict[str, tuple[bytes, int]]:
        """Return the content and the mode of all files, except the lock and the key files to import."""
        return {
            f"/{path.relative_to(self.root)}": (path.read_bytes(), path.stat().st_mode & 0o777)
            for place in ("etc", "usr", "var")
            for path in (self.root / place).rglob("*")
            if path.is_file()
        }

    def snapshot(self) -> tuple:
        manager = self.manager
        state = manager.state()
        return self.files(), state, dict(manager.enabled), {*manager.metadata}, {*manager.locks}

    def recorded(self) -> dict[str, Any]:
        path = self.root / "var/lib/gpufleet" / f"{self.record}.json"
        return json.loads(path.read_text()) if path.exists() else {}


def new_host(root: Path, *archive: Package, installed: tuple[Package, ...] = (), **options: Any) -> Host:
    for place in ("var/lib", "run", "etc/apt"):
        (root / place).mkdir(parents=True, exist_ok=True)
    (root / SOURCES.lstrip("/")).write_text("deb http://deb.example/debian stable main\n")
    packages = {package.name: package.version for package in installed}
    manager = FakeManager(root, [*installed, *archive], packages=packages, **options)
    manager.known = {(package.name, package.version): package for package in (*archive, *installed)}
    return Host(root, manager)
