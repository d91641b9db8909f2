#!/usr/bin/python
# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""List the package versions that repositories offer."""

from __future__ import annotations

DOCUMENTATION = r"""
module: package_versions
short_description: List the package versions that repositories offer
version_added: 0.1.0
author:
  - gpufleet maintainers (@gpufleet)
description:
  - Lists all versions of the given packages that the enabled repositories offer, newest first. Pins and holds are
    ignored.
  - With O(fresh=true), the module downloads the current metadata to a temporary directory. With O(repository),
    O(components) and O(without), it lists the versions that a changed configuration would offer, without changing the
    host.
options:
  names:
    description:
      - Names of packages. The result has an empty list for an unknown name.
      - A name with wildcards (V(*), V(?), V([0-9])) selects all packages that it matches.
    type: list
    elements: str
    required: true
  package_manager:
    description: The package manager of the repositories.
    type: str
    choices: [apt, dnf, zypper]
    required: true
  fresh:
    description:
      - Whether to download the repository metadata first. With apt, the module uses a temporary directory. With dnf and
        zypper, it also refreshes the host's caches.
      - With V(false), apt's lists are not updated. dnf and zypper refresh expired metadata only.
    type: bool
    default: false
  repository:
    description:
      - An additional repository that is not configured on the host. The module downloads and checks its key. With apt
        and zypper, it also checks the signature of the metadata.
      - Requires O(fresh=true).
    type: dict
    suboptions:
      url:
        description:
          - URL of the repository. With apt, it must be a flat repository (suite C(/)). A V(file://) URL is a directory
            on the host.
        type: str
        required: true
      key:
        description: URL of the signing key.
        type: str
        required: true
      fingerprint:
        description: >-
          Expected fingerprint of the key, with 40 or 64 hexadecimal digits, or the SHA-256 digest of the key file, for
          example V(sha256:0123...). M(gpufleet.hosts.signing_key) has the same option.
        type: str
        required: true
      username:
        description: >-
          User name for the server of the repository. The module uses it for the signing key, too, if the key is on the
          same server. Requires the password.
        type: str
      password:
        description: Password for the server of the repository.
        type: str
      proxy:
        description: Proxy for the repository, for example V(http://proxy.example:3128).
        type: str
      proxy_username:
        description: User name for the proxy. Requires the proxy and its password.
        type: str
      proxy_password:
        description: Password for the proxy.
        type: str
  components:
    description: >-
      Additional components of the Debian archive, which M(gpufleet.hosts.apt_components) would enable. Requires
      O(fresh=true).
    type: list
    elements: str
    default: []
  without:
    description: Repository files to ignore. Requires O(fresh=true).
    type: list
    elements: path
    default: []
  modules:
    description: Names of dnf modules whose streams are listed. Requires O(package_manager=dnf).
    type: list
    elements: str
    default: []
attributes:
  check_mode:
    description: >-
      The module changes nothing, but with O(fresh=true) it refreshes the caches of dnf and zypper in check mode, too.
    support: full
  diff_mode:
    description: The module changes nothing.
    support: none
seealso:
  - module: ansible.builtin.package_facts
  - module: gpufleet.hosts.apt_components
"""

EXAMPLES = r"""
- name: List the available drivers
  gpufleet.hosts.package_versions:
    names: [nvidia-smi, libcuda1]
    package_manager: apt
  register: offered

- name: List the drivers in NVIDIA's repository without adding it
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
  description: The available versions by package, newest first, in the format of the package manager.
  type: dict
  returned: always
  sample: {nvidia-smi: [535.309.01-0+deb12u1, 535.261.03-1], libcuda1: [535.309.01-0+deb12u1, 535.261.03-1]}
streams:
  description: The available streams of each module in O(modules).
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
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import (
    apt_sources,
    key_download,
    key_trust,
    preview,
    repository_access,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import offers as packages_offers


def preview_changes(parameters: dict) -> preview.Changes:
    """Return the changes of the preview, and download the key of the additional repository."""
    repository = parameters["repository"]
    if repository:
        reached = repository_access.access(repository)
        login = (reached.username, reached.password)
        key = key_download.fetch(
            repository["key"],
            repository["fingerprint"],
            repository_access.with_login(reached.proxy, reached.proxy_username, reached.proxy_password),
            login=login if repository_access.is_same_server(repository["key"], reached.url) else None,
        )
        repository = preview.Repository(reached, key)
    system = host_platform.read("/", os.uname().machine)
    arch = {"x86_64": "amd64", "aarch64": "arm64"}.get(system["arch"], system["arch"])

    def enable(files: dict) -> dict:
        origin = apt_sources.recorded_origin()
        return apt_sources.add_components(files, parameters["components"], system["codename"] or "", arch, origin)

    return preview.Changes(
        repository=repository,
        without=tuple(parameters["without"]),
        enable=enable if parameters["components"] else None,
    )


def main() -> None:
    """Query the repositories and return the versions."""
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
                    "username": {"type": "str"},
                    "password": {"type": "str", "no_log": True},
                    "proxy": {"type": "str"},
                    "proxy_username": {"type": "str"},
                    "proxy_password": {"type": "str", "no_log": True},
                },
                "required_by": {
                    "username": "password",
                    "password": "username",
                    "proxy_username": ("proxy", "proxy_password"),
                },
            },
            "components": {"type": "list", "elements": "str", "default": []},
            "without": {"type": "list", "elements": "path", "default": []},
            "modules": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    options, run = module.params, base_run.runner(module)
    repository = options["repository"] or {}
    module.no_log_values.update(addresses.logins(*(repository.get(name) for name in ("url", "key", "proxy"))))
    for name in ("repository", "components", "without"):
        if options[name] and not options["fresh"]:
            module.fail_json(msg=f"{name} requires fresh=true. Set fresh to true, or omit {name}.")
    manager = options["package_manager"]
    if options["modules"] and manager != "dnf":
        module.fail_json(msg=f"modules is set, but {manager} does not support modules. Omit modules.")
    # /tmp may be too small for the package lists of a distribution.
    parent = "/var/tmp" if os.access("/var/tmp", os.W_OK) else None
    try:
        with tempfile.TemporaryDirectory(prefix="gpufleet-", dir=parent) as directory:
            previews: list = [[]]
            if options["fresh"]:
                previews = preview.prepare(manager, directory, preview_changes(options), run)
            versions = packages_offers.read(manager, options["names"], run, previews)
            streams = packages_offers.streams(options["modules"], run, previews)
    except (
        apt_sources.AptSourcesError,
        packages_offers.OffersError,
        preview.PreviewError,
        key_trust.KeyTrustError,
    ) as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, versions=versions, streams=streams)


if __name__ == "__main__":
    main()
