# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which failures of downloads can pass by themselves, and how often such a download is tried."""

from __future__ import annotations

import re
import time
from typing import Callable, TypeVar

TRIES = 3
# No further try begins later than this after the beginning of the first one.
SECONDS = 60.0
# Seconds before the second and the third try.
_PAUSES = (3.0, 10.0)
_TRANSIENT = re.compile(
    # Name resolution.
    r"could(?:n't| not) resolve (?:host|proxy|')|temporary failure (?:in name resolution|resolving)"
    r"|name or service not known|no address associated with hostname|curl error \([56]\)"
    # No connection.
    r"|connection (?:refused|reset|failed)|could(?:n't| not) connect to|unable to connect to|failed to connect to"
    r"|curl error \(7\)|network is unreachable|no route to host"
    # A connection that ended too early.
    r"|connection timed out|timeout was reached|error reading from server|closed (?:the )?connection"
    r"|curl error \((?:18|28|52|56)\)"
    # HTTP 429 and 5xx, as apt, dnf, zypper and Python write them. zypper has no number for some of them.
    r"|is temporarily unaccessible"
    r"|(?:^\s*|\s{2})(?:429|5\d\d)\s{2}\S|status code: (?:429|5\d\d)\b|http response: (?:429|5\d\d)\b"
    r"|returned error: (?:429|5\d\d)\b|http error (?:429|5\d\d)\b"
    # A mirror that is just being updated.
    r"|hash sum mismatch|file has unexpected size|checksum doesn't match|digest verification failed",
    re.IGNORECASE,
)
# A line with one of these describes a decision, which does not change.
_FINAL = re.compile(
    r"(?:^\s*|\s{2})4(?!29)\d\d\s{2}\S"
    r"|(?:status code:|http response:|returned error:|http error) 4(?!29)\d\d\b"
    r"|no_pubkey|badsig|expkeysig|gpg (?:error|check|key)|signature|not signed|not trusted|certificate",
    re.IGNORECASE,
)
_NOTED = re.compile(r"Tried (?P<tries>\d+) times\b")
Result = TypeVar("Result")


def transient_lines(text: str) -> list[str]:
    """Return the lines of an error that describe a failure that can pass by itself."""
    return [line.strip() for line in text.splitlines() if _TRANSIENT.search(line) and not _FINAL.search(line)]


def is_transient(text: str) -> bool:
    """Return whether a download is worth another try."""
    return bool(transient_lines(text))


def note(tries: int) -> str:
    """Return the sentence that says how often a download was tried."""
    return f"Tried {tries} times." if tries > 1 else ""


def noted(reason: str, output: str) -> str:
    """Add to a reason how often the download was tried, if the output says so."""
    found = _NOTED.search(output)
    return f"{reason.rstrip('.: ')} (tried {found['tries']} times)" if found and is_transient(reason) else reason


class Retries:
    """Tries downloads again. What failed in spite of that is not tried again by later downloads of the same process."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        """Use `clock` and `sleep` for the time."""
        self._clock = clock
        self._sleep = sleep
        self._hopeless: set[str] = set()

    def run(self, attempt: Callable[[], Result], problem: Callable[[Result], str]) -> tuple[Result, int]:
        """Return the result of the last try and the number of tries. `problem` is the error text of a result."""
        end = self._clock() + SECONDS
        for tries in range(1, TRIES + 1):
            result = attempt()
            # The lines of two tries differ in times and ports.
            lines = {re.sub(r"\d+", "#", line) for line in transient_lines(problem(result))}
            if not lines - self._hopeless:
                return result, tries
            if tries == TRIES or self._clock() + _PAUSES[tries - 1] >= end:
                break
            self._sleep(_PAUSES[tries - 1])
        self._hopeless |= lines
        return result, tries
