# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nvidia-cdi-hook, and the command `nvidia-ctk hook`: change the files of a container before it starts.

NVIDIA/nvidia-container-toolkit, cmd/nvidia-cdi-hook and internal/ldconfig (v1.20.0, 5505e2f9). An unknown hook is
only a warning, so that containers start with specifications of another version. The hooks in NOTHING do nothing.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile

from .cli import run_ldconfig, within
from .main import Failure, warn
from .version import VERSION

NOTHING = ("enable-cuda-compat", "disable-device-node-modification", "chmod", "update-application-profile", "noop")


def main(argv: list[str]) -> int:
    """Run a hook. It reads the state of the container from its input."""
    words = [word for word in argv if word not in ("--debug", "-d", "--quiet")]
    if words[:1] in (["--version"], ["-v"]):
        print(f"NVIDIA CDI Hook version {VERSION}")
        return 0
    name, *rest = words or [""]
    if name == "create-symlinks":
        create_symlinks(values(rest, "link"), _container_root())
    elif name == "update-ldcache":
        ldconfig = values(rest, "ldconfig-path") or ["/sbin/ldconfig"]
        update_ldcache(values(rest, "folder"), _container_root(), ldconfig[-1].lstrip("@"))
    elif name not in NOTHING:
        warn(f"Unsupported CDI hook: {name}" if name else "No CDI hook specified")
    return 0


def values(argv: list[str], option: str) -> list[str]:
    """Return the values of an option that can be repeated."""
    found = []
    for index, word in enumerate(argv):
        name, equals, value = word.lstrip("-").partition("=")
        if word.startswith("-") and name == option:
            found.append(value if equals else argv[index + 1])
    return found


def _container_root() -> str:
    state = json.load(sys.stdin)
    with open(os.path.join(state["bundle"], "config.json"), encoding="utf-8") as file:
        path = (json.load(file).get("root") or {}).get("path") or ""
    root = os.path.join(state["bundle"], path)
    if os.path.realpath(root) == "/":
        raise Failure("failed to determined container root")
    return root.rstrip("/")


def create_symlinks(links: list[str], root: str) -> None:
    """Create symbolic links, given as TARGET::LINK, in a container. A link replaces a file."""
    for item in dict.fromkeys(links):
        target, _colons, link = item.partition("::")
        if not link or "::" in link:
            raise Failure(f"invalid symlink specification {item}")
        place = os.path.join(within(root, os.path.dirname(link)), os.path.basename(link))
        if os.path.islink(place) and os.readlink(place) == target:
            continue
        os.makedirs(os.path.dirname(place), exist_ok=True)
        if os.path.lexists(place):
            os.unlink(place)
        os.symlink(target, place)


def update_ldcache(folders: list[str], root: str, ldconfig: str) -> None:
    """Add directories to the loader's settings of a container, and write its cache."""
    settings = within(root, "/etc/ld.so.conf")
    if not os.path.exists(settings):
        os.makedirs(os.path.dirname(settings), exist_ok=True)
        with open(settings, "w", encoding="utf-8") as file:
            file.write("include /etc/ld.so.conf.d/*.conf\n")
    directory = within(root, "/etc/ld.so.conf.d")
    os.makedirs(directory, exist_ok=True)
    if folders:
        number, path = tempfile.mkstemp(prefix="00-nvcr-", suffix=".conf", dir=directory)
        with os.fdopen(number, "w", encoding="utf-8") as file:
            file.write("".join(f"{folder}\n" for folder in dict.fromkeys(folders)))
        os.chmod(path, 0o644)
    run_ldconfig(ldconfig, root, [])
