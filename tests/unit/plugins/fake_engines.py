# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fake container engines with only volumes and containers: Docker behind a socket, Podman as a command."""

from __future__ import annotations

import json
import re
import socketserver
import threading
from http.server import BaseHTTPRequestHandler
from urllib.parse import unquote, urlsplit


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


class FakeDocker:
    """A Docker Engine on a socket at `path`."""

    def __init__(self, path):
        self.host = f"unix://{path}"
        self.volumes = {}
        self.containers = []
        self.requests = []
        self.answer = None  # (status, body) for every request
        engine = self

        class Handler(BaseHTTPRequestHandler):
            def address_string(self):
                return "socket"

            def log_message(self, *_args):
                pass

            def _reply(self):
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                engine.requests.append(f"{self.command} {urlsplit(self.path).path}")
                status, answer = engine.answer or engine.handle(self.command, urlsplit(self.path).path, body)
                data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                if data:
                    self.wfile.write(data)

            do_GET = do_POST = do_DELETE = _reply

        self._server = _Server(str(path), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self):
        """Stop the server."""
        self._server.shutdown()
        self._server.server_close()

    def handle(self, method, path, body):
        """Answer like Docker."""
        if path == "/_ping":
            return 200, b"OK"
        if path == "/containers/json":
            return 200, self.containers
        if path == "/volumes":
            return 200, {"Volumes": list(self.volumes.values()) or None, "Warnings": None}
        if (method, path) == ("POST", "/volumes/create"):
            self.volumes[body["Name"]] = {"Name": body["Name"], "Driver": body["Driver"], "Options": body["DriverOpts"]}
            return 201, self.volumes[body["Name"]]
        name = unquote(re.fullmatch(r"/volumes/(.+)", path).group(1))
        if name not in self.volumes:
            return 404, {"message": f"get {name}: no such volume"}
        if method == "DELETE":
            del self.volumes[name]
            return 204, b""
        return 200, self.volumes[name]


class FakePodman:
    """A fake `run_command` for the commands of Podman."""

    def __init__(self):
        self.volumes = {}
        self.containers = []
        self.commands = []
        self.failure = None

    def run(self, argv):
        """Run Podman like AnsibleModule.run_command."""
        self.commands.append(argv[1:])
        if self.failure:
            return self.failure
        verb, words = argv[1:3], argv[3:]
        if verb == ["volume", "ls"]:
            return 0, json.dumps(list(self.volumes.values())) if self.volumes else "", ""
        if verb == ["volume", "create"]:
            given = dict(word.split("=", 1) for word in words[3:-1:2])
            self.volumes[words[-1]] = {"Name": words[-1], "Driver": words[1], "Options": given}
            return 0, words[-1] + "\n", ""
        if verb == ["volume", "rm"]:
            del self.volumes[words[0]]
            return 0, words[0] + "\n", ""
        if verb == ["ps", "--all"]:
            if words[0] != "--filter":
                return 0, json.dumps(self.containers), ""
            volume = words[1].removeprefix("volume=")
            return 0, json.dumps([item for item in self.containers if volume in item["Volumes"]]), ""
        return 125, "", f"Error: unknown command {argv}"
