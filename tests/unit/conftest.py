# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Make `ansible_collections.gpufleet.hosts` importable under plain pytest, as ansible-test does for itself."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

COLLECTION_ROOT = Path(__file__).resolve().parents[2]


def _make_importable() -> None:
    """Append this checkout to the namespace package `ansible_collections.gpufleet`, wherever it is checked out."""
    link = COLLECTION_ROOT / ".ansible" / "collections"
    if "ansible_collections.gpufleet.hosts" in sys.modules or not link.is_dir():
        return
    package = importlib.import_module("ansible_collections")
    entry = str(link / "ansible_collections")
    if entry not in package.__path__:
        package.__path__.append(entry)


_make_importable()
