# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The GPUs that Slurm has given to jobs on this host. A job holds them exclusively, even while no process uses them."""

from __future__ import annotations

import os

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.file_reading import listing, read_bytes, read_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.program_runner import Run
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.device_inventory import Inventory
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.gpu_holders import Holder
from ansible_collections.gpufleet.hosts.plugins.module_utils.slurm import gpu_numbers, gpus_held_by_jobs
from ansible_collections.gpufleet.hosts.plugins.module_utils.slurm.node_drain_and_resume import SlurmClient, SlurmError

JOB, SLURM = "job", "slurm"
# Seconds to wait for Slurm's controller.
TIMEOUT = 5
_DAEMON = "slurmd"
# The configuration of Slurm's packages, of a node that gets it from the controller, and of Slurm's own build.
_DIRECTORIES = ("/etc/slurm", "/run/slurm/conf", "/usr/local/etc/slurm", "/usr/local/etc", "/opt/slurm/etc")
_MOST_BYTES = 65536


class JobsUnknown(Exception):
    """The scheduler of this host does not say which GPUs its jobs hold."""


def find(run: Run, inventory: Inventory, root: str = "/") -> list[Holder]:
    """Return the jobs of Slurm that hold GPUs of this host. Only a host with slurmd is asked. Raise JobsUnknown."""
    command = _daemon(root)
    if command is None or not inventory.units:
        return []
    node = _option(command, "-N") or os.uname().nodename.partition(".")[0]
    try:
        client = SlurmClient(run, node, timeout=TIMEOUT)
        found = gpus_held_by_jobs.allocations(client.job_details(), node)
        gres = client.node().gres if found else ""
    except SlurmError as error:
        raise JobsUnknown(f"slurmd runs on this host, but Slurm does not tell the GPUs of its jobs: {error}") from error
    files = gpu_numbers.numbered_files(_gres_conf(command, root) or "include unknown", node, gres) if found else {}
    return [_holder(one, inventory, files) for one in found]


def _holder(
    allocation: gpus_held_by_jobs.SlurmAllocation, inventory: Inventory, files: dict[int, frozenset[str]] | None
) -> Holder:
    indexes = allocation.indexes
    detail = ""
    if indexes is None or files is None or not indexes <= set(files):
        units = list(inventory.units)
        detail = "Slurm does not tell which GPUs it has, so all of them count"
    else:
        nodes = frozenset(path for index in indexes for path in files[index])
        units = [unit for unit in inventory.units if unit.nodes & nodes]
    return Holder(
        name=allocation.job,
        engine=SLURM,
        uuids=frozenset(unit.uuid for unit in units),
        exclusive=True,
        kind=JOB,
        user=allocation.user,
        detail=detail,
    )


def _daemon(root: str) -> list[str] | None:
    """Return the command line of slurmd, or None if it does not run."""
    for name in listing(root, "/proc"):
        if name.isdigit() and (read_text(root, f"/proc/{name}/comm", 32) or "").strip() == _DAEMON:
            content = read_bytes(root, f"/proc/{name}/cmdline", _MOST_BYTES) or b""
            return content.decode("utf-8", "replace").split("\0")
    return None


def _option(command: list[str], name: str) -> str | None:
    joined = [word[len(name) :] for word in command if word.startswith(name) and word != name]
    return next((after for before, after in zip(command, command[1:]) if before == name), joined[0] if joined else None)


def _gres_conf(command: list[str], root: str) -> str | None:
    given = _option(command, "-f")
    directories = (os.path.dirname(given), *_DIRECTORIES) if given else _DIRECTORIES
    texts = (read_text(root, f"{directory}/gres.conf") for directory in directories)
    return next((text for text in texts if text is not None), None)
