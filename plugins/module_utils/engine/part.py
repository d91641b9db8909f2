# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Part container_engine: Docker, Podman or containerd."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import coexistence
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import plan as engine_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import removal as engine_removal
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import variables as engine_request
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts import outcomes
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.declaration import Declaration, Owns
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.part_plan import Context, Part, of_removal, of_role


def plan(context: Context, _parts: Mapping[str, Part]) -> Part:
    request = engine_request.read(context.values["container_engine"])
    platforms = context.platforms["container_engine"]
    if request.state == "absent":
        removal = engine_removal.plan(context.host, request, platforms)
        return of_removal("container_engine", removal)
    result = engine_plan.plan(context.host, request, platforms, context.versions)
    return dataclasses.replace(
        of_role("container_engine", result, request.download_timeout),
        outcome=outcomes.EngineOutcome(result.engine, result.version, installs=bool(result.packages)),
    )


PART = Declaration(
    name="container_engine",
    plan=plan,
    platforms="__container_engine_platforms",
    request=engine_request.EngineRequest,
    read=engine_request.read,
    owns=Owns(
        files=(owned.ENGINE_RECORD, owned.ENGINE_USERS),
        units=("docker.service", "docker.socket", coexistence.SNAP_UNIT, "containerd.service", "podman.socket"),
        packages=(
            r"^docker|containerd|^podman|^moby|^cri-o$|^crun$|^runc$|^iptables$|^netavark$|^aardvark-dns$|^catatonit$",
            r"^python3-(docker|requests)",
        ),
        repositories=(owned.DOCKER_REPOSITORY_ID,),
    ),
)
