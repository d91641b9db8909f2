# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a host can have leftovers of nvidia-docker. Every observation asks this, so it reads only names of files.

If it has, `observed_leftovers.py` describes them in a second call. The places: NVIDIA/nvidia-docker, tag v1.0.1, build/
and src/nvidia-docker-plugin; moby/moby, pkg/plugins/discovery.go.
"""

from __future__ import annotations

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import (
    exists,
    listing,
    read_bytes,
    read_text,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.migration import docker_volumes_of_old_plugin

DRIVER, DATA = "nvidia-docker", "/var/lib/nvidia-docker"
SPECIFICATIONS = tuple(
    f"{folder}/docker/plugins/nvidia-docker.{kind}" for folder in ("/etc", "/usr/lib") for kind in ("spec", "json")
)
SOCKET = "/run/docker/plugins/nvidia-docker.sock"
UNITS = tuple(f"{folder}/systemd/system/nvidia-docker.service" for folder in ("/etc", "/usr/lib", "/lib"))
SETTINGS = ("/etc/default/nvidia-docker", "/etc/init/nvidia-docker.conf")
PROGRAMS = ("/usr/bin/nvidia-docker-plugin", "/usr/local/bin/nvidia-docker-plugin")
FILES = (*SPECIFICATIONS, SOCKET, DATA, *UNITS, *SETTINGS, *PROGRAMS)
_HOOKS = ("/etc/containers/oci/hooks.d", "/usr/share/containers/oci/hooks.d", "/usr/libexec/oci/hooks.d")
_LARGEST = 64 * 1024 * 1024


def exist(root: str, docker: str) -> bool:
    """Return whether a file, a user or a volume of nvidia-docker exists. `docker`: Docker's data directory."""
    database = read_bytes(root, f"{docker}/volumes/metadata.db", _LARGEST) or b""
    return bool(
        any(exists(root, path) for path in FILES)
        or hooks(root)
        or has_user(root)
        or saved(root)
        or docker_volumes_of_old_plugin.remain(database, DRIVER)
    )


def hooks(root: str) -> list[str]:
    """Return the files of OCI hooks for NVIDIA GPUs."""
    return [f"{folder}/{name}" for folder in _HOOKS for name in listing(root, folder) if "nvidia" in name]


def has_user(root: str) -> bool:
    """Return whether the user of the volume plugin exists."""
    return f"\n{DRIVER}:" in "\n" + (read_text(root, "/etc/passwd") or "")


def saved(root: str) -> list[str]:
    """Return what an unfinished migration has saved. Descriptions of containers stay after a migration."""
    return [name for name in listing(root, owned.MIGRATION) if not owned.MIGRATION_CONTAINERS.endswith(f"/{name}")]
