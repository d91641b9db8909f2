#!/usr/bin/python
# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Carry out steps of the migration from nvidia-docker."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nvidia_docker_migration
short_description: Carry out steps of the migration from nvidia-docker 1 and 2
version_added: 0.1.0
author:
  - gpufleet maintainers (@gpufleet)
description:
  - Role C(nvidia_container_toolkit) plans the steps and runs this module. It is not meant for direct use, because the
    order of the steps protects files and containers.
  - Each step can be repeated, so a run that was interrupted continues.
options:
  steps:
    description: The steps, as the plan of role C(nvidia_container_toolkit) has them in C(migration).
    type: list
    elements: dict
    default: []
  gather:
    description: Whether to only describe in RV(traces) what nvidia-docker left. Then O(steps) must be empty.
    type: bool
    default: false
  docker_root:
    description: Docker's data directory, for O(gather).
    type: path
    default: /var/lib/docker
  docker_host:
    description: Address of Docker's API.
    type: str
    default: unix:///var/run/docker.sock
attributes:
  check_mode:
    description: Says which steps would change something, and changes nothing.
    support: full
  diff_mode:
    description: Returns no diff, because the files can contain passwords. RV(done) has the steps.
    support: none
  idempotent:
    description: A step that has nothing to do changes nothing. The plan contains no such step.
    support: full
notes:
  - Requires root.
  - The descriptions of removed containers in F(/var/lib/gpufleet/migration/containers) contain their environment
    variables, so only root can read them.
"""

EXAMPLES = r"""
- name: Remove a volume of the volume plugin of nvidia-docker 1.0, even if the plugin is gone
  gpufleet.hosts.nvidia_docker_migration:
    steps:
      - do: remove_volume
        name: nvidia_driver_375.66
"""

RETURN = r"""
done:
  description: The steps that changed something, or would change it in check mode.
  returned: success
  type: list
  elements: str
  sample: [remove volume nvidia_driver_375.66]
traces:
  description: What nvidia-docker left, as RV(gpufleet.hosts.gpu_host_info#module:host.nvidia_docker) describes it.
  returned: if O(gather=true)
  type: dict
  sample: {files: [/etc/docker/plugins/nvidia-docker.spec], answers: false, volumes: [nvidia_driver_375.66]}
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import pinned_environment
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.program_runner import runner
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import named_volumes
from ansible_collections.gpufleet.hosts.plugins.module_utils.migration import observed_leftovers, steps_on_host


def main() -> None:
    """Run the module."""
    pinned_environment.pin()
    module = AnsibleModule(
        argument_spec={
            "steps": {"type": "list", "elements": "dict", "default": []},
            "gather": {"type": "bool", "default": False},
            "docker_root": {"type": "path", "default": "/var/lib/docker"},
            "docker_host": {"type": "str", "default": named_volumes.DOCKER_HOST},
        },
        supports_check_mode=True,
    )
    if module.params["gather"]:
        if module.params["steps"]:
            module.fail_json(msg="gather=true cannot be combined with steps. Remove one of them.")
        module.exit_json(traces=observed_leftovers.read("/", module.params["docker_root"], runner(module)))
    try:
        docker = named_volumes.DockerClient(module.params["docker_host"])
        done = steps_on_host.Migrator("/", docker, runner(module), check=module.check_mode).apply(
            module.params["steps"]
        )
    except (steps_on_host.MigrationError, named_volumes.EngineError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=bool(done), done=done)


if __name__ == "__main__":
    main()
