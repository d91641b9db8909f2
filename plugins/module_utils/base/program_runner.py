# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run programs from a module: by argument list, with a pinned environment, and status 127 if one is missing."""

from __future__ import annotations

from typing import Any, Callable

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import pinned_environment

# Takes the arguments and optionally `environment`, `stdin` and `watch`. Returns exit status, stdout and stderr.
Run = Callable[..., "tuple[int, str, str]"]


def runner(module: Any) -> Run:
    """Return a function that runs a program and returns its exit status, stdout and stderr."""

    def run(
        argv: list[str],
        environment: dict[str, str] | None = None,
        stdin: str | None = None,
        watch: Callable[[bytes], object] | None = None,
    ) -> tuple[int, str, str]:
        program = pinned_environment.find(argv[0])
        if program is None:
            return 127, "", f"{argv[0]} is not installed"

        def tap(process: Any) -> None:
            process.stdout = _Tap(process.stdout, watch)

        return module.run_command(
            [program, *argv[1:]],
            environ_update={**(environment or {}), **pinned_environment.VARIABLES},
            data=stdin,
            **({"before_communicate_callback": tap} if watch else {}),
        )

    return run


class _Tap:
    """The output of a program, which a function also gets. It has the methods that `run_command` calls."""

    def __init__(self, file: Any, watch: Callable[[bytes], object]) -> None:
        self._file = file
        self._watch = watch
        self.fileno = file.fileno
        self.close = file.close

    def read(self, size: int) -> bytes | None:
        data = self._file.read(size)
        if data:
            self._watch(data)
        return data
