# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The record of the keys that a role set in a TOML file: a damaged one is an error that says what to do."""

from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import config_toml, record_of_changed_keys
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.toml_editor import TomlError


def test_text_of_a_record_can_be_read() -> None:
    keys = {"b": {"value": 1, "before": None}, "a": {"value": [], "before": ["a = 5"]}}
    text = record_of_changed_keys.text_of(keys, ["t"], made=True)
    assert record_of_changed_keys.read(text, "/srv/record") == {"keys": keys, "tables": ["t"], "made": True}
    assert record_of_changed_keys.text_of({}, ["t"], made=True) is None
    assert record_of_changed_keys.read(None, "/srv/record") == {"keys": {}, "tables": [], "made": False}


def test_record_that_is_no_json_is_an_error() -> None:
    with pytest.raises(TomlError, match=r"/srv/record cannot be read"):
        record_of_changed_keys.read("{", "/srv/record")


@pytest.mark.parametrize(
    "keys",
    [
        {"imports": 5},
        {"imports": {"value": 1}},
        {"imports": {"before": None}},
        {"imports": {"value": [], "before": 5}},
        {"imports": {"value": [], "before": [5]}},
        5,
    ],
)
def test_record_with_other_types_is_named(keys: t.Any) -> None:
    record = json.dumps({"keys": keys, "tables": [], "made": False})
    with pytest.raises(TomlError, match=r"/srv/record cannot be read: .*Remove this file"):
        config_toml.plan("imports = []\n", record, {}, "/srv/record")


def test_record_whose_lines_have_no_value_restores_none() -> None:
    record = json.dumps({"keys": {"a": {"value": 1, "before": ["# a"]}}, "tables": [], "made": False})
    assert config_toml.plan("a = 1\n", record, {}).text == ""
