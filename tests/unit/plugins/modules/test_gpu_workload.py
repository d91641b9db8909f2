# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of module gpu_workload: those of the adapters and those of the documentation are the same."""

from __future__ import annotations

import pytest
import yaml

from ansible_collections.gpufleet.hosts.plugins.modules import gpu_workload


class Started(Exception):
    """The module has passed its argument_spec."""


def test_the_module_starts_with_the_documented_options(monkeypatch):
    seen = {}

    def start(argument_spec, **more):
        seen.update(argument_spec)
        raise Started

    monkeypatch.setattr(gpu_workload, "AnsibleModule", start)
    monkeypatch.setattr(gpu_workload.pinned_environment, "pin", lambda: None)
    with pytest.raises(Started):
        gpu_workload.main()
    documented = yaml.safe_load(gpu_workload.DOCUMENTATION)["options"]
    assert set(documented) == set(seen)
    assert documented["adapter"]["choices"] == seen["adapter"]["choices"]
    for name, option in documented.items():
        assert set(option.get("suboptions", {})) == set(seen[name].get("options", {})), name
