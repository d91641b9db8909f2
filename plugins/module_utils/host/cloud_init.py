# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether cloud-init still runs in this boot, its errors, and the wait for its end."""

from __future__ import annotations

import json
import re
import time

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import exists, read_text

_CLOUD_INIT = "/run/cloud-init"
_CLOUD_INIT_RESULT = f"{_CLOUD_INIT}/result.json"
_CLOUD_INIT_UNIT = re.compile(r"/cloud-(?:init(?:-local|-main|-network)?|config|final)\.service(?:/|$)", re.MULTILINE)


def read(root: str) -> dict:
    """Return the `state` of cloud-init (`absent`, `running`, `parent`, `done`) in this boot, and its `errors`.

    `parent`: cloud-init runs this program, so it cannot finish before.
    """
    text = read_text(root, _CLOUD_INIT_RESULT)
    if text is None:
        if not exists(root, f"{_CLOUD_INIT}/status.json") or exists(root, f"{_CLOUD_INIT}/disabled"):
            return {"state": "absent", "errors": []}
        is_parent = _CLOUD_INIT_UNIT.search(read_text(root, "/proc/self/cgroup") or "")
        return {"state": "parent" if is_parent else "running", "errors": []}
    try:
        errors = json.loads(text)["v1"]["errors"]
    except (ValueError, KeyError, TypeError):
        errors = []
    return {"state": "done", "errors": [str(error) for error in errors] if isinstance(errors, list) else []}


def wait(root: str, seconds: float) -> None:
    """Return once cloud-init has finished, or after this time."""
    end = time.monotonic() + seconds
    while read(root)["state"] == "running" and time.monotonic() < end:
        time.sleep(min(1.0, max(0.0, end - time.monotonic())))
