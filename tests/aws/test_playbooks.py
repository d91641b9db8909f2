# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The playbooks that create and terminate EC2 instances, against a local API."""

from __future__ import annotations

import typing as t
from pathlib import Path

import pytest

from ansible_collections.gpufleet.hosts.tests.aws.local_api import (
    NEURON_DLAMI,
    UBUNTU_DLAMI,
    Api,
    Result,
    ansible,
    with_credentials,
)

REGION = "us-east-1"
GPU_IMAGE = "base-oss-nvidia-driver-gpu-ubuntu-24.04"
GPU_PARAMETER = f"/aws/service/deeplearning/ami/x86_64/{GPU_IMAGE}/latest/ami-id"
NEURON_PARAMETER = "/aws/service/neuron/dlami/base/ubuntu-24.04/latest/image_id"
VARIABLES = {
    "aws_instance_region": REGION,
    "aws_instance_name": "gpu-test",
    "aws_instance_type": "g6.xlarge",
    "aws_instance_key_name": "me",
}


def _play(playbook: str, *arguments: str, environment: dict[str, str] | None = None, **changed: str) -> Result:
    variables = {**VARIABLES, **changed}
    extra = [word for name, value in variables.items() for word in ("-e", f"{name}={value}" if value else f"{name}=")]
    return ansible(
        "ansible-playbook", "-i", "localhost,", f"gpufleet.hosts.{playbook}", *extra, *arguments, **(environment or {})
    )


@pytest.fixture
def aws(api: Api) -> Api:
    api.put_public_parameter(REGION, GPU_PARAMETER, api.images[REGION, UBUNTU_DLAMI])
    api.put_public_parameter(REGION, NEURON_PARAMETER, api.images[REGION, NEURON_DLAMI])
    return api


def _alive(api: Api) -> list[dict[str, t.Any]]:
    return [instance for instance in api.instances(REGION) if instance["State"]["Name"] != "terminated"]


def test_create_twice_and_terminate_twice(aws: Api) -> None:
    environment = with_credentials(aws.url)
    client = aws.client(REGION)
    other = aws.run_instance(REGION, "g6.xlarge", UBUNTU_DLAMI, Name="gpu-test")
    before = (client.describe_volumes()["Volumes"], client.describe_network_interfaces()["NetworkInterfaces"])

    more = '{"aws_instance_tags": {"team": "vision"}, "aws_instance_volume_gib": 200}'
    created = _play("aws_create", "-e", more, environment=environment)
    assert created.rc == 0, created.text
    assert 200 in [volume["Size"] for volume in client.describe_volumes()["Volumes"]]
    instance = next(item for item in _alive(aws) if item["InstanceId"] != other)
    assert instance["ImageId"] == aws.images[REGION, UBUNTU_DLAMI]
    assert (instance["InstanceType"], instance["KeyName"]) == ("g6.xlarge", "me")
    assert instance["MetadataOptions"]["HttpTokens"] == "required"
    assert {tag["Key"]: tag["Value"] for tag in instance["Tags"]} == {
        "Name": "gpu-test",
        "team": "vision",
        "gpufleet:created-by": "gpufleet.hosts.aws_create",
        "gpufleet:image": UBUNTU_DLAMI,
    }
    assert f"Instance {instance['InstanceId']} (gpu-test) runs in us-east-1" in created.text

    again = _play("aws_create", environment=environment)
    assert (again.rc, "changed=0" in again.text) == (0, True), again.text
    assert len(_alive(aws)) == 2

    client.stop_instances(InstanceIds=[instance["InstanceId"]])
    started = _play("aws_create", environment=environment)
    assert (started.rc, "changed=1" in started.text) == (0, True), started.text
    assert {item["State"]["Name"] for item in _alive(aws)} == {"running"}

    terminated = _play("aws_terminate", environment=environment)
    assert (terminated.rc, "changed=1" in terminated.text) == (0, True), terminated.text
    # The instance of the same name that somebody else created stays, and nothing else is left.
    assert [item["InstanceId"] for item in _alive(aws)] == [other]
    assert before == (
        client.describe_volumes()["Volumes"],
        client.describe_network_interfaces()["NetworkInterfaces"],
    )
    gone = _play("aws_terminate", environment=environment)
    assert (gone.rc, "changed=0" in gone.text) == (0, True), gone.text
    assert "No instance gpu-test that gpufleet.hosts.aws_create created exists in us-east-1." in gone.text


def test_an_instance_without_ipv4_is_shown_with_its_ipv6_address(aws: Api) -> None:
    environment = with_credentials(aws.url)
    assert _play("aws_create", environment=environment).rc == 0
    (instance,) = _alive(aws)
    for address in ("2600:1f18::7", ""):
        aws.remove_ipv4(REGION, instance["InstanceId"], *filter(None, [address]))
        again = _play("aws_create", "-v", environment=environment)
        assert again.rc == 0, again.text
        shown = address or instance["InstanceId"]
        assert f"runs in us-east-1 with address {shown}. It costs money" in again.text
        assert f"ansible_host: {shown}" in again.text


def test_a_neuron_instance_gets_the_image_for_neuron(aws: Api) -> None:
    created = _play("aws_create", "-v", environment=with_credentials(aws.url), aws_instance_type="trn1.2xlarge")
    assert created.rc == 0, created.text
    assert "groups: - gpufleet_aws_instance - neuron_hosts - neuron_trainium" in created.text
    assert [item["ImageId"] for item in _alive(aws)] == [aws.images[REGION, NEURON_DLAMI]]


def test_a_name_with_another_type_is_refused(aws: Api) -> None:
    environment = with_credentials(aws.url)
    assert _play("aws_create", environment=environment).rc == 0
    (instance,) = _alive(aws)

    refused = _play("aws_create", environment=environment, aws_instance_type="g6.2xlarge")

    assert refused.rc != 0
    assert f"region us-east-1 already has {instance['InstanceId']} (g6.xlarge) with this name" in refused.text
    assert _alive(aws) == [instance]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"aws_instance_image": "base-oss-nvidia-driver-gpu-ubuntu-30.04"},
            "base-oss-nvidia-driver-gpu-ubuntu-30.04/latest/ami-id does not exist in us-east-1",
        ),
        (
            {"aws_instance_image_id": "ami-01234567", "aws_instance_user": "ubuntu"},
            "Image ami-01234567 does not exist in us-east-1, or is not shared with this account.",
        ),
        (
            {"aws_instance_type": "g5g.xlarge", "aws_instance_image_id": "UBUNTU", "aws_instance_user": "ubuntu"},
            "is for x86_64, but g5g.xlarge has arm64 CPUs",
        ),
    ],
    ids=["no such parameter", "no such image", "other architecture"],
)
def test_an_image_that_does_not_fit_creates_nothing(aws: Api, changed: dict[str, str], message: str) -> None:
    if changed.get("aws_instance_image_id") == "UBUNTU":
        changed = {**changed, "aws_instance_image_id": aws.images[REGION, UBUNTU_DLAMI]}

    refused = _play("aws_create", environment=with_credentials(aws.url), **changed)

    assert refused.rc != 0
    assert message in refused.text
    assert aws.instances(REGION) == []


def test_a_deprecated_image_is_used(aws: Api) -> None:
    aws.deprecate_image(REGION, UBUNTU_DLAMI)
    created = _play("aws_create", environment=with_credentials(aws.url))
    assert created.rc == 0, created.text
    assert [item["ImageId"] for item in _alive(aws)] == [aws.images[REGION, UBUNTU_DLAMI]]


def test_an_instance_that_terminates_during_its_launch_is_named_with_the_reason(aws: Api) -> None:
    aws.fail_launches(REGION, "Client.InternalError: Client error on launch")

    failed = _play("aws_create", environment=with_credentials(aws.url))

    assert failed.rc != 0
    (instance,) = aws.instances(REGION)
    assert f"Instance {instance['InstanceId']} (gpu-test) in us-east-1 is terminated instead of running." in failed.text
    assert "Reason from EC2: Client.InternalError: Client error on launch. Correct the cause" in failed.text
    assert "gpufleet.hosts.aws_terminate -e aws_instance_region=us-east-1 -e aws_instance_name=gpu-test" in failed.text


def test_the_interpreter_of_amazon_linux_2023(aws: Api) -> None:
    image = "base-oss-nvidia-driver-gpu-amazon-linux-2023"
    aws.put_public_parameter(REGION, GPU_PARAMETER.replace(GPU_IMAGE, image), aws.images[REGION, UBUNTU_DLAMI])
    environment = with_credentials(aws.url)
    with_python = _play("aws_create", "-v", environment=environment, aws_instance_image=image)
    assert (with_python.rc, "ansible_python_interpreter: /usr/bin/python3.9" in with_python.text) == (0, True)
    without = _play("aws_create", "-v", environment=environment, aws_instance_name="ubuntu")
    assert (without.rc, "ansible_python_interpreter" in without.text) == (0, False), without.text


def test_settings_for_all_hosts_do_not_apply_to_the_controller(aws: Api, tmp_path: Path) -> None:
    inventory = tmp_path / "hosts.yml"
    inventory.write_text("all: {hosts: {localhost: {}}, vars: {ansible_become: true}}\n")
    for playbook in ("aws_create", "aws_terminate"):
        done = _play(playbook, "-i", str(inventory), environment=with_credentials(aws.url))
        assert (done.rc, "changed=1" in done.text) == (0, True), done.text


@pytest.mark.parametrize("playbook", ["aws_create", "aws_terminate", "aws_container"])
def test_check_mode_needs_no_credentials_and_calls_no_api(broken: t.Any, playbook: str) -> None:
    server = broken("AuthFailure", 401)
    checked = _play(
        playbook,
        "--check",
        "-e",
        '{"aws_container_command": ["nvidia-smi", "-L"], "aws_container_keep": true, "aws_container_name": "a_b-1"}',
        environment={"AWS_ENDPOINT_URL": server.url},
        aws_container_image="public.ecr.aws/deep-learning-containers/vllm:1",
        aws_container_setup="gpufleet.hosts.site",
    )
    assert (checked.rc, "changed=0" in checked.text) == (0, True), checked.text
    assert "Check mode ends before the first API call to AWS." in checked.text
    assert server.calls == []


@pytest.mark.parametrize(
    ("playbook", "changed", "message"),
    [
        ("aws_create", {"aws_instance_region": "Virginia"}, "aws_instance_region is 'Virginia', which is not valid."),
        ("aws_terminate", {"aws_instance_name": ""}, "aws_instance_name is not set."),
        ("aws_container", {}, 'aws_container_image is "", but must be the name of an image.'),
        (
            "aws_container",
            {"aws_container_image": "x/y", "aws_instance_type": "dl1.24xlarge"},
            'aws_instance_type is "dl1.24xlarge", but this playbook needs NVIDIA GPUs or AWS Neuron chips.',
        ),
        (
            "aws_container",
            {"aws_container_image": "x/y", "aws_container_kep": "true"},
            "Unknown variables: aws_container_kep. Known variables: aws_container_command, aws_container_image, "
            "aws_container_keep, aws_container_name, aws_container_setup.",
        ),
        (
            "aws_container",
            {"aws_container_image": "x/y", "aws_container_keep": "ture"},
            'aws_container_keep is "ture", but must be true or false.',
        ),
        (
            "aws_container",
            {"aws_container_image": "x/y", "aws_container_name": "'my test'"},
            'aws_container_name is "my test", which is not valid.',
        ),
        (
            "aws_container",
            {"aws_container_image": "x/y", "aws_container_command": "nvidia-smi"},
            'aws_container_command is "nvidia-smi", but must be a list, for example [sleep, infinity].',
        ),
    ],
)
def test_bad_input_is_refused_before_the_first_call(
    broken: t.Any, playbook: str, changed: dict[str, str], message: str
) -> None:
    server = broken("AuthFailure", 401)
    environment = with_credentials(server.url)
    refused = _play(playbook, environment=environment, aws_container_setup="gpufleet.hosts.site", **changed)
    assert refused.rc != 0
    assert message in refused.text
    assert server.calls == []


def test_wrong_credentials_are_named(broken: t.Any) -> None:
    refused = _play("aws_create", environment=with_credentials(broken("AuthFailure", 401).url))
    assert refused.rc != 0
    assert "(AuthFailure) when calling the DescribeInstances operation" in refused.text
