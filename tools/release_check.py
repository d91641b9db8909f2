# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Build the collection's tarball, and check it like Galaxy does after an upload.

release_check.py [--install]

With --install, also run ansible-lint on the tarball, install it into an empty directory, and use it from there.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# The files that users need. The check fails for any other file, so developer files are not published by accident.
SHIPPED = {
    "COPYING",
    "FILES.json",
    "MANIFEST.json",
    "README.md",
    "SECURITY.md",
    "changelogs",
    "docs",
    "inventory",
    "meta",
    "playbooks",
    "plugins",
    "requirements.txt",
    "requirements.yml",
    "roles",
}


class CheckError(Exception):
    """A check failed. The message contains the remedy."""


def unexpected(names: Iterable[str]) -> list[str]:
    """Return the top-level names that users do not need."""
    return sorted({name.split("/")[0] for name in names} - SHIPPED)


def broken_links(tree: Path) -> Iterator[str]:
    """Return the links in Markdown files whose target is not a file in the tree."""
    for page in sorted(tree.rglob("*.md")):
        text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for target in re.findall(r"(?:\]\(|^\[[^\]]+\]: *)([^)\s]+)", text, flags=re.MULTILINE):
            path = target.split("#")[0]
            if path and not re.match(r"[a-z]+:", path) and not (page.parent / path).exists():
                yield f"{page.relative_to(tree)}: {target}"


def complaints(output: str) -> list[str]:
    """Return the warnings and errors in the output of the importer, including their continuation lines."""
    progress = re.compile(r"^(?:Loading|Linting|\.\.\.ansible-lint) .*", flags=re.MULTILINE | re.DOTALL)
    found = re.split(r"^(?=(?:WARNING|ERROR|CRITICAL): )", output, flags=re.MULTILINE)[1:]
    return [progress.sub("", text).rstrip() for text in found]


def call(*command: str, directory: Path, **variables: str) -> subprocess.CompletedProcess:
    """Run a command without the Ansible configuration that make exports for the checkout."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "GALAXY_"))}
    return subprocess.run(
        command,
        cwd=directory,
        env={**kept, **variables},
        text=True,
        capture_output=True,
        check=False,
    )


def output_of(*command: str, directory: Path, **variables: str) -> str:
    """Run a command and return its output. Raise CheckError if it fails."""
    done = call(*command, directory=directory, **variables)
    if done.returncode:
        raise CheckError(f"`{' '.join(command)}` failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def build(scratch: Path) -> Path:
    """Build the tarball from the files that git does not ignore."""
    source = scratch / "source"
    for name in output_of("git", "ls-files", "-z", "-co", "--exclude-standard", directory=ROOT).split("\0"):
        if name and (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, source / name)
    target = ROOT / ".cache" / "release"
    shutil.rmtree(target, ignore_errors=True)
    output_of("ansible-galaxy", "collection", "build", "--output-path", str(target), directory=source)
    return next(target.glob("*.tar.gz"))


def check_content(tarball: Path, scratch: Path) -> int:
    """Check names and links. Return the number of files."""
    tree = scratch / "content"
    with tarfile.open(tarball) as archive:
        members = archive.getmembers()
        archive.extractall(tree, filter="data")
    found = unexpected(member.name for member in members)
    if found:
        raise CheckError(
            f"The tarball contains {', '.join(found)}. Add each to build_ignore in galaxy.yml, or to SHIPPED in "
            f"tools/{Path(__file__).name} if users need it."
        )
    dangling = list(broken_links(tree))
    if dangling:
        raise CheckError(
            "These links lead to files that the tarball does not contain. Link to the repository instead "
            "(https://github.com/gpufleet/hosts/blob/main/...):\n  " + "\n  ".join(dangling)
        )
    return sum(member.isfile() for member in members)


def check_import(tarball: Path, scratch: Path, *, lint: bool) -> None:
    """Run Galaxy's importer. Fail on warnings, too. `lint`: with ansible-lint, which `make lint` runs itself."""
    done = call(
        *(sys.executable, "-m", "galaxy_importer.main", str(tarball)),
        directory=scratch,
        GALAXY_IMPORTER_CONFIG=str(ROOT / ".config" / "galaxy-importer.cfg"),
        GALAXY_IMPORTER_ANSIBLE_LOCAL_TMP=str(scratch / "importer"),
        GALAXY_IMPORTER_RUN_ANSIBLE_LINT=str(lint),
    )
    found = complaints(done.stdout)
    if done.returncode or found:
        raise CheckError("galaxy-importer rejects the tarball:\n" + ("\n".join(found) or done.stdout + done.stderr))


def check_installed(tarball: Path, scratch: Path) -> str:
    """Install the tarball and use it. Return a summary of its content."""
    path = scratch / "installed"
    # The dependencies come with the Python package `ansible`, so no Galaxy server is needed.
    install = ("ansible-galaxy", "collection", "install", "--offline", "--no-deps", "-p", str(path), str(tarball))
    output_of(*install, directory=scratch)
    collection = path / "ansible_collections" / "gpufleet" / "hosts"
    offered = []
    for kind, files in (("module", "plugins/modules/[!_]*.py"), ("role", "roles/*")):
        listed = json.loads(
            output_of(
                *("ansible-doc", "--list", "--json", "--type", kind, "gpufleet.hosts"),
                directory=scratch,
                ANSIBLE_COLLECTIONS_PATH=str(path),
            )
        )
        missing = {f"gpufleet.hosts.{file.stem}" for file in collection.glob(files)} - set(listed)
        if missing:
            raise CheckError(f"ansible-doc does not list {', '.join(sorted(missing))} of the installed collection.")
        offered.append(f"{len(listed)} {kind}s")
    playbooks = sorted(file.stem for file in collection.glob("playbooks/*.yml"))
    for playbook in playbooks:
        output_of(
            *("ansible-playbook", "--syntax-check", "-i", "localhost,", f"gpufleet.hosts.{playbook}"),
            directory=scratch,
            ANSIBLE_COLLECTIONS_PATH=str(path),
        )
    return f"{', '.join(offered)}, playbooks {' and '.join(playbooks)}"


def main() -> int:
    """Run the checks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--install", action="store_true", help="also lint, install and use the tarball")
    options = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        try:
            tarball = build(scratch)
            files = check_content(tarball, scratch)
            check_import(tarball, scratch, lint=options.install)
            print(f"{tarball.name}: {files} files, {tarball.stat().st_size // 1024} KiB, accepted by galaxy-importer")
            if options.install:
                print(f"installed: {check_installed(tarball, scratch)}\nready to publish: {tarball}")
        except CheckError as error:
            print(f"release_check: {error}", file=sys.stderr)
            return 1
    print(f"release_check: {time.monotonic() - started:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
