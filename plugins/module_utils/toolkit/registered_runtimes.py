# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which programs the engines of a host run as NVIDIA's runtime: a program of another toolkit, or one that is gone.

Pure functions.
"""

from __future__ import annotations

import posixpath
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config import dockerd_flags, option_fields
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import coexistence
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import toml_editor, vulnerabilities
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri import containerd_drop_in, crio_drop_in
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.docker_runtime import NAME, PATH
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.toml_editor import TomlError

if t.TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host

_TITLES = {"docker": "Docker", "containerd": "containerd", "crio": "CRI-O"}


def programs(host: Host) -> dict[str, str | None]:
    """Return the existing programs that the engines' files name as NVIDIA's runtime, with known versions."""
    return host.get("nvidia_runtimes") or {}


def by_engine(host: Host) -> dict[str, str]:
    """Return the program of runtime nvidia by engine, without engines whose files have no runtime or are broken."""
    found = {}
    readers: dict[str, t.Callable[[], str | None]] = {
        "docker": lambda: _docker(host),
        "containerd": lambda: _containerd(host),
        "crio": lambda: crio_drop_in.crio_program(host["cri_files"]["crio"]),
    }
    for name, read in readers.items():
        if (host["engines"].get(name) or {}).get("package"):
            try:
                program = read()
            except TomlError:  # the plan reports it
                continue
            if program:
                found[name] = program
    return found


def _docker(host: Host) -> str | None:
    daemon = host["docker_daemon_json"]
    of_flags = [dockerd_flags.Flag(**flag) for flag in daemon.get("flags", []) if flag["key"] == "runtimes"]
    words = [word.partition("=") for flag in of_flags for word in flag.value]
    named = next((path for name, _sign, path in words if name == NAME), None)
    return named or option_fields.program(toml_editor.get(daemon.get("content") or {}, ("runtimes", NAME)))


def _containerd(host: Host) -> str | None:
    if host["engines"]["docker"]["package"] and not coexistence.kubernetes(host):
        return None  # Docker's own containerd, whose CRI nobody uses.
    return containerd_drop_in.containerd_program(
        host["cri_files"]["containerd"], host["engines"]["containerd"]["version"] or ""
    )


def missing(host: Host) -> list[str]:
    """Return a problem for each engine other than Docker whose runtime is gone. Docker has a check of its own."""
    gone = {name: path for name, path in by_engine(host).items() if name != "docker"}
    return [
        f"Runtime {NAME} of {_TITLES[name]} is registered as {path}, which does not exist, so containers with this "
        "runtime do not start. Run playbook gpufleet.hosts.site to register NVIDIA's container toolkit, or remove the "
        "runtime."
        for name, path in gone.items()
        if posixpath.isabs(path) and path not in programs(host)
    ]


def foreign(host: Host) -> list[str]:
    """Say which engines run the program of a toolkit that no package installed, and its known vulnerabilities."""
    found = []
    for name, path in by_engine(host).items():
        if path == PATH or path not in programs(host):
            continue
        version = programs(host)[path]
        known = vulnerabilities.of(version) if version else []
        text = f"containers of {_TITLES[name]} with runtime {NAME} run {path} {version or '(its version is unknown)'}"
        text += f", which has known vulnerabilities: {', '.join(known)}" if known else ""
        found.append(
            f"{text}. The packages of the toolkit do not update this program. Update it with the tool that installed "
            "it, or remove its registration"
        )
    return found
