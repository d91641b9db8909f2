#!/usr/bin/python
# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hold packages at their installed version."""

from __future__ import annotations

DOCUMENTATION = r"""
module: package_hold
short_description: Hold packages at their installed version
version_added: 0.1.0
author:
  - gpufleet maintainers (@gpufleet)
description:
  - Holds or releases packages with dpkg holds (apt), version locks (dnf) or locks (zypper).
  - Holds of other packages are not changed.
  - A package is also held if a lock with wildcards, such as C(nvidia*), covers it. O(state=released) does not remove
    that lock, because the lock also covers other packages.
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
    description: The package manager of the packages.
    type: str
    choices: [apt, dnf, zypper]
    required: true
attributes:
  check_mode:
    description: Reports the packages that would be held or released.
    support: full
  diff_mode:
    description: Shows the held packages before and after the change.
    support: full
  idempotent:
    description: A second run changes nothing.
    support: full
seealso:
  - module: ansible.builtin.dpkg_selections
"""

EXAMPLES = r"""
- name: Hold the driver at its installed version
  gpufleet.hosts.package_hold:
    names: [nvidia-smi, libcuda1]
    package_manager: apt
"""

RETURN = r"""
names:
  description: The packages that were held or released. In check mode, the packages that would be.
  type: list
  elements: str
  returned: always
  sample: [libcuda1]
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import run as base_run
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import installed, locks


def main() -> None:
    """Read the holds, change them and report."""
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

    state = installed.read("/", manager, run)
    own = locks.releasable(names, state)
    held = locks.held(names, state)
    todo = [name for name in names if (name not in held if hold else name in own)]
    try:
        if todo and not module.check_mode:
            locks.change(manager, todo, hold, run)
    except locks.LocksError as error:
        module.fail_json(msg=str(error))
    before = held if hold else held | own
    after = before | set(todo) if hold else before - set(todo)
    diff = {"before": {"held": sorted(before)}, "after": {"held": sorted(after)}}
    module.exit_json(changed=bool(todo), names=todo, diff=diff)


if __name__ == "__main__":
    main()
