# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import codecs
import sys

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config import json_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.json_text import DaemonConfigError
from ansible_collections.gpufleet.hosts.tests.unit.plugins.daemon_json_changes import FILE, plan


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("\x1c", "line 1 column 1"),
        ("\ufeff\ufeff{}", "line 1 column 1"),
        # Python 3.13 and newer report the position of the comma, older versions that of the next key.
        ('{\n  "debug": true,\n}', "line 2 column 16" if sys.version_info >= (3, 13) else "line 3 column 1"),
        ('{\n  "debug": tru\n}', "line 2 column 12"),
        ('{"debug": true} x', "line 1 column 17: invalid JSON: Extra data"),
        ('// comment\n{"debug": true}', "line 1 column 1"),
        ("[]", "line 1 column 1: dockerd requires a JSON object, but the file contains []"),
        ('"x"', 'the file contains "x"'),
        ('{"a": {"b": 1, "b": 2}}', 'the key "b" appears twice'),
        ('{"a": NaN}', "NaN is not valid JSON"),
        ('{"a": {"b": [0, 1e400]}}', "the number 1e400 is too large for dockerd"),
        pytest.param(
            '{"a": ' + "1" * 5000 + "}", "line 1: the number 11111111111111111111… is too large", id="a long number"
        ),
        pytest.param("[" * 100000, "more than 100 levels deep", id="deep lists"),
        pytest.param('{"a":' * 100000, "more than 100 levels deep", id="deep objects"),
        pytest.param('{"a":' * 101 + "1" + "}" * 101, "more than 100 levels deep", id="101 levels"),
    ],
)
def test_invalid_file_is_reported_with_its_place(text: str, words: str) -> None:
    with pytest.raises(DaemonConfigError) as caught:
        plan(text, {"live-restore": True})
    assert FILE in str(caught.value)
    assert words in str(caught.value)
    assert "Nothing was changed. Correct the file by hand." in str(caught.value)


def test_100_levels_are_accepted() -> None:
    assert plan('{"a":' * 100 + "1" + "}" * 100, {"debug": True}).text


EMPTY = ["", " \n\n", "\u00a0\v", "null", "\ufeff", "\ufeff \r\n", "\ufeff{}"]


@pytest.mark.parametrize("text", EMPTY)
def test_empty_file_has_no_options(text: str) -> None:
    assert (plan(text, {"debug": True}).text or "").replace("\r", "") == '{\n  "debug": true\n}\n'
    assert plan(text, {}).text == text


@pytest.mark.parametrize("mark", [codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE])
def test_utf_16_is_reported(mark: bytes) -> None:
    with pytest.raises(DaemonConfigError, match="encoded in UTF-16"):
        json_text.decode(mark + b"{\0}\0", FILE)


@pytest.mark.parametrize(
    ("text", "version", "expected"),
    [
        ("", (20, 10, 24), True),
        ("\ufeff{}", (20, 10, 24), True),
        ("{}", (20, 10, 24), False),
        ("null", (20, 10, 24), False),
        ("", (23, 0, 0), False),
        ("\ufeff", (29, 0), False),
        ("", (), False),
    ],
)
def test_text_that_old_dockerd_rejects_is_reported(text: str, version: tuple[int, ...], expected: bool) -> None:
    assert json_text.is_rejected_by(text, version) is expected
