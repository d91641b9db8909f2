# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is between a module and its action plugin is no option that users read of; every other one is documented.

ansible-test would see to the latter, and is told in tests/sanity not to, for the sake of the former.
"""

from __future__ import annotations

import pytest
import yaml

from ansible_collections.gpufleet.hosts.plugins.modules import gpu_container, nvidia_cdi_spec, nvidia_gpu_facts


class Seen(Exception):
    """The module has said which options it takes."""


@pytest.mark.parametrize(
    "module", [gpu_container, nvidia_cdi_spec, nvidia_gpu_facts], ids=lambda module: module.__name__
)
def test_every_option_is_documented_but_the_private_ones(monkeypatch, module):
    taken = {}

    def see(argument_spec, **_more):
        taken.update(argument_spec)
        raise Seen

    monkeypatch.setattr(module, "AnsibleModule", see)
    with pytest.raises(Seen):
        module.main()
    documented = yaml.safe_load(module.DOCUMENTATION)["options"]
    assert set(documented) == {name for name in taken if not name.startswith("_")}
    assert any(name.startswith("_") for name in taken)
