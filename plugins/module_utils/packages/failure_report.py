# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The message of a failed transaction: the cause in a few lines, and the whole text in a file on the host.

A transaction that cannot do without repositories that could not be read names them as the cause.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import atomic_file, owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.url_logins import masked
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.backend import (
    Backend,
    BusyError,
    PackageManagerError,
    View,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages.transaction_versions import (
    TransactionError,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import unreadable_repositories

# Characters of a message that a screen shows without scrolling.
LIMIT = 600
# Packages in a message: NAME=VERSION of apt, NAME-VERSION of rpm, possibly with a version or a reason in parentheses.
_ITEM = r"[A-Za-z0-9][\w.+~:-]*[=-]\d[\w.+~:^-]*"
_LIST = re.compile(rf"(?<![\w.-])({_ITEM}),? ({_ITEM})((?:,? {_ITEM})+)")
_SENTENCE_END = re.compile(r"(?<=[.:])\s+(?=[A-Z(/])")


# The roles whose record has their name and that can use a repository of a vendor.
_ROLES = ("nvidia_driver", "container_engine", "nvidia_container_toolkit", "cuda_toolkit")
_OTHER_URL = "or set another URL"


def naming_variables(text: str, record: str) -> str:
    """Name the variables of the role behind a record where a message of the package manager advises another URL."""
    if record not in _ROLES or _OTHER_URL not in text:
        return text
    advice = f"{_OTHER_URL} ({record}_mirror) or another proxy ({record}_proxy)"
    if record == "nvidia_container_toolkit":
        advice += ", or let the role manage no toolkit (nvidia_container_toolkit_source: none)"
    return text.replace(_OTHER_URL, advice)


def condensed(text: str) -> str:
    """Return the first sentences of a text within the limit, and where the rest is. A short text stays as it is."""
    text = " ".join(text.split())
    if len(text) <= LIMIT:
        return text
    text = _LIST.sub(_shortened, text)
    pointer = f" The whole message is in {owned.PACKAGE_FAILURE} on the host."
    room = LIMIT - len(pointer)
    found = ""
    for sentence in _SENTENCE_END.split(text):
        longer = f"{found} {sentence}".strip()
        if len(longer) > room:
            break
        found = longer
    return (found or _cut(text, room)) + pointer


def _shortened(match: re.Match[str]) -> str:
    """Return a list of packages as its first two and a number."""
    first, second, rest = match.groups()
    return f"{first}, {second} and {len(rest.split())} more"


def _cut(text: str, room: int) -> str:
    """Return the beginning of a long sentence. A list is cut between two items."""
    kept = text[: room - 2]
    place = max(kept.rfind(", "), kept.rfind("; "))
    return f"{kept[:place] if place > room // 2 else kept.rpartition(' ')[0]} …"


def write(text: str, root: str = "/") -> None:
    """Write the whole message, readable only by root. If that fails, the cause of the failure matters more."""
    path = os.path.join(root, owned.PACKAGE_FAILURE.lstrip("/"))
    with contextlib.suppress(OSError):
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        atomic_file.put(path, f"{masked(text)}\n".encode(), lambda temporary: os.chmod(temporary, 0o600))


def remove(root: str = "/") -> None:
    """Remove the message of an earlier failure, and the directory if nothing else is in it."""
    path = os.path.join(root, owned.PACKAGE_FAILURE.lstrip("/"))
    with contextlib.suppress(OSError):
        os.unlink(path)
        os.rmdir(os.path.dirname(path))


@contextlib.contextmanager
def unreadable_explained(names: list[str], backend: Backend, view: View) -> Iterator[None]:
    """Name the unreadable repositories in the error if the packages `names` cannot be planned without them."""
    try:
        yield
    except BusyError:
        raise
    except (TransactionError, PackageManagerError) as error:
        if not backend.failures.found:
            raise
        note_lost(names, backend, view)
        found = unreadable_repositories.judge(backend.failures.found, (), backend.failures.offered_by).error
        if found:
            raise TransactionError(f"{found} Nothing was changed. {unreadable_repositories.ADVICE}") from error
        raise TransactionError(f"{error} {unreadable_hint(backend)}") from error


def note_lost(names: list[str], backend: Backend, view: View) -> None:
    """Find out which packages only the unreadable repositories offered, by their last known lists."""
    if names and backend.failures.found:
        backend.failures.offered_by = backend.sources(names, view)


def unreadable_hint(backend: Backend) -> str:
    """Name the unreadable repositories as a possible cause of an error, or return an empty text."""
    failed = "; ".join(map(str, backend.failures.found))
    return f"Package repositories that could not be read may have what is missing: {failed}." if failed else ""
