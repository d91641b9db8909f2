# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Part driver_volume: the Docker volume with the files of the driver."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.variables import is_driver_wanted
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import variables as engine_request
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import vendor_names
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts import outcomes, steps
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.declaration import Declaration
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.part_plan import Context, Part, Values, of_steps
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import unpredicted_volume

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import VolumePrediction


def volume_engines(values: Values, parts: Collection[str]) -> dict[str, list[str]]:
    """Return the options of module nvidia_driver_volume: the engines, and those that this run installs.

    containerd has no volumes.
    """
    request = engine_request.read(values.get("container_engine", {}))
    has_volumes = request.name in ("docker", "podman") and request.state == "present"
    installed = [request.name] if has_volumes and "container_engine" in parts else []
    return {"engine": ["auto"] if has_volumes else ["none"], "expected_engines": installed}


def plan(context: Context, parts: Mapping[str, Part]) -> Part:
    host, options = context.host, volume_engines(context.values, parts)
    if not is_driver_wanted(host, context.values):
        return of_steps([], plan=options)
    driver = outcomes.driver(parts)
    upcoming = driver.loaded_after(vendor_names.nvidia_driver(host)["loaded"])
    prediction = host["driver_volume"]
    # The volume of nvidia-docker 1.0 has the same name.
    migrates = prediction and prediction["error"] and outcomes.toolkit(parts).migrates_volumes
    if upcoming and (
        migrates
        or upcoming != (vendor_names.nvidia_driver(host)["loaded"] or vendor_names.nvidia_driver(host)["on_disk"])
    ):
        # The prediction is for another version or another volume.
        created = steps.own(steps.VOLUME, unpredicted_volume.text(host, options, upcoming), keeps=_kept(prediction))
        return of_steps([created], plan=options, is_only_reported=vendor_names.nvidia_driver(host)["loaded"] is None)
    if prediction is None or not upcoming:
        return of_steps([], plan=options, reasons=["no NVIDIA driver is loaded"])
    library = vendor_names.nvidia_driver(host)["library"]
    if library and library != upcoming and not driver.installs:
        waits = (
            f"the driver volume waits for a reboot: module {upcoming} is loaded, but the libraries have version "
            f"{library}. Reboot the host, or set nvidia_driver_reboot_policy to when_required"
        )
        return of_steps([], plan=options, reasons=[waits])
    # Packages of the same version can add files. An engine that this run installs or starts responds afterwards.
    # The daemon's program is part of the volume, too.
    installs = driver.installs or outcomes.persistence(parts).installs
    has_engine_changes = "container_engine" in parts and parts["container_engine"].acts
    error = None if installs or has_engine_changes else prediction["error"]
    # The packages bring the files back that the volume has and the host lacks.
    changes = [name for name in prediction["actions"] if not installs or name not in prediction["surplus"]]
    part = of_steps(
        [steps.own(steps.VOLUME, text, keeps=_kept(prediction)) for text in changes],
        plan=options,
        errors=[error] if error else [],
        is_only_reported=vendor_names.nvidia_driver(host)["loaded"] is None,
    )
    return dataclasses.replace(part, acts=bool(prediction["changed"] or prediction["error"] or installs))


def _kept(prediction: VolumePrediction | None) -> list[tuple[str, str]]:
    """Return the volume and the engines that know it, as far as they are known."""
    volume = (prediction or {}).get("volume")
    if not volume:
        return []
    return [(steps.VOLUME, volume["name"]), *(("registration", engine) for engine in volume["engines"])]


PART = Declaration(
    name="driver_volume",
    vendor="nvidia",
    plan=plan,
    is_step=True,
    reads=("nvidia_driver", "container_engine"),
    after=("nvidia_driver", "container_engine"),
)
