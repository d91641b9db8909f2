# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Create a signed repository with small packages for the tests of package transactions.

    make_packages.py deb|rpm

Every script of a package appends a line to a log when it begins and when it ends. The scripts of package `slow` take 2
seconds if the file /srv/packages/slow exists. make_repository.py must be in the same directory.
The fingerprint of the key is written to the file /srv/packages/fingerprint, and that of a further key in the file
two_keys.asc of the repository to the file /srv/packages/further_fingerprint.
"""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import make_repository
from make_repository import Package

HOME = Path("/srv/packages")
LOG = "/var/log/packages.log"
SCRIPTS = ("before_install", "after_install", "before_removal", "after_removal")


def package(
    name: str, version: str = "1.0-1", depends: tuple[str, ...] = (), *, conflicts: tuple[str, ...] = ()
) -> Package:
    """Return a package whose scripts write a log."""
    made = Package(name, version, depends, conflicts)
    made.replaces = conflicts
    made.files[f"/usr/share/{name}/version"] = f"{version}\n"
    for script in SCRIPTS:
        is_slow = name == "slow" or (name, script) == ("memo", "after_install")
        wait = "[ ! -e /srv/packages/slow ] || sleep 2\n" if is_slow else ""
        line = f'echo "{name} {version} {script} %s $*" >> {LOG}\n'
        setattr(made, script, line % "begin" + wait + line % "end")
    return made


def packages() -> list[Package]:
    """Return all packages of the repository."""
    needs = ("app-library", "app-data")
    found = [
        package(name, version, needs if name == "app" else ())
        for name in ("app", "slow")
        for version in ("1.0-1", "2.0-1")
    ]
    found += [package("app-library"), package("app-data"), package("plugin", depends=("app",))]
    found += [package("agent-old"), package("agent-new", conflicts=("agent-old",))]
    # The same file in two packages, which do not declare a conflict.
    found += [package("notes"), package("memo")]
    for made in found[-2:]:
        made.files["/usr/share/paper/page"] = f"from {made.name}\n"
    big = package("big")
    big.files["/usr/share/big/noise"] = base64.b64encode(os.urandom(15 * 2**20)).decode()
    return [*found, big]


def main() -> None:
    """Build and sign the repository. Copy the packages that the user installs without the repository."""
    kind = sys.argv[1]
    out, user, gnupg = HOME / "repository", HOME / "user", HOME / "gnupg"
    for directory in (out, user):
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
    fingerprint = make_repository.key(gnupg)
    with tempfile.TemporaryDirectory(dir="/var/tmp") as scratch:
        build = make_repository.build_deb if kind == "deb" else make_repository.build_rpm
        for made in packages():
            build(made, out, Path(scratch))
    if kind == "deb":
        make_repository.sign_apt(out, gnupg)
    else:
        make_repository.sign_rpms(out, gnupg)
        make_repository.run("createrepo_c", "--quiet", str(out))
        metadata = str(out / "repodata/repomd.xml")
        make_repository.run("gpg", "--homedir", str(gnupg), "--batch", "--armor", "--detach-sign", metadata)
    # A second key signs nothing.
    further_home = HOME / "further_gnupg"
    further = make_repository.key(further_home)
    exported, second = (
        make_repository.run("gpg", "--homedir", str(home), "--batch", "--armor", "--export")
        for home in (gnupg, further_home)
    )
    (out / "key.asc").write_text(exported, encoding="utf-8")
    (out / "two_keys.asc").write_text(exported + second, encoding="utf-8")
    (HOME / "fingerprint").write_text(f"{fingerprint}\n", encoding="utf-8")
    (HOME / "further_fingerprint").write_text(f"{further}\n", encoding="utf-8")
    for name in ("agent-old", "notes"):
        for path in out.glob(f"{name}[_-]1.0*"):
            shutil.copy(path, user)
    for home in (gnupg, further_home):
        subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "gpg-agent"], check=False)


if __name__ == "__main__":
    main()
