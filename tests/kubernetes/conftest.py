# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The fixtures: one cluster for all tests, and Ansible against it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import typing as t
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / ".ansible" / "collections"))

from ansible_collections.gpufleet.hosts.tests.kubernetes.cluster import LocalCluster

CACHE = Path(os.environ["GPUFLEET_KUBERNETES_CACHE"])
CHARTS = Path(os.environ.get("GPUFLEET_KUBERNETES_CHARTS") or Path(__file__).parent / "charts")


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> t.Iterator[LocalCluster]:
    made = LocalCluster(CACHE / "bin", tmp_path_factory.mktemp("cluster"))
    try:
        made.start()
        yield made
    finally:
        made.stop()


class Playbook:
    """Runs tasks on this machine and counts what they changed."""

    def __init__(self, cluster: LocalCluster, folder: Path) -> None:
        self._cluster, self._folder = cluster, folder

    def __call__(self, tasks: list[dict[str, t.Any]], *options: str, fails: bool = False, **variables: t.Any) -> str:
        """Run the tasks and return the output."""
        play = {"hosts": "localhost", "gather_facts": False, "tasks": tasks, "vars": variables}
        hosts = {
            "all": {
                "hosts": {
                    "localhost": {
                        "ansible_connection": "local",
                        "ansible_python_interpreter": f"{CACHE}/venv/bin/python",
                    }
                },
                "children": {"gpu_hosts": {"hosts": {"n1": {}, "n2": {"gpu_kubernetes_node_name": "node-two"}}}},
            }
        }
        book, inventory = self._folder / "play.yml", self._folder / "inventory.json"
        book.write_text(json.dumps([play]), encoding="utf-8")
        inventory.write_text(json.dumps(hosts), encoding="utf-8")
        command = ["ansible-playbook", "-i", str(inventory), str(book), *options]
        environment = {**os.environ, "HOME": str(self._folder), "ANSIBLE_FORCE_COLOR": "0"}
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=environment)
        output = done.stdout + done.stderr
        assert (done.returncode != 0) == fails, output
        return output

    def role(
        self, *options: str, fails: bool = False, facts: dict[str, t.Any] | None = None, **variables: t.Any
    ) -> str:
        """Run role gpu_kubernetes_cluster. `facts`: the accelerators of inventory hosts."""
        tasks: list[dict[str, t.Any]] = [
            {
                "ansible.builtin.set_fact": {"accelerators": devices, "cacheable": True},
                "delegate_to": host,
                "delegate_facts": True,
            }
            for host, devices in (facts or {}).items()
        ]
        given = {
            "gpu_kubernetes_cluster_kubeconfig": str(self._cluster.kubeconfig),
            "gpu_kubernetes_cluster_helm": str(CACHE / "bin" / "helm"),
            "gpu_kubernetes_cluster_wait": False,
            **{f"gpu_kubernetes_cluster_{name}": value for name, value in variables.items()},
        }
        entry = given.pop("gpu_kubernetes_cluster_entry", "main")
        include = {"name": "gpufleet.hosts.gpu_kubernetes_cluster", "tasks_from": entry}
        return self([*tasks, {"ansible.builtin.include_role": include}], *options, fails=fails, **given)


@pytest.fixture
def playbook(cluster: LocalCluster, tmp_path: Path) -> Playbook:
    return Playbook(cluster, tmp_path)


def changed(output: str) -> int:
    """Return how many tasks changed something."""
    found = re.search(r"localhost\s+: ok=\d+\s+changed=(\d+)", output)
    assert found, output
    return int(found.group(1))
