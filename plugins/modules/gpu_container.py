#!/usr/bin/python
# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_container
short_description: Run a container that sees exactly the GPUs it was given
version_added: 0.1.0
description:
  - Runs a Docker or Podman container with the GPUs that O(gpus) asks for, and no others. The container is recreated
    only when its GPUs, its image or its other options really differ.
  - This module decides which GPUs these are and how the container gets them. The container itself is the work of
    M(community.docker.docker_container) or M(containers.podman.podman_container), with exact options.
  - GPUs are stored and compared by UUID. The same request written differently (index instead of UUID, another order, a
    count that the container's GPUs already satisfy) changes nothing.
  - With O(isolation=volume) nothing of NVIDIA's but the driver is needed. The container gets device nodes and the
    driver volume, which is made if it is not there.
attributes:
  check_mode:
    support: full
    description: Can run in check_mode and return changed status prediction without modifying target.
    details:
      - An image that is not there yet cannot be looked into. A container of it is predicted to be created.
      - Nothing is pulled in check mode, also with O(pull=always). The prediction is for the image that is there, and a
        warning says so.
      - A Docker that systemd starts when it is asked is not asked, and so not started. The prediction then goes by
        whether the container is there and runs, and a warning says so.
  diff_mode:
    support: full
    description: Will return details on what has changed (or possibly needs changing in check_mode), when in diff mode.
    details:
      - RV(ignore:diff) names the GPUs before and after, why the container has to be recreated for them, and what the
        engine's module reports besides.
  idempotent:
    support: partial
    description:
      - When run twice in a row outside check mode, with the same arguments, the second invocation indicates no change.
    details:
      - With O(recreate=true) or O(restart=true) there is a change, and with O(pull=always) when another image has come.
options:
  name:
    description:
      - Name of the container. Letters, digits, C(_), C(.) and C(-), a letter or a digit first, and with Docker two
        characters at least.
      - Engines' modules also take the beginning of a container's identifier for its name, and an identifier is made of
        digits and the letters from a to f. A short name of these alone, V(e) or V(db2), is refused where another
        container has an identifier that begins so.
    type: str
    required: true
  image:
    description:
      - Image of the container. Needed unless the container is to be stopped or absent.
      - What it requires of the driver is checked before anything is touched, see O(gpus) and the notes.
    type: str
  state:
    description:
      - V(started) means that the container is there as asked for and runs.
      - V(present) means that it is there as asked for. One that has to be recreated is not started, as in
        M(community.docker.docker_container).
      - V(stopped) stops a container as it is, whatever else is asked for, and needs no driver for it. One that is not
        there is created.
      - V(absent) means that it is not there. Neither GPUs nor a driver are needed for this.
    type: str
    choices: [started, present, stopped, absent]
    default: started
  engine:
    description:
      - Container engine. V(auto) takes the one that has a container of this name already, else Docker if it answers,
        else Podman.
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
      - Which GPUs the container gets.
      - V(all), V(none), a count, or a list.
      - A list names GPUs by index, by UUID or the beginning of one, or by PCI address, and MIG devices by UUID or as
        C(gpu:mig), for example V(["1:0"]), in quotes. It may be mixed. A PCI address may be short, V(["3b:00"]).
      - A list may come as text, as in C(-e gpus=[0,1]). A single number is a count, as text V("2"), too. As text V("0")
        is refused, since it could mean no GPU or GPU 0.
      - An empty list is V(none). A GPU that is named twice, V([0, 0]), is given once. Case does not matter in V(ALL),
        V(None) and in UUIDs.
      - A count prefers GPUs that the container has already, then healthy ones, then those that no other container has,
        then those that are close to each other by NVLink, PCIe and NUMA node. It means whole GPUs, or MIG devices with
        O(conditions.mig_profile).
      - A count never takes a GPU that is lost, requires a reset, has a pending recovery action or is in compute mode
        prohibited. A container that has such a GPU is recreated with another one. RV(gpu_assignment.reason) names each
        GPU that was left out.
      - A degraded GPU is taken when no healthy one is left, and a warning names it.
      - V(all) means every GPU, and of a GPU that has MIG on, every MIG device. Of those that a count never takes, a
        lost GPU is an error. The others are given, as are GPUs that are named, and a warning says what is wrong with
        each.
      - A GPU that has MIG on cannot be given as a whole.
      - Without O(gpus) the image decides, by its label C(com.nvidia.volumes.needed) or its environment
        C(NVIDIA_VISIBLE_DEVICES). An image that asks for no GPU gets none.
    type: raw
  conditions:
    description: What each of the GPUs must fulfil, however they are asked for.
    type: dict
    suboptions:
      memory_min_mib:
        description: Memory in MiB, at least. For a MIG device its own memory counts.
        type: int
      model:
        description: Part of the product's name, or a pattern with C(*) for the whole of it. Case does not matter.
        type: str
      numa_node:
        description: NUMA node of the GPU.
        type: int
      mig_profile:
        description: MIG profile, for example V(1g.10gb). A count then counts MIG devices.
        type: str
  exclusive:
    description:
      - Give GPUs that no other container holds, and keep them from counts of other containers.
      - Docker's and Podman's containers count, whoever made them. A container holds GPUs while it is running, paused or
        restarting, and, when it is stopped, if its engine will start it again by itself (restart policy C(always), or
        C(unless-stopped) and never started). A privileged container holds the GPUs it asked for, not all.
      - Runs that are under way at the same time on one host do not get the same GPU.
      - Whether a container has its GPUs exclusively is kept in a label of it, which other runs go by. Engines cannot
        change labels, so a container is recreated when this option changes.
    type: bool
    default: false
  exclusive_ignore:
    description: Names of containers that hold nothing in the sense of O(exclusive), monitoring for example.
    type: list
    elements: str
    default: []
  isolation:
    description:
      - How the container is given its GPUs. One that cannot work on this host fails before anything is touched.
      - V(cdi) uses a CDI specification. Docker 25 and later, Podman 4.1 and later.
      - V(volume) passes device nodes and mounts the driver volume. It works with every engine, without any toolkit.
      - V(runtime) uses the runtime of NVIDIA's container toolkit.
      - V(device_requests) is what C(docker run --gpus) does. Docker only.
      - V(auto) takes the first of these, in this order, that works with this engine on this host, but leaves a
        container what it has as long as that works. RV(gpu_assignment.reason) says why.
      - A CDI specification that was written for another driver version than the loaded one is stale. V(auto) never uses
        it, and V(cdi) fails.
    type: str
    choices: [auto, cdi, device_requests, runtime, volume]
    default: auto
  capabilities:
    description:
      - What of the driver the container uses. Without this option the image's C(NVIDIA_DRIVER_CAPABILITIES) counts,
        else V(compute) and V(utility).
      - V(graphics) and V(display) add C(/dev/nvidia-modeset) and the GPUs' DRM nodes with O(isolation=volume).
      - With O(isolation=cdi) the specification decides, and this option is not looked at.
      - A container that has others is recreated. Without this option a container keeps what it has.
    type: list
    elements: str
    choices: [compat32, compute, display, graphics, ngx, utility, video]
  driver_volume_path:
    description: Directory of driver volumes, as in M(gpufleet.hosts.nvidia_driver_volume).
    type: path
    default: /var/lib/gpufleet/volumes
  pull:
    description:
      - Whether to pull the image. It is pulled before its requirements are checked, and never in check mode.
      - With V(never) an image that is not there is an error.
    type: str
    choices: [missing, always, never]
    default: missing
  command:
    description: Command, a list of words or a text that is split like a shell does.
    type: raw
  entrypoint:
    description: Entry point in place of the image's.
    type: list
    elements: str
  env:
    description:
      - Environment of the container. Values are text, quote what YAML takes for a truth value.
      - C(NVIDIA_DISABLE_REQUIRE) set to V("true") skips the check of the image's requirements.
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
    description: Network to connect to.
    type: str
  restart_policy:
    description: What the engine does when the container ends or the host starts.
    type: str
    choices: ["no", on-failure, always, unless-stopped]
  labels:
    description: Labels of the container. Those that begin with C(gpufleet.) are this module's.
    type: dict
  user:
    description: User that the command runs as.
    type: str
  working_dir:
    description: Working directory of the command.
    type: str
  hostname:
    description: Host name of the container.
    type: str
  shm_size:
    description: Size of C(/dev/shm), for example V(16g). Frameworks that load data in several processes need much.
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
    description: Paths to mount a tmpfs at, C(path) or C(path:options).
    type: list
    elements: str
  devices:
    description: Further device nodes, C(host) or C(host:container:mode). A GPU's node in here goes past O(gpus).
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
    description: Run privileged. This undoes the isolation of GPUs, which the result warns of. Never set by this module.
    type: bool
  read_only:
    description: Mount the container's root read-only.
    type: bool
  init:
    description: Run an init process as the first one.
    type: bool
  stop_timeout:
    description: Seconds to wait for the container to stop before it is killed.
    type: int
  recreate:
    description: Recreate the container even if nothing differs.
    type: bool
    default: false
  restart:
    description: Restart a container that runs already.
    type: bool
    default: false
  engine_options:
    description:
      - All other options of the engine's module, by its own names, for example C(log_driver), C(healthcheck) or
        C(docker_host).
      - An option that this module has too is given once, here or there.
      - A name that the engine's module does not know is refused, with the names that it is close to, before an image is
        pulled or anything is made.
      - Without C(docker_host) the environment variable E(DOCKER_HOST) counts, for everything that is asked of Docker.
    type: dict
    default: {}
  _phase:
    description: Set by this module's action plugin, which puts the parts together. Not for playbooks.
    type: str
  _before:
    description: Set by this module's action plugin to take back what the engine left half-made. Not for playbooks.
    type: str
  _keep:
    description: Set by this module's action plugin to take back what the engine left half-made. Not for playbooks.
    type: bool
  _pulled:
    description: Set by this module's action plugin once it has pulled the image. Not for playbooks.
    type: bool
  _token:
    description: Set by this module's action plugin to give a reservation up. Not for playbooks.
    type: str
  _nvml_binding_path:
    description: Set by this module's action plugin where the host has no pynvml. Not for playbooks.
    type: path
requirements:
  - Docker 19.03 or later with community.docker 4 or later and what its modules need on the host (the Python package
    requests), or Podman 4 or later with containers.podman 1.16 or later
  - pynvml, on the host or on the controller, for a container that gets GPUs
notes:
  - If the engine cannot start the container, the error contains the engine's message. The new container is removed, so
    that it holds no GPUs. A container that it replaces has already been removed. An existing container that did not
    start, and a container that has run, are kept. The next run creates or starts the container.
  - The image's requirements are its label C(com.nvidia.cuda.version) and its environment C(NVIDIA_REQUIRE_*), compared
    with what the driver serves. From CUDA 11 on an image for a newer minor version of the driver's CUDA runs, and the
    result says so, except where NVIDIA's runtime would refuse it.
  - While a container is being made its GPUs are reserved, for five minutes and the time that it has to stop at most.
    The place is C(/run/gpufleet) for root. Runs of other users meet in C(gpufleet) in the user's runtime directory, or
    in C(/tmp/gpufleet-UID) where the user has none. They know neither other users' reservations nor their Podman
    containers, which a warning says with O(exclusive=true).
  - Works on GPUs of the managed host, so C(docker_host) must be an engine of that host.
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
- name: One GPU by its UUID
  gpufleet.hosts.gpu_container:
    name: notebook
    image: registry.example.com/jupyter:2026.11
    gpus: [GPU-5a6f3c1e-2d7b-4c9a-8f10-3b2e9d4c7a61]
    published_ports: ["8888:8888"]

- name: Two GPUs that are close to each other and that no other container has
  gpufleet.hosts.gpu_container:
    name: trainer
    image: registry.example.com/trainer:7
    gpus: 2
    exclusive: true
  register: trainer

- name: Say which these are, and why
  ansible.builtin.debug:
    var: trainer.gpu_assignment

- name: A training job with shared memory, on GPUs with at least 80 GB
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

- name: A MIG device, by GPU and MIG index
  gpufleet.hosts.gpu_container:
    name: inference
    image: registry.example.com/inference:12
    gpus: ["0:1"]

- name: Three MIG devices of one profile, whichever are free
  gpufleet.hosts.gpu_container:
    name: workers
    image: registry.example.com/inference:12
    gpus: 3
    conditions:
      mig_profile: 1g.10gb
    exclusive: true

- name: Podman with CDI
  gpufleet.hosts.gpu_container:
    name: notebook
    image: registry.example.com/jupyter:2026.11
    engine: podman
    isolation: cdi
    gpus: [0]
    engine_options:
      log_driver: journald

- name: A host that has the driver and nothing else of NVIDIA's
  gpufleet.hosts.gpu_container:
    name: smi
    image: debian:12
    command: [nvidia-smi, --loop=60]
    isolation: volume
    gpus: all

- name: Remove it again
  gpufleet.hosts.gpu_container:
    name: trainer
    state: absent
"""

RETURN = r"""
container:
  description:
    - What the engine says of the container, in the engine's own form. Empty when it is not there, and in check mode
      when it would be created.
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
      description: Their present indexes, a number for a GPU and C(gpu:mig) for a MIG device.
      type: list
      elements: raw
      returned: always
      sample: [2]
    isolation:
      description: How the container is given them, V(none) for a container without GPUs.
      type: str
      returned: always
      sample: volume
    engine:
      description: Engine of the container.
      type: str
      returned: always
      sample: docker
    exclusive:
      description: Whether the GPUs are the container's alone.
      type: bool
      returned: always
      sample: true
    reason:
      description: Why these, and why in this way.
      type: str
      returned: always
      sample: >-
        GPU 2 (GPU-5a6f3c1e-2d7b-4c9a-8f10-3b2e9d4c7a61): volume is the best that works here (cdi: docker 20.10.24 has
        no CDI, docker 25 and later do)
    changes:
      description:
        - For what of the GPU access the container has to be recreated. Empty where it is not, and where it is for other
          reasons, which RV(ignore:diff) tells.
      type: list
      elements: str
      returned: always
      sample: ["capabilities: compute, utility → compute, utility, video"]
    warnings:
      description:
        - What undoes the isolation, what may take the GPUs away later, and which of the GPUs are degraded or cannot be
          used. Each begins with the container's name.
        - Also shown as warnings of the task.
      type: list
      elements: str
      returned: always
      sample: ["container trainer: device /dev/nvidia0 goes past gpus."]
driver_volume:
  description: The driver volume, as M(gpufleet.hosts.nvidia_driver_volume) returns it.
  returned: when this call made or mended it
  type: dict
  sample: {"name": "nvidia_driver_580.95.05", "path": "/var/lib/gpufleet/volumes/nvidia_driver/580.95.05"}
"""

import os

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.hosts.plugins.module_utils.container import options as container_options
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.image import RequirementError
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.isolation import CAPABILITIES, IsolationError
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.options import OptionError
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.planner import PlanError, Planner
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.reservations import (
    ReservationError,
    Reservations,
    directory_for,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection import SelectionError
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.vendors import ACCELERATORS
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import failures, stopped
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engines import (
    Docker,
    Podman,
    StoppedDocker,
    UnavailableEngine,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.volumes import DOCKER_HOST, EngineError
from ansible_collections.gpufleet.hosts.plugins.module_utils.facts import gather as facts_gather
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import process_times
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
    """Run the part of the module that is asked for; the action plugin puts the parts together."""
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
    module.fail_json(msg="gpu_container works by its action plugin only: call it as gpufleet.hosts.gpu_container.")


def argument_spec() -> dict:
    """Return the options; those that begin with an underscore are between the action plugin and this module."""
    texts = {"type": "list", "elements": "str"}
    return {
        "name": {"type": "str", "required": True},
        "image": {"type": "str"},
        "state": {"type": "str", "choices": ["started", "present", "stopped", "absent"], "default": "started"},
        "engine": {"type": "str", "choices": ["auto", "docker", "podman"], "default": "auto"},
        "accelerator": {"type": "str", "choices": list(ACCELERATORS), "default": "nvidia"},
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
        "exclusive_ignore": {**texts, "default": []},
        "isolation": {
            "type": "str",
            "choices": ["auto", "cdi", "device_requests", "runtime", "volume"],
            "default": "auto",
        },
        "capabilities": {**texts, "choices": list(CAPABILITIES)},
        "driver_volume_path": {"type": "path", "default": "/var/lib/gpufleet/volumes"},
        "pull": {"type": "str", "choices": ["missing", "always", "never"], "default": "missing"},
        "command": {"type": "raw"},
        "entrypoint": texts,
        "env": {"type": "dict"},
        "volumes": texts,
        "published_ports": texts,
        "network_mode": {"type": "str"},
        "restart_policy": {"type": "str", "choices": ["no", "on-failure", "always", "unless-stopped"]},
        "labels": {"type": "dict"},
        "user": {"type": "str"},
        "working_dir": {"type": "str"},
        "hostname": {"type": "str"},
        "shm_size": {"type": "str"},
        "ipc_mode": {"type": "str"},
        "ulimits": texts,
        "memory": {"type": "str"},
        "cpus": {"type": "float"},
        "tmpfs": texts,
        "devices": texts,
        "cap_add": texts,
        "cap_drop": texts,
        "security_opts": texts,
        "privileged": {"type": "bool"},
        "read_only": {"type": "bool"},
        "init": {"type": "bool"},
        "stop_timeout": {"type": "int"},
        "recreate": {"type": "bool", "default": False},
        "restart": {"type": "bool", "default": False},
        "engine_options": {"type": "dict", "default": {}},
        # Between it and its action plugin.
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
    """Tell where the controller's pynvml is; root keeps it, so that the next task need not bring it again."""
    if os.geteuid() != 0:
        return sent
    if sent is not None and not check_mode:
        nvml_binding.remember(sent)
    return sent or nvml_binding.remembered()


def _clear(module: AnsibleModule) -> dict:
    """Remove the container that the engine's module created but could not start."""
    params = module.params
    engine = _engines(module)[params["engine"]]
    return failures.remove_unstarted(engine, params["name"], params["_before"], keep=bool(params["_keep"]))


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
        ACCELERATORS[params["accelerator"]](gather),
        _reservations(),
        check_mode=module.check_mode,
        root_user=os.geteuid() == 0,
        docker_host=container_options.docker_host(params["engine_options"] or {}, os.environ),
    )
    return planner.plan()


def _podman(module: AnsibleModule, executable: str) -> Podman | UnavailableEngine:
    path = module.get_bin_path(executable)
    if path is None and executable != "podman":
        return UnavailableEngine("podman", f"engine_options.executable={executable} is no program")
    return Podman(module.run_command, path)


def _docker(host: str | None, check_mode: bool) -> Docker | StoppedDocker | UnavailableEngine:
    # The pid file is that of the daemon at the usual place.
    started = process_times.docker_started if host in (None, DOCKER_HOST) else None
    try:
        docker = Docker(host, started=started)
        if check_mode and docker.socket and stopped.is_socket_activated(docker.socket):
            return StoppedDocker(stopped.docker)
        return docker
    except EngineError as error:
        return UnavailableEngine("docker", str(error))


if __name__ == "__main__":
    main()
