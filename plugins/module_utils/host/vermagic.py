# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the version magic of a module lets a kernel load it."""

from __future__ import annotations


def mismatch(module: str | None, release: str, kernel: str | None) -> str | None:
    """Return what differs between the version magic of a module and of a kernel, or None.

    `kernel` is the magic of a module that came with the kernel, if there is one. With symbol versions (`modversions`),
    the kernel ignores the first word, its release: distributions link such modules into kernels with the same symbols.
    """
    release_of_module, _space, rest = (module or "").strip().partition(" ")
    if not release_of_module:
        return None
    _release, _space, rest_of_kernel = (kernel or "").strip().partition(" ")
    words, expected = rest.split(), rest_of_kernel.split()
    if release_of_module != release and "modversions" not in words:
        return f"was built for {release_of_module}"
    if kernel and words != expected:
        return f"was built with '{' '.join(words)}', but the kernel with '{' '.join(expected)}'"
    return None
