# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run dnf without starting Python and importing dnf again: most of a query's time is that start.

dnf is a Python program. Each command runs in a child process of its own, which calls the entry point of dnf's program.
"""

from __future__ import annotations

import functools
import gc
import importlib
import os
import sys
import tempfile
import traceback
import types
from collections.abc import Callable, Mapping
from pathlib import Path

# Debian enables this plugin. It provides installed packages again.
DISABLED = ("local",)


def run(argv: list[str], environment: Mapping[str, str], stdin: str) -> tuple[int, str, str]:
    """Run a command of dnf, and return its exit status, output and error output."""
    main = _program()
    sys.stdout.flush()
    sys.stderr.flush()
    with tempfile.TemporaryFile() as source, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        source.write(stdin.encode())
        source.seek(0)
        child = os.fork()
        if child == 0:
            _become(main, argv, environment, (source.fileno(), out.fileno(), err.fileno()))
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode())
    return status, texts[0], texts[1]


@functools.cache
def _program() -> Callable[..., int]:
    """Import dnf with its plugins, and return the entry point of its program."""
    main = importlib.import_module("dnf.cli.main")
    plugin = importlib.import_module("dnf.plugin")
    # dnf imports plugins as parts of a package that it creates itself, and enables every plugin that is imported.
    package = types.ModuleType(plugin.DYNAMIC_PACKAGE)
    sys.modules[plugin.DYNAMIC_PACKAGE] = package
    files = sorted(Path(importlib.import_module("dnfpluginscore").__file__).parents[1].glob("dnf-plugins/*.py"))
    package.__path__ = [str(files[0].parent)]
    for file in files:
        if file.stem not in DISABLED:
            importlib.import_module(f"{plugin.DYNAMIC_PACKAGE}.{file.stem}")
    del sys.modules[plugin.DYNAMIC_PACKAGE]
    return main.user_main


def _become(
    main: Callable[..., int], argv: list[str], environment: Mapping[str, str], files: tuple[int, int, int]
) -> None:
    """Run dnf in this process, and end it."""
    # A Python program that raises ends with this status and a traceback.
    status = 1
    try:
        # The objects of the test are of no use here, and need no look from the garbage collector.
        gc.freeze()
        for number, file in enumerate(files):
            os.dup2(file, number)
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = list(argv)
        sys.stdin, sys.stdout, sys.stderr = (os.fdopen(n, mode) for n, mode in enumerate(("r", "w", "w")))
        main(argv[1:], exit_code=True)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            status = end.code or 0
        else:
            print(end.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        # Nothing may return to the test from here: it would run twice.
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except BaseException:  # a full disk, for example
            status = 1
        finally:
            os._exit(status)
