# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The drift test without a host: each item breaks in the observation, and the plan names exactly that item."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.part_plan import Context
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import plan_of_all_parts as site_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import registry
from ansible_collections.gpufleet.hosts.tests.drift import items as drift_items
from ansible_collections.gpufleet.hosts.tests.drift.items import Item
from ansible_collections.gpufleet.hosts.tests.drift.run import platforms
from ansible_collections.gpufleet.hosts.tests.unit.drift import converged_host as sample
from ansible_collections.gpufleet.hosts.tests.unit.drift import drifting

ITEMS = drift_items.items(sample.converged_host(), sample.values(), platforms(sample.KEY))


def broken_host(item: Item) -> dict[str, Any]:
    """Return the converged host after one item broke."""
    host = sample.converged_host()
    drifting.BREAK[item.kind](host, item.name)
    return host


@pytest.mark.parametrize("item", ITEMS, ids=str)
def test_the_plan_names_exactly_the_item_that_drifted(item: Item) -> None:
    host, converged = broken_host(item), sample.converged_host()
    facts = drift_items.facts(host, [item.name]) if item.kind == "persistence_mode" else None
    context = Context(host=host, values=sample.values(), platforms=platforms(sample.KEY), facts=facts)
    parts = site_plan.plan(context, registry.PARTS)
    question = site_plan.query(parts)
    # Only packages need the repositories.
    assert question is None or item.kind == "package"
    if question:
        context = dataclasses.replace(context, versions=drift_items.offered(converged, question["query"]), streams={})
        parts = site_plan.plan(context, registry.PARTS)
    texts = {name: part.changes for name, part in parts.items() if part.changes}
    named = {other for other in ITEMS for text in texts.get(other.part, []) if drift_items.names(other, text)}
    others = {other for other in ITEMS if not drift_items.is_intact(other, host, converged)}
    assert named == {item, *others}
    assert [text for changes in texts.values() for text in changes if drift_items.without_items(text, ITEMS)] == []
