# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The pages with the default driver of each platform."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.tests.unit.plugins import driver_samples as samples
from ansible_collections.gpufleet.hosts.tools import platform_pages


def test_every_platform_has_a_section():
    keys = [key for _title, keys in platform_pages.PAGES.values() for key in keys]
    assert sorted(keys) == sorted(samples.KERNELS)


@pytest.mark.parametrize("key", sorted(samples.KERNELS))
def test_both_architectures_have_the_same_defaults(key):
    for gpu in platform_pages.GPUS.values():
        one, other = (platform_pages.resolved(key, gpu, arch=arch) for arch in ("x86_64", "aarch64"))
        assert platform_pages.choice(one) == platform_pages.choice(other)
        assert one.packages == other.packages


def test_page_shows_source_branch_flavor_build_and_secure_boot():
    text = platform_pages.page("ubuntu")
    assert "| V100 | distribution | 580 | proprietary | precompiled | works |" in text
    assert "`linux-modules-nvidia-580-server-open-KERNEL`" in text
    assert "570 → 580" in text
    assert "| A100 | nvidia | 580 | open | dkms | fails until a key is enrolled |" in platform_pages.page(
        "amazon-linux"
    )


def test_page_names_the_kernels_without_open_modules():
    first = (
        "For kernel 6.12.95 and newer, T4, A100, H100 get the proprietary modules (source distribution, branch 550, "
    )
    (line,) = [line for line in platform_pages.page("debian").splitlines() if line.startswith("For kernel")]
    assert line.startswith(first)
    assert line.endswith("The packages are those for V100.")


def test_page_names_signed_modules():
    lines = platform_pages.page("enterprise-linux").splitlines()
    (place,) = [index for index, line in enumerate(lines) if line.startswith("- Red Hat's driver (release 10.1 or")]
    assert "`kmod-nvidia-open-DRIVER-RELEASE`" in lines[place]
    assert "`python3-dnf-plugin-versionlock`" in lines[place]
    steps = lines[place + 3 : place + 6]
    assert "`subscription-manager repos --enable rhel-10-for-x86_64-extensions-rpms" in steps[0]
    assert steps[0].endswith("`dnf repolist --all` shows their names).")
    assert [step[:5] for step in steps] == ["  1. ", "  2. ", "  3. "]
    assert "| distribution (Red Hat) | 580 | 595, 615 |" in "\n".join(lines)
    cells = {
        (row[1], row[6]) for row in ([cell.strip() for cell in line.split("|")] for line in lines) if len(row) == 8
    }
    assert ("A100", "fails until a key is enrolled, except on the distributions below") in cells
    assert ("V100", "fails until a key is enrolled, except on the distributions below") not in cells


def test_page_explains_its_placeholders():
    assert "`kernel-default-devel-VERSION.1.ARCH`" in platform_pages.page("sles")
    assert "- `VERSION`: the kernel release without its variant" in platform_pages.page("sles")
    assert "VERSION" not in platform_pages.page("debian")


def test_pages_are_written_and_checked(tmp_path, capsys):
    arguments = ["--root", str(tmp_path)]
    assert platform_pages.main([*arguments, "--check"]) == 1
    assert "docs/platforms/sles.md: The page is out of date. Run `make docs`." in capsys.readouterr().err
    assert platform_pages.main(arguments) == 0
    assert platform_pages.main([*arguments, "--check"]) == 0
    (tmp_path / "docs/platforms/debian.md").write_text("edited")
    assert platform_pages.main([*arguments, "--check"]) == 1
