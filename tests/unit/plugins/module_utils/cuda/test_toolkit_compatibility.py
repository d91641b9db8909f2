# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.cuda import toolkit_compatibility
from ansible_collections.gpufleet.hosts.tests.unit.plugins.toolkit_samples import BRANCHES


@pytest.mark.parametrize(
    ("driver", "toolkit", "support"),
    [
        ("570.172.08", "13.0", "no"),
        ("580.95.05", "13.0", "fully"),
        ("595.91.07", "13.2", "fully"),
        ("595.91.07", "13.3", "minor"),
        ("610.57.04", "13.3", "fully"),
        ("610.57.04", "13.4", "minor"),
        ("615.71.09", "13.4", "fully"),
        ("615.71.09", "13.5", "minor"),
        ("620.70.06", "13.5", "fully"),
        # A newer toolkit than all known ones has the branch of the newest known one.
        ("620.70.06", "13.6", "fully"),
    ],
)
def test_toolkit_needs_the_driver_that_it_was_released_with(driver: str, toolkit: str, support: str) -> None:
    assert toolkit_compatibility.driver_support(driver, toolkit, BRANCHES) == support
