#!/usr/bin/python
# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Install or remove packages with the dnf command."""

from __future__ import annotations

DOCUMENTATION = r"""
module: dnf_packages
short_description: Install or remove packages with the dnf command
version_added: 0.1.0
author:
  - gpufleet maintainers (@gpufleet)
description:
  - Installs or removes packages with the C(dnf) command. M(ansible.builtin.dnf) uses dnf's Python bindings instead. On
    Enterprise Linux 8, these bindings require a Python that is too old for Ansible. This module works with any Python
    that Ansible supports.
  - The options and RV(results) are compatible with M(ansible.builtin.dnf), so M(ansible.builtin.package) can use either
    module.
  - Supports only dnf 4.
options:
  name:
    description:
      - Names of packages, with or without a version (C(name-version) or C(name-version-release)).
      - An installed package is not upgraded if its name has no version.
    type: list
    elements: str
    required: true
  state:
    description:
      - Whether the packages are V(present) or V(absent). Packages that depend on an absent package are removed, too.
    type: str
    choices: [present, absent]
    default: present
  install_weak_deps:
    description: Whether to install recommended packages.
    type: bool
    default: true
  allowerasing:
    description: Whether dnf may remove installed packages that conflict.
    type: bool
    default: false
  allow_downgrade:
    description: Whether dnf may downgrade packages. With V(false), the module fails before dnf downgrades a package.
    type: bool
    default: false
  download_only:
    description: Whether to only download the packages.
    type: bool
    default: false
  lock_timeout:
    description: Maximum time in seconds to wait for the lock of another program.
    type: int
    default: 30
attributes:
  check_mode:
    description: Simulates the transaction with dnf. dnf may refresh its caches but downloads no package.
    support: full
  diff_mode:
    description: Shows the installed and removed packages.
    support: full
  idempotent:
    description: A second run only queries rpm and changes nothing.
    support: full
seealso:
  - module: ansible.builtin.dnf
  - module: ansible.builtin.package
"""

EXAMPLES = r"""
- name: Install one version of the driver
  gpufleet.hosts.dnf_packages:
    name: [nvidia-driver-cuda-580.95.05, nvidia-driver-cuda-libs-580.95.05]
    install_weak_deps: false
    allow_downgrade: true

- name: Install the driver on any Enterprise Linux
  ansible.builtin.package:
    use: "{{ 'gpufleet.hosts.dnf_packages' if gpufleet_host.os.key == 'el-8' else 'ansible.builtin.dnf' }}"
    name: [nvidia-driver-cuda]
    state: present
"""

RETURN = r"""
results:
  description: The packages that were installed and removed. In check mode, the packages of the simulated transaction.
  type: list
  elements: str
  returned: always
  sample: ["Installed: kmod-nvidia-open-dkms-3:580.95.05-1.el8.x86_64"]
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import run as base_run
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import dnf


def main() -> None:
    """Simulate the transaction, apply it, and report it."""
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
    options, run = module.params, base_run.runner(module)
    try:
        missing = dnf.missing(options["name"], run) if options["name"] else set()
        names = [name for name in options["name"] if (name in missing) == (options["state"] == "present")]
        transaction = dnf.simulate(names, options, run) if names else None
        if transaction and not module.check_mode:
            dnf.apply(names, options, run)
    except dnf.DnfError as error:
        module.fail_json(msg=str(error), results=[])
    results = transaction.results(options["download_only"]) if transaction else []
    module.exit_json(changed=transaction is not None, results=results, diff={"prepared": "\n".join(results)})


if __name__ == "__main__":
    main()
