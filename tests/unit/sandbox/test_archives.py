# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The indexes of the stand-in archives contain what their data describe."""

from __future__ import annotations

import gzip
import hashlib
from xml.etree import ElementTree

import pytest
import yaml

from ansible_collections.gpufleet.hosts.tests.sandbox.vendor import archives

DATA = {
    "format": "deb",
    "origin": "Vendor",
    "variants": {
        "one": {
            "suite_": "stable",
            "kernels": [
                {"age": 0, "release_": "6.1"},
                {"age": 1, "release_": "6.2", "newest": True},
            ],
            "drivers": [
                {"age": 0, "branch": 580, "driver_": "580.1", "gone": True},
                {"age": 1, "branch": 580, "driver_": "580.2"},
                {"age": 1, "branch": 535, "driver_": "535.9"},
            ],
        }
    },
    "groups": [
        {"packages": {"base": {"version": 1, "installed": "base"}}},
        {"packages": {"other": {"version": 1}}, "variants": ["two"]},
        {
            "each": ["kernels"],
            "packages": {
                "image-{release_}": {"version": "{release_}", "installed": "kernel", "release": "{release_}"},
                "meta": {
                    "version": "{release_}",
                    "installed": "meta",
                    "release": "{release_}",
                    "newest_only": True,
                    "depends": ["image-{release_}"],
                },
            },
        },
        {
            "each": ["kernels", "drivers"],
            "match": ["age"],
            "kept": True,
            "packages": {
                "module-{branch}-{release_}": {
                    "version": "{release_}+1",
                    "release": "{release_}",
                    "driver": "{driver_}",
                    "flavor": "open",
                    "depends": ["tool-{branch} (>= {driver_})", "tool-{branch} (<= {driver_}-1)"],
                }
            },
        },
        {
            "each": ["drivers"],
            "common": {"version": "{driver_}-0", "driver": "{driver_}", "suite": "{suite_}-updates"},
            "packages": {"tool-{branch}": {"provides": ["tool-{branch}-{driver_}"], "component": "restricted"}},
        },
        {
            "each": ["drivers"],
            "where": {"from": 580},
            "packages": {"extra-{branch}": {"version": "{driver_}", "depends": ["", "base"]}},
        },
    ],
}


@pytest.fixture
def archive():
    return archives.expand(DATA, "one")


def names(packages) -> list[str]:
    return sorted(f"{package.name} {package.version}" for package in packages)


def test_archive_keeps_old_modules_and_only_the_newest_user_space(archive):
    assert names(archive.offered) == [
        "base 1",
        "extra-580 580.2",
        "image-6.1 6.1",
        "image-6.2 6.2",
        "meta 6.2",
        "module-535-6.2 6.2+1",
        "module-580-6.1 6.1+1",
        "module-580-6.2 6.2+1",
        "tool-535 535.9-0",
        "tool-580 580.2-0",
    ]
    module = next(package for package in archive.offered if package.name == "module-580-6.1")
    assert module.depends == ("tool-580 (>= 580.1)", "tool-580 (<= 580.1-1)")
    assert next(package for package in archive.offered if package.name == "extra-580").depends == ("base",)


SYSTEMS = [
    (["6.2"], [], ["base 1", "image-6.2 6.2", "meta 6.2"]),
    # The meta package of an outdated host is no longer in the archive.
    (["6.1"], [], ["base 1", "image-6.1 6.1", "meta 6.1"]),
    (
        ["6.1", "6.2"],
        ["tool-580=580.1-0"],
        ["base 1", "image-6.1 6.1", "image-6.2 6.2", "meta 6.2", "tool-580 580.1-0"],
    ),
]


@pytest.mark.parametrize(("kernels", "driver", "installed"), SYSTEMS)
def test_installed_system_has_its_own_kernels(archive, kernels, driver, installed):
    assert names(archives.system(archive, kernels, driver)) == installed


def test_release_lists_the_indexes_with_their_digests(archive):
    tree = archives.apt_tree(archive)
    assert sorted(tree) == [
        "dists/main/Release",
        "dists/main/main/binary-amd64/Packages",
        "dists/stable-updates/Release",
        "dists/stable-updates/restricted/binary-amd64/Packages",
    ]
    text = tree["dists/stable-updates/restricted/binary-amd64/Packages"]
    assert "Package: tool-580\nVersion: 580.2-0\n" in text
    assert "Provides: tool-580-580.2\n" in text
    assert "580.1-0" not in text
    digest = hashlib.sha256(text.encode()).hexdigest()
    assert f" {digest} {len(text)} restricted/binary-amd64/Packages\n" in tree["dists/stable-updates/Release"]
    assert archives.apt_sources(archive, "file:///srv/x") == (
        "deb [trusted=yes] file:///srv/x main main\ndeb [trusted=yes] file:///srv/x stable-updates restricted\n"
    )


RELATIONS = [
    ("a", {"name": "a"}),
    ("a = 3:1.2-1.el9", {"name": "a", "flags": "EQ", "epoch": "3", "ver": "1.2", "rel": "1.el9"}),
    ("a >= 3.1.8", {"name": "a", "flags": "GE", "epoch": "0", "ver": "3.1.8"}),
    ("a(x86-64) < 2-1", {"name": "a(x86-64)", "flags": "LT", "epoch": "0", "ver": "2", "rel": "1"}),
    ("(a if b)", {"name": "(a if b)"}),
]


@pytest.mark.parametrize(("text", "attributes"), RELATIONS)
def test_relations_of_rpm_packages(text, attributes):
    package = archives.Package("p", "3:1-1", "x86_64", depends=(text,))
    files = archives.rpm_tree(archives.Archive("rpm", "Vendor", {}, (package,)))
    space = "{http://linux.duke.edu/metadata/rpm}"
    primary = ElementTree.fromstring(gzip.decompress(files["repodata/primary.xml.gz"]))
    assert [entry.attrib for entry in primary.iterfind(f".//{space}requires/{space}entry")] == [attributes]
    # Other packages can require the package itself, with its architecture.
    provided = [entry.attrib["name"] for entry in primary.iterfind(f".//{space}provides/{space}entry")]
    assert provided == ["p", "p(x86-64)"]


def test_streams_list_their_packages():
    packages = [
        archives.Package("kmod", "3:580.1-1.el9", "noarch", stream="580-dkms"),
        archives.Package("tool", "3:580.1-1.el9", "x86_64", stream="580-dkms 580-open"),
        archives.Package("plain", "1-1", "x86_64"),
    ]
    documents = list(yaml.safe_load_all(archives.modules(packages)))
    assert {item["data"]["stream"]: item["data"]["artifacts"]["rpms"] for item in documents} == {
        "580-dkms": ["kmod-3:580.1-1.el9.noarch", "tool-3:580.1-1.el9.x86_64"],
        "580-open": ["tool-3:580.1-1.el9.x86_64"],
    }
