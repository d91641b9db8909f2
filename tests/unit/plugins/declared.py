# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the parts declare, as the observation of a host gets it."""

from __future__ import annotations

import re

from ansible_collections.gpufleet.hosts.plugins.module_utils.observe import (
    observation,
    role_files_and_units_by_hardware,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers import installed_packages
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import registry

PLACES = registry.observed()
# The files that are read on a host without accelerators.
FILES = (*observation.FILES, *role_files_and_units_by_hardware.DeclaredPlaces(PLACES).files("/nowhere", ()))
# The names of the packages that the observation describes.
PACKAGES = re.compile("|".join([installed_packages.GENERAL, *PLACES["package_patterns"]]))
