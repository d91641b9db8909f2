# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Answer Docker in place of the dead volume plugin of nvidia-docker 1.0, so that Docker can remove its volumes.

Without an answer, Docker keeps the volumes even with --force: each removal fails after 15 seconds. The protocol:
docker/docs, "Docker volume plugins"; moby/moby, volume/drivers/proxy.go.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import socketserver
import stat
import threading
import typing as t

_TYPE = "application/vnd.docker.plugins.v1.2+json"
# The volumes count as existing, and their removal removes nothing.
_MOUNTPOINT = "/nonexistent"
# How long the end of the answers may take.
_POLL_SECONDS = 0.02


class StubError(Exception):
    """The stub cannot listen on a socket. The message names it."""


def answer(path: str, request: dict[str, t.Any], names: t.Collection[str]) -> dict[str, t.Any] | None:
    """Return the answer to a call, or None to a call that the removal of a volume does not need.

    `names`: the volumes to remove. Docker also asks for the volumes that somebody else creates meanwhile.
    """
    name = str(request.get("Name") or "")
    if path.startswith("/VolumeDriver.") and "Name" in request and name not in names:
        return {"Err": f"no such volume: {name}"}
    answers: dict[str, dict[str, t.Any]] = {
        "/Plugin.Activate": {"Implements": ["VolumeDriver"]},
        "/VolumeDriver.Capabilities": {"Capabilities": {"Scope": "local"}},
        "/VolumeDriver.Get": {"Volume": {"Name": name, "Mountpoint": _MOUNTPOINT}},
        "/VolumeDriver.List": {"Volumes": []},
        "/VolumeDriver.Path": {"Mountpoint": _MOUNTPOINT},
        "/VolumeDriver.Remove": {},
    }
    return {"Err": "", **answers[path]} if path in answers else None


class _Handler(http.server.BaseHTTPRequestHandler):
    names: t.Collection[str] = ()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            request = json.loads(body or b"{}")
        except ValueError:
            request = {}
        content = answer(self.path, request if isinstance(request, dict) else {}, self.names)
        data = json.dumps(content or {"Err": f"{self.path} is not supported"}).encode()
        self.send_response(200 if content else 404)
        self.send_header("Content-Type", _TYPE)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def address_string(self) -> str:
        return "docker"

    def log_message(self, format: str, *args: t.Any) -> None:
        """Write no log."""


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


@contextlib.contextmanager
def answering(paths: t.Collection[str], names: t.Collection[str]) -> t.Iterator[None]:
    """Answer on these sockets, for the volumes with these names.

    Afterwards, remove the sockets, and the directories that were created for them. Raise StubError if a path cannot be
    used, for example because another file is there.
    """
    handler = type("_HandlerOfNames", (_Handler,), {"names": frozenset(names)})
    with contextlib.ExitStack() as stack:
        for path in paths:
            stack.enter_context(_listening(path, handler))
        yield


@contextlib.contextmanager
def _listening(path: str, handler: type[_Handler]) -> t.Iterator[None]:
    folder = os.path.dirname(path)
    is_new = not os.path.isdir(folder)
    try:
        os.makedirs(folder, mode=0o755, exist_ok=True)
        _unlink(path)
        server = _bound(path, handler)
    except OSError as error:
        raise StubError(f"{path} cannot be used in place of the plugin's socket: {error.strerror or error}") from error
    with server:
        thread = threading.Thread(target=server.serve_forever, args=(_POLL_SECONDS,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()
            _unlink(path)
            if is_new:
                with contextlib.suppress(OSError):
                    os.rmdir(folder)


def _bound(path: str, handler: type[_Handler]) -> _Server:
    """Return a server whose socket only root can use. A later chmod could hit another file of this name."""
    umask = os.umask(0o177)
    try:
        return _Server(path, handler)
    finally:
        os.umask(umask)


def _unlink(path: str) -> None:
    """Remove a socket. Another file is not the plugin's, so it stays."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise FileExistsError(0, "it is no socket")
        os.unlink(path)
