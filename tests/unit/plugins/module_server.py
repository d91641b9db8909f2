# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs modules for `ansible_server` without the 0.3 s that each needs to compile and import the same files of Ansible.

Ansible packs a module with all files that it imports. Here, each packed module runs in a process of its own, which is
forked from one that has imported Ansible's module_utils. The module itself and all other files come from the package.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import importlib.util
import itertools
import json
import os
import select
import socket
import sys
import traceback
import types
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

# What modules of Ansible import, directly or through AnsibleModule.
IMPORTED = (
    "ansible.module_utils._internal._ansiballz._loader",
    "ansible.module_utils.basic",
    "ansible.module_utils.common.file",
    "ansible.module_utils.common.process",
    "ansible.module_utils.service",
    "ansible.module_utils.urls",
    "base64",
    "glob",
    "platform",
    "pwd",
    "shutil",
    "zipfile",
)
PACKED = "_payload.zip"


# --- the client, in a process of Ansible --------------------------------------------------------------------------


def call(path: str, code: bytes, *, environment: Mapping[str, str], directory: str) -> tuple[int, bytes, bytes]:
    """Run a packed module. Return its exit status and its output."""
    umask = os.umask(0o022)
    os.umask(umask)
    order = {"environment": dict(environment), "directory": directory, "umask": umask, "code": code.decode()}
    with contextlib.ExitStack() as opened:
        files = [opened.enter_context(open(os.memfd_create(name), "w+b")) for name in ("order", "stdout", "stderr")]
        files[0].write(json.dumps(order).encode())
        files[0].flush()
        server = opened.enter_context(socket.socket(socket.AF_UNIX))
        server.connect(path)
        socket.send_fds(server, [b"run"], [file.fileno() for file in files])
        status = server.recv(16)
        for file in files:
            file.seek(0)
        output, errors = files[1].read(), files[2].read()
    if not status:
        errors += b"the process of the module ended without a status"
    return int(status or b"1"), output, errors


# --- the server ---------------------------------------------------------------------------------------------------


class Places(list):
    """The folders of a package: those given and, before or after them, the package's folder in the packed module."""

    def __init__(self, name: str, folders: Iterable[str]) -> None:
        """Remember the package's folder in a packed module."""
        super().__init__(folders)
        self.name = name

    def __iter__(self) -> Iterator[str]:
        """Return the folders. The packed module stands in sys.path when it runs."""
        packed = (f"{path}/{self.name}" for path in sys.path if path.endswith(PACKED))
        return itertools.chain(super().__iter__(), packed)


def prepare(files: Iterable[str]) -> None:
    """Import Ansible's module_utils as on a host, where no other part of Ansible exists. Then run the files."""
    found = importlib.util.find_spec("ansible")
    assert found and found.submodule_search_locations
    (folder,) = found.submodule_search_locations
    for name, path, folders in (
        ("ansible", folder, []),
        ("ansible.module_utils", f"{folder}/module_utils", [f"{folder}/module_utils"]),
    ):
        package = types.ModuleType(name)
        package.__file__ = f"{path}/__init__.py"
        package.__path__ = Places(name.replace(".", "/"), folders)
        sys.modules[name] = package
    sys.modules["ansible"].module_utils = sys.modules["ansible.module_utils"]
    for name in IMPORTED:
        importlib.import_module(name)
    for path in files:
        exec(compile(Path(path).read_text(encoding="utf-8"), path, "exec"), {"__name__": "imported"})
    gc.collect()
    gc.freeze()


def perform(order: dict) -> int:
    """Run a packed module in this process. Return its exit status."""
    os.environ.clear()
    os.environ.update(order["environment"])
    os.umask(order["umask"])
    os.chdir(order["directory"])
    sys.argv = [""]
    try:
        exec(compile(order["code"], "<stdin>", "exec"), {"__name__": "__main__"})
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def serve(client: socket.socket) -> None:
    """Run the module that a client asks for, and end this process."""
    _message, descriptors, *_rest = socket.recv_fds(client, 16, 3)
    with open(descriptors[0], encoding="utf-8") as file:
        file.seek(0)
        order = json.load(file)
    for number, descriptor in enumerate((os.open(os.devnull, os.O_RDONLY), *descriptors[1:])):
        os.dup2(descriptor, number)
        os.close(descriptor)
    status = perform(order)
    # As at the end of Python: modules remove their temporary files there.
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    client.sendall(str(status).encode())
    os._exit(status)


def reap(options: int) -> None:
    """Wait for the processes that ended, so that their time counts as that of this one."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, options)[0]:
            pass


def main() -> None:
    """Fork a process for each connection to the socket, until standard input ends."""
    prepare(sys.argv[2:])
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(sys.argv[1])
        server.listen(64)
        print("ready", flush=True)
        while server in select.select([0, server], [], [])[0]:
            client, _address = server.accept()
            with client:
                if os.fork() == 0:
                    server.close()
                    serve(client)
            reap(os.WNOHANG)
    reap(0)


if __name__ == "__main__":
    main()
