#!/usr/bin/python
# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Install the signing key of a repository after a check of its fingerprint or digest."""

from __future__ import annotations

DOCUMENTATION = r"""
module: signing_key
short_description: Install the signing key of a package repository if it is the expected key
version_added: 0.1.0
author:
  - gpufleet maintainers (@gpufleet)
description:
  - Downloads a public key, compares its fingerprint or the digest of its file with the expected value, and writes it to
    a file for a repository entry (C(Signed-By) of apt, C(gpgkey) of dnf and zypper).
  - If the file already contains the expected key, the module downloads nothing. A file with another key is replaced.
  - Converting a key between text and binary form changes its digest. For a key that is trusted by a digest, a second
    file with the suffix C(.sha256) then stores the expected digest, so that later runs need no network.
  - The host does not need C(gpg).
options:
  url:
    description: Address of the key file. V(file://) names a file on the host.
    type: str
    required: true
  fingerprint:
    description:
      - The expected fingerprint or digest. Blanks and case are ignored.
      - Either the full fingerprint of the only key in the file, 40 or 64 hexadecimal digits.
      - Or the SHA-256 digest of the file, as V(sha256:0123...). The digest covers the file as downloaded, or the
        file without the lines that start with C(Version). Only the covered part is written.
    type: str
    required: true
  path:
    description: Absolute path of the key file on the host.
    type: path
    required: true
  armored:
    description: Whether to write the key as text, as dnf and zypper require, instead of binary.
    type: bool
    default: false
  username:
    description: User name for the server of O(url). Requires O(password).
    type: str
  password:
    description: Password for the server of O(url).
    type: str
  proxy:
    description: Proxy for the download, for example V(http://proxy.example:3128).
    type: str
  proxy_username:
    description: User name for the proxy. Requires O(proxy) and O(proxy_password).
    type: str
  proxy_password:
    description: Password for the proxy.
    type: str
  timeout:
    description: Timeout of the download in seconds.
    type: int
    default: 30
attributes:
  check_mode:
    description: Returns whether the file would be written. The key is not downloaded.
    support: full
  diff_mode:
    description: Shows the fingerprints before and after, or the digests if O(fingerprint) is a digest.
    support: full
  idempotent:
    description: A second run changes nothing and uses no network.
    support: full
seealso:
  - module: ansible.builtin.deb822_repository
"""

EXAMPLES = r"""
- name: Install the key of NVIDIA's CUDA repository
  gpufleet.hosts.signing_key:
    url: https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64/3bf863cc.pub
    fingerprint: EB693B3035CD5710E231E123A4B469963BF863CC
    path: /usr/share/keyrings/gpufleet-nvidia-cuda.gpg

- name: Install a key with a known file digest
  gpufleet.hosts.signing_key:
    url: https://developer.download.nvidia.com/compute/cuda/repos/rhel10/x86_64/CDF6BA43.pub
    fingerprint: sha256:afbea87d3b979b3788ef34223aeeb323ade481128e2c133723ae99b8a51368bb
    path: /etc/pki/rpm-gpg/RPM-GPG-KEY-gpufleet-nvidia-cuda
    armored: true
"""

RETURN = r"""
fingerprint:
  description: Fingerprint of the first key in the file, even if O(fingerprint) is a digest.
  type: str
  returned: always, but null in check mode if O(fingerprint) is a digest and the key would be downloaded
  sample: EB693B3035CD5710E231E123A4B469963BF863CC
"""

import os
import tempfile

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import addresses
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import (
    key_download,
    key_trust,
    openpgp,
    repository_access,
)


def problem(path: str) -> str | None:
    """Return what is wrong with the path, or None."""
    if not os.path.isabs(path):
        return f"path: {path!r} is not absolute. Set an absolute path, for example /usr/share/keyrings/x.gpg."
    if os.path.isdir(path):
        return f"path: {path!r} is a directory. Set the path of a file."
    return None


def write(module: AnsibleModule, path: str, data: bytes, note: str | None) -> None:
    """Write the key file, readable for all users, and the note beside it."""
    try:
        _put(module, path, data)
        if note:
            _put(module, key_trust.note_path(path), note.encode())
        elif os.path.lexists(key_trust.note_path(path)):
            os.unlink(key_trust.note_path(path))
    except OSError as error:
        module.fail_json(
            msg=f"The key could not be written to {path}: {error.strerror or error} ({error.filename or path}). Set "
            "another path, or set become: true."
        )


def _put(module: AnsibleModule, path: str, data: bytes) -> None:
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=module.tmpdir)
    with os.fdopen(handle, "wb") as stream:
        stream.write(data)
    os.chmod(temporary, 0o644)
    module.atomic_move(temporary, path)
    os.chmod(path, 0o644)


def proxy_with_login(parameters: dict) -> str | None:
    """Return the URL of the proxy with its login."""
    names = ("proxy", "proxy_username", "proxy_password")
    return repository_access.with_login(*(parameters[name] or "" for name in names)) or None


def main() -> None:
    """Read, plan, apply, report."""
    module = AnsibleModule(
        argument_spec={
            "url": {"type": "str", "required": True},
            "fingerprint": {"type": "str", "required": True, "no_log": False},
            "path": {"type": "path", "required": True},
            "armored": {"type": "bool", "default": False},
            "username": {"type": "str"},
            "password": {"type": "str", "no_log": True},
            "proxy": {"type": "str"},
            "proxy_username": {"type": "str"},
            "proxy_password": {"type": "str", "no_log": True},
            "timeout": {"type": "int", "default": 30},
        },
        required_by={"username": "password", "password": "username", "proxy_username": ("proxy", "proxy_password")},
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
            data = key_download.fetch(
                module.params["url"],
                wanted,
                proxy_with_login(module.params),
                module.params["timeout"],
                login=(module.params["username"], module.params["password"]),
            )
        except key_download.SigningKeyError as error:
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
