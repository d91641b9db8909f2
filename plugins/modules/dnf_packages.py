#!/usr/bin/python
# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Install or remove packages by the command dnf."""

from __future__ import annotations

DOCUMENTATION = r"""
module: dnf_packages
short_description: Install or remove packages by the command dnf
version_added: 0.1.0
author:
  - gpufleet maintainers (@gpufleet)
description:
  - Does with the command C(dnf) what M(ansible.builtin.dnf) does with dnf's Python bindings, for hosts that have these
    for a Python only that is too old for Ansible, as Enterprise Linux 8 has. Any Python that Ansible runs on will do.
  - Takes options of the same names and returns the same RV(results), so that M(ansible.builtin.package) can use either.
  - dnf 4 only.
options:
  name:
    description:
      - Names of packages, with a version (C(name-version) or C(name-version-release)) or without.
      - What is installed is not upgraded for a name without a version.
    type: list
    elements: str
    required: true
  state:
    description: Whether the packages are V(present) or V(absent). What needs an absent one goes with it.
    type: str
    choices: [present, absent]
    default: present
  install_weak_deps:
    description: Whether what packages only recommend comes along.
    type: bool
    default: true
  allowerasing:
    description: Whether installed packages may be removed that are in the way.
    type: bool
    default: false
  allow_downgrade:
    description: Whether packages may be replaced by older ones. Where dnf would do that with V(false), nothing is done.
    type: bool
    default: false
  download_only:
    description: Download the packages and install nothing.
    type: bool
    default: false
  lock_timeout:
    description: Seconds to wait for another program that uses dnf.
    type: int
    default: 30
attributes:
  check_mode:
    description: Says what dnf would do. It may refresh its caches for that, and downloads no package.
    support: full
  diff_mode:
    description: Shows the packages that come and go.
    support: full
  idempotent:
    description: A second run asks rpm alone and changes nothing.
    support: full
seealso:
  - module: ansible.builtin.dnf
  - module: ansible.builtin.package
"""

EXAMPLES = r"""
- name: Have the driver in that version
  gpufleet.hosts.dnf_packages:
    name: [nvidia-driver-cuda-580.95.05, nvidia-driver-cuda-libs-580.95.05]
    install_weak_deps: false
    allow_downgrade: true

- name: Have it on any Enterprise Linux
  ansible.builtin.package:
    use: "{{ 'gpufleet.hosts.dnf_packages' if gpufleet_host.os.key == 'el-8' else 'ansible.builtin.dnf' }}"
    name: [nvidia-driver-cuda]
    state: present
"""

RETURN = r"""
results:
  description: Packages that came and went, or would.
  type: list
  elements: str
  returned: always
  sample: ["Installed: kmod-nvidia-open-dkms-3:580.95.05-1.el8.x86_64"]
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import run as base_run
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import dnf


def main() -> None:
    """See what is to do, ask dnf, act, report."""
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "list", "elements": "str", "required": True},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "install_weak_deps": {"type": "bool", "default": True},
            "allowerasing": {"type": "bool", "default": False},
            "allow_downgrade": {"type": "bool", "default": False},
            "download_only": {"type": "bool", "default": False},
            "lock_timeout": {"type": "int", "default": 30},
        },
        supports_check_mode=True,
    )
    wish, run = module.params, base_run.runner(module)
    try:
        absent = dnf.missing(wish["name"], run) if wish["name"] else set()
        todo = [name for name in wish["name"] if (name in absent) == (wish["state"] == "present")]
        found = dnf.ask(todo, wish, run) if todo else None
        if found and not module.check_mode:
            dnf.act(todo, wish, run)
    except dnf.DnfError as error:
        module.fail_json(msg=str(error), results=[])
    results = found.results(wish["download_only"]) if found else []
    module.exit_json(changed=found is not None, results=results, diff={"prepared": "\n".join(results)})


if __name__ == "__main__":
    main()
