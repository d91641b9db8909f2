#!/usr/bin/python
# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Put a repository's signing key on a host, if it is the right one."""

from __future__ import annotations

DOCUMENTATION = r"""
module: signing_key
short_description: Put a package repository's signing key on a host, if its fingerprint is the expected one
version_added: 0.1.0
author:
  - gpufleet maintainers (@gpufleet)
description:
  - Fetches a public key, checks that its fingerprint is the one that you expect, and writes it to a file that a
    repository entry can name (C(Signed-By) of apt, C(gpgkey) of dnf and zypper).
  - Nothing is fetched while the file holds that key already.
  - Needs no C(gpg) on the host.
options:
  url:
    description: Where the key is had. V(file://) names a file on the host.
    type: str
    required: true
  fingerprint:
    description: Fingerprint that the key must have, all 40 or 64 hexadecimal digits. Blanks and case do not matter.
    type: str
    required: true
  path:
    description: File to write, by its absolute path.
    type: path
    required: true
  armored:
    description: Whether the file is written as text, as dnf and zypper want it, and not in binary form.
    type: bool
    default: false
  proxy:
    description: Proxy to fetch through, as V(http://proxy.example:3128).
    type: str
  timeout:
    description: Seconds to wait for the server.
    type: int
    default: 30
attributes:
  check_mode:
    description: Says whether the file would be written. The key is not fetched.
    support: full
  diff_mode:
    description: Shows the fingerprints before and after.
    support: full
  idempotent:
    description: A second run finds the key, changes nothing and uses no network.
    support: full
seealso:
  - module: ansible.builtin.deb822_repository
"""

EXAMPLES = r"""
- name: Trust NVIDIA's CUDA repository by its key
  gpufleet.hosts.signing_key:
    url: https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64/3bf863cc.pub
    fingerprint: EB693B3035CD5710E231E123A4B469963BF863CC
    path: /usr/share/keyrings/gpufleet-nvidia-cuda.gpg
"""

RETURN = r"""
fingerprint:
  description: Fingerprint of the key in the file.
  type: str
  returned: always
  sample: EB693B3035CD5710E231E123A4B469963BF863CC
"""

import os
import tempfile

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import addresses
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import keys as packages_keys
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import openpgp


def present(path: str) -> list[str]:
    """Return the fingerprints of the keys in a file; none where there is no such file or no key in it."""
    try:
        with open(path, "rb") as handle:
            return openpgp.fingerprints(handle.read(packages_keys.LARGEST))
    except (OSError, openpgp.KeyFileError):
        return []


def problem(path: str) -> str | None:
    """Tell what is wrong with the path; nothing where the key can be written there."""
    if not os.path.isabs(path):
        return f"path: {path!r} is not absolute. Name the file from the root on, as /usr/share/keyrings/x.gpg."
    if os.path.isdir(path):
        return f"path: {path!r} is a directory. Name the file in it that the key is written to."
    return None


def write(module: AnsibleModule, path: str, data: bytes) -> None:
    """Put the key's file in its place, readable to all."""
    try:
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=module.tmpdir)
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        os.chmod(temporary, 0o644)
        module.atomic_move(temporary, path)
        os.chmod(path, 0o644)
    except OSError as error:
        module.fail_json(
            msg=f"The key could not be written to {path}: {error.strerror or error} ({error.filename or path}). Choose "
            "another path, or run this as a user who may write there (become: true)."
        )


def main() -> None:
    """Read, plan, apply, report."""
    module = AnsibleModule(
        argument_spec={
            "url": {"type": "str", "required": True},
            "fingerprint": {"type": "str", "required": True, "no_log": False},
            "path": {"type": "path", "required": True},
            "armored": {"type": "bool", "default": False},
            "proxy": {"type": "str"},
            "timeout": {"type": "int", "default": 30},
        },
        supports_check_mode=True,
    )
    module.no_log_values.update(addresses.logins(module.params["url"], module.params["proxy"]))
    path = module.params["path"]
    try:
        wanted = packages_keys.normalised(module.params["fingerprint"])
    except packages_keys.SigningKeyError as error:
        module.fail_json(msg=str(error))
    wrong = problem(path)
    if wrong:
        module.fail_json(msg=wrong)
    before = present(path)
    changed = before != [wanted]
    if changed and not module.check_mode:
        try:
            data = packages_keys.fetch(module.params["url"], wanted, module.params["proxy"], module.params["timeout"])
        except packages_keys.SigningKeyError as error:
            module.fail_json(msg=str(error))
        write(module, path, openpgp.armored(data) if module.params["armored"] else openpgp.binary(data))
    module.exit_json(
        changed=changed,
        fingerprint=wanted,
        diff={"before": {"fingerprints": before}, "after": {"fingerprints": [wanted]}},
    )


if __name__ == "__main__":
    main()
