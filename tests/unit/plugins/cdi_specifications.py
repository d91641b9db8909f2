# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CDI specifications as NVIDIA's container toolkit writes them."""

from __future__ import annotations

LIBRARY = "/usr/lib/x86_64-linux-gnu/libcuda.so.535.261.03"
YAML = f"""\
---
cdiVersion: 0.5.0
kind: nvidia.com/gpu
containerEdits:
  hooks:
  - args:
    - nvidia-cdi-hook
    - create-symlinks
    - --link
    - libGLX_nvidia.so.535.261.03::/usr/lib/x86_64-linux-gnu/libGLX_indirect.so.0
    hookName: createContainer
    path: /usr/bin/nvidia-cdi-hook
  mounts:
  - containerPath: /usr/lib/x86_64-linux-gnu/libnvidia-egl-gbm.so.1.1.2
    hostPath: /usr/lib/x86_64-linux-gnu/libnvidia-egl-gbm.so.1.1.2
  - containerPath: {LIBRARY}
    hostPath: {LIBRARY}
    options:
    - ro
"""


def spec(*mounts, kind="nvidia.com/gpu", **edits):
    made = [{"hostPath": mount, "containerPath": mount} for mount in mounts]
    return {"cdiVersion": "0.5.0", "kind": kind, "containerEdits": {"mounts": made, **edits}, "devices": []}
