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
from botocore.loaders import JSONFileLoader

read = JSONFileLoader.load_file


@functools.cache
def once(path: str) -> t.Any:
    """Read a description. boto3 has a new loader for each session."""
    return read(JSONFileLoader(), path)


JSONFileLoader.load_file = lambda _loader, path: once(path)
for service in ("ec2", "ssm"):
    boto3.client(service, region_name="us-east-1", aws_access_key_id="none", aws_secret_access_key="none")
