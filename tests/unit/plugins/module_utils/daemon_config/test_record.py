# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config import record
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.json_text import DaemonConfigError
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.managed_keys import EMPTY_RECORD
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.record import State
from ansible_collections.gpufleet.hosts.tests.unit.plugins.daemon_json_changes import plan


def test_record_is_read_as_written() -> None:
    done = plan('{"a": 1}', {"a": None, "dns": ["1.1.1.1"], "runtimes": {"n": {"path": "p"}}})
    state = done.state._replace(written={"at": 1, "boot_id": "b", "reload": ["dns"], "restart": []})
    assert record.load_state(record.dump_state(state), "x") == state
    assert record.load_state(None, "x") == State(EMPTY_RECORD)


WRITTEN = {"at": 1, "boot_id": "b", "reload": [], "restart": []}

ENTRY = {"path": ["a"], "managers": ["m"]}

RECORD = {"entries": [ENTRY], "containers": [], "original": None, "made_directory": False, "written": WRITTEN}


def test_minimal_record_is_valid() -> None:
    assert record.load_state(json.dumps(RECORD), "x").written == WRITTEN


def record_text(**more: t.Any) -> str:
    return json.dumps({**RECORD, **more})


RECORD_WITH_INFINITY = record_text(entries=[{**ENTRY, "value": float("inf")}])


def without(tree: dict[str, t.Any], key: str) -> dict[str, t.Any]:
    return {name: value for name, value in tree.items() if name != key}


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "{}", '{"entries": [{}]}', "nonsense", "5", "null", pytest.param("[" * 100000, id="deep")),
        *(json.dumps(without(RECORD, key)) for key in RECORD),
        *(record_text(written=without(WRITTEN, key)) for key in WRITTEN),
        *(record_text(written=value) for value in (5, True, "x", [], [1])),
        *(record_text(written={**WRITTEN, "at": value}) for value in (None, "1", True, [])),
        *(record_text(written={**WRITTEN, "reload": value}) for value in (None, 5, "ab", [5])),
        *(record_text(written={**WRITTEN, "former": value}) for value in (5, "x", {}, {"text": 1}, [1])),
        RECORD_WITH_INFINITY,
        record_text(written={**WRITTEN, "former": {"text": None, "after": None, "state": 5}}),
        *(record_text(entries=value) for value in (5, [5], [[]], [{**ENTRY, "path": []}], [{**ENTRY, "path": "ab"}])),
        *(record_text(entries=[{**ENTRY, **more}]) for more in ({"path": [5]}, {"managers": "m"}, {"item": 5})),
        *(record_text(containers=value) for value in (5, [5], ["ab"], [[]], [[["a"]]])),
        *(record_text(original=5), record_text(made_directory=5)),
    ],
)
def test_invalid_record_is_reported(text: str) -> None:
    with pytest.raises(DaemonConfigError, match=r"/var/lib/x: the record .* Remove this file"):
        record.load_state(text, "/var/lib/x")
    assert record.masked_record(text, "/var/lib/x") == text


def test_values_in_the_record_are_masked() -> None:
    before = '{"log-opts": {"splunk-token": "0ld"}, "proxies": {"http-proxy": "u:0ld@p"}}'
    options = {"log-opts": {"splunk-token": "n3w"}, "proxies": {"http-proxy": "u:n3w@p"}}
    done = plan(before, options)
    text = record.masked_record(record.dump_state(done.state), "record")
    assert "0ld" not in text
    assert "n3w" not in text
    assert record.load_state(text, "record").record.entries.keys() == done.state.record.entries.keys()
    assert record.masked_record('{"token": "x"}', "record") == '{"token": "********"}'
