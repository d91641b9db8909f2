# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When the image of a container is pulled, with which call, and what check mode warns of instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.engine_module_options import CONNECTION_OPTIONS
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.plan_result import PlanError
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import Image

PULL_MODULES = {
    "docker": "community.docker.docker_image_pull",
    "podman": "containers.podman.podman_image",
}


def is_required(engine: str, reference: str, image: Image | None, policy: str, *, is_pulled: bool) -> bool:
    """Return whether the image must be pulled. Raise PlanError if it is not in the engine and cannot get there.

    `policy`: the option `pull`. `is_pulled`: whether this run has pulled the image.
    """
    if image is None and policy == "never":
        raise PlanError(f"image {reference} is not in {engine}, and pull=never. Load the image, or set pull=missing.")
    if is_pulled:
        if image is None:
            raise PlanError(f"image {reference} was pulled, but {engine} does not list it under that name.")
        return False
    return image is None or policy == "always"


def pull_call(engine: str, options: Mapping[str, Any], image: str, *, always: bool) -> dict[str, Any]:
    """Return the call of the engine's module that pulls an image."""
    arguments: dict[str, Any] = {key: value for key, value in options.items() if key in CONNECTION_OPTIONS[engine]}
    arguments["name"] = image
    if engine == "docker":
        arguments["pull"] = "always" if always else "not_present"
        if options.get("platform"):
            arguments["platform"] = options["platform"]
    else:
        arguments["force"] = always
    return {"module": PULL_MODULES[engine], "args": arguments}


def unpulled_warning(image: str, *, is_local: bool) -> str:
    """Return the warning of check mode about an image that a run would pull."""
    if not is_local:
        return f"image {image} is not pulled in check mode, so its requirements are not checked."
    return (
        f"pull=always: check mode pulls nothing, so the prediction is for the local image {image}. "
        "If the registry has a newer image, a run outside check mode recreates the container."
    )
