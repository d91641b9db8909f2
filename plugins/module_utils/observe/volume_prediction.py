# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Predict what module nvidia_driver_volume would do.

Only a prediction imports this file, because its imports take time.
"""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING

from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import specification_files as cdi_file
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import named_volumes
from ansible_collections.gpufleet.hosts.plugins.module_utils.volume import volume_changes

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import VolumePrediction


def predict(
    root: str,
    version: str | None,
    engines: list[str],
    expected_engines: list[str],
    *,
    run_command: named_volumes.Run,
    podman_path: str | None,
) -> VolumePrediction | None:
    """Return what the module would do with these options and its defaults for a version of the driver.

    Without a driver (`version` is None), return None. Like check mode, this changes nothing and starts no engine.
    """
    if version is None:
        return None
    params = {
        **volume_changes.DEFAULTS,
        "path": _inside(root, volume_changes.DEFAULTS["path"]),
        "driver_root": root,
        "driver_version": version,
        "engine": engines,
        "expected_engines": expected_engines,
    }
    docker = named_volumes.DockerClient("unix://" + _inside(root, named_volumes.DOCKER_HOST[len("unix://") :]))
    podman = named_volumes.PodmanClient(run_command, podman_path)
    specifications = functools.partial(cdi_file.referring_to, root=root)
    try:
        run = volume_changes.VolumeRun(params, docker, podman, specifications, check=True, root=root)
        result = run.apply_state()
    except volume_changes.ERRORS as error:
        text = volume_changes.error_text(error, params["path"])
        return {"changed": False, "actions": [], "surplus": [], "volume": None, "error": text}
    return {
        "changed": result["changed"],
        "actions": result["actions"],
        "surplus": run.surplus,
        "volume": result["volume"],
        "error": None,
    }


def _inside(root: str, path: str) -> str:
    return os.path.join(root, path.lstrip("/"))
