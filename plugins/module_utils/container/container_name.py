# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which names of containers are refused: invalid ones, and those that the engine would take for another container."""

from __future__ import annotations

import re

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.engine_module_options import OptionError
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.plan_result import PlanError
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import Docker, Podman

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


def validate_name(engine: str, name: str) -> None:
    """Raise OptionError for a name that the engine does not accept."""
    if not _NAME.fullmatch(name):
        raise OptionError(
            f"name={name!r} is not a valid container name. Use letters, digits, _, . and -, and start with a letter "
            "or a digit."
        )
    if engine == "docker" and len(name) == 1:
        raise OptionError(f"name={name} is too short: docker requires at least two characters. Use a longer name.")


def refuse_ambiguous(engine: Docker | Podman, name: str) -> None:
    """Refuse a name that is also the beginning of another container's identifier.

    The engine's module would change that container. This check is the last one, so that it does not hide other
    errors in the request.
    """
    other = engine.matched_by_id(name)
    if other is not None:
        raise PlanError(
            f"name={name} is ambiguous: the identifier of container {other} begins with it, and "
            f"{engine.name}'s module would change that container. Use a name that contains a dash or a "
            f"letter from g to z (identifiers are hexadecimal), or recreate {other}."
        )
