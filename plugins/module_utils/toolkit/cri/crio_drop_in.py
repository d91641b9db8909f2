# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The drop-in of CRI-O with a vendor's runtime, and the OCI runtime that it calls. Pure functions."""

from __future__ import annotations

import posixpath
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import toml_editor
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri import engine_file_parsing, gone_program
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri.vendor_runtimes import NVIDIA, CriRuntime

# Where NVIDIA's runtime searches for the OCI runtime that it calls: NVIDIA/nvidia-container-toolkit,
# internal/oci/runtime_low_level.go and pkg/lookup (d34b304). CRI-O's own packages have theirs in /usr/libexec/crio:
# cri-o/packaging, templates/latest/cri-o (b111fe9).
_SEARCHED = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
# The collection's own runtimes call the OCI runtime, so none of them is the base of another one.
_OWN_NAMES, _OWN_PROGRAMS = ("nvidia", "habana"), ("nvidia-container-runtime", "habana-container-runtime")


def crio_program(texts: t.Mapping[str, str], runtime: CriRuntime = NVIDIA) -> str | None:
    """Return the program of the runtime in CRI-O. `texts`: see `crio`."""
    tree: dict[str, t.Any] = {}
    for path, text in texts.items():
        tree = engine_file_parsing.merged(tree, engine_file_parsing.parsed(path, text))
    found = toml_editor.get(tree, ("crio", "runtime", "runtimes", runtime.name, "runtime_path"))
    return found if isinstance(found, str) else None


def _is_own(name: str, entry: dict[str, t.Any], runtime: CriRuntime) -> bool:
    program = posixpath.basename(entry.get("runtime_path") or "")
    return name in (*_OWN_NAMES, runtime.name) or program.startswith(_OWN_PROGRAMS)


def crio(
    texts: t.Mapping[str, str],
    *,
    runtime: CriRuntime = NVIDIA,
    default_runtime: bool = False,
    programs: t.Collection[str] | None = (),
) -> tuple[str | None, str | None]:
    """Return the drop-in for CRI-O, and the OCI runtime that the vendor's runtime does not find by its name.

    None: somebody else has registered the runtime, or it finds the OCI runtime. `texts`: CRI-O's configuration files by
    path, in the order in which it reads them. `programs`: see `containerd`. Raise TomlError
    with a whole message if one cannot be read.
    """
    tree: dict[str, t.Any] = {}
    for path, text in texts.items():
        tree = engine_file_parsing.merged(tree, engine_file_parsing.parsed(path, text))
    section = toml_editor.get(tree, ("crio", "runtime")) or {}
    runtimes = section.get("runtimes") or {}
    known = str((runtimes.get(runtime.name) or {}).get("runtime_path"))
    is_gone = gone_program.is_missing(known, programs, runtime)
    is_ours = posixpath.basename(known) == posixpath.basename(runtime.path) and not is_gone
    if is_ours and (section.get("default_runtime") == runtime.name or not default_runtime):
        return None, None
    names = (section.get("default_runtime"), "crun", "runc")
    base = next((name for name in names if name in runtimes and not _is_own(name, runtimes[name], runtime)), None)
    options = runtimes[base] if base else {}
    ours = {**options, "runtime_path": runtime.path, "runtime_type": "oci"}
    own: dict[str, t.Any] = {"runtimes": {runtime.name: ours}}
    if default_runtime:
        own["default_runtime"] = runtime.name
    called = str(options.get("runtime_path") or "")
    is_found = not called or posixpath.dirname(called) in _SEARCHED
    if not is_found and runtime.uses_path:
        # crio.conf(5): this reaches conmon and the runtime.
        others = [text for text in options.get("monitor_env") or [] if not text.startswith("PATH=")]
        ours["monitor_env"] = [*others, f"PATH={':'.join((*_SEARCHED, posixpath.dirname(called)))}"]
    return runtime.header + toml_editor.document({"crio": {"runtime": own}}), None if is_found else called
