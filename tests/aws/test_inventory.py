# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""inventory/aws_ec2.yml against a local EC2 API with 60 instances, and against APIs that fail."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest
import yaml

from ansible_collections.gpufleet.hosts.tests.aws.local_api import (
    NEURON_DLAMI,
    PLAIN,
    REGIONS,
    ROOT,
    UBUNTU_DLAMI,
    Api,
    ansible,
    with_credentials,
)

INVENTORY = ROOT / "inventory" / "aws_ec2.yml"

# (instance type, number in each region, groups)
RUNNING = [
    ("p5.48xlarge", 4, {"gpu_hosts", "gpu_h100"}),
    ("p5en.48xlarge", 2, {"gpu_hosts", "gpu_h200"}),
    ("p4d.24xlarge", 2, {"gpu_hosts", "gpu_a100"}),
    ("g6.12xlarge", 3, {"gpu_hosts", "gpu_l4"}),
    ("g6f.large", 1, {"gpu_hosts", "gpu_l4"}),
    ("g5g.xlarge", 1, {"gpu_hosts", "gpu_t4g"}),
    ("g7e.2xlarge", 1, {"gpu_hosts", "gpu_rtx_pro_server_6000"}),
    ("trn2.48xlarge", 2, {"neuron_hosts", "neuron_trainium2"}),
    ("inf2.xlarge", 1, {"neuron_hosts", "neuron_inferentia2"}),
    ("g4ad.xlarge", 1, {"amd_hosts"}),
    ("dl1.24xlarge", 1, {"gaudi_hosts"}),
    ("f2.6xlarge", 1, {"xilinx_hosts"}),
    ("p9.48xlarge", 1, {"gpu_unknown"}),
    ("m7i.large", 3, set()),
]
# (instance type, state): in each region. None of them may appear.
GONE = [
    ("p5.48xlarge", "stopped"),
    ("p5.48xlarge", "stopped"),
    ("g6.xlarge", "stopped"),
    ("p4d.24xlarge", "terminated"),
    ("trn2.48xlarge", "terminated"),
    ("m7i.large", "terminated"),
]


def _fill(api: Api) -> dict[str, tuple[str, str]]:
    """Create 60 instances. Return region and type of those that run, by ID."""
    running = {}
    for region in REGIONS:
        for instance_type, number, _expected in RUNNING:
            name = PLAIN if instance_type == "p4d.24xlarge" else UBUNTU_DLAMI
            instances = api.run_instances(region, instance_type, name, number, Name="same-name")
            tag = {"Key": "gpufleet:image", "Value": NEURON_DLAMI if instance_type.startswith("trn") else name}
            api.client(region).create_tags(Resources=instances[:1], Tags=[tag])
            running |= dict.fromkeys(instances, (region, instance_type))
        for instance_type, state in GONE:
            instance = api.run_instance(region, instance_type, UBUNTU_DLAMI)
            stop = api.client(region).stop_instances if state == "stopped" else api.client(region).terminate_instances
            stop(InstanceIds=[instance])
    assert sum(len(api.instances(region)) for region in REGIONS) == 60
    return running


def _list(url: str, inventory: Path = INVENTORY) -> tuple[dict[str, t.Any], str]:
    result = ansible("ansible-inventory", "-i", str(inventory), "--list", **with_credentials(url))
    assert result.rc == 0, result.text
    return _plain(json.loads(result.stdout)), result.text


def _tag_images(api: Api, inventory: Path, *arguments: str) -> str:
    """Run playbook aws_tag_images, and return its output."""
    command = ["ansible-playbook", "-i", str(inventory), "gpufleet.hosts.aws_tag_images", *arguments]
    result = ansible(*command, **with_credentials(api.url))
    assert result.rc == 0, result.text
    return result.text


def _plain(value: t.Any) -> t.Any:
    """Return a value of `ansible-inventory --list` without the marks of untrusted text."""
    if isinstance(value, dict):
        if set(value) == {"__ansible_unsafe"}:
            return value["__ansible_unsafe"]
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _copy(directory: Path, *regions: str) -> Path:
    """Return a copy of the inventory that asks only these regions, as users make it."""
    path = directory / "fleet.aws_ec2.yml"
    path.write_text(yaml.safe_dump({**yaml.safe_load(INVENTORY.read_text()), "regions": list(regions)}))
    return path


def test_sixty_instances_in_two_regions(api: Api) -> None:
    running = _fill(api)

    found, text = _list(api.url)

    hostvars = found["_meta"]["hostvars"]
    assert set(hostvars) == set(running)
    groups = {name: set(group.get("hosts", [])) for name, group in found.items() if name != "_meta"}
    for instance_type, _number, expected in RUNNING:
        hosts = {host for host, (_region, host_type) in running.items() if host_type == instance_type}
        of_accelerators = {
            name
            for name, members in groups.items()
            if members & hosts and name.startswith(("gpu_", "neuron_", "amd_", "gaudi_", "xilinx_"))
        }
        assert (instance_type, of_accelerators) == (instance_type, expected)
        assert all(hosts <= groups[name] for name in expected)
    for region in REGIONS:
        hosts = {host for host, (host_region, _type) in running.items() if host_region == region}
        assert groups[f"region_{region.replace('-', '_')}"] == hosts
        assert {hostvars[host]["gpufleet_ec2_region"] for host in hosts} == {region}
    assert len(groups["gpu_hosts"]) == 28
    assert "instance type p9.48xlarge are unknown" in text


def test_the_variables_of_a_host(api: Api) -> None:
    tags = {"Name": "worker", "team": "vision", "gpufleet:image": UBUNTU_DLAMI}
    host = api.run_instance("us-east-1", "g6.12xlarge", UBUNTU_DLAMI, **tags)

    found, _output = _list(api.url)

    values = found["_meta"]["hostvars"][host]
    assert values["gpufleet_ec2"] == {
        "instance_type": "g6.12xlarge",
        "family": "g6",
        "vendor": "nvidia",
        "model": "L4",
        "count": 4,
        "memory_gib": 22.35,
        "fraction": 1,
        "architecture": "x86_64",
        "groups": ["gpu_hosts", "gpu_l4"],
        "message": "",
    }
    assert values["gpufleet_ec2_image"] == {"id": api.images["us-east-1", UBUNTU_DLAMI], "name": UBUNTU_DLAMI}
    assert values["gpufleet_ec2_region"] == "us-east-1"
    assert values["ansible_host"] == api.instances("us-east-1")[0]["PublicIpAddress"]
    assert values["ec2_tags"] == tags


def test_an_instance_without_ipv4_is_reached_by_its_ipv6_address_or_its_id(api: Api, tmp_path: Path) -> None:
    inventory = _copy(tmp_path, "us-east-1")
    both, only_ipv6, none = (api.run_instance("us-east-1", "g6.12xlarge", UBUNTU_DLAMI) for _number in range(3))
    api.remove_ipv4("us-east-1", only_ipv6, "2600:1f18::7", "2600:1f18::8")
    api.remove_ipv4("us-east-1", none)

    hostvars = _list(api.url, inventory)[0]["_meta"]["hostvars"]

    assert "ec2_private_ip_address" not in hostvars[only_ipv6]
    assert {host: hostvars[host]["ansible_host"] for host in (only_ipv6, none)} == {
        only_ipv6: "2600:1f18::7",
        none: none,
    }
    assert hostvars[both]["ansible_host"] == hostvars[both]["ec2_public_ip_address"]


def test_images_are_told_apart_after_their_names_are_tagged(api: Api, tmp_path: Path) -> None:
    inventory = _copy(tmp_path, *REGIONS)
    dlami = api.run_instance("us-east-1", "p5.48xlarge", UBUNTU_DLAMI)
    neuron = api.run_instance("eu-west-1", "trn1.2xlarge", NEURON_DLAMI)
    plain = api.run_instance("eu-west-1", "p5.48xlarge", PLAIN)
    mine = api.run_instance("eu-west-1", "p5.48xlarge", PLAIN, **{"gpufleet:image": "Deep Learning of our own"})
    gone = api.run_instance("us-east-1", "p5.48xlarge", NEURON_DLAMI)
    api.deregister_image("us-east-1", NEURON_DLAMI)
    deprecated = api.run_instance("us-east-1", "p5.48xlarge", PLAIN)
    api.deprecate_image("us-east-1", PLAIN)
    before, _output = _list(api.url, inventory)
    assert set(before["image_unknown"]["hosts"]) == {dlami, neuron, plain, gone, deprecated}

    assert _tag_images(api, inventory, "--check").count("changed=1") == 4
    assert _list(api.url, inventory)[0]["image_unknown"] == before["image_unknown"]
    text = _tag_images(api, inventory)
    assert text.count("changed=1") == 4
    assert f"of {gone} no longer exists" in text
    assert _tag_images(api, inventory).count("changed=1") == 0

    after, _output = _list(api.url, inventory)
    assert set(after["dlami_hosts"]["hosts"]) == {dlami, neuron, mine}
    assert set(after["plain_image_hosts"]["hosts"]) == {plain, deprecated}
    assert after["image_unknown"]["hosts"] == [gone]


def test_settings_for_the_instances_do_not_apply_to_the_controller(api: Api, tmp_path: Path) -> None:
    inventory = _copy(tmp_path, *REGIONS)
    host = api.run_instance("us-east-1", "p5.48xlarge", UBUNTU_DLAMI)
    variables = tmp_path / "group_vars" / "aws_ec2.yml"
    variables.parent.mkdir()
    variables.write_text("ansible_become: true\nansible_connection: ssh\nansible_user: nobody\n")

    _tag_images(api, inventory)

    assert _list(api.url, inventory)[0]["dlami_hosts"]["hosts"] == [host]


def test_the_variables_of_the_image_win_over_those_of_all_instances(api: Api, tmp_path: Path) -> None:
    inventory = _copy(tmp_path, "us-east-1")
    names = {
        UBUNTU_DLAMI: "ubuntu",
        PLAIN: "ubuntu",
        "Deep Learning Base OSS Nvidia Driver GPU AMI (Amazon Linux 2023) 20260917": "ec2-user",
        "al2023-ami-2023.12.20260928.0-kernel-6.12-x86_64": "ec2-user",
        "debian-13-amd64-20261020-2272": "all",
    }
    users = {
        api.run_instance("us-east-1", "p5.48xlarge", UBUNTU_DLAMI, **{"gpufleet:image": name}): user
        for name, user in names.items()
    }
    users[api.run_instance("us-east-1", "trn1.2xlarge", UBUNTU_DLAMI)] = "all"
    (tmp_path / "group_vars").mkdir()
    for group, user in (("aws_ec2", "all"), ("image_ubuntu", "ubuntu"), ("image_amazon_linux_2023", "ec2-user")):
        (tmp_path / "group_vars" / f"{group}.yml").write_text(f"ansible_user: {user}\n")

    hostvars = _list(api.url, inventory)[0]["_meta"]["hostvars"]

    assert {host: values["ansible_user"] for host, values in hostvars.items()} == users


@pytest.mark.parametrize(
    ("code", "status", "message"),
    [
        ("AuthFailure", 401, "(AuthFailure) when calling the DescribeInstances operation"),
        ("UnauthorizedOperation", 403, "(UnauthorizedOperation) when calling the DescribeInstances operation"),
        ("RequestLimitExceeded", 503, "(RequestLimitExceeded) when calling the DescribeInstances operation"),
    ],
)
def test_an_error_of_the_api_is_named_and_stops_ansible(broken: t.Any, code: str, status: int, message: str) -> None:
    server = broken(code, status)
    result = ansible(
        "ansible-inventory",
        "-i",
        str(INVENTORY),
        "--list",
        **with_credentials(server.url),
        AWS_MAX_ATTEMPTS="2",
    )
    assert result.rc != 0
    assert message in result.text
    assert "Completely failed to parse inventory source" in result.text


def test_missing_credentials_are_named(broken: t.Any) -> None:
    server = broken("AuthFailure", 401)
    result = ansible("ansible-inventory", "-i", str(INVENTORY), "--list", AWS_ENDPOINT_URL=server.url)
    assert result.rc != 0
    assert "Unable to locate credentials" in result.text
    assert server.calls == []


def test_throttling_is_retried(broken: t.Any, tmp_path: Path) -> None:
    server = broken("RequestLimitExceeded", 503, times=2)
    inventory = _copy(tmp_path, "us-east-1")
    result = ansible("ansible-inventory", "-i", str(inventory), "--list", **with_credentials(server.url))
    assert (result.rc, server.calls) == (0, ["DescribeInstances"] * 3)


def test_an_empty_region_has_no_hosts_and_a_playbook_says_so(api: Api, tmp_path: Path) -> None:
    api.run_instance("us-east-1", "p5.48xlarge", UBUNTU_DLAMI)
    inventory = _copy(tmp_path, "eu-west-1")

    assert _list(api.url, inventory)[0]["_meta"]["hostvars"] == {}
    result = ansible("ansible-playbook", "-i", str(inventory), "gpufleet.hosts.verify", **with_credentials(api.url))

    assert result.rc != 0
    assert "gpufleet_target is gpu_hosts, which is neither a group nor a host in the inventory" in result.text
