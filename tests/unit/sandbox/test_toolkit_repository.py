# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Package managers read the stand-in for the repository of NVIDIA's container toolkit. Its packages are complete."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys

import pytest

from ansible_collections.gpufleet.hosts.tests.unit.sandbox.nvml_lab import REPOSITORY

GENERATOR = REPOSITORY / "tests/sandbox/vendor/make_toolkit_repository.py"
BASE = "nvidia-container-toolkit-base"


def need(*programs):
    """Fail if a program is missing."""
    missing = [name for name in programs if not shutil.which(name)]
    assert not missing, f"{', '.join(missing)} not found. On Debian, `make sandbox` installs what this test needs."


def built(directory, kind):
    command = [sys.executable, str(GENERATOR), f"--format={kind}", f"--out={directory}/out", f"--gnupg={directory}/gpg"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\n", 1)


@pytest.fixture(scope="module")
def debs(tmp_path_factory):
    """Return the directory with apt's repository."""
    need("dpkg-deb", "gpg", "gpg-agent")
    directory = tmp_path_factory.mktemp("deb")
    fingerprint, rest = built(directory, "deb")
    assert re.fullmatch(r"[0-9A-F]{40}", fingerprint)
    assert rest == "built the repository\n"
    # The second run has nothing to do.
    assert built(directory, "deb") == [fingerprint, ""]
    return directory / "out"


def run(*argv):
    return subprocess.run([str(word) for word in argv], check=True, capture_output=True, text=True).stdout


def deb(debs, name, version):
    return debs / f"stable/deb/amd64/{name}_{version}-1_amd64.deb"


@pytest.mark.parametrize(
    ("version", "directory", "settings"),
    [
        ("1.17.8", None, ""),
        ("1.19.1", "/etc/systemd/system", "nvidia-cdi-refresh.service"),
        ("1.20.0", "/lib/systemd/system", "nvidia-cdi-refresh.env"),
    ],
)
def test_the_units_are_where_the_version_has_them(debs, tmp_path, version, directory, settings):
    path = deb(debs, BASE, version)
    files = run("dpkg-deb", "--contents", path)
    places = set(re.findall(r"\.(/\S*)/nvidia-cdi-refresh\.service$", files, re.MULTILINE))
    assert places == ({directory} if directory else set())
    run("dpkg-deb", "--control", path, tmp_path / "control")
    conffiles = tmp_path / "control/conffiles"
    assert settings in (conffiles.read_text() if conffiles.exists() else "")
    for script in (tmp_path / "control").glob("p*"):
        run("sh", "-n", script)


APT = """\
Dir "{root}";
Dir::State::status "{root}/status";
Dir::Etc::sourcelist "{root}/sources.list";
Dir::Etc::sourceparts "-";
Dir::Etc::parts "-";
APT::Sandbox::User "root";
APT::Architecture "amd64";
Acquire::Languages "none";
"""
UNIT = {"nvidia-container-toolkit", BASE, "libnvidia-container-tools", "libnvidia-container1"}


@pytest.fixture(scope="module")
def apt(debs, tmp_path_factory):
    """Return a function that simulates an installation with the repository, whose signature apt verifies."""
    need("apt-get", "gpgv")
    root = tmp_path_factory.mktemp("apt")
    for path in ("var/lib/apt/lists/partial", "var/cache/apt/archives/partial", "etc/apt/preferences.d"):
        (root / path).mkdir(parents=True)
    status = (
        "Package: init-system-helpers\nStatus: install ok installed\nVersion: 1.65\nArchitecture: all\nMaintainer: x\n"
    )
    (root / "status").write_text(status)
    (root / "key.asc").write_text((debs / "gpgkey").read_text())
    (root / "sources.list").write_text(f"deb [signed-by={root}/key.asc] file://{debs}/stable/deb/$(ARCH) /\n")
    (root / "apt.conf").write_text(APT.format(root=root))

    def simulate(*names):
        command = ["apt-get", "-c", f"{root}/apt.conf"]
        run(*command, "update")
        text = run(*command, "--simulate", "install", *names)
        return dict(re.findall(r"^Inst (\S+) \((\S+)-1 ", text, re.MULTILINE))

    return simulate


def test_apt_installs_the_newest_version(apt):
    assert apt("nvidia-container-toolkit") == dict.fromkeys(UNIT, "1.20.0")


def test_only_the_library_can_have_a_newer_version(apt):
    # So a request for one version has to name it, too.
    versions = dict.fromkeys(UNIT - {"libnvidia-container1"}, "1.19.1")
    wanted = [f"{name}={version}-1" for name, version in versions.items()]
    assert apt(*wanted) == {**versions, "libnvidia-container1": "1.20.0"}
    with pytest.raises(subprocess.CalledProcessError):
        apt("nvidia-container-toolkit=1.19.1-1", "libnvidia-container-tools=1.20.0-1")


def test_old_versions_accept_newer_tools(apt):
    found = apt("nvidia-container-toolkit=1.17.8-1", f"{BASE}=1.17.8-1")
    assert found["libnvidia-container-tools"] == "1.20.0"


def test_ldconfig_accepts_the_library(debs, tmp_path):
    run("dpkg-deb", "--extract", deb(debs, "libnvidia-container1", "1.20.0"), tmp_path)
    (directory,) = (tmp_path / "usr/lib").glob("*-linux-gnu")
    link = directory / "libnvidia-container.so.1"
    link.unlink()
    run("/sbin/ldconfig", "-n", directory)
    assert link.readlink().name == "libnvidia-container.so.1.20.0"


def test_rpm_reads_the_relations(tmp_path):
    need("rpmbuild", "rpm", "createrepo_c", "gpg", "gpg-agent")
    built(tmp_path, "rpm")
    (place,) = (tmp_path / "out/stable/rpm").iterdir()
    assert (place / "repodata/repomd.xml.asc").exists()
    toolkit = place / "nvidia-container-toolkit-1.19.1.rpm"
    assert "libnvidia-container-tools = 1.19.1-1" in run("rpm", "-qp", "--requires", toolkit).splitlines()
    obsoleted = run("rpm", "-qp", "--obsoletes", toolkit).splitlines()
    assert obsoleted == ["nvidia-container-runtime <= 3.5.0-1", "nvidia-container-runtime-hook <= 1.4.0-2"]
    files = {version: run("rpm", "-qlp", place / f"{BASE}-{version}.rpm") for version in ("1.17.8", "1.19.1", "1.20.0")}
    assert "nvidia-cdi-refresh" not in files["1.17.8"]
    assert "/etc/systemd/system/nvidia-cdi-refresh.path" in files["1.19.1"]
    assert "/usr/lib/systemd/system/nvidia-cdi-refresh.path" in files["1.20.0"]
    assert "systemctl --no-reload preset" in run("rpm", "-qp", "--scripts", place / f"{BASE}-1.20.0.rpm")
