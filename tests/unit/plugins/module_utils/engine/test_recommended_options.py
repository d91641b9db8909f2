# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options that the role adds to those of the user."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import recommended_options


@pytest.mark.parametrize(
    ("options", "version", "in_swarm", "expected"),
    [
        ({}, (20, 10, 24), False, {"live-restore": True}),
        ({}, (24, 0), False, {"live-restore": True}),
        ({}, (25, 0), False, {"live-restore": True, "features": {"cdi": True}}),
        ({}, (28, 1, 9), False, {"live-restore": True, "features": {"cdi": True}}),
        ({}, (28, 2), False, {"live-restore": True}),
        ({}, (), False, {"live-restore": True}),
        ({}, (27,), True, {"features": {"cdi": True}}),
        (
            {"live-restore": False, "features": {"cdi": False}},
            (26,),
            False,
            {"live-restore": False, "features": {"cdi": False}},
        ),
        ({"features": {"buildkit": True}}, (26,), True, {"features": {"buildkit": True, "cdi": True}}),
        ({"features": None}, (26,), True, {"features": None}),
    ],
)
def test_recommended_options_are_added(
    options: dict[str, t.Any], version: tuple[int, ...], in_swarm: bool, expected: dict[str, t.Any]
) -> None:
    assert recommended_options.recommended(options, version, in_swarm) == expected


@pytest.mark.parametrize(
    ("file", "own", "version", "expected"),
    [
        # Values of somebody else stay.
        ({"live-restore": False}, [], (27,), {"features": {"cdi": True}}),
        ({"live-restore": True}, [], (24,), {}),
        ({"features": {"cdi": False}}, [], (27,), {"live-restore": True}),
        ({"features": {"buildkit": True}}, [], (27,), {"live-restore": True, "features": {"cdi": True}}),
        # The role repairs its own values.
        ({"live-restore": False}, ["live-restore"], (24,), {"live-restore": True}),
        ({"features": {"cdi": False}}, ["features.cdi"], (27,), {"live-restore": True, "features": {"cdi": True}}),
        # After an upgrade, the option of the role stays. Its removal would need a restart.
        ({"features": {"cdi": True}}, ["features.cdi"], (28, 2), {"live-restore": True, "features": {"cdi": True}}),
        ({"features": {"cdi": True}}, [], (28, 2), {"live-restore": True}),
        ({"features": {"cdi": False}}, ["features.cdi"], (28, 2), {"live-restore": True}),
        ({}, ["features.cdi"], (28, 2), {"live-restore": True}),
        ({"features": {"cdi": True}}, ["features.cdi"], (24,), {"live-restore": True}),
    ],
)
def test_recommended_options_keep_the_values_of_others(
    file: dict[str, t.Any], own: list[str], version: tuple[int, ...], expected: dict[str, t.Any]
) -> None:
    assert recommended_options.recommended({}, version, False, before=file, own=own) == expected
