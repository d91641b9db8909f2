# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What users of a host can name: shown escaped, and refused where it would become an argument or part of a file."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import yaml

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned, untrusted_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.gpu_holders import PROCESS, Holder
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia import inventory as gpus_of_container
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import package_membership
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.kernel_modules import kernel_module_loading
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import (
    coexistence,
    docker_group_users,
    engine_queries,
    named_volumes,
    stopped_engine,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import pci_functions
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import kernels, mount_users, next_boot, root_python
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers import (
    dpkg_state,
    installed_packages,
    lock_holders,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import toolkit_cdi_units

ROOT = Path(__file__).resolve().parents[5]
HOSTILE = ["$(id)", "`id`", '"', ";", "a\nb", "%", "{{ 7*7 }}", "a b"]


def _file(root, path, text=""):
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def _kernels(root, text):
    for release in ("6.8.0-40-generic", text):
        _file(root, f"lib/modules/{release}/vmlinuz")
    return next_boot.bootable(str(root))


def _dkms_names(root, text):
    for name in ("nvidia", f"nvidia{text}"):
        _file(root, f"var/lib/dkms/{name}/580.1/source/dkms.conf")
    return [tree["name"] for tree in kernels.dkms(str(root))]


def _dkms_versions(root, text):
    for version in ("580.1", text):
        _file(root, f"var/lib/dkms/nvidia/{version}/source/dkms.conf")
    return [tree["version"] for tree in kernels.dkms(str(root))]


def _dkms_kernels(root, text):
    _file(root, "var/lib/dkms/nvidia/580.1/source/dkms.conf")
    for release in ("6.8.0-40-generic", text):
        _file(root, f"var/lib/dkms/nvidia/580.1/{release}/x86_64/module/nvidia.ko")
    return list(kernels.dkms(str(root))[0]["kernels"])


def _rpm(field):
    def read(root, text):
        bad = {"name": "evil", "version": "1-1", field: text}
        out = f"glibc\t2.34-1\tx86_64\n{bad['name']}\t{bad['version']}\tx86_64\n"
        return list(installed_packages.read(str(root), "dnf", lambda argv: (0, out, ""))["all"].items())

    return read


def _dpkg(field):
    def read(_root, text):
        bad = {"Package": "evil", "Version": "1", "Architecture": "amd64", field: text}
        dpkg = {"Package": "dpkg", "Version": "1.22.6", "Architecture": "amd64"}
        stanzas = [
            "".join(f"{key}: {value}\n" for key, value in one.items()) + "Status: install ok installed\n"
            for one in (dpkg, bad)
        ]
        return [(one.name, one.version, one.arch) for one in dpkg_state.parse("\n".join(stanzas))]

    return read


def _pci(root, text):
    for address in ("0000:01:00.0", text, f"0000:02:00.0{text}", "0000:03:00.0\n"):
        _file(root, f"sys/bus/pci/devices/{address}/vendor", "0x10de\n")
    return [function["address"] for function in pci_functions.scan(str(root))]


def _recorded_users(_root, text):
    record = json.dumps({"users": ["alice", text]})
    return docker_group_users._recorded({"files": {owned.ENGINE_USERS: {"exists": True, "content": record}}})


def _running_kernel(root, text):
    found = kernels.read(str(root), text, lambda argv: (1, "", ""))
    return [found["running"], found["next_boot"], *(one["release"] for one in found["kernels"])]


def _providers(root, text):
    return installed_packages.providers(str(root), "dnf", ["cuda"], lambda argv: (0, f"cuda-13\n{text}\n", ""))["cuda"]


def _uuids(_root, text):
    mig = {"enabled": True, "devices": [{"index": 0, "uuid": "MIG-1"}, {"index": 1, "uuid": f"MIG-1{text}"}]}
    gpus = [
        {"index": 0, "uuid": "GPU-1"},
        {"index": 1, "uuid": f"GPU-1{text}"},
        {"index": 2, "uuid": "GPU-2", "mig": mig},
    ]
    return [unit.uuid for unit in gpus_of_container.inventory_from_facts(gpus).units]


def _stale_locks(_root, text):
    locks = ["nvidia-driver-3:570.10-1.el9.*", f"nvidia-driver-3:570.10-1{text}", f"nvidia{text}-3:570.10-1"]
    return package_membership.stale_locks({"packages": {}, "package_state": {"held_patterns": locks}}, "nvidia")


# Each reader of values that become arguments of commands or parts of units: what it returns beside a hostile value.
READERS = {
    "kernels": (_kernels, ["6.8.0-40-generic"]),
    "DKMS names": (_dkms_names, ["nvidia"]),
    "DKMS versions": (_dkms_versions, ["580.1"]),
    "DKMS kernels": (_dkms_kernels, ["6.8.0-40-generic"]),
    "rpm names": (_rpm("name"), [("glibc", "2.34-1 x86_64")]),
    "rpm versions": (_rpm("version"), [("glibc", "2.34-1 x86_64")]),
    "dpkg names": (_dpkg("Package"), [("dpkg", "1.22.6", "amd64")]),
    "dpkg versions": (_dpkg("Version"), [("dpkg", "1.22.6", "amd64")]),
    "dpkg architectures": (_dpkg("Architecture"), [("dpkg", "1.22.6", "amd64")]),
    "recorded users": (_recorded_users, ["alice"]),
    "running kernel": (_running_kernel, ["unknown", "unknown", "unknown"]),
    "rpm providers": (_providers, ["cuda-13"]),
    "UUIDs": (_uuids, ["GPU-1", "GPU-unknown-1", "MIG-1"]),
    "locks of versions": (_stale_locks, ["nvidia-driver-3:570.10-1.el9.*"]),
    "PCI addresses": (_pci, ["0000:01:00.0"]),
}


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("reader", READERS)
def test_only_values_of_the_expected_form_are_read(tmp_path, reader, text):
    read, expected = READERS[reader]
    found = read(tmp_path, text)
    # After a line break, rpm and dpkg begin an entry of its own, which may be valid.
    assert [one for one in found if one in expected] == expected
    assert not [one for one in found if text in str(one) or text in one]


@pytest.mark.parametrize("text", HOSTILE)
def test_the_path_of_the_cdi_specification_is_plain(text):
    lines = f"NVIDIA_CTK_CDI_OUTPUT_FILE_PATH=/etc/cdi/{text}x\n"
    found = toolkit_cdi_units.output({"files": {toolkit_cdi_units.ENVIRONMENT: {"exists": True, "content": lines}}})
    # The value ends at a space, a quote or the end of the line.
    assert found in (toolkit_cdi_units.SPECIFICATION, "/etc/cdi/a", "/etc/cdi/")


@pytest.mark.parametrize("text", HOSTILE)
def test_the_python_of_a_unit_has_a_plain_path(tmp_path, text):
    path = f"/usr/bin/{text}"
    _file(tmp_path, path.lstrip("/"))
    fault = root_python.fault(str(tmp_path), path, lambda _path: os.stat_result((0o100755, 0, 0, 1, 0, 0, 0, 0, 0, 0)))
    assert "no absolute path" in (fault or "")


@pytest.mark.parametrize("name", ["KERNEL_RELEASE", "PACKAGE", "PACKAGE_VERSION", "ARCHITECTURE", "USER", "PATH"])
def test_an_option_or_an_empty_text_is_no_argument(name):
    assert not any(untrusted_text.is_like(getattr(untrusted_text, name), text) for text in ("--help", "-k", "", None))


def _stopped(name):
    return stopped_engine.StoppedEngine("docker", (), (stopped_engine.Use(f"{name} (exited)", frozenset({"v"}), "1"),))


NAMES = {
    "process with a GPU": lambda name: kernel_module_loading.gpu_users(
        {"holders": [{"pid": 7, "command": name, "container": None}]}
    )[0],
    "container with a GPU": lambda name: kernel_module_loading.gpu_users(
        {"holders": [{"pid": 7, "command": "x", "container": "1", "container_name": name}]}
    )[0],
    "process that mounts": lambda name: str(mount_users.MountUser(7, name)),
    "holding process": lambda name: str(Holder(name, "", frozenset(), kind=PROCESS, pid=7)),
    "holding container": lambda name: str(Holder(name, "docker", frozenset())),
    "running containers": lambda name: coexistence.counted(
        {
            "engine_processes": {"containers": {"docker": 1}},
            "engines": {"docker": {"info": {"containers_running": 1, "container_names": [name]}}},
        },
        "docker",
    ),
    "container of a stopped engine": lambda name: _stopped(name).users("v", "/")[0],
    "title of a stopped container": lambda name: _stopped(name).titles()["1"],
    "container of Docker": lambda name: engine_queries._title({"Names": [f"/{name}"]}),
    "user of a volume": lambda name: named_volumes.DockerClient._title({"Names": [f"/{name}"], "State": "running"}),
    "user of a Podman volume": lambda name: named_volumes.PodmanClient._title({"Names": [name], "State": "running"}),
}


@pytest.mark.parametrize("place", NAMES)
def test_names_are_escaped_and_short_in_messages(place):
    message = NAMES[place]("a\n\x1b[31m\u202e" + "b" * 200)
    assert message.isprintable() and r"a\x0a\x1b[31m\xe2\x80\xaebb" in message
    assert len(message) < 64 + 50


def test_a_stopped_container_is_found_by_its_original_name():
    assert _stopped("a\nb").state_of("a\nb") == "exited"


def test_the_process_with_a_lock_is_shown_escaped(monkeypatch):
    monkeypatch.setattr(lock_holders, "read_text", lambda root, path: "a\x1b[31m\n")
    assert lock_holders._described(7, "/x") == r"process 7 (a\x1b[31m) holds /x"


def _tasks(node):
    if isinstance(node, dict):
        yield node
    for value in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from _tasks(value)


def test_what_a_shell_parses_has_no_values():
    """The reboot action passes these options to a shell without quotes."""
    found = []
    for path in [*ROOT.glob("roles/*/*/*.yml"), *ROOT.glob("playbooks/**/*.yml")]:
        for task in _tasks(yaml.safe_load(path.read_text())):
            for name, value in task.items():
                if name == "gpufleet.hosts.reported_task":
                    name, value = value["module"], value["arguments"]  # noqa: PLW2901
                if name.rpartition(".")[2] in ("reboot", "shell", "raw", "script") and name.startswith("ansible."):
                    parsed = value if isinstance(value, dict) else {"msg": value}
                    found += [(path.name, key) for key, text in parsed.items() if "{{" in str(text)]
    # A number from the user's variables.
    assert found == [("reboot_host.yml", "reboot_timeout")]
