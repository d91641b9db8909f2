# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The problems that the check of the tarball finds."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.tools import release_check


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["README.md", "SECURITY.md", "roles/observe/README.md", "plugins", "MANIFEST.json"], []),
        (["README.md", "tests/unit/conftest.py", "tests", "Makefile", ".yamllint"], [".yamllint", "Makefile", "tests"]),
    ],
)
def test_developer_files_are_found(names, found):
    assert release_check.unexpected(names) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("[a](docs/a.md), [b](docs/a.md#part), [c](#part), [d](https://d.example/x.md)", []),
        ("[a](tests/README.md#part)", ["README.md: tests/README.md#part"]),
        ("[a]\n\n[a]: tests/README.md\n", ["README.md: tests/README.md"]),
        ("[a]\n\n[a]: https://a.example\n", []),
        ("`x[0](y)`\n```sh\n[a](missing)\n```\n", []),
    ],
)
def test_broken_links_are_found(tmp_path, text, found):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/a.md").write_text("[up](../README.md)")
    (tmp_path / "README.md").write_text(text)
    assert list(release_check.broken_links(tmp_path)) == found


@pytest.mark.parametrize(
    ("output", "found"),
    [
        ("Loading role observe\nImporter processing completed successfully\n", []),
        (
            "Loading role a\nWARNING: no role metadata\nLoading role b\nERROR: The import failed\nbecause of this\n",
            ["WARNING: no role metadata", "ERROR: The import failed\nbecause of this"],
        ),
    ],
)
def test_warnings_of_the_importer_are_found(output, found):
    assert release_check.complaints(output) == found
