# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options that several modules have."""

from __future__ import annotations


class ModuleDocFragment:
    """How NVML is reached."""

    DOCUMENTATION = r"""
options:
  driver_root:
    description:
      - Directory that contains the driver's user-space libraries, as in
        O(gpufleet.hosts.nvidia_gpu_facts#module:driver_root).
    type: path
  timeout:
    description: Seconds to wait for a response from the driver. The value must be above 0 and at most 3600.
    type: float
    default: 10
  _nvml_binding_path:
    description: Private. Do not set.
    type: path
"""

    # The specification of a CDI module.
    CDI = r"""
options:
  spec_dirs:
    description: Directories in which the engines look for specifications.
    type: list
    elements: path
    default: [/etc/cdi, /var/run/cdi]
  additional_gids:
    description:
      - Whether processes in the container join the groups of device nodes that are not world-writable. Users other than
        root can then open these nodes.
      - This requires CDI 0.7.0, which Podman before 5.1 and Docker before 26.1 cannot read.
    type: bool
    default: false
"""
