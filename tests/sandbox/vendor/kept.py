# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keep finished repositories in a directory that all simulated hosts of a checkout share.

A repository is built by the first host that needs it, and again only if its inputs have changed. Hosts reach it through
a link. A test that changes a repository must copy it first.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

HELP = "directory that hosts share: build the repository there, unless it has this one already, and let OUT be a link"


def digest(words: Iterable[str], files: Iterable[Path]) -> str:
    """Return the digest of everything that decides the content of a repository."""
    found = hashlib.sha256("\0".join(words).encode())
    for path in sorted(files):
        found.update(f"\0{path.name}\0".encode() + path.read_bytes())
    return found.hexdigest()[:16]


def keyring(place: Path, directory: Path, create: Callable[[Path], str]) -> tuple[Path, str]:
    """Return a keyring of this host with the key of all kept repositories, and the key's fingerprint.

    The keyring is in `directory`, with packages that were signed with it. `create` returns the fingerprint of the key
    in a keyring, and creates a missing one. Hosts share an exported key, as a keyring can have only one agent.
    """
    shared, home = place / "key.asc", directory / "gnupg"
    known = directory / "key.asc"
    gpg = ("gpg", "--homedir", str(home), "--batch", "--quiet", "--pinentry-mode", "loopback", "--passphrase", "")
    with (place / "key.lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if shared.exists() and not (known.exists() and known.read_bytes() == shared.read_bytes()):
            shutil.rmtree(directory, ignore_errors=True)
            home.mkdir(mode=0o700, parents=True)
            subprocess.run([*gpg, "--import", str(shared)], check=True, capture_output=True)
            shutil.copy(shared, known)
        fingerprint = create(home)
        if not shared.exists():
            exported = place / "key.asc.new"
            exported.unlink(missing_ok=True)
            subprocess.run(
                [*gpg, "--armor", "--output", str(exported), "--export-secret-keys", fingerprint],
                check=True,
                capture_output=True,
            )
            shutil.copy(exported, known)
            exported.rename(shared)
        subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "gpg-agent"], check=False)
    return home, fingerprint


def repository(place: Path, name: str, inputs: str, out: Path, write: Callable[[Path], str]) -> str:
    """Let OUT be the kept repository with these inputs. Build it if it is missing, and remove its former versions.

    `write` writes the repository into a directory and returns the fingerprint of its key, as this function does.
    """
    wanted = place / f"{name}-{inputs}"
    with (place / f"{name}.lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # The fingerprint is written last: without it, the build was interrupted.
        if not (wanted / "fingerprint").exists():
            for former in place.glob(f"{name}-{'?' * len(inputs)}"):
                shutil.rmtree(former)
            wanted.mkdir()
            (wanted / "fingerprint").write_text(write(wanted), encoding="utf-8")
    out.parent.mkdir(parents=True, exist_ok=True)
    if out.is_symlink():
        out.unlink()
    os.symlink(wanted, out)
    return (wanted / "fingerprint").read_text(encoding="utf-8")
