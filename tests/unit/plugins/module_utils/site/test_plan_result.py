# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.module_utils.site import plan_result, run_variables
from ansible_collections.gpufleet.hosts.tests.unit.plugins.module_utils.site.test_host_health import FACTS, HOST

DONE = {"acting": [], "drain": None, "plan": {"verify": {"applies": True}}, "host": {"uid": 0}}


def test_the_observation_survives_as_text():
    short = plan_result.shortened({**DONE, "notes": ["a"]})
    assert {*short} == {"acting", "drain", "notes", "host_text"}
    assert plan_result.host(short) == plan_result.host(DONE) == {"uid": 0}


def test_the_table_is_the_same_for_both_results():
    whole = {**DONE, "host": {**HOST, "identity": {"boot": "b1"}}}
    plans = (whole, plan_result.shortened(whole))
    results = [run_variables.of_site({"site_plan": planned, "ansible_facts": FACTS}, works=True) for planned in plans]
    assert results[0] == results[1]
    assert results[0].observed == whole["host"]
