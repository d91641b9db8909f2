#!/usr/bin/python
# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One look at a host, as data for resolvers."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_host_info
short_description: Look at everything on a host that its GPU software depends on, in one call
version_added: 0.1.0
author:
  - gpufleet maintainers (@gpufleet)
description:
  - Describes accelerators by PCI, kernels with the driver modules built for them, driver versions, packages and holds,
    services, engines, package sources, Secure Boot and the reasons for which a reboot is owed.
  - Reads files and asks a few local programs. It never writes, never uses the network and starts nothing, not even a
    socket-activated engine.
  - Missing hardware, drivers or programs are answers and not errors.
options:
  services:
    description: Further systemd units whose state is wanted, beside those that the collection's roles decide from.
    type: list
    elements: str
    default: []
  files:
    description:
      - Further files whose content is wanted, beside those that the collection's roles own.
      - The content of a file of more than 256 KiB is left out.
    type: list
    elements: path
    default: []
  packages:
    description:
      - Further packages, by exact name. Everything whose name speaks of a GPU, a kernel or an engine is there anyway.
      - Names as package managers take them are answered in C(packages_asked) - with apt V(name) or V(name:arch), else
        V(name), V(name-version), V(name-version-release), each with V(.arch) or without.
    type: list
    elements: str
    default: []
  package_names:
    description: Whether the names of all installed packages are wanted, too.
    type: bool
    default: false
  package_lock_timeout:
    description:
      - With apt, how many seconds to wait for a running package manager before the host is described. If it is still
        running then, C(busy) in C(package_state) is V(true).
      - Check mode does not wait.
    type: int
    default: 0
attributes:
  check_mode:
    description: The module only reads.
    support: full
  diff_mode:
    description: The module changes nothing.
    support: none
seealso:
  - module: gpufleet.hosts.nvidia_gpu_facts
"""

EXAMPLES = r"""
- name: Look at the host
  gpufleet.hosts.gpu_host_info:
  register: look

- name: Say why a reboot is owed
  ansible.builtin.debug:
    msg: "{{ look.host.reboot_required_reasons }}"
"""

RETURN = r"""
host:
  description: What was seen. Role P(gpufleet.hosts.observe#role) sets it as C(gpufleet_host).
  type: dict
  returned: always
  contains:
    schema:
      description: Version of this structure.
      type: int
      sample: 1
    os:
      description:
        - The platform, C(key) being the name that the resolvers use.
        - Fields are C(id), C(id_like), C(name), C(version), C(codename), C(family), C(key), C(package_manager) and
          C(arch).
      type: dict
      sample: {family: debian, key: debian-12, version: "12", codename: bookworm, arch: x86_64, package_manager: apt}
    uid:
      description: User id that the module ran with. Some answers need V(0).
      type: int
      sample: 0
    identity:
      description: The C(machine_id), and C(boot), which is another one after every boot.
      type: dict
      sample: {machine_id: 5f3ab1c29d6e4b0f8a7c6d5e4f3a2b1c, boot: 0f6e2b3c-5d4a-4c7b-9e8f-1a2b3c4d5e6f/4}
    accelerators:
      description:
        - GPUs and accelerators of every vendor (C(vendor) is C(nvidia), C(amd), C(habana), C(neuron) or C(intel)).
        - C(generation) is as V(Hopper), V(Trainium2) or V(Gaudi3), null where the id does not tell it.
        - Further fields are those of C(nvidia_pci_devices) of M(gpufleet.hosts.nvidia_gpu_facts).
      type: list
      elements: dict
      sample:
        - {vendor: nvidia, kind: gpu, generation: Ampere, address: "0000:3b:00.0", kernel_driver: nvidia}
    accelerator_drivers:
      description:
        - By name, the kernel modules of the other vendors whose accelerators are there (C(neuron), C(habanalabs),
          C(amdgpu)) - whether it is C(loaded), its C(version), and the C(kernels) of the host that have it.
      type: dict
      sample: {neuron: {loaded: true, version: 2.30.2.0, kernels: [6.1.0-49-amd64]}}
    nvidia:
      description:
        - NVIDIA's functions (C(pci_devices)), the addresses of GPUs (C(gpus)) and NVSwitches (C(nvswitches)), the GPUs'
          device ids (C(device_ids)), the GPUs that are handed to virtual machines and are none of those
          (C(gpus_of_guests)), and the InfiniBand devices that manage NVLink 5 switches (C(nvlink5_switches)).
      type: dict
      sample:
        gpus: ["0000:3b:00.0"]
        device_ids: ["0x20b0"]
        gpus_of_guests: []
        nvswitches: []
        nvlink5_switches: []
        pci_devices: []
    kernel:
      description:
        - The C(running) release, the one that C(next_boot) takes, and C(kernels), newest first, each with C(release),
          C(bootable), C(headers) (whether modules can be built for it) and C(nvidia_module) (C(path), C(version),
          C(flavor), C(signer), C(built_for)), null where modprobe would find none.
      type: dict
      sample: {running: 6.1.0-49-amd64, next_boot: 6.1.0-49-amd64, kernels: []}
    dkms:
      description:
        - NVIDIA's DKMS modules (C(name), C(version)) and the state per kernel, C(built) or C(installed).
        - A build that failed has a C(failure) with C(kernel), C(log) and the first C(errors), else null.
      type: list
      elements: dict
      sample: [{name: nvidia-current, version: 535.261.03, kernels: {6.1.0-49-amd64: installed}, failure: null}]
    driver:
      description:
        - Driver versions, C(loaded), of C(library), C(on_disk) for the running kernel and C(on_disk_next) for the next.
        - C(kernel_module_flavor), C(on_disk_flavor) and C(on_disk_next_flavor) are C(open) or C(proprietary).
        - C(in_use) counts what uses the loaded module. C(runfile) tells that NVIDIA's installer was used.
      type: dict
      sample: {loaded: 535.261.03, library: 535.261.03, on_disk: 535.261.03, kernel_module_flavor: open, in_use: 0}
    nvml_binding:
      description:
        - Whether the Python that ran this has C(pynvml). Where it has none, M(gpufleet.hosts.nvidia_gpu_facts) brings
          the controller's along at once.
      type: bool
      sample: false
    holders:
      description:
        - Who would lose a GPU if the driver's modules were unloaded - processes that have a device open (C(open)), and
          running containers of any engine that have one in F(/dev).
        - Fields are C(pid), C(command), C(devices), C(open), C(container), the short id or null, and C(container_name),
          null where Docker does not know it.
      type: list
      elements: dict
      sample: [{pid: 812, command: sleep, devices: [/dev/nvidia0], open: false, container: 4f1c9ab3e2d0}]
    foreign_drivers:
      description:
        - For C(nouveau) and C(nova_core), whether it is C(loaded), the addresses that it has C(bound), whether a kernel
          of the host has it (C(available)), and the files by which it is C(blacklisted_by).
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
        For each of C(modules_loaded) that other modules need, the names of these. While one of them is loaded, it
        cannot be taken out.
      type: dict
      sample: {nvidia: [gdrdrv, nvidia_uvm]}
    daemon_users:
      description: Users of the host that packages make for the persistence daemon.
      type: list
      elements: str
      sample: [nvidia-persistenced]
    secure_boot:
      description:
        - Whether Secure Boot is C(enabled) (null without UEFI variables), whether the kernel has
          C(signatures_enforced), its C(lockdown) mode, the C(trusted_signers) and the key that DKMS signs with.
      type: dict
      sample: {enabled: false, uefi: true, signatures_enforced: false, lockdown: none, trusted_signers: []}
    packages:
      description: Installed packages of interest by name, with C(version), C(held) and C(arch).
      type: dict
      sample: {nvidia-smi: {version: 535.261.03-1, held: true, arch: amd64}}
    packages_asked:
      description: Whether each of O(packages) is installed.
      type: dict
      sample: {nvtop: true, "libcuda1:i386": false}
    package_names:
      description: The names of all installed packages. Null unless asked for.
      type: list
      elements: str
      sample: null
    package_state:
      description:
        - Names left C(unfinished), whether dpkg was C(interrupted), and C(held_patterns) of version locks.
        - With apt, whether a package manager is running (C(busy)). C(unfinished) may then change at any time.
        - With apt, C(config_files) are names of packages that were removed and have left their files in F(/etc).
      type: dict
      sample: {unfinished: [], interrupted: false, busy: false, held_patterns: [], config_files: []}
    services:
      description: >-
        State of each unit (C(load_state), C(active_state), C(sub_state), C(unit_file_state), C(fragment_path),
        C(drop_in_paths), C(need_daemon_reload), C(active_since_us)); empty where systemd does not run.
      type: dict
      sample: {docker.service: {active_state: active, unit_file_state: enabled}}
    engines:
      description: >-
        For C(docker), C(podman), C(containerd), C(crio) and C(container_toolkit) the C(package) and C(version); for a
        running Docker Engine also C(info), what it says of itself.
      type: dict
      sample: {podman: {package: podman, version: 4.3.1+ds1-8}}
    cdi_specs:
      description:
        - The CDI specifications of kind C(nvidia.com/gpu), in F(/etc/cdi), F(/var/run/cdi) and where a running Docker
          Engine looks besides.
        - Each has its C(path), the C(driver_versions) that it names, none where it names no versioned file of the
          driver, and whether M(gpufleet.hosts.nvidia_cdi_spec) wrote it (C(ours)).
      type: list
      elements: dict
      sample: [{path: /var/run/cdi/nvidia.yaml, driver_versions: [535.261.03], ours: false}]
    docker_daemon_json:
      description: >-
        The C(content) of daemon.json, or the C(error) that keeps Docker from reading it, and the C(flags) that the
        unit gives to the daemon (C(text), C(key) that means the same, C(value), C(place)). Passwords and tokens
        are masked.
      type: dict
      sample: {path: /etc/docker/daemon.json, exists: true, content: {live-restore: true}, error: null, flags: []}
    files:
      description: >-
        C(exists), C(content) and C(mode) of the files that the roles own and of those asked for. Passwords and tokens
        are masked in F(/etc/docker/daemon.json) and in our record of it. In the entries of NVIDIA's repository and in
        the file that tells apt of a proxy, a digest stands in the place of each login.
      type: dict
      sample: {/etc/docker/daemon.json: {exists: true, content: "{}", mode: "0644"}}
    apt:
      description: >-
        On hosts with apt: the C(sources) of both forms (C(distribution) marks those of Debian's own archive), the
        C(missing_components), the number of downloaded C(lists) and C(unattended_upgrades). Null elsewhere.
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
        The key files of NVIDIA's repository that the roles wrote, by their paths: the C(fingerprints) of the keys in
        them, and the C(digests) by which a file is known to be the one that was served.
      type: dict
      sample:
        /usr/share/keyrings/gpufleet-nvidia-cuda.gpg:
          fingerprints: [EB693B3035CD5710E231E123A4B469963BF863CC]
          digests: ["sha256:afbea87d3b979b3788ef34223aeeb323ade481128e2c133723ae99b8a51368bb"]
    image:
      description: >-
        The C(kind) of prepared image (C(dlami), C(azure_hpc), C(dgx), C(gcp_deeplearning), null), its C(evidence) and
        the C(cloud).
      type: dict
      sample: {kind: null, evidence: [], cloud: null}
    reboot_flag:
      description:
        - Whether the distribution asks for a reboot (C(present)), and the C(packages) for which it does.
        - Enterprise Linux and Amazon Linux leave no file that says so. There it is packages that only a boot puts to
          use and that came after the last one.
      type: dict
      sample: {present: false, packages: []}
    reboot_reasons:
      description: >-
        Why a reboot is owed: C(id), C(text), and C(driver), whether the GPU driver is the cause and not the
        distribution.
      type: list
      elements: dict
      sample: [{id: newer_kernel, text: "kernel 6.1.0-49-amd64 is running, ...", driver: false}]
    reboot_required_reasons:
      description: The texts of C(reboot_reasons).
      type: list
      elements: str
      sample: []
"""

import http.client
import importlib.util
import json
import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.unix_http import UnixConnection
from ansible_collections.gpufleet.hosts.plugins.module_utils.observe import observation
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import installed

_SECONDS_FOR_AN_ENGINE = 5


def ask(path: str, request: str) -> dict[str, Any] | None:
    """Return the JSON object that a daemon answers on its socket, or nothing where it does not answer one."""
    connection = UnixConnection(path, _SECONDS_FOR_AN_ENGINE)
    try:
        connection.request("GET", request)
        answer = json.loads(connection.getresponse().read())
    except (OSError, ValueError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    return answer if isinstance(answer, dict) else None


def main() -> None:
    """Look and return."""
    module = AnsibleModule(
        argument_spec={
            "services": {"type": "list", "elements": "str", "default": []},
            "files": {"type": "list", "elements": "path", "default": []},
            "packages": {"type": "list", "elements": "str", "default": []},
            "package_names": {"type": "bool", "default": False},
            "package_lock_timeout": {"type": "int", "default": 0},
        },
        supports_check_mode=True,
    )

    def run(argv: list[str]) -> tuple[int, str, str]:
        program = module.get_bin_path(argv[0])
        if program is None:
            return 127, "", f"{argv[0]} is not installed"
        return module.run_command([program, *argv[1:]], environ_update={"LC_ALL": "C"})

    if not module.check_mode:
        installed.wait_until_free("/", module.params["package_lock_timeout"])
    system = os.uname()
    host = observation.observe(
        root="/",
        machine=system.machine,
        kernel=system.release,
        run=run,
        ask=ask,
        units=module.params["services"],
        files=module.params["files"],
        packages=module.params["packages"],
        package_names=module.params["package_names"],
        nvml_binding=importlib.util.find_spec("pynvml") is not None,
    )
    module.exit_json(changed=False, host=host)


if __name__ == "__main__":
    main()
