# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import random
import typing as t

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import config_toml, toml_editor
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.toml_editor import TomlError
from ansible_collections.gpufleet.hosts.tests.unit.plugins.module_utils.toolkit.test_toml_editor import DEFAULT

HARD = {
    "accept-nvidia-visible-devices-envvar-when-unprivileged": False,
    "nvidia-container-cli": {"no-cgroups": True},
    "nvidia-container-runtime": {"mode": "cdi", "modes": {"cdi": {"spec-dirs": ["/run/cdi"]}}},
    "features": {"disable-imex-channel-creation": True, "ignore-imex-channel-requests": True},
}


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_line_ends_stay(end: str) -> None:
    text = DEFAULT.replace("\n", end)
    done = config_toml.plan(text, None, HARD)
    assert len(str(done.text).split("\n")) > len(text.split("\n"))
    assert str(done.text).count("\r\n") == (str(done.text).count("\n") if end == "\r\n" else 0)
    assert config_toml.plan(done.text, done.record, HARD).keys == []
    assert config_toml.plan(done.text, done.record, {}).text == text


def test_keys_are_set_and_taken_back_to_the_byte() -> None:
    done = config_toml.plan(DEFAULT, None, HARD)
    assert done.keys == sorted(config_toml.flat(HARD))
    tree = toml_editor.parse(str(done.text))
    assert tree["nvidia-container-runtime"]["mode"] == "cdi"
    assert tree["nvidia-container-runtime"]["runtimes"] == ["runc", "crun"]
    again = config_toml.plan(done.text, done.record, HARD)
    assert (again.keys, again.text, again.record) == ([], done.text, done.record)
    back = config_toml.plan(done.text, done.record, {})
    assert (back.text, back.record) == (DEFAULT, None)


def test_key_that_the_role_no_longer_has_is_restored_and_the_others_stay() -> None:
    done = config_toml.plan(DEFAULT, None, HARD)
    less = {**HARD, "features": {"ignore-imex-channel-requests": True}}
    fewer = config_toml.plan(done.text, done.record, less)
    assert fewer.keys == ["features.disable-imex-channel-creation"]
    assert "[features]\nignore-imex-channel-requests = true" in str(fewer.text)
    assert config_toml.plan(fewer.text, fewer.record, {}).text == DEFAULT


def test_edited_value_stays() -> None:
    done = config_toml.plan(DEFAULT, None, {"nvidia-container-runtime": {"log-level": "debug"}})
    edited = str(done.text).replace('"debug"', '"error"')
    back = config_toml.plan(edited, done.record, {})
    assert (back.keys, back.text, back.record) == ([], edited, None)


def test_value_that_the_file_already_has_is_not_owned() -> None:
    done = config_toml.plan(DEFAULT, None, {"disable-require": False})
    assert (done.keys, done.text, done.record) == ([], DEFAULT, None)


def test_null_removes_a_key_until_it_is_taken_back() -> None:
    done = config_toml.plan(DEFAULT, None, {"nvidia-container-runtime": {"runtimes": None}})
    assert "runtimes" not in str(done.text)
    restored = config_toml.plan(done.text, done.record, {})
    assert toml_editor.parse(str(restored.text)) == toml_editor.parse(DEFAULT)
    assert '  "runc", # first' in str(restored.text)


def test_missing_file_is_created_and_removed() -> None:
    done = config_toml.plan(None, None, HARD)
    assert toml_editor.parse(str(done.text)) == HARD
    assert config_toml.plan(done.text, done.record, {}).text is None
    assert config_toml.plan(None, None, {}) == config_toml.ConfigChange(None, None, [])


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"nvidia-container-runtime": {"mode": "cdi"}}, None),
        ({"nvidia-container-runtime.mode": "jit-cdi"}, None),
        ({"nvidia-container-cli": {"no-cgroups": None}}, None),
        (
            {"nvidia-container-runtime": {"mode": "fast"}},
            "is 'fast', but must be one of auto, legacy, cdi, csv, jit-cdi.",
        ),
        ({"nvidia-container-cli": {"no-cgroups": "yes"}}, "is 'yes', but must be true or false."),
        ({"nvidia-container-runtime": {"runtimes": "crun"}}, "is 'crun', but must be a list of strings."),
        ({"nvidia-container-runtime": {"log_level": "info"}}, "Did you mean nvidia-container-runtime.log-level?"),
        ({"mode": "cdi"}, "mode is not a key of /etc/nvidia-container-runtime/config.toml."),
    ],
)
def test_keys_and_values_are_checked(config: dict[str, t.Any], words: str | None) -> None:
    found = config_toml.value_problems(config)
    assert len(found) == (words is not None)
    assert (words or "") in " ".join(found)


def test_random_sequences_end_with_the_first_file() -> None:
    chance = random.Random(4)
    samples: dict[t.Any, t.Any] = {bool: [True, False], str: ["a", 'b "c"'], list: [["x"], []]}
    first = toml_editor.parse(DEFAULT)
    for _round in range(60):
        text: str | None = DEFAULT
        record: str | None = None
        for _step in range(4):
            names = chance.sample(sorted(config_toml.KEYS), chance.randrange(5))
            kinds = {name: config_toml.KEYS[name] for name in names}
            config = {name: chance.choice(samples.get(kind) or kind) for name, kind in kinds.items()}
            done = config_toml.plan(text, record, config)
            tree = toml_editor.parse(str(done.text))
            assert {name: toml_editor.get(tree, tuple(name.split("."))) for name in config} == config
            text, record = done.text, done.record
        back = config_toml.plan(text, record, {})
        assert back.text == DEFAULT or toml_editor.parse(str(back.text)) == first
        assert back.record is None


def test_broken_file_is_an_error() -> None:
    with pytest.raises(TomlError, match="not valid TOML"):
        config_toml.plan("a = \n", None, HARD)
