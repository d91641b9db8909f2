# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Check the planner's transactions with the real apt, dnf and zypper over indexes of the vendors' archives.

    run.py [--platform PLATFORM]... [--subject driver|engine] [--only TEXT] [--list FILE]

The package managers run in containers that are made from the image of a simulated host, which `make solver` builds. A
platform without a result is a failure.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import functools
import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BYTECODE = ROOT / ".cache/solver/bytecode"
BASE = "localhost/gpufleet-sandbox:debian12"
# Debian's packages of zypper and of dnf's plugins exclude each other. The planner needs yaml and ansible-core.
COMMON = ("python3-yaml", "ansible-core", "rpm")
IMAGES = {"apt": COMMON, "dnf": (*COMMON, "dnf", "dnf-plugins-core"), "zypper": (*COMMON, "zypper")}
# The platforms that take longest come first.
PLATFORMS = {
    "el-9": "dnf",
    "el-8": "dnf",
    "el-10": "dnf",
    "amazon-2023": "dnf",
    "ubuntu-24.04": "apt",
    "ubuntu-22.04": "apt",
    "ubuntu-26.04": "apt",
    "sles-15": "zypper",
    "debian-12": "apt",
    "debian-13": "apt",
}
# The plans of roles nvidia_driver and container_engine.
SUBJECTS = ("driver", "engine")
_PACKAGE = "ansible_collections/gpufleet/hosts"
_SHOWN = 40


class SetupError(Exception):
    """The test cannot run."""


def docker(*words: str) -> str:
    """Run docker, and return its output."""
    done = subprocess.run(["docker", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SetupError(f"docker {' '.join(words[:3])} failed: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout.strip()


@functools.cache
def image(manager: str) -> str:
    """Return the image with a package manager. Make it from the image of a simulated Debian 12 host.

    It stays the same as long as that image has the same packages. The simulator, which also is in it, is not used.
    """
    base = docker("run", "--rm", "--network", "none", "--entrypoint", "dpkg-query", BASE, "--show")
    install = (
        f"apt-get update && apt-get install --yes --no-install-recommends {' '.join(IMAGES[manager])} && "
        # Debian's rpm uses a database in the home directory, where dnf and zypper would look for it, too.
        "mkdir -p /etc/rpm && echo '%_dbpath /var/lib/rpm' >/etc/rpm/macros.dbpath"
    )
    name = f"localhost/gpufleet-solver:{manager}-{hashlib.sha256(f'{base} {install}'.encode()).hexdigest()[:12]}"
    if not docker("image", "ls", "--quiet", name):
        container = f"solver-image-{manager}-{os.getpid()}"
        print(f"solver: building the image with {manager}", flush=True)
        try:
            docker("run", "--name", container, "--entrypoint", "bash", BASE, "-c", install)
            docker("commit", container, name)
        finally:
            subprocess.run(["docker", "rm", "--force", container], capture_output=True, check=False)
    return name


def matrix(platform: str, subject: str, only: str) -> list[dict]:
    """Run the matrix of a platform, and return its rows. The last one has the totals."""
    program = f"{_PACKAGE.replace('/', '.')}.tests.solver.program"
    container = f"solver-{subject}-{platform}-{os.getpid()}"
    words = ["docker", "run", "--rm", "--name", container, "--network", "none", "--tmpfs", "/tmp:exec"]
    words += ["--tmpfs", "/var/tmp:exec", "--volume", f"{ROOT}:/srv/{_PACKAGE}:ro", "--env", "PYTHONPATH=/srv"]
    # Python compiles each module only once for all containers.
    BYTECODE.mkdir(parents=True, exist_ok=True)
    words += ["--volume", f"{BYTECODE}:/var/cache/bytecode", "--env", "PYTHONPYCACHEPREFIX=/var/cache/bytecode"]
    words += ["--entrypoint", "python3", image(PLATFORMS[platform]), "-m", program]
    words += ["--platform", platform, "--subject", subject, *(["--only", only] if only else [])]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not rows or "platform" not in rows[-1]:
        raise SetupError(f"The matrix of the {subject} on {platform} did not finish: {done.stderr.strip()[-2000:]}")
    return rows


def report(rows: list[dict]) -> str:
    """Return the failed cases as text. Cases with the same fault are counted."""
    faults: Counter = Counter()
    examples: dict[str, str] = {}
    for row in rows:
        for fault in row.get("faults", []):
            faults[fault] += 1
            examples.setdefault(fault, row["case"])
    lines = []
    for fault, count in faults.most_common():
        more = f" and {count - 1} more" if count > 1 else ""
        lines.append(f"{examples[fault]}{more}\n    {fault}")
    return "\n".join(lines)


def main() -> int:
    """Run the platforms, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--platform", action="append", choices=sorted(PLATFORMS), help="only this platform")
    parser.add_argument("--subject", action="append", choices=SUBJECTS, help="only the plans of this subject")
    parser.add_argument("--only", default="", help="only the cases whose name contains this text")
    parser.add_argument("--list", type=Path, help="write all failed cases to a file")
    options = parser.parse_args()
    platforms = options.platform or list(PLATFORMS)
    parts = [(platform, subject) for platform in platforms for subject in options.subject or SUBJECTS]
    failed, texts = 0, []
    try:
        for manager in dict.fromkeys(PLATFORMS[platform] for platform in platforms):
            image(manager)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            for rows in pool.map(lambda part: matrix(*part, options.only), parts):
                totals = rows[-1]
                installed, refused, failures = (totals.get(name, 0) for name in ("installed", "refused", "failed"))
                failed += failures
                print(
                    f"{totals['platform']:12} {totals['subject']:6} {installed:4} installable, {refused:4} refused as "
                    f"expected, {failures:4} failed, {totals.get('removals', 0):3} removals, "
                    f"{totals['simulated']:4} simulations, {totals['seconds']} s "
                    f"({totals['cpu_seconds']} s of CPU time)",
                    flush=True,
                )
                texts.append(report(rows))
    except SetupError as error:
        print(f"solver: {error}", file=sys.stderr)
        return 2
    text = "\n".join(filter(None, texts))
    if options.list:
        options.list.write_text(f"{text}\n", encoding="utf-8")
    print("\n".join(text.splitlines()[: 2 * _SHOWN]))
    if failed:
        print(f"solver: {failed} cases failed. With --list FILE, the program writes all of them to a file.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
