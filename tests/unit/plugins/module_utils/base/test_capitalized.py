# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.capitalized import capitalized


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("the repositories have no driver", "The repositories have no driver"),
        ("nvidia_driver_branch=999 does not exist", "nvidia_driver_branch=999 does not exist"),
        ("/etc/fstab has an entry", "/etc/fstab has an entry"),
        ("", ""),
    ],
)
def test_the_first_word_starts_a_sentence_unless_it_is_a_name(text, sentence):
    assert capitalized(text) == sentence
