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
  - With O(fresh=true) the repositories are looked into as they are now, and O(repository), O(components) and O(without)
    show them as they would be. What that takes lies in a temporary directory and goes with it, so that a host can be
    asked what it would get before anything of it is changed.
options:
  names:
    description:
      - Names of packages. An unknown name has an empty list in the answer.
      - A name with wildcards (V(*), V(?), V([0-9])) stands for all packages that it matches.
    type: list
    elements: str
    required: true
  package_manager:
    description: Whose repositories are meant.
    type: str
    choices: [apt, dnf, zypper]
    required: true
  fresh:
    description:
      - Whether package lists are fetched first. With apt, that is done in a temporary directory; with dnf and zypper,
        in their caches.
      - With V(false), apt's lists are read as they are, and dnf and zypper refresh what has expired.
    type: bool
    default: false
  repository:
    description:
      - A repository that the host has not got, to be looked into as well. Its key is fetched and checked; with apt and
        zypper so is the signature of its lists.
      - Needs O(fresh=true).
    type: dict
    suboptions:
      url:
        description: Address of the repository. With apt, that of a flat one (suite C(/)). V(file://) is on the host.
        type: str
        required: true
      key:
        description: Address of its signing key.
        type: str
        required: true
      fingerprint:
        description: >-
          What the key is trusted by, as in M(gpufleet.hosts.signing_key): its full fingerprint, 40 or 64 hexadecimal
          digits, or the SHA-256 digest of its file, as V(sha256:0123...).
        type: str
        required: true
      proxy:
        description: Proxy to reach it through, as V(http://proxy.example:3128).
        type: str
  components:
    description: >-
      Components that the entries of Debian's own archive are taken to have, as M(gpufleet.hosts.apt_components) would
      give them. Needs O(fresh=true).
    type: list
    elements: str
    default: []
  without:
    description: Files of source entries that are taken for absent. Needs O(fresh=true).
    type: list
    elements: path
    default: []
  modules:
    description: With dnf, modules whose streams are listed as well.
    type: list
    elements: str
    default: []
attributes:
  check_mode:
    description: >-
      The module only reads. With O(fresh=true), the host's own caches of dnf and zypper are refreshed, in check mode
      too; apt's lists are fetched in a temporary directory.
    support: full
  diff_mode:
    description: The module changes nothing.
    support: none
seealso:
  - module: ansible.builtin.package_facts
  - module: gpufleet.hosts.apt_components
"""

EXAMPLES = r"""
- name: Ask which drivers there are
  gpufleet.hosts.package_versions:
    names: [nvidia-smi, libcuda1]
    package_manager: apt
  register: offered

- name: Ask which drivers NVIDIA's repository has, without adding it
  gpufleet.hosts.package_versions:
    names: [nvidia-driver-cuda, libcuda1]
    package_manager: apt
    fresh: true
    repository:
      url: https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64
      key: https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64/3bf863cc.pub
      fingerprint: EB693B3035CD5710E231E123A4B469963BF863CC
"""

RETURN = r"""
versions:
  description: By package, the versions on offer, newest first, as the package manager writes them.
  type: dict
  returned: always
  sample: {nvidia-smi: [535.309.01-0+deb12u1, 535.261.03-1], libcuda1: [535.309.01-0+deb12u1, 535.261.03-1]}
streams:
  description: By module of O(modules), its streams.
  type: dict
  returned: always
  sample: {nvidia-driver: [570-dkms, 570-open, 580-dkms, 580-open]}
"""

import os
import tempfile

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import addresses
from ansible_collections.gpufleet.hosts.plugins.module_utils.base import run as base_run
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import platform as host_platform
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import apt_sources, key_trust, preview
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import keys as packages_keys
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import offers as packages_offers


def wish(parameters: dict) -> preview.Wish:
    """Return what is to be seen, with the key of the repository that the host has not got."""
    repository = parameters["repository"]
    if repository:
        key = packages_keys.fetch(repository["key"], repository["fingerprint"], repository["proxy"])
        repository = preview.Repository(repository["url"], key, repository["proxy"])
    system = host_platform.read("/", os.uname().machine)
    arch = {"x86_64": "amd64", "aarch64": "arm64"}.get(system["arch"], system["arch"])

    def enable(files: dict) -> dict:
        origin = apt_sources.recorded_origin()
        return apt_sources.add_components(files, parameters["components"], system["codename"] or "", arch, origin)

    return preview.Wish(
        repository=repository,
        without=tuple(parameters["without"]),
        enable=enable if parameters["components"] else None,
    )


def main() -> None:
    """Ask and return."""
    module = AnsibleModule(
        argument_spec={
            "names": {"type": "list", "elements": "str", "required": True},
            "package_manager": {"type": "str", "choices": ["apt", "dnf", "zypper"], "required": True},
            "fresh": {"type": "bool", "default": False},
            "repository": {
                "type": "dict",
                "options": {
                    "url": {"type": "str", "required": True},
                    "key": {"type": "str", "required": True, "no_log": False},
                    "fingerprint": {"type": "str", "required": True, "no_log": False},
                    "proxy": {"type": "str"},
                },
            },
            "components": {"type": "list", "elements": "str", "default": []},
            "without": {"type": "list", "elements": "path", "default": []},
            "modules": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    asked, run = module.params, base_run.runner(module)
    repository = asked["repository"] or {}
    module.no_log_values.update(addresses.logins(*(repository.get(name) for name in ("url", "key", "proxy"))))
    for name in ("repository", "components", "without"):
        if asked[name] and not asked["fresh"]:
            module.fail_json(msg=f"{name} is set, but fresh is false. Set fresh to true, or leave {name} out.")
    if asked["modules"] and asked["package_manager"] != "dnf":
        module.fail_json(msg=f"modules is set, but {asked['package_manager']} knows no modules. Leave modules out.")
    # /tmp may be too small for the lists of a distribution.
    place = "/var/tmp" if os.access("/var/tmp", os.W_OK) else None
    try:
        with tempfile.TemporaryDirectory(prefix="gpufleet-", dir=place) as directory:
            views: list = [[]]
            if asked["fresh"]:
                views = preview.questions(asked["package_manager"], directory, wish(asked), run)
            versions = packages_offers.read(asked["package_manager"], asked["names"], run, views)
            streams = packages_offers.streams(asked["modules"], run, views)
    except (
        apt_sources.AptSourcesError,
        packages_offers.OffersError,
        preview.ViewError,
        key_trust.KeyTrustError,
    ) as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, versions=versions, streams=streams)


if __name__ == "__main__":
    main()
