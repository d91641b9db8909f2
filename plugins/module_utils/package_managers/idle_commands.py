# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Let the scripts of packages find commands that do nothing, for one transaction.

The scripts get their PATH from dpkg or rpm. apt sets it with DPkg::Path (apt.conf(5)), rpm with the macro
_install_script_path (rpm, lib/rpmscript.c), which a user's ~/.rpmmacros can define.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import pinned_environment, temporary_directories
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import read_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.program_runner import Run
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers import stalled_downloads

# A link and no script, because the directory can be on a file system without executable files.
_NOTHING = "true"
_MACROS = ".rpmmacros"


@contextlib.contextmanager
def replaced(names: Sequence[str], run: Run, root: str = "/") -> Iterator[Run]:
    """Yield a function like `run`. In the programs that it starts, scripts find idle commands with these names."""
    nothing = pinned_environment.find(_NOTHING)
    if not names or nothing is None:
        yield run
        return
    with temporary_directories.workspace(root) as directory:
        os.chmod(directory, 0o755)
        for name in names:
            os.symlink(nothing, os.path.join(directory, name))
        path = f"{directory}:{pinned_environment.PATH}"
        own = read_text(root, os.path.join(os.path.expanduser("~"), _MACROS)) or ""
        with open(os.path.join(directory, _MACROS), "w", encoding="utf-8") as file:
            file.write(f"{own}\n%_install_script_path {path}\n")

        def with_path(
            argv: list[str], environment: dict[str, str] | None = None, stdin: str | None = None
        ) -> tuple[int, str, str]:
            if argv[0] == "dpkg":
                argv = ["env", f"PATH={path}", *argv]
            elif argv[0] == "apt-get":
                argv = [argv[0], f"--option=DPkg::Path={path}", *argv[1:]]
            elif not stalled_downloads.only_downloads(argv):
                # A program that only reads keeps its home, with the logins in it.
                environment = {**(environment or {}), "HOME": directory}
            return run(argv, environment=environment, stdin=stdin)

        yield with_path
