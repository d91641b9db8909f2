# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build the program that keeps the CDI specification of a vendor's accelerators current on a host."""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.plugin_utils import host_program

_HEADER = """\
# Written by a role of the Ansible collection gpufleet.hosts. Changes in this file are lost.
# It contains modules of this collection.
"""


def build(options: dict[str, Any]) -> str:
    """Return the text of the program."""
    return _HEADER + host_program.make_file("vendor_driver.cdi_program", options, {})


def digest(options: dict[str, Any]) -> str:
    """Return the SHA-256 digest of the program with these options."""
    return _digest(json.dumps(options, sort_keys=True))


@lru_cache(maxsize=16)
def _digest(options: str) -> str:
    return hashlib.sha256(build(json.loads(options)).encode()).hexdigest()
