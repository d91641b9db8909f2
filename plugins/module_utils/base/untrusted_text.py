# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Text that users of a host can choose: how it is displayed, and which of it may become an argument of a command.

Any user can name a process, and the names of packages, kernels and DKMS modules come from files. What does not match
its pattern is dropped where it is read, so that no later code has to know where a value comes from.
"""

from __future__ import annotations

import re

_MOST_SHOWN = 64
# An argument never begins with a dash, because the command would read it as an option.
KERNEL_RELEASE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+~-]{0,127}", re.ASCII)
PACKAGE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+-]*", re.ASCII)
# An epoch, the version and the release. rpm writes (none) for a missing epoch.
PACKAGE_VERSION = re.compile(r"(?:\(none\):)?[A-Za-z0-9_][A-Za-z0-9._+~^:-]*", re.ASCII)
ARCHITECTURE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*", re.ASCII)
# GPU-…, MIG-…, and MIG-GPU-…/1/0 of old drivers.
UUID = re.compile(r"[A-Za-z0-9][A-Za-z0-9/_-]*", re.ASCII)
PATH = re.compile(r"/[A-Za-z0-9._/+-]*", re.ASCII)
USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@-]*\$?", re.ASCII)


def is_like(pattern: re.Pattern[str], text: object) -> bool:
    """Return whether a text of a host matches a pattern as a whole."""
    return isinstance(text, str) and pattern.fullmatch(text) is not None


def shown(name: object) -> str:
    r"""Return the name of a process or container for a message: on one line and short.

    Each byte of a character that is not printable becomes \xNN. Compare the original, not this text.
    """
    text = "".join(letter if letter.isprintable() else _escaped(letter) for letter in str(name))
    return text if len(text) <= _MOST_SHOWN else text[: _MOST_SHOWN - 3] + "..."


def _escaped(letter: str) -> str:
    # Python reads a byte that is not UTF-8 as one of these surrogates.
    errors = "surrogateescape" if "\udc80" <= letter <= "\udcff" else "surrogatepass"
    return "".join(f"\\x{byte:02x}" for byte in letter.encode("utf-8", errors))
