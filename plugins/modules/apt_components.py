#!/usr/bin/python
# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Enable components in the Debian archive's own source entries."""

from __future__ import annotations

DOCUMENTATION = r"""
module: apt_components
short_description: Enable archive components in a Debian host's own source entries
version_added: 0.1.0
author:
  - gpufleet maintainers (@gpufleet)
description:
  - Adds components such as V(contrib) and V(non-free) to the entries of Debian's own archive that are already there, in
    F(/etc/apt/sources.list) and F(/etc/apt/sources.list.d), in the one-line and in the deb822 form.
  - Mirrors, options, comments, order and spacing stay as they are. Entries of other archives, of other releases, of
    other architectures, source entries and disabled ones are left alone.
  - The origin that apt recorded when it fetched an entry tells whose it is. Before the first fetch, its address, suite,
    component V(main) and key do.
  - It fetches nothing. Let M(ansible.builtin.apt) update its cache afterwards.
options:
  components:
    description: Components that every entry of the archive shall carry. Either this or O(restore) is needed.
    type: list
    elements: str
  restore:
    description:
      - Changes to take back, as a run of this module returned them in RV(diff).
      - A file that somebody has changed since is left as it is.
    type: list
    elements: dict
    suboptions:
      path:
        description: The file, by its absolute path.
        type: str
        required: true
      before:
        description: Its text before the change.
        type: str
        required: true
      after:
        description: Its text after the change.
        type: str
        required: true
  codename:
    description: Codename of the release whose entries are meant. By default that of the host.
    type: str
attributes:
  check_mode:
    description: Says what would change and changes nothing.
    support: full
  diff_mode:
    description: Shows every file before and after, with a digest in the place of a login to a mirror.
    support: full
  idempotent:
    description: A second run finds the components and changes nothing.
    support: full
notes:
  - There is no state V(absent), because nobody can tell which packages of a host came from a component. What was
    written down of a change can be taken back with O(restore).
seealso:
  - module: ansible.builtin.apt
  - module: ansible.builtin.deb822_repository
"""

EXAMPLES = r"""
- name: Make NVIDIA's driver available from Debian's archive
  gpufleet.hosts.apt_components:
    components: [contrib, non-free, non-free-firmware]
  register: components

- name: Fetch the package lists
  ansible.builtin.apt:
    update_cache: true
  when: components is changed
"""

RETURN = r"""
files:
  description: The files that were changed, or would be.
  type: list
  elements: str
  returned: always
  sample: [/etc/apt/sources.list]
diff:
  description: >-
    For each of RV(files) its path (C(before_header), C(after_header)) and its text C(before) and C(after). In the place
    of a login to a mirror is a digest of it.
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
    """Put a text in a file's place in one step; owner, mode and a link that leads to the file stay."""
    target = os.path.realpath(path)
    handle, temporary = tempfile.mkstemp(dir=module.tmpdir)
    with os.fdopen(handle, "w", encoding="utf-8", errors="surrogateescape", newline="") as stream:
        stream.write(text)
    module.atomic_move(temporary, target)


def added(module: AnsibleModule, files: dict[str, str]) -> dict[str, str]:
    """Return the files that lack components, as they are with them."""
    system = host_platform.read("/", os.uname().machine)
    codename = module.params["codename"] or system["codename"]
    if not codename:
        module.fail_json(msg=f"{system['name']} names no codename in os-release. Set codename.")
    arch = {"x86_64": "amd64", "aarch64": "arm64"}.get(system["arch"], system["arch"])
    origin = apt_sources.recorded_origin()
    try:
        return apt_sources.add_components(files, module.params["components"], codename, arch, origin)
    except apt_sources.AptSourcesError as error:
        return module.fail_json(msg=str(error))


def main() -> None:
    """Read, plan, apply, report."""
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
    # What is shown, and written down, has no login in it.
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
