# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The observation of a host, which the packages of module_utils pass to each other.

`observe/observation.py` returns a `Host`. The documentation of module gpu_host_info describes its keys. The program
behind nvidia_gpu_facts must not import this file, because it imports typing.
"""

from __future__ import annotations

from typing import Any, TypedDict


class System(TypedDict):
    """The platform. `key` is the name of its data files in the roles. `variant`: see host/platform.py."""

    id: str | None
    id_like: list[str]
    name: str
    version: str | None
    codename: str | None
    family: str | None
    key: str | None
    package_manager: str | None
    arch: str
    variant: str | None


class Identity(TypedDict):
    """The identity of the host and of the current boot."""

    machine_id: str | None
    boot: str


class PciFunction(TypedDict):
    """A PCI function."""

    address: str
    vendor_id: str
    device_id: str | None
    class_id: str | None
    subsystem_vendor_id: str | None
    subsystem_device_id: str | None
    numa_node: int | None
    kernel_driver: str | None
    kind: str


class ObservedAccelerator(PciFunction):
    """A GPU or accelerator of any vendor."""

    vendor: str
    generation: str | None


class AcceleratorModule(TypedDict):
    """The kernel module for the accelerators of a vendor. `kernels`: those that have it."""

    name: str
    loaded: bool
    version: str | None
    kernels: list[str]


class AcceleratorRecord(TypedDict):
    """What the observation recorded of a vendor's accelerators. accelerators/recorded_sysfs.py reads its first keys.

    `texts`, `refused`: the contents of files, and the error numbers of files that the kernel refused to read. `names`:
    existing paths. `nodes`: the device nodes. `blacklisted_by`: files of modprobe. `log`: failures in the kernel log.
    `groups`: the members of the groups of device nodes. `holders`: processes and containers that have a node, with
    `pid`, `command`, `container` and `nodes`; empty for vendors whose plans do not need them.
    """

    texts: dict[str, str]
    refused: dict[str, int]
    names: list[str]
    nodes: dict[str, dict[str, int]]
    blacklisted_by: list[str]
    log: list[str]
    groups: dict[str, list[str]]
    holders: list[dict[str, Any]]


class AcceleratorCdiSpec(TypedDict):
    """A CDI specification of a kind other than nvidia.com/gpu. `nodes`: as in CdiSpec."""

    path: str
    kind: str
    ours: bool
    digest: str
    nodes: dict[str, list[str]] | None


class AcceleratorDriver(TypedDict):
    """The version of the loaded driver, which is that of the kernel if the module has none of its own."""

    loaded: str | None


class AcceleratorGroup(TypedDict):
    """The devices of a vendor other than NVIDIA. `module` is null if none is known for the vendor, and
    `record` if no role of the vendor needs one.
    """

    devices: list[ObservedAccelerator]
    driver: AcceleratorDriver
    module: AcceleratorModule | None
    record: AcceleratorRecord | None


class Vgpu(TypedDict):
    """A vGPU, and the version of the hypervisor's vGPU manager, if it is known."""

    address: str
    manager_version: str | None


class ObservedNvidia(TypedDict):
    """NVIDIA's devices and driver, its PCI functions, and the addresses of GPUs and switches."""

    devices: list[ObservedAccelerator]
    driver: Driver
    module: AcceleratorModule
    pci_devices: list[PciFunction]
    gpus: list[str]
    device_ids: list[str]
    vgpus: list[Vgpu]
    gpus_of_guests: list[str]
    gpus_excluded: list[str]
    mig_instances: list[str]
    nvswitches: list[str]
    nvlink5_switches: list[str]


class AcceleratorsByVendor(TypedDict):
    """The accelerators by vendor. NVIDIA is always there, another vendor only if the host has devices of it."""

    nvidia: ObservedNvidia
    amd: AcceleratorGroup | None
    neuron: AcceleratorGroup | None
    gaudi: AcceleratorGroup | None
    intel: AcceleratorGroup | None


class NvidiaModule(TypedDict):
    """The NVIDIA module that modprobe loads under a kernel."""

    path: str
    version: str | None
    flavor: str | None
    signer: str | None
    built_for: str | None
    vermagic_mismatch: str | None


class Kernel(TypedDict):
    """A kernel of the host."""

    release: str
    bootable: bool
    headers: bool
    nvidia_module: NvidiaModule | None


class Kernels(TypedDict):
    """The kernels of the host, newest first."""

    running: str
    next_boot: str
    # Why the next kernel is only a guess.
    next_boot_unknown: str | None
    kernels: list[Kernel]


class BuildFailure(TypedDict):
    """The errors of a failed build of a DKMS module."""

    kernel: str | None
    log: str
    errors: list[str]


class DkmsModule(TypedDict):
    """A DKMS module of NVIDIA. `kernels` has its state for each kernel."""

    name: str
    version: str
    kernels: dict[str, str]
    failure: BuildFailure | None


class Driver(TypedDict):
    """The versions and flavors of the NVIDIA driver: loaded, in user space, on disk."""

    loaded: str | None
    kernel_module_flavor: str | None
    library: str | None
    library_path: str | None
    on_disk: str | None
    on_disk_flavor: str | None
    on_disk_next: str | None
    on_disk_next_flavor: str | None
    in_use: int
    runfile: bool
    prefix: str | None


class Initramfs(TypedDict):
    """An initramfs from which the boot may have loaded an older driver. host/outdated_initramfs.py reads it."""

    kernel: str
    path: str
    has_driver: bool | None
    before_boot: bool


class HolderAssignment(TypedDict, total=False):
    """What only containers of module gpu_container have: the UUIDs of the assigned GPUs and MIG devices."""

    assigned: list[str]


class ObservedHolder(HolderAssignment):
    """A process that has a GPU open, or a container that has one in /dev."""

    pid: int
    command: str | None
    devices: list[str]
    open: bool
    container: str | None
    container_name: str | None


class ForeignDriver(TypedDict):
    """The state of nouveau or nova_core."""

    loaded: bool
    bound: list[str]
    available: bool
    blacklisted_by: list[str]


class SecureBoot(TypedDict):
    """The state of Secure Boot, and the keys that the kernel trusts for modules."""

    enabled: bool | None
    uefi: bool
    signatures_enforced: bool
    lockdown: str | None
    trusted_signers: list[str]
    dkms_key: str | None


class ObservedPackage(TypedDict):
    """An installed package."""

    version: str
    held: bool
    arch: str


class PackageOrigin(TypedDict):
    """Where an installed package came from."""

    vendor: str | None
    repository: str | None
    key: str | None


class PackageState(TypedDict):
    """The state of the package manager."""

    held_patterns: list[str]
    unfinished: list[str]
    interrupted: bool
    busy: bool
    config_files: list[str]


class ObservedUnit(TypedDict):
    """The state of a systemd unit."""

    load_state: str | None
    active_state: str | None
    sub_state: str | None
    unit_file_state: str | None
    fragment_path: str | None
    drop_in_paths: list[str]
    need_daemon_reload: bool
    active_since_us: int


class Engine(TypedDict):
    """The package of a container engine or of NVIDIA's container toolkit."""

    package: str | None
    version: str | None


class DockerEngine(Engine):
    """Docker Engine. `info` has the fields of DockerInfo in engine/docker_info.py."""

    info: dict[str, Any] | None


class ObservedEngines(TypedDict):
    """The container engines and NVIDIA's container toolkit."""

    docker: DockerEngine
    podman: Engine
    containerd: Engine
    crio: Engine
    container_toolkit: Engine


class EngineProcesses(TypedDict):
    """Running containers by engine, and the IDs of users with a rootless Docker: engine/running_containers.py."""

    containers: dict[str, int]
    rootless_docker: list[int]


class DockerGroup(TypedDict):
    """Group docker, its members, and the requested users that exist. engine/docker_group.py reads it."""

    exists: bool
    members: list[str]
    primary_members: list[str]
    users: dict[str, bool]
    socket_group: str | None


class DockerData(TypedDict):
    """Docker's data directory without and with resolved links, and the numbers of what it contains."""

    root: str
    directory: str
    containers: int
    images: int
    volumes: int


class CdiSpec(TypedDict):
    """A CDI specification of NVIDIA GPUs."""

    path: str
    driver_versions: list[str]
    uuids: list[str]
    ours: bool
    digest: str
    nodes: dict[str, list[str]] | None


class CdiNodes(TypedDict):
    """The device nodes of a host that CDI specifications are compared with."""

    numbers: dict[str, str | None]
    majors: dict[str, int]
    drm: dict[str, list[str]]
    mig_minors: dict[str, int]


class CriFiles(TypedDict):
    """The configuration files of containerd and CRI-O, without logins."""

    containerd: dict[str, str]
    crio: dict[str, str]
    masked: list[str]
    unread: list[str]
    ignored: list[str]
    mode: str | None
    others: list[str]
    nodes: dict[str, str]


class Volume(TypedDict):
    """A driver volume. The documentation of module nvidia_driver_volume describes its keys."""

    name: str
    path: str
    version: str
    mount: str
    bind: str
    env: dict[str, str]
    libraries: list[str]
    libraries_compat32: list[str]
    binaries: list[str]
    engines: list[str]
    total_bytes: int
    hard_linked_bytes: int
    copied_bytes: int


class VolumePrediction(TypedDict):
    """What module nvidia_driver_volume would do. `volume` is None only if there is an error.

    `surplus` has the actions that only remove files. They may be files of driver packages that are no longer installed.
    """

    changed: bool
    actions: list[str]
    surplus: list[str]
    volume: Volume | None
    error: str | None


class DaemonFlag(TypedDict):
    """A flag of dockerd in its unit."""

    text: str
    key: str
    value: Any
    place: str


class Digests(TypedDict):
    """Digests of the options with secrets: those in daemon.json, and with their names those of each manager."""

    file: list[str]
    record: dict[str, dict[str, str]]


class DaemonJson(TypedDict):
    """Docker's daemon.json, with masked passwords and tokens.

    `has_command`: whether the unit or a drop-in has the command of dockerd. `applied`: whether dockerd uses the last
    change. `in_swarm`: whether the data directory is that of a member of a swarm. `missing_runtimes`: the runtimes in
    the file whose program does not exist, with its path.
    """

    path: str
    exists: bool
    content: dict[str, Any] | None
    error: str | None
    flags: list[DaemonFlag]
    has_command: bool
    applied: bool
    in_swarm: bool
    digests: Digests
    missing_runtimes: dict[str, str]


class ObservedFile(TypedDict):
    """A file. `content` is None if the file is missing, large or binary. It is the digest of owned.CDI_PROGRAM."""

    exists: bool
    content: str | None
    mode: str | None


class OldKey(TypedDict):
    """A file with an expired copy of NVIDIA's repository key. `alone`: it has no other key."""

    path: str
    alone: bool


class OldContainer(TypedDict):
    """A container of Docker with volumes of nvidia-docker 1.0, or with a runtime other than Docker's own."""

    id: str
    name: str
    running: bool
    runtime: str
    volumes: list[str]
    plugin: bool


class NvidiaDocker(TypedDict):
    """What nvidia-docker 1 and 2 left on the host, besides packages and repositories.

    `files`: files and directories of nvidia-docker 1.0. `hooks`: files with OCI hooks. `answers`: whether a plugin
    listens. `volumes`: the volumes of the plugin that Docker knows, None if unknown. `saved`: what an unfinished
    migration saved, and in `copies` whether each copy is that of its file: equal, different, or gone.
    """

    files: list[str]
    hooks: list[str]
    has_user: bool
    service: dict[str, str | None]
    answers: bool
    volumes: list[str] | None
    containers: list[OldContainer]
    keys: list[OldKey]
    saved: list[str]
    copies: dict[str, str]


class UnattendedUpgrades(TypedDict):
    """apt's unattended upgrades."""

    enabled: bool
    blacklist: list[str]


class ObservedApt(TypedDict):
    """The configuration of apt. `sources` are the entries that repository/apt_sources.py returns."""

    sources: list[dict[str, Any]]
    architecture: str | None
    missing_components: list[str]
    lists: int
    unattended_upgrades: UnattendedUpgrades


class ObservedRepository(TypedDict):
    """A repository of dnf or zypper."""

    id: str
    file: str
    url: str | None
    enabled: bool


class _KeyFile(TypedDict):
    fingerprints: list[str]
    digests: list[str]


class Keyring(_KeyFile, total=False):
    """A key file of a repository. `other` describes what it contains besides public keys."""

    other: str


class CloudInit(TypedDict):
    """cloud-init in this boot. `state`: absent, running, parent (it runs this program) or done."""

    state: str
    errors: list[str]


class ObservedImage(TypedDict):
    """The kind of prepared image that the host was installed from, and what it contains besides packages."""

    kind: str | None
    evidence: list[str]
    cloud: str | None
    instance_type: str | None
    frameworks: list[str]
    cuda: list[str]
    efa: str | None
    nvme: str | None
    cloud_init: CloudInit


class RebootFlag(TypedDict):
    """Whether the distribution requests a reboot."""

    present: bool
    packages: list[str]


class RebootReason(TypedDict):
    """A reason for a reboot. `driver`: whether the GPU driver is the cause."""

    id: str
    text: str
    driver: bool


class Host(TypedDict):
    """The observation of a host, which role observe sets as gpufleet_host.

    `packages` has the details of only those packages that matter for GPU hosts. `installed_packages` has all packages,
    so `packages.installed.is_installed` uses it.
    """

    schema: int
    os: System
    uid: int
    identity: Identity
    accelerators: AcceleratorsByVendor
    accelerator_specs: list[AcceleratorCdiSpec]
    # The members of groups to which a role added users for devices that are gone.
    former_groups: dict[str, list[str]]
    kernel: Kernels
    dkms: list[DkmsModule]
    initramfs: list[Initramfs]
    python: str | None
    root_python: str | None
    nvml_binding: bool | None
    holders: list[ObservedHolder]
    foreign_drivers: dict[str, ForeignDriver]
    modules_loaded: list[str]
    module_users: dict[str, list[str]]
    uvm_loaders: list[str]
    daemon_users: list[str]
    secure_boot: SecureBoot
    packages: dict[str, ObservedPackage]
    package_origins: dict[str, list[PackageOrigin]]
    installed_packages: dict[str, str]
    provided: dict[str, list[str]]
    held_packages: list[str]
    package_state: PackageState
    services: dict[str, ObservedUnit]
    engines: ObservedEngines
    engine_processes: EngineProcesses
    docker_group: DockerGroup
    docker_data: DockerData
    cdi_specs: list[CdiSpec]
    cdi_nodes: CdiNodes | None
    cri_files: CriFiles
    nvidia_runtimes: dict[str, str | None]
    nvidia_docker_traces: bool
    nvidia_docker: NvidiaDocker | None
    driver_volume: VolumePrediction | None
    docker_daemon_json: DaemonJson
    files: dict[str, ObservedFile]
    apt: ObservedApt | None
    repositories: list[ObservedRepository]
    module_streams: dict[str, str]
    keyrings: dict[str, Keyring]
    image: ObservedImage
    reboot_flag: RebootFlag
    reboot_reasons: list[RebootReason]
    reboot_required_reasons: list[str]
