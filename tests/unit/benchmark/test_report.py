# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The summaries and limits of the benchmark."""

from __future__ import annotations

import json

import pytest

from ansible_collections.gpufleet.hosts.tests.benchmark import report


def run(seconds, cpu_seconds=6.0, hosts=3, memory_mib=99.9):
    return {"seconds": seconds, "cpu_seconds": cpu_seconds, "hosts": hosts, "memory_mib": memory_mib}


def host(calls=1, results=4, sent_bytes=250_000, **sent):
    network = {"Tcp.ActiveOpens": 0, "Udp.OutDatagrams": 0, **sent}
    modules, counts = {"a_module": calls}, {"ok": results}
    return {"calls": calls, "modules": modules, "sent": sent_bytes, "results": counts, "network": network}


def found(sites=None, ratios=(1.2, 0.333), rows=(), growth=1.15, *, floor=0.1, cpu=0.3):
    """Return measurements that meet all limits, except for the arguments."""
    rows = [
        {
            "hosts": number,
            "seconds": seconds * number,
            "seconds_per_host": seconds,
            "cpu_seconds_per_host": cpu,
            "memory_mib": 80,
        }
        for number, seconds in rows or ((10, 0.3), (50, 0.3))
    ]
    playbook = {"seconds": 1.0, "fastest": 1.0, "slowest": 1.0, "cpu_seconds_per_host": 0.5}
    return {
        "counts": {"site": sites or {"sim": host()}, "baseline": {"sim": host(calls=40, results=30)}},
        "times": {
            "repeats": 5,
            "playbooks": dict.fromkeys(report.PLAYBOOKS, playbook),
            "ratio_to_gather": ratios[0],
            "ratio_to_baseline": ratios[1],
        },
        "scale": {
            "what": "names of sim",
            "rows": rows,
            "growth": growth,
            "floor": {**rows[-1], "seconds_per_host": floor},
        },
    }


def test_times_are_medians_and_compare_wall_times():
    summary = report.times(
        {
            "site": [run(3.0, 3.0), run(90.0, 90.0), run(2.0, 6.0)],
            "gather": [run(2.0)] * 3,
            "floor": [run(1.0)] * 3,
            "baseline": [run(12.0, 9.0)] * 3,
        }
    )
    assert summary["repeats"] == 3
    assert summary["playbooks"]["site"] == {
        "seconds": 3.0,
        "fastest": 2.0,
        "slowest": 90.0,
        "cpu_seconds_per_host": 2.0,
    }
    assert summary["playbooks"]["baseline"]["cpu_seconds_per_host"] == 3.0
    assert (summary["ratio_to_gather"], summary["ratio_to_baseline"]) == (1.5, 0.25)
    assert summary["floor_to_gather"] == 0.5


@pytest.mark.parametrize(
    ("seconds", "growth"),
    [
        ({1: 3.0, 10: 8.0, 25: 90.0, 50: 48.0}, 1.2),
        ({50: 20.0, 10: 8.0}, 0.5),
        ({1: 3.0, 10: 8.0}, None),
        ({50: 48.0}, None),
    ],
)
def test_growth_compares_50_hosts_with_10_hosts(seconds, growth):
    summary = report.scale({number: [run(value, number * 0.5)] * 2 for number, value in seconds.items()})
    assert summary["growth"] == growth
    assert [row["hosts"] for row in summary["rows"]] == sorted(seconds)
    assert summary["rows"][-1]["seconds_per_host"] == pytest.approx(seconds[max(seconds)] / max(seconds))
    assert {row["cpu_seconds_per_host"] for row in summary["rows"]} == {0.5}
    assert {row["memory_mib"] for row in summary["rows"]} == {100}


def test_the_floor_is_the_median_of_a_large_fleet():
    summary = report.scale({50: [run(20.0)]}, [run(9.0, 5.0), run(10.0, 7.0), run(30.0, 6.0)])
    assert (summary["floor"]["seconds_per_host"], summary["floor"]["cpu_seconds_per_host"]) == (0.2, 0.12)
    assert report.scale({10: [run(20.0)]})["floor"] is None


@pytest.mark.parametrize(
    ("measured", "sentences"),
    [
        (found(), []),
        (found({"one": host(), "two": host(calls=2)}), ["two: module calls: 2 (limit: 1)"]),
        (found({"sim": host(sent_bytes=250_001)}), ["sim: sent bytes: 250001 (limit: 250000)"]),
        (
            found({"sim": {**host(), "results": {"ok": 4, "changed": 0, "skipped": 9}}}),
            ["sim: task results: 13 (limit: 4)"],
        ),
        (found({"sim": host(**{"Udp.OutDatagrams": 2})}), ["sim: connections and datagrams: 2 (limit: 0)"]),
        (
            found({"sim": {**host(), "network": None}}),
            ["sim: connections and datagrams: could not be measured"],
        ),
        (found(ratios=(1.201, 0.2)), ["wall time / fact gathering: 1.201 (limit: 1.2)"]),
        (found(ratios=(1.0, 0.334)), ["wall time / baseline: 0.334 (limit: 0.333)"]),
        # The wall time contains that of the hosts.
        (found(rows=((10, 0.95), (50, 0.5))), []),
        (found(cpu=0.301), ["controller CPU seconds per host, 50 hosts: 0.301 (limit: 0.3)"]),
        (found(rows=((1, 3.0), (10, 0.95))), []),
        (found(growth=1.151), ["time per host, 50 hosts / 10 hosts: 1.151 (limit: 1.15)"]),
        (found(growth=None), []),
        ({"gpu": "this machine has no NVIDIA GPU"}, []),
    ],
)
def test_exceeded_limits(measured, sentences):
    assert report.exceeded(measured) == sentences
    # Both outputs show the same verdicts.
    assert report.text(measured).count("EXCEEDED") == len(sentences)
    assert [check["met"] for check in json.loads(report.document(measured))["checks"]].count(False) == len(sentences)


def test_the_tables_show_every_measurement():
    text = report.text(found({"sim": {**host(), "modules": {"setup": 2}, "network": None}}))
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "site.yml, converged sim 1 4 (4 ok) 250000 ? ? setup x2" in lines
    assert "baseline, converged sim 40 30 (30 ok) 250000 0 0 a_module x40" in lines
    assert "fact gathering 1.0 1.0 1.0 0.5" in lines
    assert "50 15.0 0.3 0.3 80" in lines
    assert "50, one empty call, four results 15.0 0.1 0.3 80" in lines
    assert "wall time / baseline 0.333 0.333 ok" in lines
