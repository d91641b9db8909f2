# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which variables keep NVIDIA's runtime, if it is the default one, from adding GPUs to a container. Pure functions."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.granted_access import Access
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.isolation_host import IsolationHost


def no_access(env: Mapping[str, str], swarm: Collection[str] = ()) -> Access:
    """Return the options that prevent access to GPUs, even if NVIDIA's runtime is the default runtime."""
    return Access(**disabled_runtime(env, swarm))


def with_unknown_variables(host: IsolationHost, env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a container that gets more variables, for example of a file: each can request GPUs."""
    return {**dict.fromkeys(("NVIDIA_VISIBLE_DEVICES", *host.toolkit.swarm_variables), "unknown"), **env}


def disabled_runtime(env: Mapping[str, str], swarm: Collection[str]) -> dict[str, Any]:
    """Prevent NVIDIA's runtime, if it is the default runtime, from adding the GPUs that the environment requests.

    A variable of a swarm has priority over NVIDIA_VISIBLE_DEVICES, and an empty one requests nothing.
    """
    names = [name for name in ("NVIDIA_VISIBLE_DEVICES", *swarm) if env.get(name, "") not in ("", "void")]
    if env.get("CUDA_VERSION"):
        names = list(dict.fromkeys(["NVIDIA_VISIBLE_DEVICES", *names]))
    return {"env": dict.fromkeys(names, "void"), "guards": tuple(names)}


def swarm_variables(host: IsolationHost) -> list[str]:
    """Return the environment variables from which NVIDIA's runtime reads the GPUs of a swarm's service."""
    return list(host.toolkit.swarm_variables)
