# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Internal filters of playbook benchmark."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from ansible.errors import AnsibleFilterError

from ansible_collections.gpufleet.hosts.plugins.plugin_utils import kept_bytecode

kept_bytecode.use()

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.variable_fields import plain
from ansible_collections.gpufleet.hosts.plugins.module_utils.benchmark import (
    chart,
    fleet_report,
    free_or_skipped_gpus,
    host_results,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.benchmark import variables as benchmark_variables
from ansible_collections.gpufleet.hosts.plugins.module_utils.benchmark.median_and_outliers import BenchmarkValueError
from ansible_collections.gpufleet.hosts.plugins.module_utils.cuda import probe_matrix_speed

_PROGRAM = "ansible_collections.gpufleet.hosts.plugins.module_utils.benchmark.measuring_program"


def benchmark_request(variables: Mapping[str, Any], directory: str) -> dict[str, Any]:
    """Return the settings of the playbook. `directory`: where ansible-playbook runs."""
    try:
        return benchmark_variables.request(plain(variables), directory)
    except BenchmarkValueError as error:
        raise AnsibleFilterError(str(error)) from error


def benchmark_start(settings: Mapping[str, Any], usage: Mapping[str, Any]) -> dict[str, Any]:
    """Return the GPUs that a host may use, and the size of the product for nvidia_cuda_probe."""
    source = importlib.import_module(_PROGRAM).__spec__.loader.get_source(_PROGRAM)
    largest = max(settings["benchmark_sizes"]) // probe_matrix_speed.TILE * probe_matrix_speed.TILE
    return {
        **free_or_skipped_gpus.selection(plain(usage), settings["benchmark_engine"]),
        "matrix_size": min(max(largest, probe_matrix_speed.SIZE_MIN), probe_matrix_speed.SIZE_MAX),
        # Ansible's loader returns bytes.
        "program": source.decode() if isinstance(source, bytes) else source,
    }


def benchmark_arguments(
    settings: Mapping[str, Any], start: Mapping[str, Any], before: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the request for the program. `before`: what it printed in the container, for the run on the host."""
    told = before or {}
    names = ("sizes", "dtypes", "warmup", "repetitions", "tf32", "time_limit")
    wanted = {**{name: settings[f"benchmark_{name}"] for name in names}, "gpus": start["uuids"]}
    left = int(wanted["time_limit"] - (told.get("elapsed_s") or 0))
    # The time limit is for the whole host.
    return plain({**wanted, "framework": told.get("framework"), "time_limit": max(left, 1)})


def benchmark_document(result: Mapping[str, Any], settings: Mapping[str, Any], variable: str) -> dict[str, Any]:
    """Return what the program printed, or an error. `variable` has the command of Python."""
    return host_results.document(plain(result), variable, settings[variable], settings["benchmark_time_limit"])


def benchmark_error(result: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """Return why a task failed."""
    return host_results.failure(plain(result), settings)


def benchmark_report(hostvars: Mapping[str, Any], hosts: Sequence[str], variable: str) -> dict[str, Any]:
    """Return the results of all hosts. `variable` has the result of a host."""
    results = {name: plain(hostvars[name].get(variable)) for name in hosts}
    settings = next((plain(hostvars[name].get("gpu_benchmark_request")) for name in hosts if results[name]), {})
    return plain(fleet_report.report(results, settings or {"benchmark_outlier_percent": 5}))


def benchmark_chart(document: Mapping[str, Any], title: str) -> dict[str, Any]:
    """Return what the template of the chart draws."""
    return chart.chart(title, fleet_report.chart_rows(document))


class FilterModule:
    """Register the filters."""

    def filters(self) -> dict[str, Any]:
        """Return the filters by their names."""
        return {
            "_benchmark_arguments": benchmark_arguments,
            "_benchmark_chart": benchmark_chart,
            "_benchmark_document": benchmark_document,
            "_benchmark_error": benchmark_error,
            "_benchmark_failures": fleet_report.failures,
            "_benchmark_report": benchmark_report,
            "_benchmark_request": benchmark_request,
            "_benchmark_start": benchmark_start,
            "_benchmark_table": fleet_report.table,
        }
