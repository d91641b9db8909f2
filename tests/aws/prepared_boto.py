# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Imports boto3 and reads the descriptions of EC2 and SSM, once for all processes that are forked from this one.

This takes most of the time of a small module for AWS.
"""

from __future__ import annotations

import functools
import typing as t

import boto3
from botocore.loaders import JSONFileLoader, Loader

read, list_services = JSONFileLoader.load_file, Loader.list_available_services


@functools.cache
def read_once(path: str) -> t.Any:
    """Read a description. boto3 has a new loader for each session."""
    return read(JSONFileLoader(), path)


@functools.cache
def list_once(type_name: str) -> list[str]:
    """List the services with descriptions of a type, which takes a look at 2000 files."""
    return list_services(Loader(), type_name)


JSONFileLoader.load_file = lambda _loader, path: read_once(path)
Loader.list_available_services = lambda _loader, type_name: list_once(type_name)
for service in ("ec2", "ssm"):
    boto3.client(service, region_name="us-east-1", aws_access_key_id="none", aws_secret_access_key="none")
