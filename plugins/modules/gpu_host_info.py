#!/usr/bin/python
# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Observe a host for the planning functions of the roles."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_host_info
short_description: Read the host state that GPU software depends on
version_added: 0.1.0
author:
  - gpufleet maintainers (@gpufleet)
description:
  - Describes accelerators by PCI, kernels with the driver modules built for them, driver versions, packages and holds,
    services, engines, package sources, Secure Boot and the reasons for a required reboot.
  - Reads files and runs a few local programs. It never writes, never uses the network and starts no service, not even a
    socket-activated engine.
  - Missing hardware, drivers or programs are not errors.
extends_documentation_fragment:
  - gpufleet.hosts.attributes.controller
options:
  services:
    description: Additional systemd units to observe. The units that the roles need are always included.
    type: list
    elements: str
    default: []
  files:
    description:
      - Additional files to read. The files that the roles write are always included.
      - The content of files above 256 KiB is not returned.
    type: list
    elements: path
    default: []
  packages:
    description: Package names that may be virtual. C(provided) has the installed packages that provide them.
    type: list
    elements: str
    default: []
  package_patterns:
    description: Regular expressions for names of further packages that C(packages) describes.
    type: list
    elements: str
    default: []
  users:
    description:
      - Names of users to look up. C(docker_group) says which of them exist.
      - Users that neither F(/etc/passwd) nor group C(docker) contains are looked up in the name service of the host,
        for example in a directory service.
    type: list
    elements: str
    default: []
  cloud_init_timeout:
    description:
      - Seconds to wait until cloud-init has finished in this boot, also in check mode. While it runs, it can install
        packages and write files.
    type: int
    default: 0
  package_lock_timeout:
    description:
      - With apt, seconds to wait for a running package manager. If the package manager still runs after this time,
        C(busy) in C(package_state) is V(true).
      - Check mode does not wait.
    type: int
    default: 0
  driver_volume:
    description:
      - Options of module M(gpufleet.hosts.nvidia_driver_volume). If set, RV(host.driver_volume) predicts what that
        module would do with these options. All other options have their defaults.
      - Set this option to V({}) for a prediction with defaults only.
      - The prediction reads volumes from running engines, but starts no engine.
    type: dict
    suboptions:
      engine:
        description: Container engines to register the volume with.
        type: list
        elements: str
        choices: [auto, docker, podman, none]
        default: [auto]
      expected_engines:
        description:
          - Engines that the prediction treats as available, because a task before module
            M(gpufleet.hosts.nvidia_driver_volume) installs or starts them.
        type: list
        elements: str
        choices: [docker, podman]
        default: []
  _declared:
    description: Private. Do not set.
    type: dict
    default: {}
seealso:
  - module: gpufleet.hosts.nvidia_driver_volume
  - module: gpufleet.hosts.nvidia_gpu_facts
"""

EXAMPLES = r"""
- name: Observe the host
  gpufleet.hosts.gpu_host_info:
  register: observation

- name: Show why a reboot is required
  ansible.builtin.debug:
    msg: "{{ observation.host.reboot_required_reasons }}"

- name: Predict the driver volume of a host on which a later task installs Docker
  gpufleet.hosts.gpu_host_info:
    driver_volume:
      expected_engines: [docker]
  register: observation
"""

RETURN = r"""
host:
  description: The observation. Role P(gpufleet.hosts.observe#role) sets it as C(gpufleet_host).
  type: dict
  returned: always
  contains:
    schema:
      description: Version of this structure.
      type: int
      sample: 1
    os:
      description:
        - The platform. C(key) is the name of its data files in the roles.
        - Fields are C(id), C(id_like), C(name), C(version), C(codename), C(family), C(key), C(package_manager), C(arch)
          and C(variant).
        - C(variant) is V(wsl) on Windows Subsystem for Linux, V(tegra) on Jetson and other Tegra boards, V(lxc) in LXC,
          LXD and Incus guests, and otherwise null.
      type: dict
      sample: {family: debian, key: debian-12, version: "12", codename: bookworm, arch: x86_64, package_manager: apt}
    uid:
      description: User ID that the module ran with. If it is not V(0), some values are missing.
      type: int
      sample: 0
    identity:
      description: The C(machine_id), and C(boot), which changes at every boot.
      type: dict
      sample: {machine_id: 5f3ab1c29d6e4b0f8a7c6d5e4f3a2b1c, boot: 0f6e2b3c-5d4a-4c7b-9e8f-1a2b3c4d5e6f/4}
    accelerators:
      description:
        - GPUs and accelerators by vendor - C(nvidia), C(amd), C(neuron), C(gaudi) and C(intel). A vendor other than
          NVIDIA is null if the host has no device of it.
        - Each vendor has C(devices), C(driver) and C(module). All except NVIDIA have C(record).
        - C(devices) are the GPUs and accelerators. C(generation) is for example V(Hopper), V(Trainium2) or V(Gaudi3),
          and null if the device ID is unknown. The other fields are those of C(nvidia_pci_devices) of
          M(gpufleet.hosts.nvidia_gpu_facts).
        - C(driver) has the version of the C(loaded) driver, which is that of the kernel if the module has no version.
        - C(record) is what the kernel shows of the devices, for the roles. It has the contents of files (C(texts)), the
          error numbers of unreadable files (C(refused)), existing paths (C(names)), the device C(nodes), the files
          that keep the kernel module from being loaded (C(blacklisted_by)), failures in the kernel log (C(log)) and the
          members of the C(groups) of device nodes. M(gpufleet.hosts.accelerator_facts) returns the same values in a
          documented form. It is null for a vendor without a role.
        - C(module) has the C(name) of the kernel module, whether it is C(loaded), its C(version), and the C(kernels) of
          the host that have it. It is null for C(intel).
        - The driver of C(nvidia) has more versions - of the C(loaded) module, of the user-space C(library), C(on_disk)
          for the running kernel and C(on_disk_next) for the kernel of the next boot. C(kernel_module_flavor),
          C(on_disk_flavor) and C(on_disk_next_flavor) are C(open) or C(proprietary). C(in_use) counts the uses of the
          loaded modules, such as open devices. Uses by other modules do not count. C(runfile) is V(true) if NVIDIA's
          installer was used.
        - C(nvidia) also has NVIDIA's PCI functions (C(pci_devices)), the addresses of GPUs (C(gpus)) and NVSwitches
          (C(nvswitches)), the device IDs of the GPUs (C(device_ids)), the GPUs that are vGPUs of a hypervisor
          (C(vgpus), each with C(address) and the C(manager_version) of the vGPU manager, if it is known), the GPUs
          that are assigned to virtual machines (C(gpus_of_guests)), the GPUs that option C(NVreg_ExcludedGpus) of the
          loaded module excludes (C(gpus_excluded)), MIG instances by the minor number of their GPU (C(mig_instances)),
          and the InfiniBand devices that manage NVLink 5 switches (C(nvlink5_switches)). This host uses only C(gpus).
      type: dict
      sample:
        nvidia:
          devices:
            - {vendor: nvidia, kind: gpu, generation: Ampere, address: "0000:3b:00.0", kernel_driver: nvidia}
          driver: {loaded: 535.261.03, library: 535.261.03, on_disk: 535.261.03, kernel_module_flavor: open, in_use: 0}
          module: {name: nvidia, loaded: true, version: 535.261.03, kernels: [6.1.0-49-amd64]}
          gpus: ["0000:3b:00.0"]
          device_ids: ["0x20b0"]
          vgpus: []
          gpus_of_guests: []
          gpus_excluded: []
          mig_instances: [gpu0/gi1]
          nvswitches: []
          nvlink5_switches: []
          pci_devices: []
        amd: null
        neuron: null
        gaudi: null
        intel: null
    accelerator_specs:
      description:
        - CDI specifications of other kinds than C(nvidia.com/gpu), each with C(path), C(kind), C(ours), C(digest) and
          the device C(nodes) by device. Only read on hosts with accelerators of other vendors.
      type: list
      elements: dict
      sample: []
    former_groups:
      description:
        - Members of the groups C(render) and C(video), by group, on a host whose users a role added to them for
          accelerators that are gone. Otherwise empty.
      type: dict
      sample: {}
    kernel:
      description:
        - The C(running) release, the release of the C(next_boot), why it is only a guess (C(next_boot_unknown), null if
          the boot loader determines it), and C(kernels), newest first, each with C(release), C(bootable), C(headers)
          (whether modules can be built for it) and C(nvidia_module) (C(path), C(version), C(flavor), C(signer),
          C(built_for), and C(vermagic_mismatch), null if the kernel accepts the version magic), null if modprobe would
          find no module.
      type: dict
      sample: {running: 6.1.0-49-amd64, next_boot: 6.1.0-49-amd64, next_boot_unknown: null, kernels: []}
    dkms:
      description:
        - NVIDIA's DKMS modules (C(name), C(version)) and the state per kernel, C(built) or C(installed).
        - C(failure) has C(kernel), C(log) and the first C(errors) of a failed build. Otherwise it is null.
      type: list
      elements: dict
      sample: [{name: nvidia-current, version: 535.261.03, kernels: {6.1.0-49-amd64: installed}, failure: null}]
    initramfs:
      description:
        - The initramfs of the running and of the next kernel, if the loaded driver differs from the module on disk
          although that module was installed before the boot. Otherwise empty.
        - Each has its C(kernel), its C(path), C(has_driver), which is V(true) if it contains the driver's module and
          null if no program can list it, and C(before_boot), which is V(true) if it was built before the boot.
      type: list
      elements: dict
      sample:
        - {kernel: 6.1.0-49-amd64, path: /boot/initrd.img-6.1.0-49-amd64, has_driver: true, before_boot: true}
    python:
      description: Path of the Python that ran this module.
      type: str
      sample: /usr/bin/python3.11
    root_python:
      description:
        - A Python that a unit of root may run. It is C(python), unless users other than root can replace that program
          or a directory on the way to it. Null if there is none.
      type: str
      sample: /usr/bin/python3.11
    nvml_binding:
      description:
        - Whether the Python that ran this module has C(pynvml). If not, M(gpufleet.hosts.nvidia_gpu_facts) sends the
          controller's copy in the first call.
      type: bool
      sample: false
    holders:
      description:
        - Users of the GPUs - processes that have a device open (C(open)), and running containers of any engine that
          have one in F(/dev).
        - Fields are C(pid), C(command), C(devices), C(open), C(container), which is the short ID, the name in LXC, or
          null, and C(container_name), which is null if Docker does not know the container. Containers of
          M(gpufleet.hosts.gpu_container) on Docker have C(assigned), the UUIDs of their GPUs and MIG devices.
      type: list
      elements: dict
      sample: [{pid: 812, command: sleep, devices: [/dev/nvidia0], open: false, container: 4f1c9ab3e2d0}]
    foreign_drivers:
      description:
        - For C(nouveau) and C(nova_core), whether the driver is C(loaded), the C(bound) addresses, whether a kernel of
          the host has it (C(available)), and the files that blacklist it (C(blacklisted_by)).
      type: dict
      sample:
        nouveau: {loaded: false, bound: [], available: true, blacklisted_by: [/etc/modprobe.d/nvidia.conf]}
        nova_core: {loaded: false, bound: [], available: false, blacklisted_by: []}
    modules_loaded:
      description: Names of loaded kernel modules that drive accelerators.
      type: list
      elements: str
      sample: [nvidia, nvidia_uvm]
    module_users:
      description: >-
        For each of C(modules_loaded), the loaded modules that use it. They prevent it from being unloaded.
      type: dict
      sample: {nvidia: [gdrdrv, nvidia_uvm]}
    uvm_loaders:
      description: The udev rules and modprobe files of other packages that load C(nvidia_uvm) when a GPU appears.
      type: list
      elements: str
      sample: [/usr/lib/udev/rules.d/71-nvidia.rules]
    daemon_users:
      description: Users that packages have created for the persistence daemon.
      type: list
      elements: str
      sample: [nvidia-persistenced]
    secure_boot:
      description:
        - Whether Secure Boot is C(enabled) (null without UEFI variables), whether the kernel has
          C(signatures_enforced), its C(lockdown) mode, the C(trusted_signers) and the key that DKMS uses for signing.
      type: dict
      sample: {enabled: false, uefi: true, signatures_enforced: false, lockdown: none, trusted_signers: []}
    packages:
      description:
        - The C(version), C(held) and C(arch) of the installed packages of drivers, kernels, engines and their tools, by
          name.
        - To check whether any other package is installed, use C(installed_packages).
      type: dict
      sample: {nvidia-smi: {version: 535.261.03-1, held: true, arch: amd64}}
    package_origins:
      description:
        - Where the installed driver packages came from. Packages of unknown origin are missing.
        - With apt, the first repository of each vendor whose downloaded list has the installed version - the C(vendor)
          is the Origin in its Release file, and the C(repository) is its URL without the scheme.
        - With rpm, the C(vendor) of the package, the ID of the C(key) that signed it, and the ID of the C(repository)
          that dnf or zypper recorded.
      type: dict
      sample: {nvidia-smi: [{vendor: Debian, repository: archive.example.com/debian, key: null}]}
    installed_packages:
      description:
        - All installed packages by name, each with its version and architecture, separated by a space. If a package is
          installed more than once, C(, ) separates the entries.
        - The signing keys in rpm's database have the name C(gpg-pubkey-) and their version.
      type: dict
      sample: {bash: 5.2.15-2+b7 amd64, libc6: "2.36-9+deb12u10 amd64, 2.36-9+deb12u10 i386"}
    provided:
      description: The installed packages that provide the virtual names in O(packages), by name.
      type: dict
      sample: {nvidia-smi: [nvidia-driver-cuda]}
    held_packages:
      description: The names of all held packages.
      type: list
      elements: str
      sample: [nvidia-smi]
    package_state:
      description:
        - Incomplete packages (C(unfinished)), whether dpkg was C(interrupted), and version locks (C(held_patterns)).
        - With apt, whether a package manager is running (C(busy)). C(unfinished) may then change at any time.
        - With apt, C(config_files) are removed packages whose configuration files remain in F(/etc).
      type: dict
      sample: {unfinished: [], interrupted: false, busy: false, held_patterns: [], config_files: []}
    services:
      description: >-
        State of each unit (C(load_state), C(active_state), C(sub_state), C(unit_file_state), C(fragment_path),
        C(drop_in_paths), C(need_daemon_reload), C(active_since_us)); empty if systemd does not run.
      type: dict
      sample: {docker.service: {active_state: active, unit_file_state: enabled}}
    engines:
      description: >-
        For C(docker), C(podman), C(containerd), C(crio) and C(container_toolkit) the C(package) and C(version); for a
        running Docker Engine also its C(info).
      type: dict
      sample: {podman: {package: podman, version: 4.3.1+ds1-8}}
    engine_processes:
      description: >-
        The number of running C(containers) by engine (C(docker), C(containerd), C(kubernetes), C(podman), C(crio); and
        with their own containerd C(snap), C(k3s), C(rootless)), from the processes of the host, and the IDs of the
        users that run a C(rootless_docker).
      type: dict
      sample: {containers: {podman: 2}, rootless_docker: [1000]}
    docker_group:
      description:
        - Group C(docker) - whether it C(exists), its C(members), the users whose primary group it is
          (C(primary_members)), and the group of F(/run/docker.sock) (C(socket_group)), null without a socket.
        - C(users) has the names in O(users), and whether each user exists.
      type: dict
      sample: {exists: true, members: [alice], primary_members: [], users: {alice: true}, socket_group: docker}
    docker_data:
      description:
        - Docker's data directory (C(root), and C(directory) with resolved links), and how many C(containers), C(images)
          and C(volumes) it contains.
        - Images of the containerd image store are in another directory and are not counted.
      type: dict
      sample: {root: /var/lib/docker, directory: /data/docker, containers: 2, images: 5, volumes: 0}
    cdi_specs:
      description:
        - The CDI specifications of kind C(nvidia.com/gpu), in F(/etc/cdi), F(/var/run/cdi) and the other
          directories of a running Docker Engine.
        - Each has its C(path), the C(driver_versions) of the files that it contains, the names of its devices that are
          C(uuids), the SHA-256 C(digest) of its text, and whether M(gpufleet.hosts.nvidia_cdi_spec) wrote it (C(ours)).
        - C(nodes) has the device nodes of each device by its name, and those of the whole file under an empty name. It
          is null if the file is invalid.
      type: list
      elements: dict
      sample:
        - path: /var/run/cdi/nvidia.yaml
          driver_versions: [535.261.03]
          uuids: []
          ours: false
          digest: 5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef
          nodes: {'': [/dev/nvidiactl, /dev/nvidia-uvm], '0': [/dev/nvidia0]}
    cdi_nodes:
      description: >-
        The device nodes of the host with their numbers, the major numbers of the driver, the DRM nodes of each GPU by
        its PCI address, and the numbers of MIG capabilities. Null without CDI specifications.
      type: dict
      sample: {numbers: {/dev/nvidia0: '195:0'}, majors: {nvidia: 195}, drm: {}, mig_minors: {config: 1, monitor: 2}}
    nvidia_runtimes:
      description: >-
        The existing programs that the configuration of Docker, containerd and CRI-O names as NVIDIA's runtime, with
        their versions. The version is null if it is unknown, or if the program is that of a package.
      type: dict
      sample: {/usr/local/nvidia/toolkit/nvidia-container-runtime: 1.17.4}
    nvidia_docker_traces:
      description: >-
        Whether files, the user or volumes of nvidia-docker 1 and 2 exist. M(gpufleet.hosts.gpu_host_plan) then
        describes them in C(nvidia_docker).
      type: bool
      sample: false
    nvidia_docker:
      description:
        - What nvidia-docker 1 and 2 left on the host, besides packages and repositories. This module returns null, only
          M(gpufleet.hosts.gpu_host_plan) reads it.
        - C(files) and C(hooks) are paths. C(has_user) is whether the user of the volume plugin exists. C(service) is
          the state of its unit, and C(answers) whether a plugin listens.
        - C(volumes) has the volumes of the plugin that Docker knows, or null if its database cannot be read.
          C(containers) has the containers that use the plugin or a runtime other than Docker's.
        - C(keys) has the files with an expired copy of NVIDIA's key, and C(saved) what an unfinished migration has
          saved. C(copies) says whether each copy is C(equal) to its file, C(different), or its file is C(gone).
      type: dict
      sample: {files: [/etc/docker/plugins/nvidia-docker.spec], answers: false, volumes: [nvidia_driver_375.66]}
    cri_files:
      description:
        - The configuration files of C(containerd) and of CRI-O (C(crio)), as texts by path, in the order in which the
          engine reads them. The values of logins are masked, and C(masked) lists the files with logins.
        - C(unread) has the files of containerd that exist but cannot be read, or whose imports are uncertain.
        - C(ignored) has the settings of k3s and RKE2 that are older than the configuration of their last start.
        - C(mode) has the permissions of F(/etc/containerd/config.toml), and C(others) the existing files that belong to
          other programs, such as k3s.
        - C(nodes) has the texts of the files that a distribution of Kubernetes generates for its own containerd, and of
          the files that this collection wrote into its directories.
      type: dict
      sample:
        containerd: {/etc/containerd/config.toml: "version = 3"}
        crio: {}
        masked: []
        unread: []
        ignored: []
        mode: "0644"
        others: []
        nodes: {}
    driver_volume:
      description:
        - What module M(gpufleet.hosts.nvidia_driver_volume) would do - whether it would change the host (C(changed)),
          its C(actions), the C(volume) as that module returns it, and the C(error) that it would report.
        - C(surplus) lists those of the C(actions) that only remove files from the volume. They may be files of driver
          packages that are no longer installed.
        - After an error, C(changed) is V(false) and C(volume) is null. Without an error, C(error) is null.
        - If no driver is loaded, it is the prediction for the driver on disk. Null if there is none, or if
          O(driver_volume) is not set.
      type: dict
      sample:
        changed: true
        actions: [register nvidia_driver_535.261.03 with docker]
        surplus: []
        volume: {name: nvidia_driver_535.261.03, version: 535.261.03, engines: [docker]}
        error: null
    docker_daemon_json:
      description: >-
        The C(content) of daemon.json, or the C(error) that prevents Docker from reading it, and the C(flags) of the
        daemon in its unit (C(text), the equivalent C(key), C(value), C(place)). C(has_command) says whether the unit or
        a drop-in has the command of the daemon. Passwords and tokens are masked. C(digests) of the options that
        contain them allow comparisons. C(applied) is V(false) if the daemon has not applied the last change that the
        collection made. C(in_swarm) says whether Docker's data directory is that of a member of a swarm.
        C(missing_runtimes) are the runtimes whose program does not exist, with its path.
      type: dict
      sample:
        path: /etc/docker/daemon.json
        exists: true
        content: {live-restore: true}
        error: null
        flags: []
        has_command: true
        applied: true
        in_swarm: false
        digests: {file: [], record: {}}
    files:
      description: >-
        C(exists), C(content) and C(mode) of the files that the roles write and of O(files). Passwords and tokens
        are masked in F(/etc/docker/daemon.json) and in the collection's record of it. In the files of
        NVIDIA's repository, digests replace the logins. A digest replaces F(/var/lib/gpufleet/cdi_refresh.py) and the
        F(/usr/local/bin/nvidia-docker) of role C(nvidia_container_toolkit); another file there has no content.
      type: dict
      sample: {/etc/docker/daemon.json: {exists: true, content: "{}", mode: "0644"}}
    apt:
      description: >-
        On hosts with apt: the C(sources) of both forms (C(distribution) marks those of the archive of Debian or
        Ubuntu), the C(missing_components), the number of downloaded C(lists) and C(unattended_upgrades). Null
        elsewhere.
      type: dict
      sample: {missing_components: [contrib], lists: 3, unattended_upgrades: {enabled: true, blacklist: []}}
    repositories:
      description: On hosts with dnf or zypper, the repositories by C(id), C(file), C(url) and C(enabled).
      type: list
      elements: dict
      sample: [{id: baseos, file: /etc/yum.repos.d/rocky.repo, url: null, enabled: true}]
    module_streams:
      description: The enabled stream of each dnf module.
      type: dict
      sample: {nvidia-driver: 580-open}
    keyrings:
      description: >-
        The key files of repositories that the roles wrote, by path: the C(fingerprints) of their keys, the C(digests)
        of the file and of the downloaded file, and C(other), which describes content that is not part of a public key.
      type: dict
      sample:
        /usr/share/keyrings/gpufleet-nvidia-cuda.gpg:
          fingerprints: [EB693B3035CD5710E231E123A4B469963BF863CC]
          digests: ["sha256:afbea87d3b979b3788ef34223aeeb323ade481128e2c133723ae99b8a51368bb"]
    image:
      description:
        - The C(kind) of prepared image (C(dlami), C(eks), C(ecs), C(azure_hpc), C(dgx), C(gcp_deeplearning), null), the
          paths that are C(evidence) for it, and the C(cloud).
        - On EC2, C(instance_type) from the DMI table. The C(frameworks), C(cuda) toolkits and C(efa) installer of the
          image. C(nvme) is the directory of the local NVMe disks of a Deep Learning AMI, if they are mounted.
        - C(cloud_init) has its C(state) in this boot (C(absent), C(running), C(parent), C(done)) and its C(errors).
          In state C(parent), cloud-init itself runs this module.
      type: dict
      sample:
        kind: dlami
        evidence: [/opt/dlami]
        cloud: aws
        instance_type: p5.48xlarge
        frameworks: [pytorch]
        cuda: ["12.8", "13.2"]
        efa: 1.47.0
        nvme: /opt/dlami/nvme
        cloud_init: {state: done, errors: []}
    reboot_flag:
      description:
        - Whether the distribution requests a reboot (C(present)), and the C(packages) that require it.
        - Enterprise Linux and Amazon Linux have no file for this. There, C(packages) lists packages that take effect
          only after a boot and were installed since the last boot.
      type: dict
      sample: {present: false, packages: []}
    reboot_reasons:
      description: >-
        Why a reboot is required: C(id), C(text), and C(driver), which is V(true) if the GPU driver is the cause.
      type: list
      elements: dict
      sample: [{id: newer_kernel, text: "kernel 6.1.0-49-amd64 is running, ...", driver: false}]
    reboot_required_reasons:
      description: The texts of C(reboot_reasons).
      type: list
      elements: str
      sample: []
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import pinned_environment
from ansible_collections.gpufleet.hosts.plugins.module_utils.observe import module_call as observe_call


def main() -> None:
    """Run the module."""
    pinned_environment.pin()
    module = AnsibleModule(argument_spec=observe_call.OPTIONS, supports_check_mode=True)

    def run(argv: list[str], environment: dict[str, str] | None = None) -> tuple[int, str, str]:
        return module.run_command(argv, environ_update=environment)

    host = observe_call.observe(module.params, check_mode=module.check_mode, find=pinned_environment.find, run=run)
    module.exit_json(changed=False, host=host)


if __name__ == "__main__":
    main()
