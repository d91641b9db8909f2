# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Unit tests of container/nvidia/access_risks.py."""

from __future__ import annotations

import os

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.access_risks import (
    daemon_reload_risk,
    restart_risk,
    selinux_risk,
)
from ansible_collections.gpufleet.hosts.tests.unit.plugins.container_tree import CDI_DIRS, ONE, Tree
from ansible_collections.gpufleet.hosts.tests.unit.plugins.gpu_hosts import docker, podman


@pytest.fixture
def tree(tmp_path):
    return Tree(tmp_path)


HOOK, CDI_HOOK = "/usr/bin/nvidia-container-runtime-hook", "/usr/bin/nvidia-cdi-hook"


@pytest.mark.parametrize(
    ("isolation", "engine", "words"),
    [
        ("runtime", docker(cgroup_driver="systemd"), "isolation=runtime with the systemd cgroup driver"),
        ("device_requests", docker(cgroup_driver="systemd"), "isolation=cdi or volume avoids the problem"),
        ("runtime", docker(cgroup_driver="cgroupfs"), None),
        ("runtime", podman(cgroup_driver="systemd"), None),
        ("volume", docker(cgroup_driver="cgroupfs"), None),
    ],
)
def test_daemon_reload_risk_is_reported(tree, isolation, engine, words):
    risk = daemon_reload_risk(isolation, engine, tree.host(), ONE)
    assert (risk is None) if words is None else (words in risk)


def test_missing_device_links_are_a_daemon_reload_risk(tree):
    engine = docker(cgroup_driver="systemd")
    risk = daemon_reload_risk("volume", engine, tree.host(), ONE)
    assert "no link in /dev/char for /dev/nvidia2" in risk
    number = os.stat(tree.directory / "dev/nvidia2").st_rdev
    tree.files(f"/dev/char/{os.major(number)}:{os.minor(number)}")
    assert daemon_reload_risk("volume", engine, tree.host(), ONE) is None


ROOT_PODMAN, USER_PODMAN = podman(selinux=True), podman(selinux=True, rootless=True)


DOCKER = docker("28.5.0", cdi_dirs=CDI_DIRS, selinux=True)


NEW_DOCKER = docker("29.2.0", cdi_dirs=CDI_DIRS, selinux=True)


def enforcing(tree, runtime_mode=None, booleans=None, value="1"):
    """Describe a host with SELinux."""
    tree.files("/sys/fs/selinux/enforce", text=value)
    for name, state in (booleans or {}).items():
        tree.files(f"/sys/fs/selinux/booleans/{name}", text=state)
    if runtime_mode:
        text = f'[nvidia-container-runtime]\nmode = "{runtime_mode}"\n'
        tree.files("/etc/nvidia-container-runtime/config.toml", text=text)
    return tree


@pytest.mark.parametrize(
    ("engine", "isolation", "mode", "verdict"),
    [
        # The runtime creates the nodes in the container.
        (ROOT_PODMAN, "cdi", None, None),
        (ROOT_PODMAN, "volume", None, None),
        (DOCKER, "cdi", None, None),
        (DOCKER, "volume", None, None),
        # A user namespace has the host's nodes.
        (USER_PODMAN, "cdi", None, "denies"),
        (USER_PODMAN, "volume", None, "denies"),
        (USER_PODMAN, "runtime", "cdi", "denies"),
        # NVIDIA's runtime changes the specification of the container, or its hook mounts the host's nodes.
        (ROOT_PODMAN, "runtime", "cdi", None),
        (ROOT_PODMAN, "runtime", "jit-cdi", None),
        (ROOT_PODMAN, "runtime", "legacy", "denies"),
        (ROOT_PODMAN, "runtime", "auto", "may deny"),
        (DOCKER, "runtime", None, "may deny"),
        (DOCKER, "device_requests", None, "denies"),
        (NEW_DOCKER, "device_requests", None, None),
        # Docker without selinux-enabled does not confine containers.
        (docker("28.5.0", cdi_dirs=CDI_DIRS), "device_requests", None, None),
        (podman(rootless=True), "cdi", None, None),
    ],
)
def test_selinux_denial_depends_on_who_provides_the_nodes(tree, engine, isolation, mode, verdict):
    tree.files(CDI_HOOK)
    risk = selinux_risk(isolation, engine, enforcing(tree, mode).host(), {})
    assert (risk is None) if verdict is None else f"SELinux is enforcing and {verdict} the container access" in risk


def test_device_requests_without_cdi_hook_keep_the_label_of_the_host(tree):
    assert "denies" in selinux_risk("device_requests", NEW_DOCKER, enforcing(tree).host(), {})


@pytest.mark.parametrize(
    ("value", "booleans", "options", "is_denied"),
    [
        ("1", {"container_use_devices": "0 0"}, {}, True),
        ("1", {}, {}, True),
        ("1", {"container_use_devices": "1 1"}, {}, False),
        ("1", {"container_use_devices": "0 0", "container_use_xserver_devices": "1 1"}, {}, False),
        ("0", {}, {}, False),
        ("1", {}, {"security_opts": ["label=disable"]}, False),
        ("1", {}, {"security_opts": ["label:disable"]}, False),
        ("1", {}, {"security_opts": ["label=type:nvidia_container_t"]}, False),
        ("1", {}, {"security_opts": ["label=level:s0:c1,c2", "no-new-privileges"]}, True),
        ("1", {}, {"privileged": True}, False),
    ],
)
def test_selinux_mode_booleans_and_options_decide(tree, value, booleans, options, is_denied):
    risk = selinux_risk("cdi", USER_PODMAN, enforcing(tree, booleans=booleans, value=value).host(), options)
    assert (risk is not None) == is_denied


@pytest.mark.parametrize(("userns", "is_denied"), [(None, False), ("host", False), ("auto", True), ("keep-id", True)])
def test_root_container_in_a_user_namespace_has_the_nodes_of_the_host(tree, userns, is_denied):
    risk = selinux_risk("volume", ROOT_PODMAN, enforcing(tree).host(), {"userns": userns})
    assert (risk is not None) == is_denied


def test_host_without_selinux_has_no_selinux_risk(tree):
    assert selinux_risk("cdi", USER_PODMAN, tree.host(), {}) is None


@pytest.mark.parametrize(
    ("booleans", "remedy"),
    [
        (
            {"container_use_devices": "0 0", "container_use_xserver_devices": "0 0"},
            "Run 'setsebool -P container_use_devices on' on the host, or set security_opts: [label=disable].",
        ),
        ({}, "Set security_opts: [label=disable]."),
    ],
)
def test_selinux_warning_names_a_boolean_that_the_policy_has(tree, booleans, remedy):
    risk = selinux_risk("cdi", USER_PODMAN, enforcing(tree, booleans=booleans).host(), {})
    assert risk.endswith(f"because the nodes keep the host's label. {remedy}")


@pytest.mark.parametrize(
    ("engine", "isolation", "policy", "files", "words"),
    [
        (docker(), "volume", None, {}, None),
        (docker(), "volume", "no", {}, None),
        (docker(), "volume", "always", {}, "docker.service does not wait for the GPU device nodes at boot"),
        (docker("28.2.0"), "cdi", "unless-stopped", {}, "Add After=nvidia-persistenced.service to docker.service"),
        (
            docker("26.1.5"),
            "cdi",
            "always",
            {"/etc/systemd/system/docker.service.d/gpu.conf": "[Unit]\nAfter=nvidia-persistenced.service\n"},
            "devices stay stopped (moby issue 49989, fixed in docker 28.2). isolation=volume avoids the problem.",
        ),
        (docker(), "runtime", "always", {}, None),
        (
            docker(),
            "volume",
            "always",
            {"/etc/systemd/system/docker.service.d/gpu.conf": "[Unit]\nAfter=nvidia-persistenced.service\n"},
            None,
        ),
        (
            docker(),
            "volume",
            "always",
            {"/usr/lib/systemd/system/nvidia-persistenced.service": "[Unit]\nBefore=docker.service\n"},
            None,
        ),
        (
            docker(),
            "volume",
            "always",
            {"/lib/systemd/system/docker.service": "[Unit]\nAfter=network.target\n"},
            "does not wait",
        ),
        (podman(), "volume", "always", {}, "podman-restart.service is disabled"),
        (podman(), "cdi", "on-failure", {}, None),
        (podman(), "cdi", "always", {"/etc/systemd/system/default.target.wants/podman-restart.service": ""}, None),
    ],
)
def test_restart_risk_is_reported(tree, *, engine, isolation, policy, files, words):
    for path, text in files.items():
        tree.files(path, text=text)
    risk = restart_risk(isolation, engine, tree.host(), policy)
    assert (risk is None) if words is None else (words in risk)
