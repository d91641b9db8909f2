# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a transaction says about repositories that could not be read when it cannot do without them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.backend import (
    Backend,
    BusyError,
    PackageManagerError,
    View,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages.version_choice import TransactionError
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import unreadable_repositories


@contextlib.contextmanager
def explained(names: list[str], backend: Backend, view: View) -> Iterator[None]:
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
        raise TransactionError(f"{error} {hint(backend)}") from error


def note_lost(names: list[str], backend: Backend, view: View) -> None:
    """Find out which packages only the unreadable repositories offered, by their last known lists."""
    if names and backend.failures.found:
        backend.failures.offered_by = backend.sources(names, view)


def hint(backend: Backend) -> str:
    """Name the unreadable repositories as a possible cause of an error, or return an empty text."""
    failed = "; ".join(map(str, backend.failures.found))
    return f"Package repositories that could not be read may have what is missing: {failed}." if failed else ""
