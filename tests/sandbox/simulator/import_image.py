#!/usr/bin/python3 -EsS
# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Import the image localhost/gpu-client into an engine that does not have it: `import-image docker|podman`.

A Docker client is not required.
"""

from __future__ import annotations

import http.client
import socket
import subprocess
import sys
import time
import urllib.parse

IMAGE = "localhost/gpu-client"
TAR = "/usr/lib/gpusim/gpu-client.tar"
SOCKET = "/run/docker.sock"
CHANGES = ("ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", 'CMD ["gpu-client"]')


class Engine(http.client.HTTPConnection):
    """A client of the Docker API over its Unix socket."""

    def connect(self) -> None:
        """Connect to the Unix socket."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(SOCKET)

    def ask(self, method: str, path: str, body=None) -> int:
        """Send a request and return the HTTP status."""
        self.request(method, path, body=body, headers={"Host": "docker", "Content-Type": "application/x-tar"})
        response = self.getresponse()
        text = response.read()
        if response.status >= 400 and method == "POST":
            raise OSError(
                f"{method} {path} failed with HTTP status {response.status}: {text.decode('utf-8', 'replace')}"
            )
        return response.status


def into_docker() -> None:
    """Import the image with the Docker API."""
    for _try in range(50):
        try:
            if Engine("docker").ask("GET", f"/images/{IMAGE}:latest/json") == 200:
                return
            break
        except OSError:
            time.sleep(0.2)
    query = urllib.parse.urlencode(
        [("fromSrc", "-"), ("repo", IMAGE), ("tag", "latest"), *(("changes", change) for change in CHANGES)]
    )
    with open(TAR, "rb") as tar:
        Engine("docker").ask("POST", f"/images/create?{query}", tar.read())


def into_podman() -> None:
    """Import the image with the podman command.

    While Debian configures Podman's package, `podman image prune` runs and can delete an image that is being imported.
    """
    query = ["dpkg-query", "--show", "--showformat=${db:Status-Status}", "podman"]
    status = subprocess.run(query, check=False, capture_output=True, text=True).stdout
    if status in {"half-installed", "unpacked", "half-configured"}:
        sys.exit(f"dpkg is still installing podman, which is {status}")  # systemd tries again
    if subprocess.run(["podman", "image", "exists", f"{IMAGE}:latest"], check=False).returncode:
        changes = [word for change in CHANGES for word in ("--change", change)]
        subprocess.run(["podman", "import", "-q", *changes, TAR, f"{IMAGE}:latest"], check=True)


if __name__ == "__main__":
    {"docker": into_docker, "podman": into_podman}[sys.argv[1]]()
