# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Name the foreign DKMS module that makes the script of a package fail.

The scripts of kernels, headers and of dkms build the modules of all vendors, and fail if one of them does not build.
"""

from __future__ import annotations

import os
import re

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import listing
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import kernels

_TREES = "/var/lib/dkms"
_NO_SOURCES = "its sources are missing"
_BY_DKMS = re.compile(r"\bdkms\b", re.IGNORECASE)
_NAMED = re.compile(rf"{_TREES}/(?P<name>[^/\s]+)/")
# DKMS 3 ends with a list: "Autoinstall on KERNEL failed for module(s) foo(10) bar(8)."
_LISTED = re.compile(r"failed for module\(s\) (?P<names>(?:\S+\(\d+\)[\s,.]*)+)")


def causes(error: str, root: str = "/") -> str:
    """Return which foreign modules failed, if DKMS is involved in the error of a transaction, or an empty text."""
    if not _BY_DKMS.search(error):
        return ""
    broken = {
        (name, version): problem
        for name in listing(root, _TREES)
        if not name.startswith("nvidia")
        for version in listing(root, f"{_TREES}/{name}")
        if not version.startswith("kernel-")
        for problem in [_problem(root, f"{_TREES}/{name}/{version}")]
        if problem
    }
    named = {found["name"] for found in _NAMED.finditer(error)}
    named |= {name for found in _LISTED.finditer(error) for name in re.findall(r"(\S+)\(\d+\)", found["names"])}
    shown = {tree: problem for tree, problem in broken.items() if tree[0] in named} or broken
    if not shown or (named and all(name.startswith("nvidia") for name in named)):
        return ""
    trees = [f"{name} {version} ({problem})" for (name, version), problem in shown.items()]
    removal = " or ".join(_removal(*tree, problem) for tree, problem in shown.items())
    return (
        f"DKMS failed with {' and '.join(trees)}, which {'is' if len(trees) == 1 else 'are'} not part of NVIDIA's "
        f"driver. {_driver(root)} Repair the module, or remove it with {removal}, then run the task again."
    )


def _removal(name: str, version: str, problem: str) -> str:
    # DKMS 3.2 removes no tree whose sources are missing.
    if problem.startswith(_NO_SOURCES):
        return f"'rm -r {_TREES}/{name}/{version}'"
    return f"'dkms remove {name}/{version} --all'"


def _problem(root: str, tree: str) -> str:
    """Return why a tree cannot be built, or an empty text."""
    # The sources of a removed package: a link to nothing.
    if not os.path.exists(os.path.join(root, f"{tree}/source/dkms.conf".lstrip("/"))):
        return f"{_NO_SOURCES}: {tree}/source"
    failure = kernels.build_failure(root, f"{tree}/build/make.log")
    if failure is None:
        return ""
    kernel = f"for kernel {failure['kernel']}, " if failure["kernel"] else ""
    errors = f": {failure['errors'][0]}" if failure["errors"] else ""
    return f"{kernel}log {failure['log']}{errors}"


def _driver(root: str) -> str:
    """Return for which kernels the driver's modules are built."""
    built = [
        f"{tree['name']} {tree['version']} is built for kernel {', '.join(sorted(tree['kernels']))}"
        for tree in kernels.dkms(root)
        if tree["kernels"]
    ]
    return f"{'; '.join(built)}." if built else "NVIDIA's modules are not built yet."
