# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command of dnf 4 for a transaction, and the errors in its output."""

from __future__ import annotations

import re
import shlex

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import url_logins
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.backend import (
    PackageManagerError,
    Steps,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.package_to_install import (
    Item,
)

# Without it, dnf refuses to replace an enabled module stream.
SWITCH_STREAMS = "--setopt=module_stream_switch=True"
# dnf keeps the dependencies of removed packages and installs no weak dependencies. Lower debug levels print no table.
POLICY = ("--debuglevel=2", "--noautoremove", "--setopt=install_weak_deps=False")
ABORTED = "Operation aborted."
# dnf's shell prints the errors of the solver like this, and then has nothing to do.
_UNSOLVED = re.compile(r"^ Problem(?: \d+)?: .*(?:\n .*)*", re.MULTILINE)
_NOISE = re.compile(
    r"Last metadata expiration check|Dependencies resolved|Leaving Shell|Nothing to do|Complete!|(?:Error: )?Operation "
    r"aborted|Importing GPG key|Key imported successfully|The downloaded packages were saved in cache|You can remove "
    r"cached packages|\(try to add '"
)
_MAXIMUM_LINES = 15


def transaction(
    steps: Steps, installed: set[str], answer: str, options: tuple[str, ...] = ()
) -> tuple[list[str], str | None] | None:
    """Return the command and its standard input, or None if there is nothing to do.

    dnf's shell combines installations, removals and streams. dnf would take the name of a missing package to remove for
    a capability of other packages, so `installed` has the names of the installed packages.
    """
    removed = sorted({*steps.remove, *steps.purge} & installed)
    added = [_spec(item) for item in steps.install]
    argv = ["dnf", *options, answer, *POLICY, *(["--allowerasing"] if steps.may_erase else [])]
    if steps.streams or (removed and added):
        lines = [["module", "enable", *steps.streams]] if steps.streams else []
        # dnf refuses to add package files after the shell's first removal.
        lines += [["install", *added]] if added else []
        lines += [["remove", *removed]] if removed else []
        script = "".join(" ".join(map(shlex.quote, line)) + "\n" for line in [*lines, ["run"]])
        return [*argv, SWITCH_STREAMS, "shell"], script
    if removed:
        return [*argv, "remove", *removed], None
    return ([*argv, "install", *added], None) if added else None


def download(steps: Steps, options: tuple[str, ...] = ()) -> list[str]:
    """Return the command that downloads the packages to install, or an empty list.

    It is not dnf's shell, which would also enable streams. dnf keeps the packages until the next transaction.
    """
    if not steps.install or "--cacheonly" in options:
        return []
    # Packages of a stream that is not enabled yet are visible only so.
    hidden = ["--setopt=*.module_hotfixes=true"] if steps.streams else []
    erase = ["--allowerasing"] if steps.may_erase or steps.remove or steps.purge else []
    names = map(_spec, steps.install)
    return ["dnf", *options, "--assumeyes", "--downloadonly", *POLICY, *erase, *hidden, "install", *names]


def _spec(item: Item) -> str:
    return item.file or "-".join(filter(None, (item.name, item.version)))


def title(steps: Steps) -> str:
    """Describe the transaction for an error message."""
    parts = (
        ("enable", steps.streams),
        ("remove", [*steps.remove, *steps.purge]),
        ("install", [str(item) for item in steps.install]),
    )
    return "dnf could not " + " and ".join(f"{verb} {' '.join(names)}" for verb, names in parts if names)


def failed(rc: int, out: str, err: str, simulated: bool = False) -> bool:
    """Return whether a transaction failed. dnf's shell exits with status 0 after an error."""
    lines = _lines(out) + _lines(err)
    if any(line.startswith("Error:") and ABORTED not in line for line in lines):
        return True
    if _UNSOLVED.search(out) and "Nothing to do." in out:
        return True
    return rc != 0 and not (simulated and any(ABORTED in line for line in lines))


def reason(out: str, err: str) -> str:
    """Return the useful lines of dnf's output in one line, without logins."""
    found = [line for line in _lines(err) if line.strip() and not _NOISE.search(line)]
    found += [line for line in _lines(out) if line.startswith("error: ")]
    found += [line for block in _UNSOLVED.findall(out) for line in block.splitlines()]
    if not found:
        found = [line for line in _lines(out) if line.strip() and not _NOISE.search(line)]
    # dnf's shell repeats the problems.
    useful = list(dict.fromkeys(" ".join(line.split()) for line in found))
    more = [f"({len(useful) - _MAXIMUM_LINES} more lines)"] if len(useful) > _MAXIMUM_LINES else []
    return url_logins.masked(" ".join([*useful[:_MAXIMUM_LINES], *more])).rstrip(".")


def error(what: str, rc: int, out: str, err: str) -> PackageManagerError:
    """Return the error for the user. `what` says what failed."""
    status = f" (exit status {rc})" if rc else ""
    return PackageManagerError(f"{url_logins.masked(what)}{status}: {reason(out, err)}.")


def _lines(text: str) -> list[str]:
    """Return the lines without the prompts of dnf's shell."""
    return [re.sub(r"^(?:> )+", "", line) for line in text.splitlines()]
