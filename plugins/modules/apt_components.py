#!/usr/bin/python
# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Enable components of the Debian archive in apt's sources."""

from __future__ import annotations

DOCUMENTATION = r"""
module: apt_components
short_description: Enable components of the Debian archive in apt's sources
version_added: 0.1.0
author:
  - gpufleet maintainers (@gpufleet)
description:
  - Adds components such as V(contrib) and V(non-free) to the existing entries of the Debian archive in
    F(/etc/apt/sources.list) and F(/etc/apt/sources.list.d). Supports the one-line format and the deb822 format.
  - Keeps mirrors, options, comments, order and spacing. Does not change disabled entries, source package entries, or
    entries of other archives, releases or architectures.
  - Identifies the entries of the Debian archive by the origin that apt recorded when it downloaded their metadata.
    Before the first download, it uses the URL, the suite, the component V(main) and the key.
  - Does not update the package lists. Run M(ansible.builtin.apt) with C(update_cache=true) afterwards.
options:
  components:
    description: Components to enable in every entry of the archive. Either this option or O(restore) is required.
    type: list
    elements: str
  restore:
    description:
      - Changes to revert, in the format of RV(diff).
      - A file is not reverted if it was modified after the change.
    type: list
    elements: dict
    suboptions:
      path:
        description: Absolute path of the file.
        type: str
        required: true
      before:
        description: Text of the file before the change.
        type: str
        required: true
      after:
        description: Text of the file after the change.
        type: str
        required: true
  codename:
    description: Codename of the Debian release whose entries are changed. The default is the release of the host.
    type: str
attributes:
  check_mode:
    description: Reports the changes without making them.
    support: full
  diff_mode:
    description: Shows every changed file before and after the change. A digest replaces the login to a mirror.
    support: full
  idempotent:
    description: A second run changes nothing.
    support: full
notes:
  - The module has no state V(absent), because installed packages may depend on a component. Use O(restore) to revert a
    change of this module.
seealso:
  - module: ansible.builtin.apt
  - module: ansible.builtin.deb822_repository
"""

EXAMPLES = r"""
- name: Enable the components that contain NVIDIA's driver
  gpufleet.hosts.apt_components:
    components: [contrib, non-free, non-free-firmware]
  register: components

- name: Update the package lists
  ansible.builtin.apt:
    update_cache: true
  when: components is changed
"""

RETURN = r"""
files:
  description: The files that were changed. In check mode, the files that would be changed.
  type: list
  elements: str
  returned: always
  sample: [/etc/apt/sources.list]
diff:
  description: >-
    The path (C(before_header), C(after_header)) and the text (C(before), C(after)) of each file in RV(files). A digest
    replaces the login to a mirror.
  type: list
  elements: dict
  returned: always
  sample:
    - before_header: /etc/apt/sources.list
      after_header: /etc/apt/sources.list
      before: deb http://archive.example/debian bookworm main
      after: deb http://archive.example/debian bookworm main contrib
"""

import os
import tempfile

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import addresses
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import platform as host_platform
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import apt_sources


def replace(module: AnsibleModule, path: str, text: str) -> None:
    """Replace the text of a file atomically. Keep its owner and mode, and a symlink to it."""
    target = os.path.realpath(path)
    handle, temporary = tempfile.mkstemp(dir=module.tmpdir)
    with os.fdopen(handle, "w", encoding="utf-8", errors="surrogateescape", newline="") as stream:
        stream.write(text)
    module.atomic_move(temporary, target)


def added(module: AnsibleModule, files: dict[str, str]) -> dict[str, str]:
    """Return the new text of the files that lack components."""
    system = host_platform.read("/", os.uname().machine)
    codename = module.params["codename"] or system["codename"]
    if not codename:
        module.fail_json(msg=f"os-release of {system['name']} has no VERSION_CODENAME. Set codename.")
    arch = {"x86_64": "amd64", "aarch64": "arm64"}.get(system["arch"], system["arch"])
    origin = apt_sources.recorded_origin()
    try:
        return apt_sources.add_components(files, module.params["components"], codename, arch, origin)
    except apt_sources.AptSourcesError as error:
        return module.fail_json(msg=str(error))


def main() -> None:
    """Read the sources, change them and report."""
    text = {"type": "str", "required": True}
    module = AnsibleModule(
        argument_spec={
            "components": {"type": "list", "elements": "str"},
            "restore": {
                "type": "list",
                "elements": "dict",
                "options": {"path": text, "before": text, "after": text},
            },
            "codename": {"type": "str"},
        },
        required_one_of=[("components", "restore")],
        mutually_exclusive=[("components", "restore"), ("codename", "restore")],
        supports_check_mode=True,
    )
    before = apt_sources.read_files()
    if module.params["restore"] is None:
        after = added(module, before)
    else:
        after = apt_sources.restored(before, module.params["restore"])
    if not module.check_mode:
        for path, text in after.items():
            replace(module, path, text)
    # The diff is displayed and stored, so it must not contain logins.
    diff = [
        {
            "before_header": path,
            "after_header": path,
            "before": addresses.sealed(before[path]),
            "after": addresses.sealed(text),
        }
        for path, text in after.items()
    ]
    module.exit_json(changed=bool(after), files=sorted(after), diff=diff)


if __name__ == "__main__":
    main()
