# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Serve the package repository of a test host over HTTP, and write each requested path to a log.

If the file `slow` exists next to this program, large files take seconds.
"""

from __future__ import annotations

import http.server
import time
from pathlib import Path
from typing import Any

HOME = Path(__file__).resolve().parent
PORT = 8080
BLOCK = 512 * 1024
# The time for a block of a slow file, in seconds.
PAUSE = 0.1


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serve files below the directory `repository`."""

    protocol_version = "HTTP/1.1"

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, directory=str(HOME / "repository"), **settings)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Write no messages."""

    def send_head(self) -> Any:
        """Answer a request. Its path is in the log before the first byte is sent."""
        with (HOME / "requests.log").open("a", encoding="utf-8") as log:
            log.write(f"{self.path}\n")
        return super().send_head()

    def copyfile(self, source: Any, outputfile: Any) -> None:
        """Send a file."""
        while block := source.read(BLOCK):
            outputfile.write(block)
            # A small file is a single block.
            if len(block) == BLOCK and (HOME / "slow").exists():
                time.sleep(PAUSE)


if __name__ == "__main__":
    http.server.ThreadingHTTPServer(("127.0.0.1", PORT), Handler).serve_forever()
