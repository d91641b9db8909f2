# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The instance that playbook aws_create creates, from its variables.

Names of the SSM parameters: docs.aws.amazon.com/dlami/latest/devguide, the release notes of each image ("Query AMI-ID
with SSM parameter"), and awsdocs-neuron.readthedocs-hosted.com, "Neuron DLAMI User Guide". The last fields differ.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.aws.instance_families import (
    GENERATIONS,
    InstanceAccelerator,
    describe,
)

# The tag with which the playbooks recognize their own instances, and the tag with the name of the image.
OWNER_TAG = "gpufleet:created-by"
OWNER = "gpufleet.hosts.aws_create"

_DEFAULT_IMAGE = {"nvidia": "base-oss-nvidia-driver-gpu-ubuntu-24.04", "neuron": "base/ubuntu-24.04"}
_USERS = {"ubuntu": "ubuntu", "amazon-linux": "ec2-user"}

# The image has Python 3.12, too, which Ansible prefers. Package python3-requests is for Python 3.9.
_PYTHON = {"amazon-linux-2023": "/usr/bin/python3.9"}

_REGION = (r"[a-z]{2,}(-[a-z]+)+-[0-9]+", "us-east-1")
_PATTERNS = {
    "aws_instance_key_name": (r"\S(.{0,253}\S)?", "the name of a key pair"),
    "aws_instance_image": (r"[a-z0-9.-]+(/[a-z0-9.-]+)?", "base-oss-nvidia-driver-gpu-ubuntu-24.04"),
    "aws_instance_image_id": (r"ami-[0-9a-f]{8,17}", "ami-0123456789abcdef0"),
    "aws_instance_subnet_id": (r"subnet-[0-9a-f]{8,17}", "subnet-0123456789abcdef0"),
    "aws_instance_user": (r"[a-z_][a-z0-9_-]*", "ubuntu"),
}
_OTHER = ("aws_instance_type", "aws_instance_security_groups", "aws_instance_volume_gib", "aws_instance_tags")


class RequestError(ValueError):
    """A variable is invalid. The message has the variable, its value and the way out."""


class InstanceRequest(t.TypedDict):
    """A validated request."""

    region: str
    name: str
    instance_type: str
    vendor: str
    architecture: str
    # The SSM parameter with the ID of the image, or empty if `image_id` is set.
    parameter: str
    image_id: str
    user: str
    # The interpreter on the instance, or empty if Ansible finds it.
    python: str
    key_name: str
    subnet_id: str
    security_groups: list[str]
    volume_gib: int
    tags: dict[str, str]
    # Finds the instance that an earlier run created, whatever its state, unless it is terminated.
    filters: dict[str, t.Any]


def identity(variables: dict[str, t.Any]) -> dict[str, t.Any]:
    """Return region, name and filters of an instance of the playbooks."""
    region = _text(variables, "aws_instance_region", _REGION, required=True)
    name = _text(variables, "aws_instance_name", (r"[A-Za-z0-9][A-Za-z0-9._-]{0,253}", "gpu-test"), required=True)
    return {
        "region": region,
        "name": name,
        "filters": {
            "tag:Name": name,
            f"tag:{OWNER_TAG}": OWNER,
            "instance-state-name": ["pending", "running", "stopping", "stopped"],
        },
    }


def read(variables: dict[str, t.Any]) -> InstanceRequest:
    """Validate the variables of playbook aws_create."""
    known = ("aws_instance_region", "aws_instance_name", *_PATTERNS, *_OTHER)
    unknown = sorted(set(variables) - set(known))
    if unknown:
        raise RequestError(f"Unknown variable {unknown[0]}. Known variables: {', '.join(sorted(known))}.")
    same = identity(variables)
    texts = {
        name: _text(variables, name, pattern, required=name == "aws_instance_key_name")
        for name, pattern in _PATTERNS.items()
    }
    image = texts["aws_instance_image"]
    instance_type, vendor, architecture = _type(variables, image, texts["aws_instance_image_id"])
    if image and texts["aws_instance_image_id"]:
        raise RequestError("aws_instance_image and aws_instance_image_id are both set. Remove one of them.")
    if not image and not texts["aws_instance_image_id"]:
        image = _DEFAULT_IMAGE[vendor]
    return InstanceRequest(
        region=same["region"],
        name=same["name"],
        instance_type=instance_type,
        vendor=vendor,
        architecture=architecture,
        parameter=_parameter(vendor, architecture, image) if image else "",
        image_id=texts["aws_instance_image_id"],
        user=texts["aws_instance_user"] or _user(image),
        python=next((path for system, path in _PYTHON.items() if system in image), ""),
        key_name=texts["aws_instance_key_name"],
        subnet_id=texts["aws_instance_subnet_id"],
        security_groups=_security_groups(variables.get("aws_instance_security_groups")),
        volume_gib=_volume(variables.get("aws_instance_volume_gib")),
        tags={**_tags(variables.get("aws_instance_tags")), "Name": same["name"], OWNER_TAG: OWNER},
        filters=same["filters"],
    )


def _text(variables: dict[str, t.Any], name: str, pattern: tuple[str, str], *, required: bool = False) -> str:
    value = variables.get(name)
    expression, example = pattern
    if value in (None, ""):
        if required:
            raise RequestError(f"{name} is not set. Set it, for example to {example}.")
        return ""
    if not isinstance(value, str) or not re.fullmatch(expression, value):
        raise RequestError(f"{name} is {value!r}, which is not valid. Use a value such as {example}.")
    return str(value)


def _type(variables: dict[str, t.Any], image: str, image_id: str) -> tuple[str, str, str]:
    """Return the instance type, the vendor of its accelerators and the architecture of its CPUs."""
    name = "aws_instance_type"
    value = _text(variables, name, (r"[a-z][a-z0-9-]*\.[a-z0-9-]+", "g6.xlarge"), required=True)
    found = describe(value)
    if found is None:
        raise RequestError(f"{name} is {value}, which has no accelerators. Use a type such as g6.xlarge.")
    if found["vendor"] not in ("nvidia", "neuron", "unknown"):
        raise RequestError(
            f"{name} is {value}, whose accelerators ({found['model']}) this collection does not set up. Use a type "
            "with NVIDIA GPUs or Neuron devices, such as g6.xlarge or trn1.2xlarge."
        )
    if found["vendor"] == "unknown" and not image_id:
        raise RequestError(
            f"{name} is {value}, and this version of the collection does not know family {found['family']}. Set "
            "aws_instance_image_id and aws_instance_user, or update the collection."
        )
    if found["vendor"] == "nvidia" and not image and not image_id:
        _fail_unless_default_image_fits(value, found)
    return value, found["vendor"], found["architecture"] or ""


def _fail_unless_default_image_fits(value: str, found: InstanceAccelerator) -> None:
    generation = GENERATIONS[str(found["model"])]
    if not generation.open_modules:
        raise RequestError(
            f"aws_instance_type is {value}. The default image {_DEFAULT_IMAGE['nvidia']} has NVIDIA's open kernel "
            f"modules, which do not support {found['model']} GPUs ({generation.name}). Set aws_instance_image or "
            "aws_instance_image_id to an image with the proprietary driver, or use a type such as g6.xlarge."
        )
    if found["fraction"] != 1:
        raise RequestError(
            f"aws_instance_type is {value}, which has only a fraction of a GPU. The default image may not have the "
            f"GRID driver that {found['family']} needs. Set aws_instance_image or aws_instance_image_id."
        )


def _parameter(vendor: str, architecture: str, image: str) -> str:
    if vendor == "neuron":
        if "/" not in image:
            raise RequestError(
                f"aws_instance_image is {image}, which is not the name of a Neuron image. Use a value such as "
                f"{_DEFAULT_IMAGE['neuron']}."
            )
        return f"/aws/service/neuron/dlami/{image}/latest/image_id"
    if "/" in image:
        raise RequestError(
            f"aws_instance_image is {image}, which is not the name of an image for GPUs. Use a value such as "
            f"{_DEFAULT_IMAGE['nvidia']}."
        )
    return f"/aws/service/deeplearning/ami/{architecture}/{image}/latest/ami-id"


def _user(image: str) -> str:
    for system, user in _USERS.items():
        if system in image:
            return user
    if image:
        raise RequestError(f"The SSH user of image {image} is unknown. Set aws_instance_user.")
    raise RequestError("aws_instance_image_id is set, but aws_instance_user is not. Set it to the image's SSH user.")


def _security_groups(value: t.Any) -> list[str]:
    if value in (None, ""):
        return []
    items = value if isinstance(value, (list, tuple)) else [value]
    invalid = [item for item in items if not re.fullmatch(r"sg-[0-9a-f]{8,17}", str(item))]
    if invalid:
        raise RequestError(
            f"aws_instance_security_groups has {invalid[0]!r}, which is not valid. Use a list of IDs such as "
            "[sg-0123456789abcdef0]."
        )
    return [str(item) for item in items]


def _volume(value: t.Any) -> int:
    """Return the size of the root volume. 0: the size that the image has."""
    if value in (None, ""):
        return 0
    if isinstance(value, bool) or not re.fullmatch(r"[1-9][0-9]{0,4}", str(value)) or int(value) > 16384:
        raise RequestError(
            f"aws_instance_volume_gib is {value!r}, which is not valid. Use a whole number of GiB from 1 to 16384."
        )
    return int(value)


def _tags(value: t.Any) -> dict[str, str]:
    if value in (None, ""):
        return {}
    if not isinstance(value, dict):
        raise RequestError(f"aws_instance_tags is {value!r}, but must be a dictionary such as {{'team': 'vision'}}.")
    for key in value:
        if key == "Name" or str(key).startswith(("gpufleet:", "aws:")):
            raise RequestError(f"aws_instance_tags has the key {key}, which is reserved. Remove it.")
    return {str(key): str(item) for key, item in value.items()}
