# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Known vulnerabilities of NVIDIA's container toolkit, through which a container can leave its isolation."""

from __future__ import annotations

import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.engine.engine_queries import version_key


class Vulnerability(t.NamedTuple):
    """A vulnerability. Versions before `fixed_in` have it."""

    cve: str
    fixed_in: str


# 1.16.2 to 1.17.4: NVIDIA/cloud-native-docs, container-toolkit/release-notes.md (52dcb7b8). 1.17.8:
# microsoft/azurelinux, pull request 14382. 1.19.1: NVIDIA's security bulletin 5850 as other public sources cite it (the
# bulletin itself has not been read). Amazon's advisory for its own build: ALAS2023NVIDIA-2026-297.
VULNERABILITIES = (
    Vulnerability("CVE-2024-0132", "1.16.2"),
    Vulnerability("CVE-2024-0133", "1.16.2"),
    Vulnerability("CVE-2024-0134", "1.17.0"),
    Vulnerability("CVE-2024-0135", "1.17.3"),
    Vulnerability("CVE-2024-0136", "1.17.3"),
    Vulnerability("CVE-2024-0137", "1.17.3"),
    Vulnerability("CVE-2025-23359", "1.17.4"),
    Vulnerability("CVE-2025-23266", "1.17.8"),
    Vulnerability("CVE-2025-23267", "1.17.8"),
    Vulnerability("CVE-2026-24260", "1.19.1"),
)
# The first version without a known vulnerability.
FLOOR = max((entry.fixed_in for entry in VULNERABILITIES), key=version_key)


def of(version: str | None) -> list[str]:
    """Return the known vulnerabilities of a version, newest first."""
    found = [entry for entry in VULNERABILITIES if version_key(version) < version_key(entry.fixed_in)]
    return [entry.cve for entry in sorted(found, key=lambda entry: version_key(entry.fixed_in), reverse=True)]
