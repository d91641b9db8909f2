# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gpufleet.hosts.plugins.module_utils.host import ld_so_cache
from ansible_collections.gpufleet.hosts.tests.unit.plugins import driver_tree

ENTRIES = [
    ("libcuda.so.1", "/lib/x86_64-linux-gnu/libcuda.so.1", "x86_64"),
    ("libcuda.so.1", "/lib/i386-linux-gnu/libcuda.so.1", "i386"),
    ("libcuda.so.1", "/lib/aarch64-linux-gnu/libcuda.so.1", "aarch64"),
    ("libcuda.so.1", "/lib/s390x-linux-gnu/libcuda.so.1", "s390x"),
]


@pytest.mark.parametrize("old_table", [False, True])
def test_names_paths_and_machines_are_parsed(old_table):
    assert ld_so_cache.parse(driver_tree.cache_bytes(ENTRIES, old_table)) == [
        ld_so_cache.LoaderCacheEntry("libcuda.so.1", "/lib/x86_64-linux-gnu/libcuda.so.1", "x86_64", 64),
        ld_so_cache.LoaderCacheEntry("libcuda.so.1", "/lib/i386-linux-gnu/libcuda.so.1", "i386", 32),
        ld_so_cache.LoaderCacheEntry("libcuda.so.1", "/lib/aarch64-linux-gnu/libcuda.so.1", "aarch64", 64),
    ]


def test_an_odd_number_of_old_entries_does_not_shift_the_new_table():
    assert len(ld_so_cache.parse(driver_tree.cache_bytes(ENTRIES[:1], old_table=True))) == 1


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "does not have the format of glibc's cache"),
        (b"something else entirely", "does not have the format of glibc's cache"),
        (b"ld.so-1.7.0", "truncated"),
        (driver_tree.cache_bytes(ENTRIES)[:40], "truncated"),
        (driver_tree.cache_bytes(ENTRIES)[:100], "truncated"),
        (driver_tree.cache_bytes(ENTRIES)[:160], "outside the cache"),
    ],
)
def test_an_invalid_cache_is_an_error(data, message):
    with pytest.raises(ld_so_cache.LdCacheError, match=message):
        ld_so_cache.parse(data)


@given(st.integers(0, 200), st.binary(min_size=1, max_size=12), st.booleans())
def test_damaged_caches_raise_only_cache_errors(position, junk, old_table):
    data = driver_tree.cache_bytes(ENTRIES, old_table)
    try:
        ld_so_cache.parse(data[:position] + junk + data[position + len(junk) :])
    except ld_so_cache.LdCacheError:
        return
