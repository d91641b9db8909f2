# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Boot loader entries (files *.conf), in the order of GRUB and in that of systemd-boot."""

from __future__ import annotations

import functools
import os
import re

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import listing, read_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.versions import natural_key

_TRIES = re.compile(r"\+(\d+)(?:-\d+)?$")


def read(root: str, directory: str) -> list[dict]:
    """Return the entries that boot a kernel: `id` (the file name without its suffix), and the fields of the file."""
    found = []
    for name in listing(root, directory):
        if name.endswith(".conf") and not name.startswith("."):
            fields = _fields(read_text(root, f"{directory}/{name}"))
            found.append({**fields, "id": name[: -len(".conf")]})
    return [entry for entry in found if entry.get("linux") or entry.get("version")]


def in_order_of_grub(entries: list[dict]) -> list[dict]:
    """Sort entries like GRUB's command blscfg: by file name, compared like the name, version and release of an rpm."""
    return sorted(entries, key=functools.cmp_to_key(_compare), reverse=True)


def in_order_of_systemd_boot(entries: list[dict]) -> list[dict]:
    """Sort entries like systemd-boot: without failed attempts first, then by sort key and version, or by file name."""

    def key(entry: dict) -> tuple:
        tries = _TRIES.search(entry["id"])
        is_good = not (tries and tries.group(1) == "0")
        if "sort-key" in entry:
            # The texts sort in ascending order, the versions in descending order.
            names = [-ord(letter) for letter in f"{entry['sort-key']}\0{entry.get('machine-id', '')}\0"]
            return is_good, True, names, natural_key(entry.get("version", "")), natural_key(entry["id"])
        return is_good, False, [], [], natural_key(entry["id"])

    return sorted(entries, key=key, reverse=True)


def releases(entry: dict) -> list[str]:
    """Return the texts of an entry that can name its kernel, the file that boots first."""
    path = entry.get("linux", "")
    return [os.path.basename(path), *reversed(path.split("/")[:-1]), entry.get("version", "")]


def _compare(first: dict, second: dict) -> int:
    pairs = zip(_name_version_release(first["id"]), _name_version_release(second["id"]))
    return next((result for result in (_compare_versions(one, two) for one, two in pairs) if result), 0)


def _name_version_release(name: str) -> tuple[str, str, str]:
    """Split the name of an entry like GRUB. With fewer than two dashes, the release is empty, then the version."""
    parts = name.rsplit("-", 2)
    return (parts[0], parts[1] if len(parts) > 1 else "", parts[2] if len(parts) > 2 else "")


def _compare_versions(first: str, second: str) -> int:
    """Compare like rpm: segment by segment, digits are newer than letters, and `~` is older than the end."""
    one, two = (re.findall(r"\d+|[a-zA-Z]+|~", text) for text in (first, second))
    for left, right in zip(one, two):
        if left == right:
            continue
        if "~" in (left, right):
            return -1 if left == "~" else 1
        if left.isdigit() != right.isdigit():
            return 1 if left.isdigit() else -1
        if left.isdigit():
            if int(left) != int(right):
                return 1 if int(left) > int(right) else -1
        else:
            return 1 if left > right else -1
    if len(one) == len(two):
        return 0
    rest = (one if len(one) > len(two) else two)[min(len(one), len(two))]
    longer_is_newer = 1 if len(one) > len(two) else -1
    return -longer_is_newer if rest == "~" else longer_is_newer


def _fields(text: str | None) -> dict[str, str]:
    """Read the `name value` lines of an entry. The first value of a name counts."""
    fields: dict[str, str] = {}
    for line in (text or "").splitlines():
        pair = line.split(None, 1)
        if len(pair) == 2 and not pair[0].startswith("#"):
            fields.setdefault(pair[0], pair[1].strip())
    return fields
