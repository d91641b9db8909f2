# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The ways to give a container its devices. Each vendor offers some of them."""

from __future__ import annotations

from dataclasses import dataclass

CDI, VOLUME, RUNTIME, DEVICE_REQUESTS, DEVICES = "cdi", "volume", "runtime", "device_requests", "devices"
NONE = "none"
# The values of the option `isolation`.
OPTIONS = ("auto", CDI, DEVICE_REQUESTS, RUNTIME, VOLUME, DEVICES)


class IsolationError(Exception):
    """An isolation that is not available on this host."""


@dataclass(frozen=True)
class Choice:
    """The selected isolation and the reason for it."""

    name: str
    reason: str
