#!/usr/bin/python
# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Versions of packages that a host's repositories offer."""

from __future__ import annotations

DOCUMENTATION = r"""
module: package_versions
short_description: List the versions of packages that a host's repositories offer
version_added: 0.1.0
author:
  - gpufleet maintainers (@gpufleet)
description:
  - Lists every version that the enabled repositories offer of the packages named, newest first, pins and holds left
    aside.
  - With apt it reads the lists that are there. With dnf and zypper, the metadata is refreshed where it has expired.
options:
  names:
    description: Names of packages. An unknown name has an empty list in the answer.
    type: list
    elements: str
    required: true
  package_manager:
    description: Whose repositories are meant.
    type: str
    choices: [apt, dnf, zypper]
    required: true
attributes:
  check_mode:
    description: The module only reads.
    support: full
  diff_mode:
    description: The module changes nothing.
    support: none
seealso:
  - module: ansible.builtin.package_facts
"""

EXAMPLES = r"""
- name: Ask which drivers there are
  gpufleet.hosts.package_versions:
    names: [nvidia-smi, libcuda1]
    package_manager: apt
  register: offered
"""

RETURN = r"""
versions:
  description: By package, the versions on offer, newest first, as the package manager writes them.
  type: dict
  returned: always
  sample: {nvidia-smi: [535.309.01-0+deb12u1, 535.261.03-1], libcuda1: [535.309.01-0+deb12u1, 535.261.03-1]}
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.hosts.plugins.module_utils import module_run, package_offers


def main() -> None:
    """Ask and return."""
    module = AnsibleModule(
        argument_spec={
            "names": {"type": "list", "elements": "str", "required": True},
            "package_manager": {"type": "str", "choices": ["apt", "dnf", "zypper"], "required": True},
        },
        supports_check_mode=True,
    )

    try:
        versions = package_offers.read(
            module.params["package_manager"], module.params["names"], module_run.runner(module)
        )
    except package_offers.OffersError as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, versions=versions)


if __name__ == "__main__":
    main()
