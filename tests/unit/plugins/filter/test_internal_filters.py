# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""ansible-doc describes every internal filter as it is."""

from __future__ import annotations

import importlib
import inspect
import typing as t
from pathlib import Path

import pytest
import yaml

from ansible_collections.gpufleet.hosts.plugins.filter import site_internal

FOLDER = Path(site_internal.__file__).parent
PACKAGE = site_internal.__name__.rpartition(".")[0]
MODULES = [importlib.import_module(f"{PACKAGE}.{path.stem}") for path in sorted(FOLDER.glob("*_internal.py"))]
FILTERS = {name: function for module in MODULES for name, function in module.FilterModule().filters().items()}


def test_every_internal_filter_has_a_page() -> None:
    assert {path.stem for path in FOLDER.glob("*.yml")} == set(FILTERS)
    assert [name for name in FILTERS if not name.startswith("_")] == []


@pytest.mark.parametrize("name", FILTERS)
def test_the_page_lists_the_options_of_the_filter(name: str) -> None:
    page: dict[str, t.Any] = yaml.safe_load((FOLDER / f"{name}.yml").read_text(encoding="utf-8"))["DOCUMENTATION"]
    _input, *parameters = inspect.signature(FILTERS[name]).parameters
    assert page["name"] == name
    assert list(page["options"])[1:] == parameters
    assert page.get("positional", "") == ", ".join(parameters)
