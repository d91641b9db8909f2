# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Internal filter of playbook user_data."""

from __future__ import annotations

import os
import types
from collections.abc import Mapping
from typing import Any

import yaml
from ansible.errors import AnsibleFilterError

from ansible_collections.gpufleet.hosts.plugins.plugin_utils import kept_bytecode

kept_bytecode.use()

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import pinned_environment
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.variable_fields import VariableError, plain
from ansible_collections.gpufleet.hosts.plugins.module_utils.unattended import error_in_output, pull_program, variables
from ansible_collections.gpufleet.hosts.plugins.module_utils.unattended import user_data as documents


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks, which people can read."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _text)


def _source(module: types.ModuleType) -> str:
    with open(os.path.splitext(str(module.__file__))[0] + ".py", encoding="utf-8") as file:
        return file.read()


def user_data(values: Mapping[str, Any]) -> str:
    """Return the user data for the variables, whose names have no prefix."""
    try:
        wanted = variables.read(plain(values))
    except VariableError as error:
        raise AnsibleFilterError(str(error)) from error
    document = documents.document(
        wanted, documents.joined([_source(pinned_environment), _source(error_in_output), _source(pull_program)])
    )
    text = "#cloud-config\n" + yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=1000)
    problem = documents.problem(text)
    if problem:
        raise AnsibleFilterError(problem)
    return text


class FilterModule:
    """Register the filter."""

    def filters(self) -> dict[str, Any]:
        """Return the filter by its name."""
        return {"_user_data": user_data}
