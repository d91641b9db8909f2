#!/usr/bin/python
# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keep packages at the version they have."""

from __future__ import annotations

DOCUMENTATION = r"""
module: package_hold
short_description: Keep packages at the version they have, all in one call
version_added: 0.1.0
author:
  - gpufleet maintainers (@gpufleet)
description:
  - Holds packages (dpkg's hold with apt, a version lock with dnf, a lock with zypper), or releases them.
  - Holds that others made on other packages stay.
options:
  names:
    description: Names of installed packages.
    type: list
    elements: str
    required: true
  state:
    description: Whether the packages are V(held) or V(released).
    type: str
    choices: [held, released]
    default: held
  package_manager:
    description: Whose packages are meant.
    type: str
    choices: [apt, dnf, zypper]
    required: true
attributes:
  check_mode:
    description: Says which packages would be held or released.
    support: full
  diff_mode:
    description: Shows the packages that are held before and after.
    support: full
  idempotent:
    description: A second run finds the holds and changes nothing.
    support: full
seealso:
  - module: ansible.builtin.dpkg_selections
"""

EXAMPLES = r"""
- name: Keep the driver as it is
  gpufleet.hosts.package_hold:
    names: [nvidia-smi, libcuda1]
    package_manager: apt
"""

RETURN = r"""
names:
  description: The packages whose hold was changed, or would be.
  type: list
  elements: str
  returned: always
  sample: [libcuda1]
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import run as base_run
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import locks


def main() -> None:
    """Read, plan, apply, report."""
    module = AnsibleModule(
        argument_spec={
            "names": {"type": "list", "elements": "str", "required": True},
            "state": {"type": "str", "choices": ["held", "released"], "default": "held"},
            "package_manager": {"type": "str", "choices": ["apt", "dnf", "zypper"], "required": True},
        },
        supports_check_mode=True,
    )
    names, manager = module.params["names"], module.params["package_manager"]
    hold = module.params["state"] == "held"
    run = base_run.runner(module)

    try:
        held = locks.read(manager, names, run) if names else set()
        todo = [name for name in names if (name in held) != hold]
        if todo and not module.check_mode:
            locks.change(manager, todo, hold, run)
    except locks.LocksError as error:
        module.fail_json(msg=str(error))
    after = held | set(todo) if hold else held - set(todo)
    diff = {"before": {"held": sorted(held)}, "after": {"held": sorted(after)}}
    module.exit_json(changed=bool(todo), names=todo, diff=diff)


if __name__ == "__main__":
    main()
