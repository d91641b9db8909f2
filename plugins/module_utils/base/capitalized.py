# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Text of messages."""

from __future__ import annotations

import re

# A name of a variable or a path, which has to stay as it is.
_NAME = re.compile(r"\S*[_/=]")


def capitalized(text: str) -> str:
    """Return a text as the beginning of a sentence. The name of a variable and a path keep their first letter."""
    return text if _NAME.match(text) else text[:1].upper() + text[1:]
