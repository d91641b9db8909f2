# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The keys of NVIDIA's config.toml that decide whether and how its programs give GPUs to a container.

Names and defaults of the keys: NVIDIA/nvidia-container-toolkit, api/config/v1 (d34b304).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import toml_reader

PATH = "/etc/nvidia-container-runtime/config.toml"
ACCEPT = "accept-nvidia-visible-devices-envvar-when-unprivileged"
AUTO, LEGACY, CDI, CSV, JIT_CDI = "auto", "legacy", "cdi", "csv", "jit-cdi"
MODES = (AUTO, LEGACY, CDI, CSV, JIT_CDI)
_RUNTIME, _CLI, _HOOK = "nvidia-container-runtime", "nvidia-container-cli", "nvidia-container-runtime-hook"
_CAPABILITIES = "compat32,compute,display,graphics,ngx,utility,video"


@dataclass(frozen=True)
class ToolkitSettings:
    """The settings of a host. A key that the file does not have, or has with a wrong type, has its default value."""

    # Why the programs cannot read the file, or None.
    error: str | None = None
    mode: str = AUTO
    skips_mode_detection: bool = False
    no_cgroups: bool = False
    ldconfig: str | None = None
    allows_ldconfig_of_container: bool = False
    cli: str | None = None
    # The root directory of the driver.
    root: str = "/"
    runtimes: tuple[str, ...] = ("runc", "crun")
    cdi_kind: str = "nvidia.com/gpu"
    cdi_directories: tuple[str, ...] = ("/etc/cdi", "/var/run/cdi")
    capabilities: frozenset[str] = frozenset(_CAPABILITIES.split(","))
    # Whether NVIDIA_VISIBLE_DEVICES counts in containers without privileges.
    accepts_environment: bool = True
    disables_requirements: bool = False
    # The variables that are read instead of NVIDIA_VISIBLE_DEVICES.
    swarm_variables: tuple[str, ...] = ()


def read(text: str) -> ToolkitSettings:
    """Read the text of config.toml. An empty text has the default settings."""
    try:
        tree = toml_reader.read(text)
    except toml_reader.TomlValueError as error:
        return ToolkitSettings(error=str(error))

    def value(kind: type, *path: str) -> Any:
        found = toml_reader.get(tree, *path)
        return found if isinstance(found, kind) else None

    default = ToolkitSettings()
    accepts, capabilities = value(bool, ACCEPT), value(str, "supported-driver-capabilities")
    return ToolkitSettings(
        mode=value(str, _RUNTIME, "mode") or AUTO,
        skips_mode_detection=bool(value(bool, _HOOK, "skip-mode-detection")),
        no_cgroups=bool(value(bool, _CLI, "no-cgroups")),
        ldconfig=value(str, _CLI, "ldconfig"),
        allows_ldconfig_of_container=bool(value(bool, "features", "allow-ldconfig-from-container")),
        cli=value(str, _CLI, "path") or None,
        root=value(str, _CLI, "root") or default.root,
        runtimes=_texts(value(list, _RUNTIME, "runtimes")) or default.runtimes,
        cdi_kind=value(str, _RUNTIME, "modes", "cdi", "default-kind") or default.cdi_kind,
        cdi_directories=_texts(value(list, _RUNTIME, "modes", "cdi", "spec-dirs")) or default.cdi_directories,
        capabilities=default.capabilities if capabilities is None else frozenset(_words(capabilities)),
        accepts_environment=accepts is not False,
        disables_requirements=bool(value(bool, "disable-require")),
        swarm_variables=tuple(_words(value(str, "swarm-resource") or "")),
    )


def _texts(values: list[Any] | None) -> tuple[str, ...]:
    return tuple(item for item in values or () if isinstance(item, str))


def _words(text: str) -> list[str]:
    return [word for part in text.split(",") if (word := part.strip())]
