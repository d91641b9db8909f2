# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which facts the option `gather_subset` selects."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.facts import gather_subset_option
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml import gpu_fields


@pytest.mark.parametrize(
    ("asked", "chosen"),
    [
        (["all"], set(gather_subset_option.SUBSETS)),
        (["min"], {"min"}),
        ([], set(gather_subset_option.SUBSETS)),
        (["!all"], {"min"}),
        (["!all", "power"], {"min", "power"}),
        (["power", "ecc"], {"min", "power", "ecc"}),
        (["!processes"], set(gather_subset_option.SUBSETS) - {"processes"}),
        (["all", "!processes"], set(gather_subset_option.SUBSETS) - {"processes"}),
        (["power", "!power"], {"min"}),
        (
            gather_subset_option.DEFAULT_SUBSETS,
            set(gather_subset_option.SUBSETS) - {"processes", "throughput", "topology"},
        ),
    ],
)
def test_subsets_are_chosen_as_by_ansible_builtin_setup(asked, chosen):
    assert gather_subset_option.choose_subsets(asked) == chosen


@pytest.mark.parametrize("asked", [["gpus"], ["!gpus"], ["all", "gpus"], [""], ["!"], ["ALL"]])
def test_an_unknown_subset_is_rejected_with_a_list_of_known_subsets(asked):
    with pytest.raises(gather_subset_option.SubsetError) as caught:
        gather_subset_option.choose_subsets(asked)
    name = asked[-1].lstrip("!")
    assert f"unknown subset '{name}'" in str(caught.value)
    for known in ("all", *gather_subset_option.SUBSETS):
        assert known in str(caught.value)


def test_min_cannot_be_excluded():
    with pytest.raises(gather_subset_option.SubsetError, match=r"min is always gathered\. Use '!all'"):
        gather_subset_option.choose_subsets(["!min"])


def test_the_subsets_are_those_of_the_readers():
    assert set(gather_subset_option.SUBSETS) == {*gpu_fields.SUBSETS, "topology"}
