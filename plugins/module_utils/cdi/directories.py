# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where CDI specifications are, and how this collection marks its own."""

from __future__ import annotations

import os

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned

DIRECTORIES = ("/etc/cdi", "/var/run/cdi")
# Engines ignore files with other suffixes.
SUFFIXES = (".json", ".yaml")


def marker_path(path: str) -> str:
    """Return the marker file that identifies the specification at `path` as ours."""
    return os.path.join(os.path.dirname(path), owned.CDI_MARKER.format(os.path.basename(path)))


def real(path: str) -> str:
    """Return the path without the link /var/run."""
    return path.replace("/var/run/", "/run/", 1)
