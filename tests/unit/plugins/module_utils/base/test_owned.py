# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The paths that YAML, Python code and the documentation of modules repeat are those of base/owned.py."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import role_file_paths

ROOT = Path(__file__).resolve().parents[5]
SOURCES = sorted([*ROOT.glob("roles/**/*.yml"), *ROOT.glob("playbooks/**/*.yml"), *ROOT.glob("plugins/**/*.py")])
OWN_PATH = re.compile(r"/(?:etc|run|usr|var)/[\w./-]*gpufleet[\w./-]*")


def paths() -> set[str]:
    """Return all paths of base/owned.py."""
    values = [value for name, value in vars(owned).items() if name.isupper()]
    texts = [text for value in values for text in (value.values() if isinstance(value, dict) else [value])]
    # The files of a repository have its name.
    names = [value for name, value in vars(owned).items() if name.endswith("REPOSITORY_ID")]
    texts += [path for name in names for path in role_file_paths.paths(name)]
    return {text for text in texts if isinstance(text, str) and text.startswith("/")}


def unknown(text: str) -> list[str]:
    """Return the paths in a text that are neither owned nor inside an owned directory for paths with variable names."""
    inside = (
        f"{owned.VOLUMES}/",
        *(
            path.partition("{")[0]
            for path in (owned.INSTALLER, owned.CDI_SPECIFICATION_OF_KIND, owned.ACCELERATOR_CDI_UNIT)
        ),
    )
    # The documentation of a module writes VENDOR for the name of any vendor.
    found = {path.rstrip("./").replace("VENDOR", "amd") for path in OWN_PATH.findall(text)}
    return sorted(path for path in found - paths() if not path.startswith(inside))


@pytest.mark.parametrize("text", ["dest: /var/lib/gpufleet/other.json", "'/etc/apt/apt.conf.d/54gpufleet-x'"])
def test_another_path_is_noticed(text):
    assert unknown(text)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_repeated_paths_are_owned(path):
    assert unknown(path.read_text(encoding="utf-8")) == []
