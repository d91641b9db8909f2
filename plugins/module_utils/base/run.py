# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run programs from a module: by argument list, with a pinned environment, and status 127 if one is missing."""

from __future__ import annotations

from typing import Any, Callable

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import process_state

# Takes the arguments and optionally `environment` and `stdin`. Returns exit status, stdout and stderr.
Run = Callable[..., "tuple[int, str, str]"]


def runner(module: Any) -> Run:
    """Return a function that runs a program and returns its exit status, stdout and stderr."""

    def run(
        argv: list[str], environment: dict[str, str] | None = None, stdin: str | None = None
    ) -> tuple[int, str, str]:
        program = process_state.find(argv[0])
        if program is None:
            return 127, "", f"{argv[0]} is not installed"
        return module.run_command(
            [program, *argv[1:]], environ_update={**(environment or {}), **process_state.VARIABLES}, data=stdin
        )

    return run
