#!/usr/bin/python
# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_container
short_description: Run a container that can access exactly the GPUs assigned to it
version_added: 0.1.0
description:
  - Runs a Docker or Podman container that can access the GPUs in O(gpus) and no others.
  - The container is recreated only if its GPUs, its image or its other options change.
  - The module selects the GPUs and the way to pass them to the container. M(community.docker.docker_container) or
    M(containers.podman.podman_container) then manages the container.
  - GPUs are stored and compared by UUID. Another notation for the same GPUs, for example an index instead of a UUID,
    changes nothing.
  - O(isolation=volume) requires only the NVIDIA driver on the host, and no other software from NVIDIA.
attributes:
  check_mode:
    support: full
    description: Can run in check_mode and return changed status prediction without modifying target.
    details:
      - Check mode pulls no image. If the image is missing, the module predicts that the container is created, and does
        not check the image's requirements.
      - With O(pull=always), the prediction is for the local image, and a warning says so.
      - Check mode does not start Docker if it is stopped. The prediction then only considers whether the container
        exists and runs, and a warning says so.
  diff_mode:
    support: full
    description: Will return details on what has changed (or possibly needs changing in check_mode), when in diff mode.
    details:
      - RV(ignore:diff) contains the GPUs before and after, the reasons to recreate the container for them, and the diff
        of the engine's module.
  idempotent:
    support: partial
    description:
      - When run twice in a row outside check mode, with the same arguments, the second invocation indicates no change.
    details:
      - O(recreate=true) and O(restart=true) always change the container. O(pull=always) is a change if the image
        changes.
options:
  name:
    description:
      - Name of the container. It consists of letters, digits, C(_), C(.) and C(-), and starts with a letter or a digit.
        Docker requires at least two characters.
      - A name such as V(e) or V(db2), which has only digits and letters from a to f, can also be the beginning of
        another container's identifier. The engine's module would then change that container, so the task fails.
    type: str
    required: true
  image:
    description:
      - Image of the container. Required unless O(state) is V(absent), or V(stopped) with an existing container.
      - The module checks the image's requirements for the driver before the first change. See the notes.
    type: str
  state:
    description:
      - V(started) creates the container if necessary, and starts it.
      - V(present) creates the container if necessary. If the container is recreated, Podman starts it and Docker does
        not.
      - V(stopped) stops an existing container and ignores the other options. This requires no driver. If the container
        does not exist, the module creates it with these options.
      - V(absent) removes the container. It requires no driver and no GPU.
    type: str
    choices: [started, present, stopped, absent]
    default: started
  engine:
    description:
      - Container engine. V(auto) selects the engine that already has a container of this name, else Docker if it is
        available, else Podman.
    type: str
    choices: [auto, docker, podman]
    default: auto
  accelerator:
    description: Kind of GPU.
    type: str
    choices: [nvidia]
    default: nvidia
  gpus:
    description:
      - GPUs of the container. The value is V(all), V(none), a count, or a list.
      - A list can contain indexes, UUIDs, the beginnings of UUIDs, and PCI addresses, including short ones such as
        V(["3b:00"]). A MIG device is a UUID or C(gpu:mig) in quotes, for example V(["1:0"]).
      - A list can be a string, as in C(-e gpus=[0,1]). A single number is a count, also as the string V("2"). The
        string V("0") is rejected because it could mean no GPU or GPU 0.
      - An empty list is V(none). Duplicates are ignored. V(all), V(none) and UUIDs are not case-sensitive.
      - With a count, the module selects whole GPUs, or MIG devices with O(conditions.mig_profile). It prefers, in this
        order, the GPUs of the container, healthy GPUs, GPUs that no other container uses, and GPUs that are close to
        each other by NVLink, PCIe and NUMA node.
      - With a count, the module never selects a GPU that is lost, requires a reset, has a pending recovery action or is
        in compute mode prohibited. It recreates a container that has such a GPU. RV(gpu_assignment.reason) names each
        skipped GPU.
      - With a count, the module selects a degraded GPU only if no healthy GPU is left. A warning names this GPU.
      - V(all) selects every GPU, and every MIG device of a GPU in MIG mode.
      - V(all) and lists fail for a lost GPU. They include other unusable and degraded GPUs, with a warning for each.
      - A GPU in MIG mode cannot be assigned as a whole.
      - If O(gpus) is not set, the container gets the GPUs that the image requests by its label
        C(com.nvidia.volumes.needed) or its environment variable C(NVIDIA_VISIBLE_DEVICES). An older CUDA image, with
        C(CUDA_VERSION) and without C(NVIDIA_REQUIRE_CUDA), requests all GPUs. If the
        image requests no GPU, the container gets none.
    type: raw
  conditions:
    description: Conditions that every selected GPU must meet.
    type: dict
    suboptions:
      memory_min_mib:
        description: Minimum memory in MiB. For a MIG device, this is the memory of the MIG device.
        type: int
      model:
        description: Part of the product name, or a pattern with C(*) for the whole name. Case is ignored.
        type: str
      numa_node:
        description: NUMA node of the GPU.
        type: int
      mig_profile:
        description: MIG profile, for example V(1g.10gb). With a count, the module then selects MIG devices.
        type: str
  exclusive:
    description:
      - Use only GPUs that no other container holds. The module does not select these GPUs for other
        containers whose O(gpus) is a count.
      - All containers of Docker and Podman count, including those that other tools created. A container holds its GPUs
        while it is running, paused or restarting. A stopped container holds its GPUs if its restart policy is
        C(always), or if it was never started and its restart policy is C(unless-stopped).
      - A privileged container holds only the GPUs that it requested.
      - Concurrent runs on one host do not select the same GPU.
      - The container has a label for exclusive use. Engines cannot change labels, so a change of this option recreates
        the container.
    type: bool
    default: false
  exclusive_ignore:
    description: Names of containers that do not count as holders, for example monitoring.
    type: list
    elements: str
    default: []
  isolation:
    description:
      - How the container gets access to its GPUs. The task fails before the first change if the value is not available
        on the host.
      - V(cdi) uses a CDI specification. It requires Docker 25 or later, or Podman 4.1 or later.
      - V(volume) passes device nodes and mounts the driver volume, which is created if necessary. It works with every
        engine and requires no toolkit.
      - V(runtime) uses the runtime of NVIDIA's container toolkit.
      - V(device_requests) is the equivalent of C(docker run --gpus). It requires Docker.
      - V(auto) keeps the isolation of an existing container while it is available. Otherwise it selects the first
        available one of V(cdi), V(volume), V(runtime) and V(device_requests). RV(gpu_assignment.reason) contains the
        reason.
      - A CDI specification is stale if it was written for a driver version other than the loaded one. V(auto) does not
        use a stale specification, and V(cdi) fails.
    type: str
    choices: [auto, cdi, device_requests, runtime, volume]
    default: auto
  capabilities:
    description:
      - Driver capabilities of the container. The default is C(NVIDIA_DRIVER_CAPABILITIES) of the image, else V(compute)
        and V(utility).
      - With O(isolation=volume), V(graphics) and V(display) add C(/dev/nvidia-modeset) and the DRM nodes of the GPUs.
      - O(isolation=cdi) ignores this option, because the specification determines the capabilities.
      - If the container has other capabilities, it is recreated. Without this option, it keeps its capabilities.
    type: list
    elements: str
    choices: [compat32, compute, display, graphics, ngx, utility, video]
  driver_volume_path:
    description: Directory of driver volumes, as in M(gpufleet.hosts.nvidia_driver_volume).
    type: path
    default: /var/lib/gpufleet/volumes
  pull:
    description:
      - When to pull the image. The module pulls the image before it checks the image's requirements. Check mode never
        pulls.
      - With V(never), the task fails if the image is missing.
    type: str
    choices: [missing, always, never]
    default: missing
  command:
    description: Command. The value is a list of strings, or a string that is split like a shell command.
    type: raw
  entrypoint:
    description: Entry point that replaces that of the image.
    type: list
    elements: str
  env:
    description:
      - Environment of the container. Values must be strings, so quote numbers and booleans.
      - Set C(NVIDIA_DISABLE_REQUIRE) to V("true") to skip the check of the image's requirements.
    type: dict
  volumes:
    description: Volumes and bind mounts, C(source:destination:mode).
    type: list
    elements: str
  published_ports:
    description: Ports to publish, C(host:container).
    type: list
    elements: str
  network_mode:
    description: Network of the container.
    type: str
  restart_policy:
    description: When the engine restarts the container.
    type: str
    choices: ["no", on-failure, always, unless-stopped]
  labels:
    description: Labels of the container. The prefix C(gpufleet.) is reserved for this module.
    type: dict
  user:
    description: User that runs the command.
    type: str
  working_dir:
    description: Working directory of the command.
    type: str
  hostname:
    description: Host name of the container.
    type: str
  shm_size:
    description: Size of C(/dev/shm), for example V(16g). Frameworks that load data in several processes need more than
      the default.
    type: str
  ipc_mode:
    description: IPC namespace, for example V(host) or V(private).
    type: str
  ulimits:
    description: Limits, C(name:soft:hard), for example V(memlock:-1:-1).
    type: list
    elements: str
  memory:
    description: Memory limit, for example V(64g).
    type: str
  cpus:
    description: Number of CPUs.
    type: float
  tmpfs:
    description: Directories where a tmpfs is mounted, C(path) or C(path:options).
    type: list
    elements: str
  devices:
    description: Additional device nodes, C(host) or C(host:container:mode). The container can access the GPU of a node
      in this list, even if O(gpus) does not contain the GPU.
    type: list
    elements: str
  cap_add:
    description: Linux capabilities to add.
    type: list
    elements: str
  cap_drop:
    description: Linux capabilities to drop.
    type: list
    elements: str
  security_opts:
    description: Security options, for example V(label=disable).
    type: list
    elements: str
  privileged:
    description: Run a privileged container. It can access all GPUs, so the result contains a warning.
    type: bool
  read_only:
    description: Mount the root file system of the container read-only.
    type: bool
  init:
    description: Run an init process as the first process.
    type: bool
  stop_timeout:
    description: Seconds to wait for the container to stop before it is killed.
    type: int
  recreate:
    description: Recreate the container even if nothing has changed.
    type: bool
    default: false
  restart:
    description: Restart a running container.
    type: bool
    default: false
  engine_options:
    description:
      - Additional options of the engine's module under their own names, for example C(log_driver), C(healthcheck) or
        C(docker_host).
      - If this module has an equivalent option, set only one of the two.
      - With an unknown option, the task fails before the first change and suggests similar names.
      - Without C(docker_host), the environment variable E(DOCKER_HOST) selects the Docker daemon.
    type: dict
    default: {}
  _phase:
    description: Private. Do not set.
    type: str
  _before:
    description: Private. Do not set.
    type: str
  _keep:
    description: Private. Do not set.
    type: bool
  _pulled:
    description: Private. Do not set.
    type: bool
  _token:
    description: Private. Do not set.
    type: str
  _nvml_binding_path:
    description: Private. Do not set.
    type: path
requirements:
  - Docker 19.03 or later with community.docker 4 or later, and the Python package requests on the host, or Podman 4 or
    later with containers.podman 1.16 or later
  - pynvml on the host or on the controller, for a container with GPUs
notes:
  - If the engine cannot start the container, the message contains the engine's reason. The module removes a new or
    recreated container that never started, so that it holds no GPU. Other containers remain. The next run
    creates or starts the container.
  - The image's requirements are the label C(com.nvidia.cuda.version) and the environment variables C(NVIDIA_REQUIRE_*).
    From CUDA 11 on, the module accepts an image that requires only a newer minor version of CUDA, with a warning.
    With O(isolation=runtime) or O(isolation=device_requests), the task fails if the environment requires the newer
    version, because NVIDIA's runtime would reject the container.
  - The GPUs are reserved until the engine's module has finished. A reservation expires after five minutes plus the stop
    timeout of the container.
  - Run this module as root. Reservations of root are in C(/run/gpufleet). Reservations of other users are in
    C(gpufleet) in the user's runtime directory, or in C(/tmp/gpufleet-UID). Other users do not see each other's
    reservations and Podman containers, so O(exclusive=true) gives a warning.
  - The GPUs are those of the managed host, so C(docker_host) must select an engine on that host.
author:
  - gpufleet maintainers (@gpufleet)
seealso:
  - module: gpufleet.hosts.nvidia_driver_volume
  - module: gpufleet.hosts.nvidia_cdi_spec
  - module: gpufleet.hosts.nvidia_gpu_facts
  - module: community.docker.docker_container
  - module: containers.podman.podman_container
"""

EXAMPLES = r"""
- name: Run a container with one GPU, by UUID
  gpufleet.hosts.gpu_container:
    name: notebook
    image: registry.example.com/jupyter:2026.11
    gpus: [GPU-5a6f3c1e-2d7b-4c9a-8f10-3b2e9d4c7a61]
    published_ports: ["8888:8888"]

- name: Run a container with two GPUs that are close to each other and that no other container uses
  gpufleet.hosts.gpu_container:
    name: trainer
    image: registry.example.com/trainer:7
    gpus: 2
    exclusive: true
  register: trainer

- name: Show the GPUs and the reason for the selection
  ansible.builtin.debug:
    var: trainer.gpu_assignment

- name: Run a training job with shared memory on GPUs with at least 80 GB
  gpufleet.hosts.gpu_container:
    name: llm
    image: registry.example.com/llm:3
    command: [torchrun, --nproc-per-node=4, train.py]
    gpus: 4
    conditions:
      memory_min_mib: 80000
    exclusive: true
    shm_size: 64g
    ulimits: ["memlock:-1:-1", "stack:67108864:67108864"]
    volumes: ["/srv/datasets:/data:ro", "/srv/checkpoints:/checkpoints"]
    restart_policy: unless-stopped

- name: Run a container with a MIG device, by GPU and MIG index
  gpufleet.hosts.gpu_container:
    name: inference
    image: registry.example.com/inference:12
    gpus: ["0:1"]

- name: Run a container with three free MIG devices of one profile
  gpufleet.hosts.gpu_container:
    name: workers
    image: registry.example.com/inference:12
    gpus: 3
    conditions:
      mig_profile: 1g.10gb
    exclusive: true

- name: Run a Podman container with CDI
  gpufleet.hosts.gpu_container:
    name: notebook
    image: registry.example.com/jupyter:2026.11
    engine: podman
    isolation: cdi
    gpus: [0]
    engine_options:
      log_driver: journald

- name: Run a container on a host without NVIDIA's container toolkit
  gpufleet.hosts.gpu_container:
    name: smi
    image: debian:12
    command: [nvidia-smi, --loop=60]
    isolation: volume
    gpus: all

- name: Remove a container
  gpufleet.hosts.gpu_container:
    name: trainer
    state: absent
"""

RETURN = r"""
container:
  description:
    - The container as the engine describes it. Empty if the container does not exist, and in check mode if it would be
      created.
  returned: success
  type: dict
  sample: {"Id": "f1d2…", "Name": "/trainer", "State": {"Status": "running"}}
gpu_assignment:
  description: The GPUs of the container.
  returned: success
  type: dict
  contains:
    uuids:
      description: UUIDs of the GPUs and MIG devices.
      type: list
      elements: str
      returned: always
      sample: [GPU-5a6f3c1e-2d7b-4c9a-8f10-3b2e9d4c7a61]
    indexes:
      description: Current indexes. A GPU has a number, a MIG device C(gpu:mig).
      type: list
      elements: raw
      returned: always
      sample: [2]
    isolation:
      description: How the container gets access to its GPUs. V(none) for a container without GPUs.
      type: str
      returned: always
      sample: volume
    engine:
      description: Engine of the container.
      type: str
      returned: always
      sample: docker
    exclusive:
      description: Whether the container uses its GPUs exclusively.
      type: bool
      returned: always
      sample: true
    reason:
      description: The reason for the selection of the GPUs and of the isolation.
      type: str
      returned: always
      sample: >-
        GPU 2 (GPU-5a6f3c1e-2d7b-4c9a-8f10-3b2e9d4c7a61): volume is the first available isolation (cdi: docker
        20.10.24 does not support CDI, which requires docker 25 or later)
    changes:
      description:
        - The changes of the GPU access, which recreate the container. RV(ignore:diff) contains other changes.
      type: list
      elements: str
      returned: always
      sample: ["capabilities: compute, utility → compute, utility, video"]
    warnings:
      description:
        - Warnings about options that bypass the isolation, events that can remove the access, and GPUs that are
          degraded or unusable. Each warning begins with the container's name.
        - The task also shows these warnings.
      type: list
      elements: str
      returned: always
      sample: ["container trainer: device /dev/nvidia0 gives access to GPUs in addition to gpus."]
driver_volume:
  description: The driver volume, as M(gpufleet.hosts.nvidia_driver_volume) returns it.
  returned: when the task created or repaired the driver volume
  type: dict
  sample: {"name": "nvidia_driver_580.95.05", "path": "/var/lib/gpufleet/volumes/nvidia_driver/580.95.05"}
"""

import os

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.privileges import is_root
from ansible_collections.gpufleet.hosts.plugins.module_utils.container import options as container_options
from ansible_collections.gpufleet.hosts.plugins.module_utils.container import start_failures
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.image import RequirementError
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.isolation import CAPABILITIES, IsolationError
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia import Nvidia
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.options import OptionError
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.planner import PlanError, Planner
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.request import SelectionError
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.reservations import (
    ReservationError,
    Reservations,
    directory_for,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import stopped
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engines import (
    Docker,
    Podman,
    StoppedDocker,
    UnavailableEngine,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.volumes import DOCKER_HOST, EngineError
from ansible_collections.gpufleet.hosts.plugins.module_utils.facts import gather as facts_gather
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import processes as host_processes
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml import binding as nvml_binding
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml.session import BindingMissing

_FAILURES = (
    EngineError,
    IsolationError,
    OptionError,
    PlanError,
    RequirementError,
    ReservationError,
    SelectionError,
)


def main() -> None:
    """Run the phase that the action plugin requests."""
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    phase = module.params["_phase"]
    try:
        if phase == "plan":
            module.exit_json(changed=False, plan=_plan(module))
        if phase == "clear":
            module.exit_json(changed=False, cleared=_clear(module))
        if phase == "release":
            with (reservations := _reservations()).locked():
                module.exit_json(changed=False, released=reservations.release(module.params["_token"]))
    except BindingMissing as error:
        module.fail_json(**error.result())
    except _FAILURES as error:
        module.fail_json(msg=str(error))
    module.fail_json(msg="gpu_container requires its action plugin. Call it as gpufleet.hosts.gpu_container.")


def argument_spec() -> dict:
    """Return the options. Only the action plugin sets those that begin with an underscore."""
    strings = {"type": "list", "elements": "str"}
    return {
        "name": {"type": "str", "required": True},
        "image": {"type": "str"},
        "state": {"type": "str", "choices": ["started", "present", "stopped", "absent"], "default": "started"},
        "engine": {"type": "str", "choices": ["auto", "docker", "podman"], "default": "auto"},
        "accelerator": {"type": "str", "choices": ["nvidia"], "default": "nvidia"},
        "gpus": {"type": "raw"},
        "conditions": {
            "type": "dict",
            "options": {
                "memory_min_mib": {"type": "int"},
                "model": {"type": "str"},
                "numa_node": {"type": "int"},
                "mig_profile": {"type": "str"},
            },
        },
        "exclusive": {"type": "bool", "default": False},
        "exclusive_ignore": {**strings, "default": []},
        "isolation": {
            "type": "str",
            "choices": ["auto", "cdi", "device_requests", "runtime", "volume"],
            "default": "auto",
        },
        "capabilities": {**strings, "choices": list(CAPABILITIES)},
        "driver_volume_path": {"type": "path", "default": owned.VOLUMES},
        "pull": {"type": "str", "choices": ["missing", "always", "never"], "default": "missing"},
        "command": {"type": "raw"},
        "entrypoint": strings,
        "env": {"type": "dict"},
        "volumes": strings,
        "published_ports": strings,
        "network_mode": {"type": "str"},
        "restart_policy": {"type": "str", "choices": ["no", "on-failure", "always", "unless-stopped"]},
        "labels": {"type": "dict"},
        "user": {"type": "str"},
        "working_dir": {"type": "str"},
        "hostname": {"type": "str"},
        "shm_size": {"type": "str"},
        "ipc_mode": {"type": "str"},
        "ulimits": strings,
        "memory": {"type": "str"},
        "cpus": {"type": "float"},
        "tmpfs": strings,
        "devices": strings,
        "cap_add": strings,
        "cap_drop": strings,
        "security_opts": strings,
        "privileged": {"type": "bool"},
        "read_only": {"type": "bool"},
        "init": {"type": "bool"},
        "stop_timeout": {"type": "int"},
        "recreate": {"type": "bool", "default": False},
        "restart": {"type": "bool", "default": False},
        "engine_options": {"type": "dict", "default": {}},
        # Set by the action plugin.
        "_phase": {"type": "str"},
        "_before": {"type": "str"},
        "_keep": {"type": "bool"},
        "_pulled": {"type": "bool"},
        "_token": {"type": "str", "no_log": False},
        "_nvml_binding_path": {"type": "path"},
    }


def _reservations() -> Reservations:
    return Reservations(directory_for(os.geteuid(), os.environ))


def _binding(sent: str | None, check_mode: bool) -> str | None:
    """Return the path of the controller's pynvml. Root keeps a copy, so that later tasks need not send it again."""
    if not is_root():
        return sent
    if sent is not None and not check_mode:
        nvml_binding.remember(sent)
    return sent or nvml_binding.remembered()


def _clear(module: AnsibleModule) -> dict:
    """Remove a container that the engine's module created and could not start."""
    params = module.params
    engine = _engines(module)[params["engine"]]
    return start_failures.remove_unstarted(engine, params["name"], params["_before"], keep=bool(params["_keep"]))


def _engines(module: AnsibleModule) -> dict:
    options = module.params["engine_options"] or {}
    podman = str(options.get("executable") or "podman")
    return {
        "docker": _docker(container_options.docker_host(options, os.environ), module.check_mode),
        "podman": _podman(module, podman),
    }


def _plan(module: AnsibleModule) -> dict:
    params = module.params

    binding = _binding(params["_nvml_binding_path"], module.check_mode)

    def gather(subsets: frozenset) -> dict:
        return facts_gather.gather(subsets, run=module.run_command, binding_path=binding)["facts"]

    planner = Planner(
        params,
        _engines(module),
        Nvidia(gather),
        _reservations(),
        check_mode=module.check_mode,
        root_user=is_root(),
        docker_host=container_options.docker_host(params["engine_options"] or {}, os.environ),
    )
    return planner.plan()


def _podman(module: AnsibleModule, executable: str) -> Podman | UnavailableEngine:
    path = module.get_bin_path(executable)
    if path is None and executable != "podman":
        return UnavailableEngine("podman", f"engine_options.executable={executable} is not an executable program")
    return Podman(module.run_command, path)


def _docker(host: str | None, check_mode: bool) -> Docker | StoppedDocker | UnavailableEngine:
    # The PID file belongs to the daemon at the default address.
    started = host_processes.docker_started if host in (None, DOCKER_HOST) else None
    try:
        docker = Docker(host, started=started)
        if check_mode and docker.socket and stopped.is_socket_activated(docker.socket):
            return StoppedDocker(stopped.docker)
        return docker
    except EngineError as error:
        return UnavailableEngine("docker", str(error))


if __name__ == "__main__":
    main()
