# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import variable_fields
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.variable_fields import VariableError
from ansible_collections.gpufleet.hosts.plugins.module_utils.persistence.variables import PersistenceRequest


@pytest.mark.parametrize(
    ("timeout", "words"), [(0, "must be 1 or more"), (-5, "must be 1 or more"), ("soon", "must be a whole number")]
)
def test_invalid_timeout_is_refused(timeout: int | str, words: str) -> None:
    with pytest.raises(VariableError) as caught:
        variable_fields.read(PersistenceRequest, "nvidia_persistenced", {"timeout": timeout})
    assert str(caught.value) == f"nvidia_persistenced_timeout is {timeout}, but {words}."


@pytest.mark.parametrize(("timeout", "seconds"), [(30, 30), ("60", 60), ("", 30)])
def test_timeout_may_be_text(timeout: int | str, seconds: int) -> None:
    assert variable_fields.read(PersistenceRequest, "nvidia_persistenced", {"timeout": timeout}).timeout == seconds
