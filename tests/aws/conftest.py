# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fixtures: a local API of EC2 and SSM, and an API that answers calls with an error."""

from __future__ import annotations

import re
import sys
import threading
import typing as t
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from moto.server import ThreadedMotoServer

sys.path.append(str(Path(__file__).resolve().parents[2] / ".ansible" / "collections"))

from ansible_collections.gpufleet.hosts.tests.aws.local_api import Api, Broken


@pytest.fixture(scope="session")
def moto_server() -> t.Iterator[Api]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    with pytest.MonkeyPatch.context() as patch:
        # The tests have images of their own. Loading 700 others for each test takes 0.5 s.
        patch.setenv("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")
        server.start()
        host, port = server.get_host_and_port()
        yield Api(f"http://{host}:{port}")
        server.stop()


@pytest.fixture
def api(moto_server: Api) -> Api:
    moto_server.reset()
    return moto_server


@pytest.fixture
def broken() -> t.Iterator[t.Callable[..., Broken]]:
    """Start an API that answers with `code`. `times`: only so often, then with no instances."""
    servers: list[ThreadingHTTPServer] = []

    def start(code: str, status: int, times: int = sys.maxsize) -> Broken:
        calls: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                request = self.rfile.read(int(self.headers["Content-Length"])).decode()
                calls.append(re.search(r"Action=(\w+)", request)[1])
                failed = len(calls) <= times
                body = (
                    f"<Response><Errors><Error><Code>{code}</Code><Message>No.</Message></Error></Errors></Response>"
                    if failed
                    else "<DescribeInstancesResponse><reservationSet/></DescribeInstancesResponse>"
                ).encode()
                self.send_response(status if failed else 200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments: t.Any) -> None:
                """Print nothing."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return Broken(f"http://127.0.0.1:{server.server_port}", calls)

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()
