# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host below a directory, on which the real apt reads repositories in other directories."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import temporary_directories
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.apt import Apt
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import transaction
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages.record_journal import Journal
from ansible_collections.gpufleet.hosts.tests.unit.plugins.module_utils.packages.transaction_samples import request


class RealApt:
    """A host below a directory, on which the real apt runs."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        folders = ("etc/apt/sources.list.d", "var/lib/apt/lists/partial", "var/cache/apt/archives/partial", "var/tmp")
        for folder in (*folders, "var/lib/dpkg", "etc/apt/apt.conf.d", "etc/apt/preferences.d", "repo", "run"):
            (root / folder).mkdir(parents=True)
        arch = subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True, check=True).stdout
        self.arch = arch.strip()
        (root / "var/lib/dpkg/status").write_text(
            f"Package: dpkg\nStatus: install ok installed\nArchitecture: {self.arch}\nVersion: 1.22\nDescription: x\n\n"
        )
        self.config = root / "apt.conf"
        self.config.write_text(
            f'Dir "{root}/";\nDir::State::status "{root}/var/lib/dpkg/status";\nAPT::Sandbox::User "root";\n'
            'Acquire::http::Proxy "DIRECT";\nAcquire::Retries "0";\nAcquire::Languages "none";\n'
            'DPkg::Post-Invoke "";\n'
        )
        monkeypatch.setattr(temporary_directories, "_PARENT", str(root / "var/tmp"))
        self.apt = Apt(self.run, str(root), lock_timeout=0)

    def run(self, argv: list[str], environment: Any = None, stdin: Any = None) -> tuple[int, str, str]:
        own = ["-c", str(self.config)] if argv[0].startswith("apt") else []
        # The options of a view come later, and apt then uses them.
        done = subprocess.run(
            [argv[0], *own, *argv[1:]],
            env={**os.environ, "LC_ALL": "C", **(environment or {})},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    def repository(self, name: str, *packages: str) -> str:
        """Create a repository with packages, written name=version, and return the line of its entry."""
        place = self.root / "repo" / name
        place.mkdir()
        texts = []
        for text in packages:
            package, _sign, version = text.partition("=")
            texts.append(
                f"Package: {package}\nVersion: {version}\nArchitecture: {self.arch}\nFilename: {package}.deb\n"
                f"Size: 1\nSHA256: {'0' * 64}\nDescription: x\n"
            )
        (place / "Packages").write_text("\n".join(texts))
        return f"deb [trusted=yes] copy:{place} ./\n"

    def sources(self, *lines: str, path: str = "/etc/apt/sources.list") -> None:
        (self.root / path.lstrip("/")).write_text("".join(lines))

    def plan(self, *names: str, **options: Any) -> transaction.TransactionResult:
        return transaction.present(
            request(install=list(names), **options), self.apt, Journal("tools", str(self.root)), check_mode=True
        )
