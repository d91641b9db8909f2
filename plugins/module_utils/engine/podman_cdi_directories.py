# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The directories in which Podman searches for CDI specifications. `podman info` does not show them.

Files and order: containers.conf(5). The key: containers/podman, pkg/specgen/generate/config_linux.go and
vendor/github.com/containers/common/pkg/config/default.go at v5.4.2, v5.5.0, v5.5.2 and v5.6.0.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import toml_reader
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import listing, read_text

_SYSTEM = ("/usr/share/containers/containers.conf", "/etc/containers/containers.conf")
# The first version that reads the key. This version has only the first directory as its default.
_READS_KEY = (5, 5)


def cdi_directories(
    version: tuple[int, ...], root: str = "/", *, rootless: bool = False, environment: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """Return the directories of a Podman in this version. `environment`: that of the user of a rootless Podman."""
    if version >= _READS_KEY:
        found = configured(root, rootless=rootless, environment=environment)
        if found:
            return found
    return ("/etc/cdi",) if version[:2] == _READS_KEY else ("/etc/cdi", "/var/run/cdi")


def configured(
    root: str = "/", *, rootless: bool = False, environment: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """Return the directories that the key cdi_spec_dirs of containers.conf names. Without the key, return none."""
    found: list[str] = []
    for path in _files(root, rootless, environment or {}):
        try:
            value = toml_reader.get(toml_reader.read(read_text(root, path) or ""), "engine", "cdi_spec_dirs")
        except toml_reader.TomlValueError:
            continue  # Podman itself reports the file.
        if isinstance(value, list):
            # A list replaces that of an earlier file, unless it contains this table.
            appends = any(isinstance(item, dict) and item.get("append") is True for item in value)
            found = [*(found if appends else []), *(item for item in value if isinstance(item, str))]
    return tuple(dict.fromkeys(found))


def _files(root: str, rootless: bool, environment: Mapping[str, str]) -> list[str]:
    override = environment.get("CONTAINERS_CONF_OVERRIDE")
    if environment.get("CONTAINERS_CONF"):
        paths = [environment["CONTAINERS_CONF"]]
    else:
        paths = [*_SYSTEM, *_fragments(root, "/etc/containers/containers.conf.d")]
        home = environment.get("XDG_CONFIG_HOME") or os.path.join(environment.get("HOME", "/"), ".config")
        if rootless:
            paths += [f"{home}/containers/containers.conf", *_fragments(root, f"{home}/containers/containers.conf.d")]
    return [*paths, *([override] if override else [])]


def _fragments(root: str, directory: str) -> list[str]:
    return [f"{directory}/{name}" for name in listing(root, directory) if name.endswith(".conf")]
