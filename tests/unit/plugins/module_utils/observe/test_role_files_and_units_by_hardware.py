# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the parts declare to own decides what the observation reads, and no central list does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils import observe, package_managers
from ansible_collections.gpufleet.hosts.plugins.module_utils.observe import role_files_and_units_by_hardware
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers import installed_packages
from ansible_collections.gpufleet.hosts.plugins.module_utils.site import registry

UNIT, FILE, OTHER = "x-cdi.service", "/var/lib/x", "/etc/other"
DECLARED = {
    "files": [FILE],
    "services": ["common.service"],
    "repositories": [],
    "package_patterns": ["^x$"],
    "vendors": {"amd": {"files": [OTHER], "services": [UNIT], "repositories": ["mine"]}},
}
ROLES = [*registry.DECLARATIONS, *registry.ROLES]


@pytest.mark.parametrize(
    ("vendors", "there", "files", "units"),
    [
        ([], [], {FILE}, ["common.service"]),
        (["neuron"], [], {FILE}, ["common.service"]),
        (["amd"], [], {FILE, OTHER, "/etc/zypp/repos.d/mine.repo"}, ["common.service", UNIT]),
        # The accelerators are gone, but what the role wrote is not.
        ([], [OTHER], {FILE, OTHER}, ["common.service"]),
        ([], [f"/etc/systemd/system/{UNIT}"], {FILE}, ["common.service", UNIT]),
    ],
)
def test_places_of_a_vendor_are_read_only_where_they_matter(tmp_path, vendors, there, files, units) -> None:
    for path in there:
        full = tmp_path / path.lstrip("/")
        full.parent.mkdir(parents=True, exist_ok=True)
        full.write_text("")
    places = role_files_and_units_by_hardware.DeclaredPlaces(DECLARED)
    found = places.files(str(tmp_path), vendors)
    assert files <= set(found)
    assert {OTHER, "/etc/zypp/repos.d/mine.repo"} & set(found) == files - {FILE}
    assert places.units(str(tmp_path), vendors) == units
    assert (places.repositories, places.patterns) == (["mine"], ["^x$"])


def test_every_file_and_unit_has_one_owner() -> None:
    for kind in ("files", "units"):
        every = [name for one in ROLES for name in getattr(one.owns, kind)]
        assert sorted(every) == sorted(set(every))


@pytest.mark.parametrize("package", [observe, package_managers], ids=lambda one: one.__name__.rpartition(".")[2])
def test_the_observation_has_no_list_of_what_parts_own(package) -> None:
    """Its own reading of engines and vendors may name single places."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in Path(package.__path__[0]).glob("*.py"))
    units = {unit for one in ROLES for unit in one.owns.units if f'"{unit}"' in text}
    assert units <= {"docker.service"}
    files = {path for one in ROLES for path in one.owns.files if f'"{path}"' in text}
    assert files == set()


@pytest.mark.parametrize("one", [one for one in ROLES if one.owns.packages], ids=lambda one: one.name)
def test_the_packages_of_a_part_are_described_only_because_it_declares_them(one) -> None:
    samples = {
        "nvidia_driver": "nvidia-driver",
        "container_engine": "docker-ce",
        "cuda_toolkit": "cuda-toolkit-12-6",
        "amd_driver": "rocm-core",
        "neuron_driver": "aws-neuronx-tools",
        "gaudi_driver": "habanalabs-firmware",
    }
    assert re.search(installed_packages.GENERAL, samples[one.name]) is None
    assert any(re.search(pattern, samples[one.name]) for pattern in one.owns.packages)
