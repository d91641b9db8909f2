# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The user data with which a host configures itself: a document for cloud-init."""

from __future__ import annotations

import base64
import gzip
import json
import re
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.unattended import pull_program
from ansible_collections.gpufleet.hosts.plugins.module_utils.unattended.variables import PLATFORMS, UnattendedRequest

# EC2 accepts user data of this size, before it is encoded.
LIMIT = 16 * 1024
_SERVICE = """# Written by playbook gpufleet.hosts.user_data.
[Unit]
Description=Configure this host as a GPU host
Documentation=https://github.com/gpufleet/hosts/blob/main/docs/aws.md
Wants=network-online.target
After=network-online.target cloud-final.service

[Service]
Type=oneshot
{environment}EnvironmentFile=-{secrets}
ExecStart=/usr/bin/python3 {program}
TimeoutStartSec={limit}
TimeoutStopSec=90
"""
_TIMER = """# Written by playbook gpufleet.hosts.user_data.
[Unit]
Description=Configure this host as a GPU host regularly

[Timer]
OnBootSec=3min
OnUnitInactiveSec={interval}min
RandomizedDelaySec={delay}s

[Install]
WantedBy=timers.target
"""


def joined(sources: list[str]) -> str:
    """Return one program from the sources of modules, without what each of them imports from the collection."""
    future = "from __future__ import annotations\n"
    imports = re.compile(r"^from ansible_collections\S+ import (?:\([^)]*\)|.*)\n", re.MULTILINE)
    text = "".join(imports.sub("", source.replace(future, "", 1)) for source in sources)
    found = sorted(set(re.findall(r"^import \S+\n", text, re.MULTILINE)))
    return future + "".join(found) + re.sub(r"^import \S+\n", "", text, flags=re.MULTILINE)


def document(request: UnattendedRequest, program: str) -> dict[str, t.Any]:
    """Return the document. `program`: its source."""
    platform = PLATFORMS[request.platform]
    settings = {
        "repository": request.repository,
        "revision": request.revision,
        "playbook": request.playbook,
        "inventory": request.inventory,
        "collection": request.collection,
        "packages": request.packages,
        "python": platform.python,
        "host_packages": platform.packages,
        "interval": request.interval,
        "attempts": request.attempts,
        "ec2_tag": request.ec2_tag,
    }
    environment = "".join(
        f"Environment={_quoted(f'{name}={value}')}\n" for name, value in sorted(request.environment.items())
    )
    unit = _SERVICE.format(
        environment=environment,
        secrets=owned.PULL_ENVIRONMENT,
        program=owned.PULL_PROGRAM,
        limit=pull_program.RUN_LIMIT,
    )
    # The delay spreads the runs of a fleet over a tenth of the interval.
    timer = _TIMER.format(interval=request.interval, delay=request.interval * 6)
    files = {
        owned.PULL_SETTINGS: json.dumps(settings, indent=1) + "\n",
        owned.PULL_UNIT: unit,
        owned.PULL_TIMER: timer,
    }
    return {
        "packages": platform.packages,
        "package_update": True,
        "write_files": [
            *({"path": path, "permissions": "0644", "content": text} for path, text in files.items()),
            # Compressed, because the text would exceed what EC2 accepts. Without a time, the same variables always
            # give the same user data.
            {
                "path": owned.PULL_PROGRAM,
                "permissions": "0644",
                "encoding": "gz+b64",
                "content": base64.b64encode(gzip.compress(program.encode(), mtime=0)).decode(),
            },
        ],
        "runcmd": [
            ["systemctl", "daemon-reload"],
            ["systemctl", "enable", "--now", owned.PULL_TIMER.rpartition("/")[2]],
            # The service waits until cloud-init has finished, so cloud-init must not wait for the service.
            ["systemctl", "start", "--no-block", owned.PULL_UNIT.rpartition("/")[2]],
        ],
    }


def _quoted(text: str) -> str:
    """Quote a text for systemd, which reads escapes also in quotes, and expands specifiers."""
    for special, escaped in (("\\", "\\\\"), ('"', '\\"'), ("%", "%%")):
        text = text.replace(special, escaped)
    return f'"{text}"'


def problem(text: str) -> str | None:
    """Return why EC2 would reject the user data, or None."""
    size = len(text.encode())
    if size <= LIMIT:
        return None
    return (
        f"The user data has {size} bytes, and EC2 accepts at most {LIMIT}. Shorten unattended_environment or "
        "unattended_packages."
    )
