# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values of the user for charts that cannot be used."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.gpufleet.hosts.tests.unit.plugins.module_utils.kubernetes.test_chart_releases import plan


@pytest.mark.parametrize(
    ("plugins", "more", "words"),
    [
        (["nvidia", "nvidia_operator"], {}, "Remove one of them"),
        (["nvidia"], {"nvidia_sharing": "mps", "nvidia_replicas": 1}, "needs at least 2"),
        (
            ["nvidia"],
            {"nvidia_sharing": "mps", "nvidia_replicas": 2, "nvidia_mig_strategy": "mixed"},
            "refuses with MIG",
        ),
        (["nvidia"], {"charts": {"nvidia": {"namespace": "default"}}}, "refuses namespace default"),
        (["nvidia"], {"charts": {"nvida": {}}}, "unknown key nvida. Known keys: nvidia,"),
        (
            ["amd"],
            {"charts": {"amd": {"repositroy": "x"}}},
            "charts.amd has the unknown key repositroy. Known keys: chart,",
        ),
        (["amd"], {"charts": {"amd": "x"}}, "charts.amd is not a dictionary"),
        (["amd"], {"charts": {"amd": {"values": "a: b"}}}, "charts.amd.values is not a dictionary: a: b"),
        (["amd"], {"charts": {"amd": {"version": 0.2}}}, "charts.amd.version is not a text: 0.2"),
        (["amd"], {"charts": {"amd": {"release": ""}}}, "charts.amd.release is empty"),
        (
            ["amd", "gaudi_operator", "neuron"],
            {"charts": {name: {"release": "x", "namespace": "y"} for name in ("amd", "neuron")}},
            "Plugins amd and neuron have the same release x in namespace y.",
        ),
        (
            ["amd", "neuron", "gaudi_operator"],
            {"charts": {name: {"release": "x", "namespace": "y"} for name in ("amd", "neuron", "gaudi_operator")}},
            "Plugins amd, neuron and gaudi_operator have",
        ),
    ],
)
def test_settings_that_contradict_each_other(plugins: list[str], more: dict[str, t.Any], words: str) -> None:
    (problem,) = plan(plugins, **more).problems
    assert words in problem


@pytest.mark.parametrize(
    ("plugins", "over"),
    [
        (["amd", "neuron"], {"amd": {"release": "x"}, "neuron": {"release": "x", "namespace": "other"}}),
        # Helm can change the chart of a release, so one plugin can replace another one.
        (["amd"], {"amd": {"release": "x", "namespace": "y"}, "neuron": {"release": "x", "namespace": "y"}}),
        (["amd", "amd"], {}),
    ],
)
def test_releases_that_differ_are_accepted(plugins: list[str], over: dict[str, t.Any]) -> None:
    assert plan(plugins, charts=over).problems == []


def test_only_the_chart_of_nvidia_refuses_namespace_default() -> None:
    assert plan(["amd"], charts={"amd": {"namespace": "default"}}).problems == []
