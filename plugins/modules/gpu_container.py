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
  - Runs a Docker or Podman container that can access the GPUs in O(gpus) and no others. Most tasks set only O(name),
    O(image), O(gpus) and the usual options of a container.
  - The container is recreated only if its GPUs, its image or its other options change.
  - The module selects the GPUs and the way to pass them to the container. M(community.docker.docker_container) or
    M(containers.podman.podman_container) then manages the container.
  - GPUs are stored and compared by UUID. Another notation for the same GPUs, for example an index instead of a UUID,
    changes nothing.
  - O(isolation=volume) requires only the NVIDIA driver on the host, and no other software from NVIDIA.
extends_documentation_fragment:
  - gpufleet.hosts.attributes
attributes:
  check_mode:
    details:
      - Check mode pulls no image. If the image is missing, the module predicts that the container is created, and does
        not check the image's requirements.
      - With O(pull=always), the prediction is for the local image, and a warning says so.
      - Check mode does not start Docker if it is stopped. The prediction then only considers whether the container
        exists and runs, and a warning says so.
  diff_mode:
    details:
      - RV(ignore:diff) contains the GPUs before and after, the reasons to recreate the container for them, and the diff
        of the engine's module.
  idempotent:
    support: partial
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
      - V(rendered) starts no container. It selects GPUs and returns RV(docker_args), RV(podman_args) and RV(compose),
        with which you start the container yourself. It pulls a missing image, because the arguments depend on its
        environment, and creates the driver volume if the arguments use it. The usual options of a container other than
        O(env) are ignored.
      - With V(rendered), nothing reserves the GPUs, so O(exclusive=true) is refused. An existing container O(name)
        keeps its GPUs.
    type: str
    choices: [started, present, stopped, absent, rendered]
    default: started
  engine:
    description:
      - Container engine. V(auto) selects the engine that already has a container of this name, else Docker if it is
        available, else Podman. With O(state=rendered), V(auto) returns the arguments of each available engine.
    type: str
    choices: [auto, docker, podman]
    default: auto
  accelerator:
    description:
      - Vendor of the GPUs or accelerators.
      - V(auto) is V(nvidia) if the host has an NVIDIA GPU with a driver, else the only vendor whose devices have a
        driver. If several other vendors have such devices, set the vendor. Without drivers, the PCI devices decide.
      - With V(amd), O(gpus) are GPUs and partitions, each with an index of its own. A container gets C(/dev/kfd) and
        the nodes of its GPUs, through a CDI device (O(isolation=cdi)) or directly (O(isolation=devices)). With rootless
        Podman, it also gets the groups of its user (C(keep-groups)). No variable such as C(ROCR_VISIBLE_DEVICES) is
        set.
      - With V(neuron), O(gpus) are AWS Neuron chips. A container gets only chips with consecutive numbers. On hosts
        with 16 chips, counts of 1, 4, 8 and 16 prefer the aligned groups that have a topology. No variable
        C(NEURON_RT_*) is set.
      - With V(gaudi), O(gpus) are Gaudi accelerators. A container gets one accelerator, the modules 0,1 / 2,3 / 4,5 /
        6,7, the modules 0 to 3 or 4 to 7, or all. Variable C(HABANA_VISIBLE_MODULES) has their module IDs. Name an
        accelerator by its stable ID, for example V(module-4), because its index can change with each boot.
    type: str
    choices: [auto, nvidia, amd, neuron, gaudi]
    default: auto
  gpus:
    description:
      - GPUs of the container. The value is V(all), V(none), a count, or a list.
      - A list can contain indexes, UUIDs, the beginnings of UUIDs, and PCI addresses, including short ones such as
        V(["3b:00"]). A MIG device is a UUID or C(gpu:mig) in quotes, for example V(["1:0"]).
      - A list can be a string, as in C(-e gpus=[0,1]). A single number is a count, also as the string V("2"). The
        string V("0") is rejected because it could mean no GPU or GPU 0.
      - An empty list is V(none). Duplicates are ignored. V(all), V(none) and UUIDs are not case-sensitive.
      - With a count, the module selects whole GPUs, or MIG devices with O(conditions.mig_profile). It prefers, in this
        order, the GPUs of the container, healthy GPUs, GPUs that nothing else holds, and GPUs that are close to each
        other by NVLink, PCIe and NUMA node.
      - With a count, the module never selects a GPU that is lost, requires a reset, has a pending recovery action or is
        in compute mode prohibited. It recreates a container that has such a GPU. RV(gpu_assignment.reason) names each
        skipped GPU.
      - With a count, the module selects a degraded GPU only if no healthy GPU is left. A warning names this GPU.
      - V(all) selects every GPU, and every MIG device of a GPU in MIG mode.
      - A list fails for an unusable GPU, with the reason. V(all) fails for a lost GPU, and includes other unusable GPUs
        with a warning for each. Lists and V(all) include degraded GPUs with a warning, unless O(conditions.health=ok).
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
      memory_free_min_mib:
        description:
          - Minimum free memory in MiB. For a MIG device, this is the free memory of the MIG device.
          - A running container keeps its GPUs, because it uses this memory itself.
        type: int
      health:
        description:
          - With V(ok), degraded GPUs are rejected. V(degraded) is the behavior without this option.
          - A running container keeps a GPU that becomes degraded.
        type: str
        choices: [ok, degraded]
      idle:
        description:
          - With V(true), GPUs with a process are rejected. Processes in containers and pods count, too.
          - A running container keeps its GPUs.
        type: bool
  exclusive:
    description:
      - Use only GPUs that nothing else holds. The module does not select these GPUs for other containers whose O(gpus)
        is a count.
      - These hold GPUs, also if another tool created them - containers of Docker and Podman, containers of other
        engines and of other users' rootless engines, pods of Kubernetes, jobs of Slurm, and processes outside
        containers that use a GPU.
      - A container of Docker or Podman holds its GPUs while it is running, paused or restarting. A stopped container
        holds its GPUs if its restart policy is C(always). With C(unless-stopped), it holds them only if it was never
        started or its last start failed.
      - A privileged container holds only the GPUs that it requested or uses.
      - Concurrent runs on one host do not select the same GPU.
      - This option requires root, because other users cannot see all holders, see O(exclusive_scope). A warning names
        possible holders that even root cannot see.
      - The container has a label for exclusive use. Engines cannot change labels, so a change of this option recreates
        the container.
    type: bool
    default: false
  exclusive_scope:
    description:
      - What counts as a holder of GPUs. V(host) counts everything on the host. O(exclusive=true) then requires root.
      - V(user) counts only the containers of the engines that the user of the task can access. Other users, Kubernetes
        and processes can use the GPUs at the same time.
    type: str
    choices: [host, user]
    default: host
  exclusive_ignore:
    description:
      - Names of containers and pods, and commands of processes, that do not count as holders, for example monitoring.
      - They do not count for O(conditions.idle) either.
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
      - V(devices) passes only device nodes. NVIDIA's GPUs also need the files of the driver, so use V(volume) there.
      - For the other vendors, V(auto) uses V(cdi) if a specification describes the devices as they are now, else
        V(devices). With V(neuron), V(runtime) uses Docker's runtime C(neuron) of package C(aws-neuronx-oci-hook), and
        sets C(AWS_NEURON_VISIBLE_DEVICES). With V(gaudi), V(runtime) uses Docker's runtime C(habana).
      - V(auto) keeps the isolation of an existing container while it is available. Otherwise it selects the first
        available one of V(cdi), V(volume), V(runtime) and V(device_requests). RV(gpu_assignment.reason) contains the
        reason.
      - A CDI specification is stale if it was written for a driver version other than the loaded one, if its device
        nodes are not those that the GPU has now, or if it lacks a node that O(capabilities) need. V(auto) does not use
        a stale specification, and V(cdi) fails with the difference and the command that writes it again.
    type: str
    choices: [auto, cdi, device_requests, runtime, volume, devices]
    default: auto
  cdi_kind:
    description:
      - Kind of the CDI devices that O(isolation=cdi) and O(isolation=auto) use, for example C(example.com/gpu).
      - By default, they use kind C(nvidia.com/gpu) and the kinds that M(gpufleet.hosts.nvidia_cdi_spec) wrote. For the
        other vendors, the default is C(gpufleet-VENDOR/gpu).
    type: str
  libraries:
    description:
      - How a container with O(isolation=volume) finds the driver's libraries. Both values mount the driver volume at
        C(/usr/local/nvidia).
      - V(files) also mounts each library in the default directories of the dynamic loader, and each program in
        C(/usr/bin). All processes find them, also those of C(su -), sudo and sshd, which have another environment.
        C(LD_LIBRARY_PATH) and C(PATH) do not change.
      - V(volume) appends the directories of the volume to C(LD_LIBRARY_PATH) and C(PATH). Only processes that inherit
        these variables find the files. The container has one mount instead of many.
      - If one of O(volumes) covers the default directories of the loader, V(files) uses C(LD_LIBRARY_PATH) as well, and
        a warning says so.
      - With other isolations, this option has no effect.
    type: str
    choices: [files, volume]
    default: files
  capabilities:
    description:
      - Driver capabilities of the container. The default is C(NVIDIA_DRIVER_CAPABILITIES) of the image, else V(compute)
        and V(utility).
      - With O(isolation=volume), V(graphics) and V(display) add C(/dev/nvidia-modeset), the DRM nodes of the GPUs, and
        the files with which EGL, GBM, Vulkan and OptiX find the driver. With O(libraries=files), the libraries of
        V(video), V(graphics), V(ngx) and V(compat32) are mounted only if the container has the capability.
      - If the driver of the host lacks a part of graphics, or the CDI specification has no files for graphics, the
        isolation is not available. If only the image requests graphics, the container gets none.
      - O(isolation=cdi) ignores this option, because the specification determines the capabilities.
      - If the container has other capabilities, it is recreated. Without this option, a container with
        O(isolation=volume) is recreated if the capabilities of the image require other device nodes, and other
        containers keep their capabilities.
    type: list
    elements: str
    choices: [compat32, compute, display, graphics, ngx, utility, video]
  features:
    description:
      - Optional features of the driver that the container can use in addition to its GPUs. The task fails if the host
        lacks one of them.
      - V(gdrcopy) passes C(/dev/gdrdrv).
      - V(gds) passes the nodes of GPUDirect Storage, C(/dev/nvidia-fs*), and mounts C(/run/udev) and
        C(/etc/cufile.json) read-only.
      - V(mps) mounts the directory of the host's MPS daemon, C(/tmp/nvidia-mps) or that in C(CUDA_MPS_PIPE_DIRECTORY)
        in O(env). The container uses the IPC namespace of the host, unless O(ipc_mode) is set. MPS has one server per
        user. The server does not count as a holder of GPUs.
      - V(nvswitch) passes the nodes of the NVSwitches, for programs that monitor or manage them. CUDA and NCCL do not
        need them.
      - A container whose features change is recreated.
    type: list
    elements: str
    choices: [gdrcopy, gds, mps, nvswitch]
  imex_channels:
    description:
      - IMEX channels of the container, for memory that GPUs of several hosts share over NVLink. Programs usually use
        channel V(0).
      - The task fails if a channel does not exist. A container whose channels change is recreated.
    type: list
    elements: int
  driver_volume_path:
    description: Directory of driver volumes, as in M(gpufleet.hosts.nvidia_driver_volume).
    type: path
    default: /var/lib/gpufleet/volumes
  driver_root:
    description:
      - Directory that contains the driver's user-space files if the driver is not installed in the host's own file
        system, for example V(/run/nvidia/driver). The module also creates the driver volume from these files.
      - The directory does not have to exist with O(state=absent) and O(state=stopped).
    type: path
  timeout:
    description: Seconds to wait for a response from the driver. The value must be above 0 and at most 3600.
    type: float
    default: 10
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
      - Ansible does not log the values on the host, and the diff shows passwords and tokens masked. The result
        C(container) contains the environment, as the engine returns it.
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
    description:
      - User that runs the command.
      - If this user, or the one of the image, can open the device nodes of the GPUs only through their groups, the
        container gets these groups, and a warning names them. An unchanged container is not recreated for this.
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
  x_private:
    description: Private. Do not set.
    type: dict
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
    A condition with an unknown property is skipped with a warning.
  - If the image meets its requirements only with its CUDA compatibility package, the module puts
    C(/usr/local/cuda/compat) in front of C(LD_LIBRARY_PATH) for data-center GPUs, and refuses the image for others.
  - With O(isolation=runtime) or O(isolation=device_requests), the task fails only if NVIDIA's software would reject the
    container, that is in the mode legacy and with NVIDIA's hook. Otherwise unmet requirements are warnings.
  - The GPUs are reserved until the engine's module has finished. A reservation expires after five minutes plus the stop
    timeout of the container.
  - Run this module as root. Reservations of root are in C(/run/gpufleet). Reservations of other users are in
    C(gpufleet) in the user's runtime directory, or in C(/tmp/gpufleet-UID). Other users do not see each other's
    reservations and Podman containers, so O(exclusive=true) fails without O(exclusive_scope=user).
  - The GPUs are those of the managed host. The task fails if C(docker_host) selects Docker on another host, or Docker
    through TLS.
author:
  - gpufleet maintainers (@gpufleet)
seealso:
  - module: gpufleet.hosts.gpu_container_info
  - module: gpufleet.hosts.nvidia_driver_volume
  - module: gpufleet.hosts.nvidia_cdi_spec
  - module: gpufleet.hosts.nvidia_gpu_facts
  - module: community.docker.docker_container
  - module: containers.podman.podman_container
"""

EXAMPLES = r"""
- name: Check PyTorch on one GPU
  gpufleet.hosts.gpu_container:
    name: torch
    image: docker.io/pytorch/pytorch:2.8.0-cuda12.8-cudnn9-runtime
    command: [python, -c, "import torch; print(torch.cuda.get_device_name())"]
    gpus: 1

- name: Train on all GPUs in a Deep Learning Container of AWS
  gpufleet.hosts.gpu_container:
    name: train
    image: public.ecr.aws/deep-learning-containers/pytorch-training:2.9.0-gpu-py312-cu130-ubuntu22.04-ec2
    command: [torchrun, --standalone, --nproc-per-node=gpu, /src/train.py]
    gpus: all
    exclusive: true
    shm_size: 16g
    ulimits: ["memlock:-1:-1"]
    volumes: ["/srv/train:/src:ro"]

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

- name: Run a container with a healthy GPU that no process uses and that has 60 GB of free memory
  gpufleet.hosts.gpu_container:
    name: evaluation
    image: registry.example.com/evaluation:4
    gpus: 1
    conditions:
      health: ok
      idle: true
      memory_free_min_mib: 60000
    exclusive: true

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

- name: Run a container on four AWS Neuron chips that nothing else uses
  gpufleet.hosts.gpu_container:
    name: inference
    image: localhost/neuron-inference:latest
    gpus: 4
    exclusive: true

- name: Run a container on a quad of Gaudi accelerators that nothing else uses
  gpufleet.hosts.gpu_container:
    name: training
    image: localhost/gaudi-training:latest
    accelerator: gaudi
    gpus: 4
    exclusive: true

- name: Select a GPU and get the arguments of docker and podman
  gpufleet.hosts.gpu_container:
    name: notebook
    image: registry.example.com/jupyter:2026.11
    gpus: 1
    state: rendered
  register: notebook

- name: Start the container without this module
  ansible.builtin.command:
    argv: "{{ ['docker', 'run', '--detach', '--name=notebook'] + notebook.docker_args + [image] }}"
  vars:
    image: registry.example.com/jupyter:2026.11

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
  sample: {"Id": "f1d2", "Name": "/trainer", "State": {"Status": "running"}}
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
      sample: ["capabilities: compute, utility \u2192 compute, utility, video"]
    warnings:
      description:
        - Warnings about options that bypass the isolation, events that can remove the access, GPUs that are degraded
          or unusable, and possible holders that are not visible. Each warning begins with the container's name.
        - The task also shows these warnings.
      type: list
      elements: str
      returned: always
      sample: ["container trainer: device /dev/nvidia0 gives access to GPUs in addition to gpus."]
docker_args:
  description:
    - Arguments that give a container of C(docker run) or C(docker create) the selected GPUs, O(features) and
      O(imex_channels). V(null) if Docker is not available or not requested, and in check mode if the image is missing.
    - One argument can contain spaces or quotes. In a shell command, quote each argument.
  returned: with O(state=rendered)
  type: list
  elements: str
  sample:
    - --volume=nvidia_driver_580.95.05:/usr/local/nvidia:ro
    - --volume=/var/lib/gpufleet/volumes/nvidia_driver/580.95.05/lib64/libcuda.so.580.95.05:/usr/lib64/libcuda.so.1:ro
    - --device=/dev/nvidiactl
    - --device=/dev/nvidia-uvm
    - --device=/dev/nvidia2
podman_args:
  description:
    - The same for C(podman run) and C(podman create). The isolation can be another one than that of Docker.
  returned: with O(state=rendered)
  type: list
  elements: str
  sample: [--device=nvidia.com/gpu=GPU-5a6f3c1e-2d7b-4c9a-8f10-3b2e9d4c7a61]
compose:
  description:
    - A file for Docker Compose that gives the service O(name) the selected GPUs. It contains nothing else, so use it
      beside your own file, which has the service under the same name.
  returned: with O(state=rendered)
  type: dict
  sample:
    services:
      trainer:
        deploy:
          resources:
            reservations:
              devices:
                - driver: cdi
                  device_ids: [nvidia.com/gpu=GPU-5a6f3c1e-2d7b-4c9a-8f10-3b2e9d4c7a61]
                  capabilities: [gpu]
driver_volume:
  description: The driver volume, as M(gpufleet.hosts.nvidia_driver_volume) returns it.
  returned: when the task created or repaired the driver volume
  type: dict
  sample: {"name": "nvidia_driver_580.95.05", "path": "/var/lib/gpufleet/volumes/nvidia_driver/580.95.05"}
"""

import os

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import option_limits as base_options
from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned, pinned_environment
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.masked_module import MaskedModule as AnsibleModule
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.masked_module import hidden, without_logins
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.program_runner import runner
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.root_required import is_root
from ansible_collections.gpufleet.hosts.plugins.module_utils.container import (
    engine_choice,
    slurm_jobs,
    start_failures,
    vendor_of_host,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.engine_module_options import OptionError
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.isolation_choice import OPTIONS as ISOLATIONS
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.isolation_choice import VOLUME, IsolationError
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.driver_capabilities import CAPABILITIES
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.driver_files_of_container import FILES
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.plan_result import PlanError
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.planner import Planner
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.reservations import (
    ReservationError,
    Reservations,
    directory_for,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection.gpus_option import SelectionError
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.vendor_protocol import RequirementError
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import stopped_engine
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import (
    Docker,
    Podman,
    StoppedDocker,
    UnavailableEngine,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.named_volumes import DOCKER_HOST, EngineError
from ansible_collections.gpufleet.hosts.plugins.module_utils.facts import gather as facts_gather
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.optional_features import FEATURES, FeatureError
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import mount_users as host_processes
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml import pynvml_kept_until_boot as nvml_binding
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml.missing_pynvml import BindingMissing
from ansible_collections.gpufleet.hosts.plugins.module_utils.rendering.rendering_planner import RenderingPlanner

# The keys of x_private.
PRIVATE = ("_before", "_keep", "_phase", "_pulled", "_token", "_nvml_binding_path")
# The options that may contain passwords.
_MAY_HAVE_SECRETS = ("command", "engine_options", "entrypoint", "env", "labels")
_STATES = ["started", "present", "stopped", "absent", "rendered"]
_FAILURES = (
    EngineError,
    FeatureError,
    IsolationError,
    OptionError,
    PlanError,
    RequirementError,
    ReservationError,
    SelectionError,
)


def main() -> None:
    """Run the phase that the action plugin requests."""
    pinned_environment.pin()
    module = AnsibleModule(argument_spec=argument_spec(), mask=masked, supports_check_mode=True)
    module.params.update({**dict.fromkeys(PRIVATE), **(module.params.pop("x_private") or {})})
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


_CONDITIONS = {
    "memory_min_mib": {"type": "int"},
    "model": {"type": "str"},
    "numa_node": {"type": "int"},
    "mig_profile": {"type": "str"},
    "memory_free_min_mib": {"type": "int"},
    "health": {"type": "str", "choices": ["ok", "degraded"]},
    "idle": {"type": "bool"},
}


def argument_spec() -> dict:
    """Return the options."""
    strings = {"type": "list", "elements": "str"}
    return {
        "name": {"type": "str", "required": True},
        "image": {"type": "str"},
        "state": {"type": "str", "choices": _STATES, "default": "started"},
        "engine": {"type": "str", "choices": ["auto", "docker", "podman"], "default": "auto"},
        "accelerator": {"type": "str", "choices": list(vendor_of_host.OPTIONS), "default": vendor_of_host.AUTO},
        "gpus": {"type": "raw"},
        "conditions": {"type": "dict", "options": _CONDITIONS},
        "exclusive": {"type": "bool", "default": False},
        "exclusive_ignore": {**strings, "default": []},
        "exclusive_scope": {"type": "str", "choices": ["host", "user"], "default": "host"},
        "isolation": {"type": "str", "choices": list(ISOLATIONS), "default": "auto"},
        "cdi_kind": {"type": "str"},
        "libraries": {"type": "str", "choices": [FILES, VOLUME], "default": FILES},
        "capabilities": {**strings, "choices": list(CAPABILITIES)},
        "features": {**strings, "choices": list(FEATURES)},
        "imex_channels": {"type": "list", "elements": "int"},
        "driver_volume_path": {"type": "path", "default": owned.VOLUMES},
        "driver_root": {"type": "path"},
        "timeout": {"type": "float", "default": 10},
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
        # Set by the action plugin. ansible-doc sorts options, so the name puts this one after those for users.
        "x_private": {"type": "dict"},
    }


def masked(value: dict | str) -> dict | str:
    """Mask the arguments, or a text, for the log of the host and the result."""
    if isinstance(value, dict):
        value = {name: hidden(item) if name in _MAY_HAVE_SECRETS else item for name, item in value.items()}
    return without_logins(value)


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
    host = engine_choice.docker_host(options, os.environ)
    remote = engine_choice.remote_docker(host, options, os.environ)
    if remote and module.params["engine"] != "podman":
        raise EngineError(remote)
    return {
        # For Podman, the containers of this host's Docker count as holders.
        "docker": _docker(None if remote else host, module.check_mode),
        "podman": _podman(module, podman),
    }


def _plan(module: AnsibleModule) -> dict:
    params = module.params

    binding = _binding(params["_nvml_binding_path"], module.check_mode)
    timeout, driver_root = params["timeout"], params["driver_root"]
    fault = base_options.timeout_fault(timeout)
    if fault:
        raise OptionError(fault)

    def gather(subsets: frozenset) -> dict:
        fault = base_options.driver_root_fault(driver_root)
        if fault:
            raise SelectionError(fault)
        return facts_gather.gather(
            subsets, run=module.run_command, timeout=timeout, binding_path=binding, driver_root=driver_root
        )["facts"]

    planner = (RenderingPlanner if params["state"] == "rendered" else Planner)(
        params,
        _engines(module),
        vendor_of_host.create(vendor_of_host.VendorHost(params, module.run_command, gather)),
        _reservations(),
        check_mode=module.check_mode,
        root_user=is_root(),
        jobs=lambda inventory: slurm_jobs.find(runner(module), inventory),
        docker_host=engine_choice.docker_host(params["engine_options"] or {}, os.environ),
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
        if check_mode and docker.socket and stopped_engine.is_socket_activated(docker.socket):
            return StoppedDocker(stopped_engine.docker)
        return docker
    except EngineError as error:
        return UnavailableEngine("docker", str(error))


if __name__ == "__main__":
    main()
