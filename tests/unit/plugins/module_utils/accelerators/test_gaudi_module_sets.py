# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which Gaudi accelerators can work together."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators import gaudi_module_sets


def names(*numbers: int) -> list[str]:
    return [f"module-{number}" for number in numbers]


PAIRS = [{0, 1}, {2, 3}, {4, 5}, {6, 7}]
QUADS = [{0, 1, 2, 3}, {4, 5, 6, 7}]


@pytest.mark.parametrize(
    ("modules", "sets"),
    [
        (range(8), [*PAIRS, *QUADS, set(range(8))]),
        # A virtual machine with half of the board: the quad is everything.
        (range(4, 8), [*PAIRS[2:], QUADS[1]]),
        # A host that lacks module 5: its pair and its quad do not exist.
        ([0, 1, 2, 3, 4, 6, 7], [PAIRS[0], PAIRS[1], PAIRS[3], QUADS[0], {0, 1, 2, 3, 4, 6, 7}]),
        ([1, 2], [{1, 2}]),
        ([3], []),
        ([], []),
    ],
)
def test_pairs_quads_and_everything(modules, sets):
    assert list(gaudi_module_sets.groups(names(*modules))) == [frozenset(names(*one)) for one in sets]


def test_cards_work_alone_or_all_together():
    cards = ["0000:19:00.0", "0000:5a:00.0", "0000:9b:00.0"]
    assert gaudi_module_sets.groups(cards) == (frozenset(cards),)


def test_the_variable_has_the_module_ids_in_order():
    assert gaudi_module_sets.visible_modules(names(3, 2)) == {"HABANA_VISIBLE_MODULES": "2,3"}
    assert gaudi_module_sets.visible_modules(["module-3", "0000:19:00.0"]) == {}
    assert gaudi_module_sets.visible_modules([]) == {}
