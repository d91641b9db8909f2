# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import apt_sources

WANTED = ["contrib", "non-free", "non-free-firmware"]
LIST = "/etc/apt/sources.list"
SOURCES = "/etc/apt/sources.list.d/debian.sources"

ONE_LINE = {
    "plain": (
        "deb http://m.example.org/debian bookworm main\n",
        "deb http://m.example.org/debian bookworm main contrib non-free non-free-firmware\n",
    ),
    "no newline at the end": (
        "deb http://m.example.org/debian bookworm main",
        "deb http://m.example.org/debian bookworm main contrib non-free non-free-firmware",
    ),
    "windows line end": (
        "deb http://m.example.org/debian bookworm main\r\n",
        "deb http://m.example.org/debian bookworm main contrib non-free non-free-firmware\r\n",
    ),
    "comment after the entry": (
        "deb http://m.example.org/debian bookworm main  # the base\n",
        "deb http://m.example.org/debian bookworm main contrib non-free non-free-firmware  # the base\n",
    ),
    "trailing blanks": (
        "\tdeb http://m.example.org/debian bookworm main \t\n",
        "\tdeb http://m.example.org/debian bookworm main contrib non-free non-free-firmware\n",
    ),
    "options and spacing kept, one component there": (
        "deb  [ arch=amd64 trusted=yes ]   http://mirror.example/debian/   bookworm   main   non-free\n",
        "deb  [ arch=amd64 trusted=yes ]   http://mirror.example/debian/   bookworm   main   non-free"
        " contrib non-free-firmware\n",
    ),
    "disabled and source entries left alone": (
        "# deb http://m.example.org/debian bookworm main\n"
        "deb-src http://m.example.org/debian bookworm main\n"
        "deb http://m.example.org/debian bookworm main\n",
        "# deb http://m.example.org/debian bookworm main\n"
        "deb-src http://m.example.org/debian bookworm main\n"
        "deb http://m.example.org/debian bookworm main contrib non-free non-free-firmware\n",
    ),
    "several suites, components of one split over two entries": (
        "deb http://m.example.org/debian bookworm main\n"
        "deb http://m.example.org/debian bookworm-updates main\n"
        "deb http://s.example.org/debian-security bookworm-security main\n"
        "deb http://m.example.org/debian/ bookworm contrib non-free non-free-firmware\n",
        "deb http://m.example.org/debian bookworm main\n"
        "deb http://m.example.org/debian bookworm-updates main contrib non-free non-free-firmware\n"
        "deb http://s.example.org/debian-security bookworm-security main contrib non-free non-free-firmware\n"
        "deb http://m.example.org/debian/ bookworm contrib non-free non-free-firmware\n",
    ),
    "the same suite twice": (
        "deb http://m.example.org/debian bookworm main\ndeb http://m.example.org/debian bookworm main contrib\n",
        "deb http://m.example.org/debian bookworm main non-free non-free-firmware\n"
        "deb http://m.example.org/debian bookworm main contrib\n",
    ),
    "a release alias": (
        "deb https://mirror.example/pub/debian stable main\n",
        "deb https://mirror.example/pub/debian stable main contrib non-free non-free-firmware\n",
    ),
}

STRANGERS = (
    "deb [signed-by=/usr/share/keyrings/docker.gpg] https://download.docker.com/linux/debian bookworm stable\n"
    "deb [signed-by=/etc/apt/keyrings/zabbix.gpg] https://repo.zabbix.com/zabbix/6.0/debian bookworm main\n"
    "deb https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64/ /\n"
    "deb http://apt.example/php bookworm main\n"
    "deb http://m.example.org/debian trixie main\n"
    "deb http://m.example.org/debian\n"
    "deb [arch=arm64] http://m.example.org/debian bookworm main\n"
    "deb cdrom:[Debian GNU/Linux 12]/ bookworm main\n"
)

DEB822 = {
    "plain": (
        "Types: deb\nURIs: http://m.example.org/debian\nSuites: bookworm bookworm-updates\nComponents: main\n"
        "Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n",
        "Types: deb\nURIs: http://m.example.org/debian\nSuites: bookworm bookworm-updates\n"
        "Components: main contrib non-free non-free-firmware\n"
        "Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n",
    ),
    "comments, continuation, case, two stanzas, the last one with no newline": (
        "# base\nTypes: deb deb-src\nuris: http://m.example.org/debian\nSuites: bookworm\ncomponents:\n main\n"
        "# more to come\n contrib\n\n\n# security\nTypes: deb\nURIs: http://s.example.org/debian-security\n"
        "Suites: bookworm-security\nComponents: main",
        "# base\nTypes: deb deb-src\nuris: http://m.example.org/debian\nSuites: bookworm\ncomponents:\n main\n"
        "# more to come\n contrib non-free non-free-firmware\n\n\n# security\nTypes: deb\n"
        "URIs: http://s.example.org/debian-security\n"
        "Suites: bookworm-security\nComponents: main contrib non-free non-free-firmware",
    ),
    "cloud image's mirror list": (
        "Types: deb\nURIs: mirror+file:///etc/apt/mirrors/debian.list\nSuites: bookworm\nComponents: main\n",
        "Types: deb\nURIs: mirror+file:///etc/apt/mirrors/debian.list\nSuites: bookworm\n"
        "Components: main contrib non-free non-free-firmware\n",
    ),
    "disabled and foreign stanzas left alone": (
        "Types: deb\nURIs: http://m.example.org/debian\nSuites: bookworm\nComponents: main\nEnabled: no\n\n"
        "Types: deb\nURIs: https://deb.example/debian\nSuites: bookworm\nComponents: main\n"
        "Signed-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n mDMEY865\n -----END PGP PUBLIC KEY BLOCK-----\n\n"
        "Types: deb\nURIs: http://m.example.org/debian\nSuites: bookworm\nComponents: main\n",
        "Types: deb\nURIs: http://m.example.org/debian\nSuites: bookworm\nComponents: main\nEnabled: no\n\n"
        "Types: deb\nURIs: https://deb.example/debian\nSuites: bookworm\nComponents: main\n"
        "Signed-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n mDMEY865\n -----END PGP PUBLIC KEY BLOCK-----\n\n"
        "Types: deb\nURIs: http://m.example.org/debian\nSuites: bookworm\n"
        "Components: main contrib non-free non-free-firmware\n",
    ),
}


@pytest.mark.parametrize(("before", "after"), ONE_LINE.values(), ids=ONE_LINE)
def test_components_are_added_to_one_line_entries(before, after):
    assert apt_sources.add_components({LIST: before}, WANTED, "bookworm", "amd64") == {LIST: after}
    assert apt_sources.add_components({LIST: after}, WANTED, "bookworm", "amd64") == {}


@pytest.mark.parametrize(("before", "after"), DEB822.values(), ids=DEB822)
def test_components_are_added_to_deb822_entries(before, after):
    assert apt_sources.add_components({SOURCES: before}, WANTED, "bookworm", "amd64") == {SOURCES: after}
    assert apt_sources.add_components({SOURCES: after}, WANTED, "bookworm", "amd64") == {}


def test_entries_of_other_archives_are_not_changed():
    own = "deb http://m.example.org/debian bookworm main\n"
    changed = apt_sources.add_components({LIST: STRANGERS + own}, WANTED, "bookworm", "amd64")
    assert changed[LIST] == STRANGERS + own.replace("main", "main contrib non-free non-free-firmware")


def test_only_changed_files_are_returned():
    files = {
        LIST: "# moved to debian.sources\n",
        SOURCES: DEB822["plain"][0],
        "/etc/apt/sources.list.d/docker.list": STRANGERS.splitlines()[0],
    }
    assert list(apt_sources.add_components(files, WANTED, "bookworm")) == [SOURCES]


@pytest.mark.parametrize("text", ["", "# nothing\n", STRANGERS])
def test_the_error_for_a_missing_archive_entry_has_an_example(text):
    with pytest.raises(apt_sources.AptSourcesError) as caught:
        apt_sources.add_components({LIST: text}, WANTED, "bookworm", "amd64")
    assert LIST in str(caught.value)
    assert "deb http://m.example.org/debian bookworm main" in str(caught.value)


UBUNTU = {
    "the cloud image of 24.04": (
        "Types: deb\nURIs: http://us-east-1.ec2.archive.ubuntu.com/ubuntu/\nSuites: noble noble-updates\n"
        "Components: main universe restricted\nSigned-By: /usr/share/keyrings/ubuntu-archive-keyring.gpg\n\n"
        "Types: deb\nURIs: http://security.ubuntu.com/ubuntu/\nSuites: noble-security\n"
        "Components: main universe restricted\nSigned-By: /usr/share/keyrings/ubuntu-archive-keyring.gpg\n",
        2,
    ),
    "a mirror of the ports": (
        "Types: deb\nURIs: https://mirror.example/ubuntu-ports\nSuites: noble\nComponents: main restricted\n",
        1,
    ),
    "already enabled": (
        "Types: deb\nURIs: http://archive.ubuntu.com/ubuntu\nSuites: noble\nComponents: main multiverse\n",
        0,
    ),
    "a PPA and another archive of Ubuntu": (
        "Types: deb\nURIs: https://ppa.launchpadcontent.net/graphics-drivers/ppa/ubuntu\nSuites: noble\n"
        "Components: main\n\nTypes: deb\nURIs: https://esm.ubuntu.com/apps/ubuntu\nSuites: noble\nComponents: main\n\n"
        "Types: deb\nURIs: http://archive.ubuntu.com/ubuntu\nSuites: noble\nComponents: main multiverse\n",
        0,
    ),
}


@pytest.mark.parametrize(("before", "count"), UBUNTU.values(), ids=UBUNTU)
def test_components_are_added_to_ubuntus_archive(before, count):
    changed = apt_sources.add_components({SOURCES: before}, ["multiverse"], "noble", "amd64", None, family="ubuntu")
    after = changed.get(SOURCES, before)
    added = [line for line in after.splitlines() if line not in before.splitlines()]
    assert len(after.split("multiverse")) - len(before.split("multiverse")) == count
    assert all(line.endswith(" multiverse") for line in added)
    entries = apt_sources.parse(SOURCES, before)
    missing = apt_sources.missing_components(entries, ["multiverse"], "noble", "amd64", None, family="ubuntu")
    assert missing == (["multiverse"] if count else [])


@pytest.mark.parametrize(("recorded", "expected"), [("Debian", True), ("Zabbix", False), (None, False)])
def test_the_recorded_origin_overrides_the_url(recorded, expected):
    (entry,) = apt_sources.parse(LIST, "deb http://apt.example/mirror-of-all bookworm main\n")
    assert apt_sources.is_distribution(entry, "bookworm", "amd64", lambda uri, suite: recorded) is expected


def test_the_recorded_origin_comes_from_apts_lists(tmp_path):
    lists = tmp_path / "var/lib/apt/lists"
    lists.mkdir(parents=True)
    name = "apt.example_my%5fmirror_dists_bookworm_InRelease"
    (lists / name).write_text("-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\nOrigin: Debian\nLabel: Debian\n")
    origin = apt_sources.recorded_origin(str(tmp_path))
    assert origin("http://apt.example/my_mirror/", "bookworm") == "Debian"
    assert origin("http://apt.example/my_mirror", "trixie") is None


def test_missing_components_considers_all_entries_of_a_suite():
    text = "deb http://m.example.org/debian bookworm main\ndeb http://m.example.org/debian bookworm non-free\n"
    entries = apt_sources.parse(LIST, text)
    assert apt_sources.missing_components(entries, WANTED, "bookworm") == ["contrib", "non-free-firmware"]


def test_only_files_that_apt_reads_are_read(tmp_path):
    parts = tmp_path / "etc/apt/sources.list.d"
    parts.mkdir(parents=True)
    (tmp_path / "etc/apt/sources.list").write_text("deb a b c\n")
    for name in ("a.list", "b.sources", "c.list.save", "d e.list", "README"):
        (parts / name).write_text("#\n")
    assert list(apt_sources.read_files(str(tmp_path))) == [
        "/etc/apt/sources.list",
        "/etc/apt/sources.list.d/a.list",
        "/etc/apt/sources.list.d/b.sources",
    ]
