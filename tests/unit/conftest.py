# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make `ansible_collections.gpufleet.hosts` importable under plain pytest. ansible-test does this itself."""

from __future__ import annotations

import gc
import itertools
import locale
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

COLLECTION_ROOT = Path(__file__).resolve().parents[2]


def _make_importable() -> None:
    """Make the namespace package `ansible_collections` find this checkout in any directory.

    The path is added to sys.path and not to the package's `__path__`, which Python recomputes when sys.path changes.
    """
    link = COLLECTION_ROOT / ".ansible" / "collections"
    if "ansible_collections.gpufleet.hosts" not in sys.modules and link.is_dir() and str(link) not in sys.path:
        sys.path.append(str(link))


_make_importable()
# On a busy machine, the first example can take longer than the limit for one.
hypothesis.settings.register_profile("gpufleet", deadline=None)
hypothesis.settings.load_profile("gpufleet")


# Thousands of collected tests stay until the end. The garbage collector need not look at them again and again.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


_numbers = itertools.count()


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a new directory. pytest's own fixture reads the names of all earlier ones to find a free number."""
    return tmp_path_factory.mktemp(f"{request.function.__name__[:26]}{next(_numbers)}", numbered=False)


@pytest.fixture(autouse=True)
def _same_environment() -> Iterator[None]:
    """Undo what a module that ran in the process of a test changed: its environment, umask and locale."""
    environment, umask, known_locale = dict(os.environ), os.umask(0o022), locale.setlocale(locale.LC_ALL)
    os.umask(umask)
    yield
    os.umask(umask)
    locale.setlocale(locale.LC_ALL, known_locale)
    if os.environ != environment:
        os.environ.clear()
        os.environ.update(environment)
