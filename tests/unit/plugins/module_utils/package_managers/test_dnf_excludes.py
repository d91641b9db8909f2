# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packages that a repository has, but that dnf's configuration hides."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.backend import PackageManagerError
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.dnf import Dnf
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import transaction
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages.record_journal import Journal
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages.transaction_versions import (
    TransactionError,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import dnf_excludes
from ansible_collections.gpufleet.hosts.tests.unit.plugins.module_utils.packages.transaction_samples import request

KERNEL = "kernel-devel-5.14.0-570.el9"


class Machine:
    """A host whose dnf hides the packages that match a pattern, as its repoquery and its solver do."""

    def __init__(self, root: Path, pattern: str, *packages: str) -> None:
        self.root, self.pattern, self.packages = root, pattern, packages
        self.queries: list[str] = []
        for folder in ("etc/yum.repos.d", "etc/dnf", "var/cache/dnf", "run"):
            (root / folder).mkdir(parents=True)
        self.dnf = Dnf(self.run, str(root), lock_timeout=0)
        self.journal = Journal("tools", str(root))

    def write(self, path: str, text: str) -> None:
        (self.root / path.lstrip("/")).write_text(text)

    def run(self, argv: list[str], environment: Any = None, stdin: Any = None) -> tuple[int, str, str]:
        words = " ".join(argv)
        if "--version" in argv:
            return 0, "4.23.0\n", ""
        if "repoquery" in argv and "--available" in argv:
            self.queries.append(words)
            every = "--disableexcludes=all" in argv
            shown = [one for one in self.packages if every or not fnmatchcase(one, self.pattern)]
            found = [one for one in shown if any(fnmatchcase(one, name) for name in argv)]
            return 0, "".join(f"{one}\t0:1-1\n" for one in found), ""
        if " install" in words:
            problem = f"  - package {KERNEL}.x86_64 from base is filtered out by exclude filtering\n"
            return 1, "", f"Error: \n Problem: package dkms-1 requires kernel-devel\n{problem}"
        return 0, "", ""


@pytest.mark.parametrize(
    ("path", "text", "line"),
    [
        ("/etc/dnf/dnf.conf", "[main]\ngpgcheck=1\nexclude=kernel*\n", "exclude=kernel*"),
        ("/etc/dnf/dnf.conf", "[main]\nexcludepkgs = redhat-release*,kernel-devel*\n", "kernel-devel*"),
        ("/etc/yum.repos.d/base.repo", "[base]\nexclude=foo\n  kernel-*\nenabled=1\n", "exclude=foo kernel-*"),
        ("/etc/yum.repos.d/base.repo", "[base]\nincludepkgs=gcc make\n", "includepkgs=gcc make"),
    ],
)
def test_a_hidden_package_is_not_missing(tmp_path: Path, path: str, text: str, line: str) -> None:
    machine = Machine(tmp_path, "kernel*", "kernel-devel", "gcc")
    machine.write(path, text)
    question = transaction.Question(["kernel-devel", "gcc", "unknown"])
    found = transaction.query(request(), question, machine.dnf, machine.journal)
    assert found["versions"] == {"kernel-devel": [], "gcc": ["1-1"], "unknown": []}
    assert list(found["hidden"]) == ["kernel-devel"]
    assert line in found["hidden"]["kernel-devel"]
    assert f"in {path}." in found["hidden"]["kernel-devel"]
    with pytest.raises(TransactionError) as error:
        transaction.present(request(install=["kernel-devel"]), machine.dnf, machine.journal, check_mode=True)
    assert str(error.value) == found["hidden"]["kernel-devel"]


def test_without_such_lines_dnf_is_asked_once(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "none", "gcc")
    machine.write("/etc/dnf/dnf.conf", "[main]\n# exclude=kernel*\nexclude=\n")
    assert "hidden" not in transaction.query(
        request(), transaction.Question(["kernel-devel"]), machine.dnf, machine.journal
    )
    assert len(machine.queries) == 1


def test_the_error_of_the_solver_names_the_line(tmp_path: Path) -> None:
    machine = Machine(tmp_path, "kernel*", "dkms")
    machine.write("/etc/dnf/dnf.conf", "[main]\nexclude=kernel*\n")
    with pytest.raises(PackageManagerError, match=r"because of exclude=kernel\* in /etc/dnf/dnf.conf"):
        transaction.present(request(install=["dkms"]), machine.dnf, machine.journal, check_mode=True)


@pytest.mark.parametrize(
    ("errors", "expected"),
    [
        (["The host's repositories have no kernel-devel-1, so DKMS cannot build. Upgrade the kernel."], ["HIDDEN"]),
        (["No kernel-devel-1-extra.", "Another error."], ["No kernel-devel-1-extra.", "Another error.", "HIDDEN"]),
        (["No kernel-devel-1, a.", "No b, kernel-devel-1.", "Other."], ["HIDDEN", "Other."]),
        ([], []),
    ],
)
def test_errors_of_a_plan_name_hidden_packages(errors: list[str], expected: list[str]) -> None:
    assert dnf_excludes.explained(errors, {"kernel-devel-1": "HIDDEN"}) == expected
    assert dnf_excludes.explained(errors, {}) == errors
