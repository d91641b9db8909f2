# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Playbook benchmark stops before anything starts if a variable of one host is not valid."""

from __future__ import annotations

import os

import pytest

from ansible_collections.gpufleet.hosts.tests.unit.plugins import ansible_run
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import ROOT


@pytest.mark.parametrize(
    ("variable", "error"),
    [
        ("benchmark_sizes=8", "benchmark_sizes contains 8, but needs whole numbers from 16 to 32768."),
        ("benchmark_dtype=float32", "Unknown variables: benchmark_dtype. Known variables: benchmark_image,"),
    ],
)
def test_a_wrong_variable_of_one_host_stops_all_hosts_before_their_first_task(tmp_path, variable, error):
    hosts = f"good ansible_connection=local\nwrong ansible_connection=local {variable}\n"
    (tmp_path / "hosts").write_text(f"[gpu_hosts]\n{hosts}", encoding="utf-8")
    argv = ["ansible-playbook", "-i", "hosts", str(ROOT / "playbooks/benchmark.yml")]
    run = ansible_run.run(argv, cwd=tmp_path, env={**os.environ, "COLUMNS": "1000"})
    assert run.returncode != 0
    assert error in " ".join((run.stdout + run.stderr).replace("''", "'").split())
    assert run.stdout.count("\nTASK [") == 1, run.stdout
