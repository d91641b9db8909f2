# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster of this machine: etcd, the API server and the controller manager, without a kubelet.

Nodes are objects. Pods get a node and become ready because a test says so.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import typing as t
from pathlib import Path

TOKEN = "a-token-of-this-test"
_START = 60


class LocalCluster:
    """The processes and the kubeconfig of a cluster. `programs`: the directory with the binaries."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self._programs, self._folder = programs, folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self.kubeconfig = folder / "kubeconfig"

    def start(self) -> None:
        """Start the processes, and wait until the API server is ready."""
        etcd, peer, port = _ports(3)
        (self._folder / "tokens.csv").write_text(f'{TOKEN},admin,admin,"system:masters"\n', encoding="utf-8")
        key = self._folder / "service-account.key"
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        store = f"http://127.0.0.1:{etcd}"
        self._spawn(
            "etcd",
            f"--data-dir={self._folder}/etcd",
            "--unsafe-no-fsync",
            f"--listen-client-urls={store}",
            f"--advertise-client-urls={store}",
            f"--listen-peer-urls=http://127.0.0.1:{peer}",
        )
        self._spawn(
            "kube-apiserver",
            f"--etcd-servers={store}",
            f"--secure-port={port}",
            "--bind-address=127.0.0.1",
            f"--cert-dir={self._folder}/certificates",
            f"--token-auth-file={self._folder}/tokens.csv",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-account-issuer=https://cluster.example.org",
            "--authorization-mode=RBAC",
            "--allow-privileged=true",
            "--disable-admission-plugins=ServiceAccount",
            "--service-cluster-ip-range=10.0.0.0/24",
        )
        user = {"user": {"token": TOKEN}, "name": "admin"}
        server = {"server": f"https://127.0.0.1:{port}", "insecure-skip-tls-verify": True}
        context = {"context": {"cluster": "local", "user": "admin"}, "name": "local"}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"cluster": server, "name": "local"}],
            "users": [user],
            "contexts": [context],
            "current-context": "local",
        }
        self.kubeconfig.write_text(json.dumps(config), encoding="utf-8")
        self.kubeconfig.chmod(0o600)
        self._wait()
        # The controllers of disruption budgets and of ReplicaSets. None of them deletes pods of a node without kubelet.
        self._spawn(
            "kube-controller-manager",
            f"--kubeconfig={self.kubeconfig}",
            "--port=0",
            "--secure-port=0",
            "--leader-elect=false",
            "--controllers=disruption,replicaset,namespace",
        )

    def stop(self) -> None:
        """End the processes, the API server before its store."""
        for process in reversed(self._processes):
            process.terminate()
        for process in reversed(self._processes):
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:  # noqa: PERF203 (three processes)
                process.kill()

    def kubectl(self, *arguments: str, stdin: t.Any = None) -> str:
        """Run kubectl, and return its output. `stdin`: an object to pass as JSON."""
        command = [str(self._programs / "kubectl"), "--kubeconfig", str(self.kubeconfig), *arguments]
        text = None if stdin is None else json.dumps(stdin)
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{' '.join(arguments)}: {done.stderr}"
        return done.stdout

    def get(self, *arguments: str) -> t.Any:
        """Return objects."""
        return json.loads(self.kubectl("get", *arguments, "--output=json"))

    def apply(self, *objects: dict[str, t.Any]) -> None:
        """Create or change objects."""
        self.kubectl("apply", "--filename=-", stdin={"apiVersion": "v1", "kind": "List", "items": list(objects)})

    def set_status(self, kind: str, name: str, status: dict[str, t.Any], namespace: str = "") -> None:
        """Change the status of an object, as a kubelet does."""
        path = {"node": f"/api/v1/nodes/{name}/status", "pod": f"/api/v1/namespaces/{namespace}/pods/{name}/status"}[
            kind
        ]
        now = json.loads(self.kubectl("get", "--raw", path))
        self.kubectl("replace", "--raw", path, "--filename=-", stdin={**now, "status": {**now["status"], **status}})

    def add_node(self, name: str, gpus: int = 0) -> None:
        """Create a node that offers GPUs."""
        self.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        offered = {"nvidia.com/gpu": str(gpus), "cpu": "8", "pods": "100"}
        self.set_status("node", name, {"capacity": offered, "allocatable": offered})

    def _spawn(self, program: str, *arguments: str) -> None:
        log = open(self._folder / f"{program}.log", "wb")  # noqa: SIM115 (the process keeps the file)
        command = [str(self._programs / program), *arguments]
        self._processes.append(subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env={**os.environ}))

    def _wait(self) -> None:
        until = time.monotonic() + _START
        while not self._is_ready():
            if time.monotonic() > until or any(one.poll() is not None for one in self._processes):
                logs = [
                    path.read_text(encoding="utf-8", errors="replace")[-600:] for path in self._folder.glob("*.log")
                ]
                raise RuntimeError("The cluster did not start: " + "\n".join(logs))
            time.sleep(0.3)

    def _is_ready(self) -> bool:
        command = [str(self._programs / "kubectl"), "--kubeconfig", str(self.kubeconfig), "get", "--raw", "/readyz"]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _ports(number: int) -> list[int]:
    """Return free ports."""
    sockets = [socket.socket() for _number in range(number)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [int(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return ports
