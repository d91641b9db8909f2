# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A local API of EC2 and SSM (moto's server), and Ansible with it."""

from __future__ import annotations

import os
import sys
import typing as t
import urllib.request
from pathlib import Path

import boto3
from moto.backends import get_backend
from moto.core import DEFAULT_ACCOUNT_ID
from moto.ec2.models.availability_zones_and_regions import RegionsAndZonesBackend
from moto.ec2.models.instances import StateReason
from moto.ssm.models import Parameter

from ansible_collections.gpufleet.hosts.tests.unit.plugins import ansible_run

ROOT = Path(__file__).resolve().parents[2]
COLLECTIONS = ROOT / ".ansible" / "collections"

# Nothing of the user's own AWS configuration reaches the tests.
CLEAN = {
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    "AWS_EC2_METADATA_DISABLED": "true",
}
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}
REGIONS = ("us-east-1", "eu-west-1")
UBUNTU_DLAMI = "Deep Learning Base AMI with Single CUDA (Ubuntu 24.04) 20260717"
NEURON_DLAMI = "Deep Learning Base Neuron AMI (Ubuntu 24.04) 20261019"
# Every run has the same settings of Ansible, because runs with the same settings share a process that starts them.
SETTINGS = {
    "ANSIBLE_COLLECTIONS_PATH": str(COLLECTIONS),
    "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
    "ANSIBLE_DEPRECATION_WARNINGS": "false",
    "ANSIBLE_INVENTORY_ANY_UNPARSED_IS_FAILED": "true",
    # Ansible's become fails, whoever runs the tests.
    "ANSIBLE_BECOME_ALLOW_SAME_USER": "true",
    "ANSIBLE_BECOME_EXE": "/bin/false",
}
IMPORTS = (Path(__file__).with_name("prepared_boto.py"),)
PLAIN = "ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-amd64-server-20261101"


class Result(t.NamedTuple):
    """A finished command. `text` is its whole output on one line, because Ansible wraps messages."""

    rc: int
    stdout: str
    text: str


class Api:
    """A local EC2 and SSM API."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.images: dict[tuple[str, str], str] = {}

    def client(self, region: str, service: str = "ec2") -> t.Any:
        return boto3.client(
            service,
            region_name=region,
            endpoint_url=self.url,
            aws_access_key_id="testing",
            aws_secret_access_key="testing",
        )

    def reset(self) -> None:
        # The account of the tests has enabled three regions. Two of them have instances.
        RegionsAndZonesBackend.regions = [
            region for region in RegionsAndZonesBackend.regions if region.name in (*REGIONS, "us-west-2")
        ]
        urllib.request.urlopen(urllib.request.Request(f"{self.url}/moto-api/reset", method="POST")).close()
        for region in REGIONS:
            for name, architecture in ((UBUNTU_DLAMI, "x86_64"), (NEURON_DLAMI, "x86_64"), (PLAIN, "x86_64")):
                image = self.client(region).register_image(Name=name, RootDeviceName="/dev/sda1")["ImageId"]
                # moto ignores these arguments of register_image.
                record = get_backend("ec2")[DEFAULT_ACCOUNT_ID][region].amis[image]
                record.architecture, record.root_device_name = architecture, "/dev/sda1"
                self.images[region, name] = image
            # EC2 creates an RSA key by default, which takes longer.
            self.client(region).create_key_pair(KeyName="me", KeyType="ed25519")

    def deregister_image(self, region: str, name: str) -> None:
        self.client(region).deregister_image(ImageId=self.images[region, name])
        # moto returns an empty list for these IDs. EC2 answers InvalidAMIID.NotFound.
        get_backend("ec2")[DEFAULT_ACCOUNT_ID][region].deleted_amis.clear()

    def deprecate_image(self, region: str, name: str) -> None:
        """Return the image only to calls with its ID, as EC2 does. moto has no deprecated images."""
        backend, hidden = get_backend("ec2")[DEFAULT_ACCOUNT_ID][region], self.images[region, name]
        every = backend.describe_images

        def describe_images(ami_ids: list[str] | None = None, **arguments: t.Any) -> list[t.Any]:
            return [image for image in every(ami_ids, **arguments) if image.id != hidden or ami_ids]

        backend.describe_images = describe_images

    def fail_launches(self, region: str, reason: str) -> None:
        """Terminate each new instance, as EC2 does if it cannot decrypt a volume. moto has no such instances."""
        backend = get_backend("ec2")[DEFAULT_ACCOUNT_ID][region]
        run = backend.run_instances

        def run_instances(*arguments: t.Any, **options: t.Any) -> t.Any:
            reservation = run(*arguments, **options)
            for instance in reservation.instances:
                instance.terminate()
                instance.state_reason = StateReason(reason, "Client.InternalError")
            return reservation

        backend.run_instances = run_instances

    def put_public_parameter(self, region: str, name: str, value: str) -> None:
        """Add a parameter of AWS. No account can create one through the API."""
        get_backend("ssm")[DEFAULT_ACCOUNT_ID][region]._parameters[name].append(
            Parameter(DEFAULT_ACCOUNT_ID, name, value, "String", None, None, None, 0, 1, "text")
        )

    def run_instance(self, region: str, instance_type: str, image: str, **tags: str) -> str:
        (instance,) = self.run_instances(region, instance_type, image, 1, **tags)
        return instance

    def run_instances(self, region: str, instance_type: str, image: str, number: int, **tags: str) -> list[str]:
        items = [{"Key": key, "Value": value} for key, value in tags.items()]
        answer = self.client(region).run_instances(
            ImageId=self.images[region, image],
            InstanceType=instance_type,
            MinCount=number,
            MaxCount=number,
            TagSpecifications=[{"ResourceType": "instance", "Tags": items}] if items else [],
        )
        return [instance["InstanceId"] for instance in answer["Instances"]]

    def remove_ipv4(self, region: str, instance: str, *ipv6: str) -> None:
        """Leave only these IPv6 addresses, as in an IPv6-only subnet. moto gives every instance an IPv4 address."""
        found = get_backend("ec2")[DEFAULT_ACCOUNT_ID][region].get_instance(instance)
        no_address = {"private_ip_address": None, "public_ip_address": None}
        found.__class__ = type("Instance", (type(found),), no_address)
        found.nics[0].ipv6_addresses = list(ipv6)

    def instances(self, region: str) -> list[dict[str, t.Any]]:
        answer = self.client(region).describe_instances()
        return [instance for reservation in answer["Reservations"] for instance in reservation["Instances"]]


class Broken(t.NamedTuple):
    """An API that answers calls with an error, and the calls that it got."""

    url: str
    calls: list[str]


def ansible(program: str, *arguments: str, **variables: str) -> Result:
    """Run a program of Ansible. Of the variables for AWS and Ansible, it gets only those that are named."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "ANSIBLE_", "BOTO"))}
    environment = {
        **kept,
        **CLEAN,
        **SETTINGS,
        "LC_ALL": "C.UTF-8",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        **variables,
    }
    done = ansible_run.run([program, *arguments], env=environment, cwd="/", imports=IMPORTS)
    return Result(done.returncode, done.stdout, " ".join((done.stdout + done.stderr).split()))


def with_credentials(url: str) -> dict[str, str]:
    return {**CREDENTIALS, "AWS_ENDPOINT_URL": url}
