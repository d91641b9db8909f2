# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The option `gpus`: its notations, and which GPUs a user requests. Pure functions."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.device_inventory import GpuWords

_COUNT = re.compile(r"(-?[0-9]{1,18})(?:\.0+)?")


class SelectionError(Exception):
    """A request for GPUs that is not valid or that this host cannot satisfy."""


@dataclass(frozen=True)
class Request:
    """The parsed option `gpus`. `kind` is none, all, count or list."""

    kind: str
    count: int = 0
    selectors: tuple[str, ...] = ()


def parse_request(value: Any) -> Request:
    """Parse the option `gpus`."""
    if isinstance(value, bool):
        raise SelectionError(f'gpus={value} is a boolean. Write gpus: "all" or gpus: "none".')
    if isinstance(value, float):
        if not value.is_integer():
            raise SelectionError(f"gpus={value}: a count must be a whole number.")
        return _count_request(int(value))
    if isinstance(value, int):
        return _count_request(value)
    if isinstance(value, (list, tuple)):
        return list_request(value)
    if not isinstance(value, str):
        raise SelectionError(f'gpus={value!r} is not valid. Write "all", "none", a count or a list.')
    text = value.strip()
    if not text:
        raise SelectionError('gpus is empty. Write "all", "none", a count or a list.')
    if text.lower() in ("all", "none"):
        return Request(kind=text.lower())
    if text.startswith("["):
        return list_request(_parse_list(text))
    count = _COUNT.fullmatch(text)
    if count and not count.group(1).strip("-0"):
        raise SelectionError(
            f'gpus="{text}" is ambiguous: it could mean no GPU or GPU 0. Write gpus: none, or gpus: [0].'
        )
    if count:
        return _count_request(int(count.group(1)))
    return list_request([part for part in text.split(",") if part.strip()])


def _parse_list(text: str) -> list[Any]:
    """Parse a list that Ansible passes as a string, as with `-e gpus=[0,1]`."""
    try:
        return json.loads(text)
    except ValueError:
        pass
    if not text.endswith("]"):
        raise SelectionError(f"gpus={text!r}: the list has no closing bracket. Write [0, 1].")
    return [part.strip().strip("'\"") for part in text[1:-1].split(",") if part.strip()]


def _count_request(count: int) -> Request:
    if count < 0:
        raise SelectionError(f"gpus={count}: a count cannot be negative.")
    return Request(kind="count", count=count) if count else Request(kind="none")


def list_request(values: Sequence[Any]) -> Request:
    """Return the request for named devices, where a number is always an index and never a count."""
    selectors = []
    for value in values:
        if isinstance(value, (bool, float, dict, list)) or value is None:
            hint = " Quote a PCI address: YAML reads 0000:01:00.0 as a number." if isinstance(value, float) else ""
            raise SelectionError(f"gpus: {value!r} does not name a GPU. Use {GpuWords().selectors}.{hint}")
        text = str(value).strip()
        if text.lower() in ("all", "none"):
            if len(values) > 1:
                raise SelectionError(f'gpus: "{text}" cannot be combined with other values.')
            return Request(kind=text.lower())
        selectors.append(text)
    return Request(kind="list", selectors=tuple(selectors)) if selectors else Request(kind="none")
