# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Specifications of the same GPUs."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi.nvidia.duplicate_specifications import duplicates

FIRST, SECOND = ("GPU-c3f1d2a0-0000-1111-2222-333344445555", "MIG-c3f1d2a0-0000-1111-2222-333344445556")


@pytest.mark.parametrize(
    ("paths", "words"),
    [
        (["/etc/cdi/a.json"], None),
        (["/etc/cdi/a.json", "/etc/cdi/b.yaml"], "/etc/cdi/a.json and /etc/cdi/b.yaml describe the same GPUs, so"),
        (["/etc/cdi/a.json", "/var/run/cdi/b.yaml"], "/var/run/cdi/b.yaml overrides /etc/cdi/a.json, which engines"),
        # Directories of an engine have an order of their own.
        (["/etc/cdi/a.json", "/srv/cdi/b.yaml"], None),
    ],
)
def test_duplicates_are_named(paths, words):
    found = duplicates([{"path": path, "uuids": []} for path in paths])
    assert len(found) == (words is not None)
    assert (words or "") in " ".join(found)


def test_specifications_of_different_gpus_are_no_duplicates():
    specs = [{"path": f"/etc/cdi/{uuid}.json", "uuids": [uuid]} for uuid in (FIRST, SECOND)]
    assert duplicates(specs) == []
    assert len(duplicates([*specs, {"path": "/etc/cdi/all.json", "uuids": [FIRST, SECOND]}])) == 2
