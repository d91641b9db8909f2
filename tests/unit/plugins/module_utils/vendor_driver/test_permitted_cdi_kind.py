# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The permitted form of variable cdi_kind."""

from __future__ import annotations

import re

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.vendor_driver import permitted_cdi_kind


@pytest.mark.parametrize(
    ("kind", "is_permitted"),
    [
        ("gpufleet-amd/gpu", True),
        ("amd.com/gpu", True),
        ("a_1/b-2", True),
        ("gpu", False),
        ("1and1.com/gpu", False),
        ("amd.com./gpu", False),
        ("amd.com/g.p", False),
        ("amd.com/gpu/x", False),
    ],
)
def test_the_kind_is_a_vendor_and_a_class(kind, is_permitted):
    assert bool(re.fullmatch(permitted_cdi_kind.KIND, kind)) is is_permitted
