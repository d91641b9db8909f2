# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The data of the roles that depend on the platform. The files contain no templates."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any

import yaml

from ansible_collections.gpufleet.hosts.plugins.module_utils.site.registry import DECLARATIONS

_ROLES = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(__file__))), "roles")
# The C loader is much faster.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def platforms(key: str | None) -> dict[str, Any]:
    """Return the data by role: of one platform, such as `debian-12`, or None, for the driver; of all for the others."""
    return {"nvidia_driver": _data("nvidia_driver", f"{key}.yml", "__nvidia_driver_platform"), **_of_all()}


def read_before_fork() -> None:
    """Read what all hosts need in this process, because each host has a process of its own."""
    _of_all()


@lru_cache(maxsize=1)
def _of_all() -> dict[str, Any]:
    return {one.name: _data(one.name, "platforms.yml", one.platforms) for one in DECLARATIONS if one.platforms}


@lru_cache(maxsize=64)
def _data(role: str, file: str, name: str) -> Any:
    """Return a variable of a role's data, or None if the role has no such file."""
    try:
        with open(os.path.join(_ROLES, role, "vars", file), encoding="utf-8") as stream:
            return yaml.load(stream, Loader=_LOADER)[name]
    except FileNotFoundError:
        return None
