# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of Docker that are recommended for hosts with GPUs, and when the role adds them. Pure functions."""

from __future__ import annotations

import typing as t

# Docker 25.0 introduced CDI as a feature to enable. Since 28.2 it is enabled by default.
_CDI_IS_OPTIONAL = ((25,), (28, 2))


def recommended(
    options: dict[str, t.Any],
    version: tuple[int, ...],
    in_swarm: bool,
    *,
    flags: t.Collection[str] = (),
    before: t.Mapping[str, t.Any] | None = None,
    own: t.Collection[str] = (),
) -> dict[str, t.Any]:
    """Add the options recommended for GPU hosts, unless the user, a flag of the daemon's unit or others set them.

    `before`: daemon.json. `own`: the dotted names of the options that the role has set in it.
    """
    found, file = dict(options), before or {}
    if not in_swarm and "live-restore" not in flags and ("live-restore" not in file or "live-restore" in own):
        found.setdefault("live-restore", True)
    first, last = _CDI_IS_OPTIONAL
    present = file.get("features")
    value = present.get("cdi") if isinstance(present, dict) else None
    is_own = "features.cdi" in own
    is_needed = first <= version < last and (value is None or is_own)
    # Later versions do not need it, but its removal would need a restart.
    is_kept = version >= last and value is True and is_own
    if (is_needed or is_kept) and "features" not in flags:
        features = found.get("features", {})
        if isinstance(features, dict):
            found["features"] = {"cdi": True, **features}
    return found
