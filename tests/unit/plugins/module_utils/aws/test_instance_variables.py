# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables of playbooks aws_create and aws_terminate."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.aws import instance_families, instance_variables

GOOD = {
    "aws_instance_region": "us-east-1",
    "aws_instance_name": "gpu-test",
    "aws_instance_type": "g6.xlarge",
    "aws_instance_key_name": "me",
}


@pytest.mark.parametrize(
    ("changed", "parameter", "user"),
    [
        (
            {},
            "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id",
            "ubuntu",
        ),
        (
            {
                "aws_instance_type": "g5g.xlarge",
                "aws_instance_image": "oss-nvidia-driver-gpu-pytorch-2.10-amazon-linux-2023",
            },
            "/aws/service/deeplearning/ami/arm64/oss-nvidia-driver-gpu-pytorch-2.10-amazon-linux-2023/latest/ami-id",
            "ec2-user",
        ),
        (
            {"aws_instance_type": "trn1.2xlarge"},
            "/aws/service/neuron/dlami/base/ubuntu-24.04/latest/image_id",
            "ubuntu",
        ),
        (
            {"aws_instance_type": "inf2.xlarge", "aws_instance_image": "multi-framework/amazon-linux-2023"},
            "/aws/service/neuron/dlami/multi-framework/amazon-linux-2023/latest/image_id",
            "ec2-user",
        ),
        ({"aws_instance_image": "base-x", "aws_instance_user": "me"}, "base-x", "me"),
        ({"aws_instance_image_id": "ami-0123456789abcdef0", "aws_instance_user": "rocky"}, "", "rocky"),
    ],
)
def test_the_image_and_the_user(changed, parameter, user):
    found = instance_variables.read({**GOOD, **changed})
    assert found["parameter"] == parameter or (parameter == "base-x" and "/base-x/" in found["parameter"])
    assert (found["user"], found["image_id"]) == (user, changed.get("aws_instance_image_id", ""))


def test_the_tags_and_the_filters_find_only_our_own_instance():
    found = instance_variables.read({**GOOD, "aws_instance_tags": {"team": "vision", "cost": 7}})
    assert found["tags"] == {
        "team": "vision",
        "cost": "7",
        "Name": "gpu-test",
        "gpufleet:created-by": "gpufleet.hosts.aws_create",
    }
    assert found["filters"] == instance_variables.identity(GOOD)["filters"]
    assert found["filters"]["tag:Name"] == "gpu-test"
    assert found["filters"]["tag:gpufleet:created-by"] == "gpufleet.hosts.aws_create"
    assert "terminated" not in found["filters"]["instance-state-name"]


def test_the_optional_variables():
    found = instance_variables.read(
        {
            **GOOD,
            "aws_instance_subnet_id": "subnet-0123456789abcdef0",
            "aws_instance_security_groups": ["sg-0123456789abcdef0"],
            "aws_instance_volume_gib": "200",
        }
    )
    assert (found["subnet_id"], found["security_groups"], found["volume_gib"]) == (
        "subnet-0123456789abcdef0",
        ["sg-0123456789abcdef0"],
        200,
    )
    assert instance_variables.read(GOOD)["volume_gib"] == 0


def test_a_new_family_is_possible_with_the_id_of_an_image():
    found = instance_variables.read(
        {**GOOD, "aws_instance_type": "p9.48xlarge", "aws_instance_image_id": "ami-12345678", "aws_instance_user": "u"}
    )
    assert (found["vendor"], found["architecture"]) == ("unknown", "")


@pytest.mark.parametrize("instance_type", ["p3.2xlarge", "g6f.large"])
@pytest.mark.parametrize(
    "image",
    [
        {"aws_instance_image": "base-ubuntu-22.04"},
        {"aws_instance_image_id": "ami-12345678", "aws_instance_user": "ubuntu"},
    ],
)
def test_a_type_that_the_default_image_does_not_support_is_possible_with_another_image(instance_type, image):
    assert (
        instance_variables.read({**GOOD, "aws_instance_type": instance_type, **image})["instance_type"] == instance_type
    )


@pytest.mark.parametrize("name", sorted(instance_families.FAMILIES))
def test_each_family_with_nvidia_gpus_is_compared_with_the_default_image(name):
    family = instance_families.FAMILIES[name]
    assert (family.vendor == "nvidia") == (family.model in instance_families.GENERATIONS)


@pytest.mark.parametrize("region", ["us-east-1", "us-gov-west-1", "cn-north-1", "eusc-de-east-1"])
def test_regions_of_all_partitions(region):
    assert instance_variables.read({**GOOD, "aws_instance_region": region})["region"] == region


@pytest.mark.parametrize(
    ("image", "python"),
    [
        ("", ""),
        ("base-oss-nvidia-driver-gpu-amazon-linux-2023", "/usr/bin/python3.9"),
        ("base-oss-nvidia-driver-gpu-amazon-linux-2", ""),
    ],
)
def test_the_interpreter_is_known_for_amazon_linux_2023(image, python):
    assert instance_variables.read({**GOOD, "aws_instance_image": image})["python"] == python


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"aws_instance_region": ""}, "aws_instance_region is not set"),
        ({"aws_instance_region": "us-east-1a"}, "aws_instance_region is 'us-east-1a', which is not valid"),
        ({"aws_instance_name": "a b"}, "aws_instance_name is 'a b', which is not valid"),
        ({"aws_instance_name": "*"}, "aws_instance_name is '*', which is not valid"),
        ({"aws_instance_name": 5}, "aws_instance_name is 5, which is not valid"),
        ({"aws_instance_type": None}, "aws_instance_type is not set"),
        ({"aws_instance_type": "g6"}, "aws_instance_type is 'g6', which is not valid"),
        ({"aws_instance_type": "m7i.large"}, "aws_instance_type is m7i.large, which has no accelerators"),
        ({"aws_instance_type": "g4ad.xlarge"}, "g4ad.xlarge, whose accelerators (Radeon Pro V520)"),
        ({"aws_instance_type": "g6f.large"}, "may not have the GRID driver that g6f needs. Set aws_instance_image or"),
        ({"aws_instance_type": "p2.xlarge"}, "which do not support K80 GPUs (Kepler or older). Set aws_instance_image"),
        ({"aws_instance_type": "p3.2xlarge"}, "which do not support V100 GPUs (Volta). Set aws_instance_image"),
        ({"aws_instance_type": "g3s.xlarge"}, "which do not support M60 GPUs (Maxwell). Set aws_instance_image"),
        ({"aws_instance_type": "p9.48xlarge"}, "does not know family p9. Set aws_instance_image_id"),
        ({"aws_instance_key_name": ""}, "aws_instance_key_name is not set"),
        ({"aws_instance_image": "a b"}, "aws_instance_image is 'a b', which is not valid"),
        ({"aws_instance_image": "base/ubuntu-24.04"}, "which is not the name of an image for GPUs"),
        (
            {"aws_instance_type": "trn1.2xlarge", "aws_instance_image": "base-ubuntu-24.04"},
            "which is not the name of a Neuron image",
        ),
        ({"aws_instance_image": "base-x"}, "The SSH user of image base-x is unknown. Set aws_instance_user"),
        ({"aws_instance_image_id": "ami-1"}, "aws_instance_image_id is 'ami-1', which is not valid"),
        ({"aws_instance_image_id": "ami-12345678"}, "aws_instance_user is not. Set it to"),
        (
            {"aws_instance_image_id": "ami-12345678", "aws_instance_image": "base-ubuntu-24.04"},
            "aws_instance_image and aws_instance_image_id are both set",
        ),
        ({"aws_instance_subnet_id": "vpc-1"}, "aws_instance_subnet_id is 'vpc-1', which is not valid"),
        ({"aws_instance_security_groups": "default"}, "aws_instance_security_groups has 'default'"),
        ({"aws_instance_security_groups": ["sg-12345678", 3]}, "aws_instance_security_groups has 3"),
        ({"aws_instance_volume_gib": "0"}, "aws_instance_volume_gib is '0', which is not valid"),
        ({"aws_instance_volume_gib": True}, "aws_instance_volume_gib is True, which is not valid"),
        ({"aws_instance_volume_gib": 16385}, "aws_instance_volume_gib is 16385, which is not valid"),
        ({"aws_instance_tags": "team"}, "aws_instance_tags is 'team', but must be a dictionary"),
        ({"aws_instance_tags": {"Name": "x"}}, "aws_instance_tags has the key Name, which is reserved"),
        ({"aws_instance_tags": {"gpufleet:image": "x"}}, "the key gpufleet:image, which is reserved"),
        ({"aws_instance_user": "a b"}, "aws_instance_user is 'a b', which is not valid"),
        ({"aws_instance_regoin": "x"}, "Unknown variable aws_instance_regoin. Known variables: aws_instance_image,"),
    ],
)
def test_bad_input_is_named(changed, message):
    with pytest.raises(instance_variables.RequestError) as failure:
        instance_variables.read({**GOOD, **changed})
    assert message in str(failure.value)
