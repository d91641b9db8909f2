# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The paths that this collection writes on a host: what each is, and who writes it.

The collection also changes files of others, such as apt's sources. A record has their previous text.
"""

from __future__ import annotations

# All roles: the directory of records and markers, which stay until the role is removed.
STATE_DIRECTORY = "/var/lib/gpufleet"
# nvidia_gpu_facts, gpu_container and role nvidia_driver: files that are only valid until the next boot.
RUNTIME_DIRECTORY = "/run/gpufleet"
# Role nvidia_driver: NVIDIA's installer while it runs.
CACHE_DIRECTORY = "/var/cache/gpufleet"
INSTALLER = CACHE_DIRECTORY + "/nvidia-{}.run"

# --- driver volume, written by module nvidia_driver_volume ---

# The directory of all volumes, the subdirectory for the volumes of drivers, and the list of files in each volume.
VOLUMES = f"{STATE_DIRECTORY}/volumes"
VOLUME_KIND = "nvidia_driver"
VOLUME_MANIFEST = ".manifest.json"
# The start of the name of a volume that is not complete.
VOLUME_STAGING_PREFIX = ".tmp-"

# --- CDI specifications, written by modules nvidia_cdi_spec and accelerator_cdi_spec ---

CDI_SPECIFICATION = "/etc/cdi/gpufleet-nvidia.json"
# A specification of another kind than nvidia.com/gpu, by its vendor and its class.
CDI_SPECIFICATION_OF_KIND = "/etc/cdi/gpufleet-{}-{}.json"
# Module accelerator_cdi_spec: the specifications of other vendors, which are only valid until the next boot.
ACCELERATOR_CDI_SPECIFICATIONS = {
    "amd": "/var/run/cdi/gpufleet-amd.json",
    "neuron": "/var/run/cdi/gpufleet-neuron.json",
    "gaudi": "/var/run/cdi/gpufleet-gaudi.json",
}
# Roles amd_driver, ...: the program that writes such a specification, and the units that run it. The last two watch the
# devices.
ACCELERATOR_CDI_PROGRAMS = {
    vendor: f"{STATE_DIRECTORY}/{vendor}_cdi_refresh.py" for vendor in ACCELERATOR_CDI_SPECIFICATIONS
}
ACCELERATOR_CDI_UNIT = "/etc/systemd/system/gpufleet-{}-cdi.{}"
ACCELERATOR_CDI_UNITS = {
    vendor: tuple(ACCELERATOR_CDI_UNIT.format(vendor, kind) for kind in ("service", "path", "timer"))
    for vendor in ACCELERATOR_CDI_SPECIFICATIONS
}
# Roles amd_driver, ...: the users that the role added to the groups of the device nodes.
ACCELERATOR_USERS = {
    vendor: f"{STATE_DIRECTORY}/{vendor}_driver_users.json" for vendor in ACCELERATOR_CDI_SPECIFICATIONS
}
# The file beside a specification that marks it as ours. Before CDI 0.6.0, a specification cannot contain such a mark.
# Engines ignore the suffix.
CDI_MARKER = ".{}.gpufleet"

# --- CDI specification that stays up to date without NVIDIA's units, written by role nvidia_container_toolkit ---

# The program, the unit that runs it at boot, and the specification that the program writes.
CDI_PROGRAM = f"{STATE_DIRECTORY}/cdi_refresh.py"
CDI_UNIT = "/etc/systemd/system/gpufleet-cdi-refresh.service"
CDI_REFRESHED = "/run/cdi/gpufleet-nvidia.json"

# --- container engine, written by module docker_daemon_config ---

# Docker's configuration. The module owns only some keys in it.
DAEMON_JSON = "/etc/docker/daemon.json"
# In STATE_DIRECTORY: the records of the keys that the module owns, one for each daemon.json.
DAEMON_JSON_RECORDS = "docker_daemon_config"

# --- containers, written by module gpu_container ---

# In RUNTIME_DIRECTORY or a directory of the user: the GPUs of containers that are being created, and their lock.
RESERVATIONS = "gpu-reservations.json"
RESERVATIONS_LOCK = "gpu-reservations.lock"
# The directory of a user who has no runtime directory.
USER_DIRECTORY = "/tmp/gpufleet-{}"

# --- records and markers ---

# Module package_transaction: the whole message of its last failure, until it succeeds.
PACKAGE_FAILURE = f"{STATE_DIRECTORY}/package_failure.txt"
# Roles nvidia_driver, cuda_toolkit, container_engine and nvidia_container_toolkit: what the role installed. State
# `absent` removes exactly that. Role nvidia_driver also removes what role nvidia_persistenced installed.
DRIVER_RECORD = f"{STATE_DIRECTORY}/nvidia_driver.json"
TOOLKIT_RECORD = f"{STATE_DIRECTORY}/cuda_toolkit.json"
ENGINE_RECORD = f"{STATE_DIRECTORY}/container_engine.json"
PERSISTENCED_RECORD = f"{STATE_DIRECTORY}/nvidia_persistenced.json"
CONTAINER_TOOLKIT_RECORD = f"{STATE_DIRECTORY}/nvidia_container_toolkit.json"
# Role container_engine: the users that the role added to group docker.
ENGINE_USERS = f"{STATE_DIRECTORY}/container_engine_users.json"
# Role nvidia_container_toolkit: the keys that the role set in the toolkit's config.toml, with the lines that they
# replaced.
CONTAINER_TOOLKIT_CONFIG_RECORD = f"{STATE_DIRECTORY}/nvidia_container_toolkit_config.json"
# The keys that roles set in containerd's config.toml, in the same form.
CONTAINERD_CONFIG_RECORD = f"{STATE_DIRECTORY}/containerd_config.json"
# Role nvidia_container_toolkit: what the migration from nvidia-docker must not lose. Only root can read it.
MIGRATION = f"{STATE_DIRECTORY}/migration"
MIGRATION_DAEMON_JSON = f"{MIGRATION}/daemon.json"
MIGRATION_CONTAINERS = f"{MIGRATION}/containers"
# Role nvidia_driver: the driver version that NVIDIA's installer installed.
DRIVER_RUNFILE_RECORD = f"{STATE_DIRECTORY}/nvidia_driver_runfile.json"
# Role nvidia_driver: the reasons for its last reboot, so that it does not reboot again for the same reasons.
DRIVER_REBOOT_MARKER = f"{STATE_DIRECTORY}/nvidia_driver_reboot.json"
# Module gpu_container_proof: the last proof that containers see the GPUs, and what it depends on.
CONTAINER_PROOF_RECORD = f"{STATE_DIRECTORY}/gpu_container_proof.json"
# Playbook dlami: what it adopted, completed and left alone on a prepared image.
ADOPTION_REPORT = f"{STATE_DIRECTORY}/adoption.json"
# Module gpu_workload: who drained this host, how, and what was stopped for that.
DRAIN_RECORD = f"{STATE_DIRECTORY}/workload_drain.json"
# Role gaudi_driver: the keys that the role set in the configuration of the vendor's runtime.
GAUDI_CONFIG_RECORD = f"{STATE_DIRECTORY}/gaudi_driver_config.json"
# Files in the directory of the records that are no records of package transactions.
BESIDE_RECORDS = (
    DRAIN_RECORD,
    *(ENGINE_USERS, CONTAINER_TOOLKIT_CONFIG_RECORD, CONTAINERD_CONFIG_RECORD),
    *(DRIVER_RUNFILE_RECORD, DRIVER_REBOOT_MARKER, CONTAINER_PROOF_RECORD, ADOPTION_REPORT),
    *ACCELERATOR_USERS.values(),
    GAUDI_CONFIG_RECORD,
)


def is_record(path: str) -> bool:
    """Return whether a file contains the record of package transactions."""
    directory, _slash, name = path.rpartition("/")
    return directory == STATE_DIRECTORY and name.endswith(".json") and path not in BESIDE_RECORDS


# Role gaudi_driver: the vendor's modules in the order in which they are loaded, and the vendor's repository.
GAUDI_MODULES_LOAD = "/etc/modules-load.d/gpufleet-gaudi.conf"
GAUDI_RECORD = f"{STATE_DIRECTORY}/gaudi_driver.json"
GAUDI_REPOSITORY_ID = "gpufleet-gaudi"
# Role gaudi_driver: for Podman, instead of the hook in the package of the vendor's runtime.
GAUDI_HOOK = "/etc/containers/oci/hooks.d/oci-habana-hook.json"
# Role gaudi_driver: both directories of Podman's hooks, so that this file has precedence.
GAUDI_HOOKS_DIR = "/etc/containers/containers.conf.d/00-gpufleet-gaudi.conf"
# Role neuron_driver: the vendor's repository, and the list of modules, which the vendor's scripts write, too. They also
# write a udev rule. No package owns these files.
NEURON_RECORD = f"{STATE_DIRECTORY}/neuron_driver.json"
NEURON_REPOSITORY_ID = "gpufleet-neuron"
NEURON_MODULES_LOAD = "/etc/modules-load.d/neuron.conf"
# The vendor's hook: the file of its package with the definition of the runtime.
NEURON_HOOK_CONFIG = "/opt/aws/neuron/share/docker-daemon.json"
NEURON_LEFTOVERS = (
    NEURON_MODULES_LOAD,
    "/usr/lib/udev/rules.d/neuron-udev.rules",
    "/lib/udev/rules.d/neuron-udev.rules",
)
# Role nvidia_driver: why it could not unload the modules, so that it does not try again for the same reasons.
DRIVER_RELOAD_MARKER = f"{RUNTIME_DIRECTORY}/nvidia_driver_reload.json"
# Role nvidia_driver: the initramfs does not contain the changed modprobe file yet.
DRIVER_INITRAMFS_MARKER = f"{STATE_DIRECTORY}/nvidia_driver_initramfs"
# Role nvidia_driver: the last verification failed.
DRIVER_UNVERIFIED_MARKER = f"{STATE_DIRECTORY}/nvidia_driver_unverified"

# --- NVIDIA's repository, written by roles nvidia_driver and cuda_toolkit ---

# The files of a repository have its name: repository/role_file_paths.py.
REPOSITORY_ID = "gpufleet-nvidia-cuda"
# Role cuda_toolkit: gives the repository the lowest priority if the driver has another source. apt uses the first
# matching preference, and this file sorts after DRIVER_APT_PREFERENCES.
TOOLKIT_APT_PREFERENCES = "/etc/apt/preferences.d/gpufleet-nvidia-toolkit"

# --- Docker's repository, written by role container_engine ---

DOCKER_REPOSITORY_ID = "gpufleet-docker"

# --- NVIDIA's repository of the container toolkit, written by role nvidia_container_toolkit ---

CONTAINER_TOOLKIT_REPOSITORY_ID = "gpufleet-nvidia-container-toolkit"
# apt: gives this repository priority for the packages of the toolkit, which other repositories have, too.
CONTAINER_TOOLKIT_APT_PREFERENCES = "/etc/apt/preferences.d/gpufleet-nvidia-container-toolkit-origin"

# --- container toolkit, written by role nvidia_container_toolkit ---

# The drop-in for the unit of the packages that writes the CDI specification.
CDI_REFRESH_DROP_IN = "/etc/systemd/system/nvidia-cdi-refresh.service.d/gpufleet.conf"
# The runtime in containerd and CRI-O. CRI-O reads only this directory.
CONTAINERD_DROP_IN = "/etc/containerd/conf.d/99-gpufleet-nvidia.toml"
CRIO_DROP_IN = "/etc/crio/crio.conf.d/99-gpufleet-nvidia.toml"
# Role gaudi_driver: the vendor's runtime there.
GAUDI_CONTAINERD_DROP_IN = "/etc/containerd/conf.d/99-gpufleet-gaudi.toml"
GAUDI_CRIO_DROP_IN = "/etc/crio/crio.conf.d/99-gpufleet-gaudi.toml"
CONTAINERD_DROP_INS = (CONTAINERD_DROP_IN, GAUDI_CONTAINERD_DROP_IN)
K0S_DROP_IN = "/etc/k0s/containerd.d/99-gpufleet-nvidia.toml"
K3S_SETTINGS = "/etc/rancher/k3s/config.yaml.d/99-gpufleet.yaml"
RKE2_SETTINGS = "/etc/rancher/rke2/config.yaml.d/99-gpufleet.yaml"
# The program that gives GPUs to `docker run` as nvidia-docker did, and the line that marks it as ours.
WRAPPER = "/usr/local/bin/nvidia-docker"
WRAPPER_MARK = "# Written by role gpufleet.hosts.nvidia_container_toolkit. Changes in this file are lost."
# The start time of the Docker that must restart: it searches for the toolkit's hook only when it starts.
CONTAINER_TOOLKIT_RESTART_MARKER = f"{RUNTIME_DIRECTORY}/nvidia_container_toolkit_restart"
# The start time of the containerd or the CRI-O that must restart to read the files of a role.
CONTAINERD_RESTART_MARKER = f"{RUNTIME_DIRECTORY}/containerd_restart"
CRIO_RESTART_MARKER = f"{RUNTIME_DIRECTORY}/crio_restart"

# --- driver, written by role nvidia_driver ---

# The source of the driver's packages.
DRIVER_APT_PREFERENCES = "/etc/apt/preferences.d/gpufleet-nvidia-driver"
# Excludes the driver from unattended upgrades.
DRIVER_UNATTENDED_UPGRADES = "/etc/apt/apt.conf.d/52gpufleet-nvidia-driver"
# The modules to load at boot, and the options and blacklists of modules.
MODULES_LOAD = "/etc/modules-load.d/nvidia-gpufleet.conf"
MODPROBE = "/etc/modprobe.d/nvidia-gpufleet.conf"
# Loads nvidia_uvm when the driver takes a GPU.
UVM_RULE = "/etc/udev/rules.d/71-gpufleet-nvidia-uvm.rules"
# Overrides the distribution's udev rules that bring added memory online. The names are those of Ubuntu, Enterprise
# Linux and SUSE.
UDEV_RULES_DIRECTORY = "/etc/udev/rules.d"
UDEV_RULES = ("40-vm-hotadd.rules", "40-redhat.rules", "80-hotplug-cpu-mem.rules")

# --- persistence daemon, written by role nvidia_persistenced ---

# The unit if no package contains one, otherwise a drop-in for the unit of the package.
PERSISTENCED_UNIT = "/etc/systemd/system/nvidia-persistenced.service"
PERSISTENCED_DROP_IN = f"{PERSISTENCED_UNIT}.d/gpufleet.conf"

# --- Slurm, written by module gpu_slurm_config. In gres.conf and cgroup.conf, it owns a marked block ---

SLURMD_DROP_IN = "/etc/systemd/system/slurmd.service.d/gpufleet.conf"
# The invocation of slurmd that has not read the changed files.
SLURMD_RESTART_MARKER = f"{RUNTIME_DIRECTORY}/slurmd_restart"

# --- CUDA toolkit, written by role cuda_toolkit ---

# The directories of the toolkits that passed verification, one on each line.
TOOLKIT_VERIFIED = f"{STATE_DIRECTORY}/cuda_toolkit_verified"
# Adds the toolkit's programs to PATH.
TOOLKIT_PROFILE = "/etc/profile.d/gpufleet-cuda.sh"


# --- A host that configures itself, written by cloud-init with the user data of playbook user_data ---

PULL_SETTINGS = "/etc/gpufleet/pull.json"
# The user's: variables with secrets for the service.
PULL_ENVIRONMENT = "/etc/gpufleet/pull.env"
PULL_PROGRAM = "/usr/local/lib/gpufleet/pull"
PULL_UNIT = "/etc/systemd/system/gpufleet-pull.service"
PULL_TIMER = "/etc/systemd/system/gpufleet-pull.timer"
# Ansible, the collection, the site's repository and the outcome.
PULL_STATE = f"{STATE_DIRECTORY}/pull"
