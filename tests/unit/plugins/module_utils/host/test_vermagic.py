# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.host import kernels, vermagic
from ansible_collections.gpufleet.hosts.tests.unit.plugins.gpu_trees import Tree

OLD, NEW = "5.14.0-687.12.1.el9_8.x86_64", "5.14.0-687.15.1.el9_8.x86_64"
VERSIONED, PLAIN = "SMP preempt mod_unload modversions ", "SMP preempt mod_unload "


@pytest.mark.parametrize(
    ("module", "kernel", "expected"),
    [
        (f"{NEW} {VERSIONED}", f"{NEW} {VERSIONED}", None),
        (f"{OLD} {VERSIONED}", f"{NEW} {VERSIONED}", None),
        (f"{OLD} {VERSIONED}", None, None),
        (f"{NEW} {PLAIN}", f"{NEW} {PLAIN}", None),
        (f"{OLD} {PLAIN}", f"{NEW} {PLAIN}", f"was built for {OLD}"),
        (f"{OLD} {PLAIN}", None, f"was built for {OLD}"),
        (f"{OLD} {PLAIN}", f"{NEW} {VERSIONED}", f"was built for {OLD}"),
        (f"{OLD} SMP preempt_rt mod_unload modversions", f"{NEW} {VERSIONED}", "was built with 'SMP preempt_rt"),
        (f"{NEW} {PLAIN}", f"{NEW} {VERSIONED}", f"but the kernel with '{VERSIONED.strip()}'"),
        (None, f"{NEW} {VERSIONED}", None),
    ],
)
def test_with_symbol_versions_only_the_release_may_differ(module, kernel, expected):
    found = vermagic.mismatch(module, NEW, kernel)
    assert found is None if expected is None else expected in found


@pytest.mark.parametrize(("rest", "mismatch"), [(VERSIONED, False), (PLAIN, True)])
def test_module_that_is_linked_into_another_kernel(tmp_path, rest, mismatch):
    """Enterprise Linux links modules of an older kernel below weak-updates if the symbols are the same."""
    tree = Tree(tmp_path, NEW)
    link, module = "weak-updates/nvidia.ko", f"../../{OLD}/extra/nvidia.ko"
    tree.file(f"lib/modules/{OLD}/extra/nvidia.ko")
    tree.file(f"lib/modules/{NEW}/modules.dep", f"kernel/fs/fat.ko.xz:\n{link}:\n")
    tree.file(f"lib/modules/{NEW}/kernel/fs/fat.ko.xz")
    (tmp_path / "lib/modules" / NEW / "weak-updates").mkdir()
    (tmp_path / "lib/modules" / NEW / link).symlink_to(module)

    def run(argv: list[str]) -> tuple[int, str, str]:
        release = OLD if "nvidia" in argv[1] else NEW
        return 0, f"version: 610.43.02\nvermagic:       {release} {rest}\n", ""

    found = kernels.module_for(tree.root, NEW, run)
    assert found["built_for"] == OLD
    assert bool(found["vermagic_mismatch"]) is mismatch
