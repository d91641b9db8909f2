# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Read and write /etc/nvidia-container-runtime/config.toml with the vendor's defaults, comments and order."""

from __future__ import annotations

import json
import os
import shutil
from typing import Any

from .main import Failure
from .version import at_least

PATH = "/etc/nvidia-container-runtime/config.toml"
# Keys that a new file contains as comments with these values, unless they are set.
COMMENTED = {
    "accept-nvidia-visible-devices-as-volume-mounts": False,
    "accept-nvidia-visible-devices-envvar-when-unprivileged": True,
    "nvidia-container-cli.debug": "/var/log/nvidia-container-toolkit.log",
    "nvidia-container-cli.ldcache": "/etc/ld.so.cache",
    "nvidia-container-cli.no-cgroups": False,
    "nvidia-container-cli.path": "/usr/bin/nvidia-container-cli",
    "nvidia-container-cli.root": "/run/nvidia/driver",
    "nvidia-container-cli.user": "root:video",
    "nvidia-container-runtime.debug": "/var/log/nvidia-container-runtime.log",
    "swarm-resource": "DOCKER_RESOURCE_GPU",
}
_LISTS = ("environment", "runtimes", "annotation-prefixes", "spec-dirs")


def defaults(root: str = "/") -> dict[str, Any]:
    """Return the keys of a new file. `root` is the root directory of the host."""
    ldconfig = "/sbin/ldconfig"
    if os.path.exists(os.path.join(root, "sbin/ldconfig.real")):
        ldconfig += ".real"
    cli: dict[str, Any] = {"environment": [], "ldconfig": f"@{ldconfig}", "load-kmods": True}
    if _is_suse(root):
        cli["user"] = COMMENTED["nvidia-container-cli.user"]
    return {
        "disable-require": False,
        "supported-driver-capabilities": "compat32,compute,display,graphics,ngx,utility,video",
        "nvidia-container-cli": cli,
        "nvidia-container-runtime": {
            "log-level": "info",
            "mode": "auto",
            "runtimes": ["runc", "crun"] if at_least(1, 18) else ["docker-runc", "runc", "crun"],
            "modes": {
                "cdi": {
                    "annotation-prefixes": ["cdi.k8s.io/"],
                    "default-kind": "nvidia.com/gpu",
                    "spec-dirs": ["/etc/cdi", "/var/run/cdi"],
                },
                "csv": {"mount-spec-path": "/etc/nvidia-container-runtime/host-files-for-container.d"},
                "legacy": {"cuda-compat-mode": "ldconfig"},
            },
        },
        "nvidia-container-runtime-hook": {"path": "nvidia-container-runtime-hook", "skip-mode-detection": False},
        "nvidia-ctk": {"path": "nvidia-ctk"},
    }


def _is_suse(root: str) -> bool:
    try:
        with open(os.path.join(root, "etc/os-release"), encoding="utf-8") as file:
            lines = file.read().splitlines()
    except OSError:
        return False
    likes = [line.partition("=")[2].strip('"').split() for line in lines if line.startswith("ID_LIKE=")]
    return any(word in ("suse", "opensuse") for words in likes for word in words)


def path() -> str:
    """Return the path of the file, which variables can change."""
    if at_least(1, 18) and os.environ.get("NVIDIA_CTK_CONFIG_FILE_PATH"):
        return os.environ["NVIDIA_CTK_CONFIG_FILE_PATH"]
    return os.path.join(os.environ.get("XDG_CONFIG_HOME") or "/etc", "nvidia-container-runtime/config.toml")


def read(file_name: str) -> dict[str, Any] | None:
    """Return the keys of a file, or None if it does not exist."""
    import tomllib  # noqa: PLC0415 - not needed for most commands of a runtime

    try:
        with open(file_name, "rb") as file:
            return tomllib.load(file)
    except FileNotFoundError:
        return None
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise Failure(f"error loading config: failed to load specified config file: {error}") from error


class Settings:
    """The settings of a host: its file, and the defaults of keys that the file does not have."""

    def __init__(self, tree: dict[str, Any] | None = None) -> None:
        """Use the keys of a file that was read."""
        self._tree, self._defaults = tree or {}, defaults()

    def get(self, key: str, otherwise: Any = None) -> Any:
        """Return the value of a key such as nvidia-container-runtime.mode."""
        for tree in (self._tree, self._defaults):
            node: Any = tree
            for part in key.split("."):
                node = node.get(part) if isinstance(node, dict) else None
            if node is not None:
                return node
        return otherwise

    def mode(self) -> str:
        """Return the mode of the runtime."""
        return self.get("nvidia-container-runtime.mode")

    def program(self, key: str) -> str:
        """Return the path of a program in the settings. A name without a directory is searched in PATH."""
        value = self.get(key)
        return value if os.path.isabs(value) else shutil.which(value) or f"/usr/bin/{os.path.basename(value)}"


def load() -> Settings:
    """Read the settings of the host."""
    settings = Settings(read(path()))
    ldconfig = settings.get("nvidia-container-cli.ldconfig")
    if not ldconfig.startswith("@") and not settings.get("features.allow-ldconfig-from-container"):
        raise Failure(f"invalid config value: nvidia-container-cli.ldconfig value {ldconfig!r} is not host-relative")
    return settings


# --- writing ----------------------------------------------------------------------------------------------------------


def dump(tree: dict[str, Any]) -> str:
    """Return the text of a file. Keys and tables are sorted, and keys that are not set are comments."""
    merged: dict[str, Any] = {}
    for key, value in [*_flat(tree), *((key, value) for key, value in COMMENTED.items())]:
        node = merged
        *parents, name = key.split(".")
        for part in parents:
            node = node.setdefault(part, {})
        if name not in node:
            node[name] = value if _is_set(tree, key) else _Comment(value)
    return "\n".join(_table("", merged)).lstrip("\n") + "\n"


class _Comment:
    def __init__(self, value: Any) -> None:
        self.value = value


def _flat(tree: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, value in tree.items():
        if isinstance(value, dict):
            found += _flat(value, f"{prefix}{key}.")
        else:
            found.append((f"{prefix}{key}", value))
    return found


def _is_set(tree: dict[str, Any], key: str) -> bool:
    node: Any = tree
    for part in key.split("."):
        if not isinstance(node, dict) or part not in node:
            return False
        node = node[part]
    return True


def _table(name: str, tree: dict[str, Any]) -> list[str]:
    lines = ["", f"[{name}]"] if name else []
    for key, value in sorted(tree.items()):
        if isinstance(value, _Comment):
            lines.append(f"#{key} = {json.dumps(value.value)}")
        elif not isinstance(value, dict):
            lines.append(f"{key} = {json.dumps(value)}")
    for key, value in sorted(tree.items()):
        if isinstance(value, dict):
            lines += _table(f"{name}.{key}" if name else key, value)
    return lines


def assign(tree: dict[str, Any], setting: str) -> None:
    """Apply an option --set of nvidia-ctk: KEY=VALUE, or KEY for a boolean value."""
    key, equals, text = setting.partition("=")
    *parents, name = key.split(".")
    value: Any = text
    if not equals or text in ("true", "false"):
        value = text != "false"
    elif name in _LISTS:
        value = next((text.split(separator) for separator in (":", ",") if separator in text), [text])
    node = tree
    for part in parents:
        node = node.setdefault(part, {})
    node[name] = value
