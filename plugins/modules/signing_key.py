#!/usr/bin/python
# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Put a repository's signing key on a host, if it is the right one."""

from __future__ import annotations

DOCUMENTATION = r"""
module: signing_key
short_description: Put a package repository's signing key on a host, if it is the expected one
version_added: 0.1.0
author:
  - gpufleet maintainers (@gpufleet)
description:
  - Fetches a public key, checks that its fingerprint or the digest of its file is the one that you expect, and writes
    it to a file that a repository entry can name (C(Signed-By) of apt, C(gpgkey) of dnf and zypper).
  - Nothing is fetched while the file holds that key already. A file that holds another key is replaced.
  - A key that is trusted by a digest and converted between its text and its binary form has another digest on the host.
    A second file with the suffix C(.sha256) keeps the expected one then, so that a later run needs no network.
  - Needs no C(gpg) on the host.
options:
  url:
    description: Address of the key file. V(file://) names a file on the host.
    type: str
    required: true
  fingerprint:
    description:
      - What the key is trusted by. Blanks and case do not matter.
      - Either the full fingerprint of the one key in the file, 40 or 64 hexadecimal digits.
      - Or the SHA-256 digest of the file, as V(sha256:0123...). It is the digest of the file as it is served, or of the
        file without the lines that begin with C(Version). Only what the digest covers is written.
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
    description: Shows the fingerprints before and after, or the digests where the key is trusted by one.
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

- name: Trust a repository by the digest of its key file
  gpufleet.hosts.signing_key:
    url: https://developer.download.nvidia.com/compute/cuda/repos/rhel10/x86_64/CDF6BA43.pub
    fingerprint: sha256:afbea87d3b979b3788ef34223aeeb323ade481128e2c133723ae99b8a51368bb
    path: /etc/pki/rpm-gpg/RPM-GPG-KEY-gpufleet-nvidia-cuda
    armored: true
"""

RETURN = r"""
fingerprint:
  description: Fingerprint of the key in the file, of several keys the first. A digest is never returned here.
  type: str
  returned: always, but null in check mode where a key that is trusted by a digest would be fetched
  sample: EB693B3035CD5710E231E123A4B469963BF863CC
"""

import os
import tempfile

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import addresses
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import key_trust, openpgp
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import keys as packages_keys


def problem(path: str) -> str | None:
    """Tell what is wrong with the path; nothing where the key can be written there."""
    if not os.path.isabs(path):
        return f"path: {path!r} is not absolute. Name the file from the root on, as /usr/share/keyrings/x.gpg."
    if os.path.isdir(path):
        return f"path: {path!r} is a directory. Name the file in it that the key is written to."
    return None


def write(module: AnsibleModule, path: str, data: bytes, note: str | None) -> None:
    """Put the key file in its place, readable to all, and its note beside it."""
    try:
        _put(module, path, data)
        if note:
            _put(module, key_trust.note_path(path), note.encode())
        elif os.path.lexists(key_trust.note_path(path)):
            os.unlink(key_trust.note_path(path))
    except OSError as error:
        module.fail_json(
            msg=f"The key could not be written to {path}: {error.strerror or error} ({error.filename or path}). Choose "
            "another path, or run this as a user who may write there (become: true)."
        )


def _put(module: AnsibleModule, path: str, data: bytes) -> None:
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=module.tmpdir)
    with os.fdopen(handle, "wb") as stream:
        stream.write(data)
    os.chmod(temporary, 0o644)
    module.atomic_move(temporary, path)
    os.chmod(path, 0o644)


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
        wanted = key_trust.normalized(module.params["fingerprint"])
    except key_trust.KeyTrustError as error:
        module.fail_json(msg=str(error))
    wrong = problem(path)
    if wrong:
        module.fail_json(msg=wrong)
    kind = "digests" if key_trust.is_digest(wanted) else "fingerprints"
    before = after = key_trust.read("/", path) or {"fingerprints": [], "digests": []}
    changed = not key_trust.is_trusted(before, wanted)
    if changed:
        after = {"fingerprints": [], kind: [wanted]}
    if changed and not module.check_mode:
        try:
            data = packages_keys.fetch(module.params["url"], wanted, module.params["proxy"], module.params["timeout"])
        except packages_keys.SigningKeyError as error:
            module.fail_json(msg=str(error))
        data = openpgp.armored(data) if module.params["armored"] else openpgp.binary(data)
        note = key_trust.note(data, wanted)
        write(module, path, data, note)
        after = key_trust.describe(data, note)
    module.exit_json(
        changed=changed,
        fingerprint=next(iter(after["fingerprints"]), None),
        diff={"before": {kind: before[kind]}, "after": {kind: after[kind]}},
    )


if __name__ == "__main__":
    main()
