# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ask a cluster about one node and its pods with kubectl, change the node, and evict pods. Every call has a time limit.

kubectl knows every kind of login (certificates, tokens, programs of clouds), so the host needs no library for them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.program_runner import Run
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.untrusted_text import shown

# Seconds for one request, and for one run of kubectl with its login.
_REQUEST, _TIMEOUT = 30, 60
# Exit statuses of `timeout`: the limit passed, and the program had to be killed.
_LATE = (124, 137)
_NODE_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?", re.ASCII)
_PAGE = 500
# How often a change of the node is tried when somebody else changes the node at the same time.
_ATTEMPTS = 3


class KubernetesError(Exception):
    """The cluster does not answer, or refuses a request."""


@dataclass(frozen=True)
class EvictionAnswer:
    """What the API server answered. `refused`: why the pod cannot be evicted now. Empty if it was accepted."""

    refused: str = ""
    is_gone: bool = False


class KubernetesClient:
    """One node of a cluster. `kubectl`: the program with its first arguments, for example k3s kubectl."""

    def __init__(
        self,
        run: Run,
        node: str,
        *,
        kubectl: Sequence[str] = ("kubectl",),
        kubeconfig: str | None = None,
        context: str | None = None,
    ) -> None:
        if not _NODE_NAME.fullmatch(node):
            raise KubernetesError(f"{shown(node)} is no name of a node of Kubernetes.")
        self.name = node
        login = [*(["--kubeconfig", kubeconfig] if kubeconfig else []), *(["--context", context] if context else [])]
        self._run, self._command = run, [*kubectl, *login, f"--request-timeout={_REQUEST}s"]
        self._eviction_version: str | None = None

    def node(self) -> dict[str, Any]:
        """Return the node."""
        return self._get(f"/api/v1/nodes/{self.name}")

    def pods(self) -> list[dict[str, Any]]:
        """Return the pods of this node, and of no other one."""
        found: list[dict[str, Any]] = []
        more = ""
        while True:
            page = self._get(f"/api/v1/pods?fieldSelector=spec.nodeName%3D{self.name}&limit={_PAGE}{more}")
            found += page.get("items") or []
            token = (page.get("metadata") or {}).get("continue")
            if not token:
                return [pod for pod in found if (pod.get("spec") or {}).get("nodeName") == self.name]
            more = f"&continue={quote(token, safe='')}"

    def change(self, make: Any) -> bool:
        """Change the node. `make` returns the merge patch for a node, or None if the node is as it must be.

        The patch has the version of the node that `make` saw, so that no change of somebody else is overwritten.
        """
        for attempt in range(_ATTEMPTS):
            node = self.node()
            patch = make(node)
            if patch is None:
                return False
            metadata = {**patch.get("metadata", {}), "resourceVersion": node["metadata"]["resourceVersion"]}
            text = json.dumps({**patch, "metadata": metadata})
            rc, out, err = self._call("patch", "node", self.name, "--type=merge", "--patch", text)
            if rc == 0:
                return True
            if "Conflict" not in err or attempt == _ATTEMPTS - 1:
                raise self._failure("cannot change the node", rc, out, err)
        return False

    def evict(self, pod: dict[str, Any]) -> EvictionAnswer:
        """Ask the API server to evict a pod. It refuses for now if a disruption budget does not allow the eviction."""
        metadata = pod["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        body = {
            "apiVersion": self._version(),
            "kind": "Eviction",
            "metadata": {"namespace": namespace, "name": name},
            # A pod of a StatefulSet can be replaced by one with the same name on another node.
            "deleteOptions": {"preconditions": {"uid": metadata["uid"]}},
        }
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(name, safe='')}/eviction"
        rc, out, err = self._call("create", "--raw", path, "-f", "-", stdin=json.dumps(body))
        if rc == 0:
            return EvictionAnswer()
        if "NotFound" in err or "Conflict" in err:
            return EvictionAnswer(is_gone=True)
        # The pods of a namespace that is being deleted end without an eviction.
        if "TooManyRequests" in err or "InternalError" in err or "because it is being terminated" in err:
            return EvictionAnswer(refused=_message(err))
        raise self._failure(f"cannot evict pod {shown(namespace)}/{shown(name)}", rc, out, err)

    def _version(self) -> str:
        """Return the version of the eviction API: policy/v1 since Kubernetes 1.22."""
        if self._eviction_version is None:
            resources = self._get("/api/v1").get("resources") or []
            found = next((one for one in resources if one.get("name") == "pods/eviction"), {})
            self._eviction_version = f"{found.get('group') or 'policy'}/{found.get('version') or 'v1'}"
        return self._eviction_version

    def _get(self, path: str) -> dict[str, Any]:
        rc, out, err = self._call("get", "--raw", path)
        if rc != 0:
            raise self._failure("cannot read the cluster", rc, out, err)
        try:
            found = json.loads(out)
        except ValueError as error:
            raise KubernetesError(f"{shown(self._command[0])} returned no JSON for {path}.") from error
        return found if isinstance(found, dict) else {}

    def _call(self, *arguments: str, stdin: str | None = None) -> tuple[int, str, str]:
        limit = ["timeout", "--kill-after=5", str(_TIMEOUT)]
        return self._run([*limit, *self._command, *arguments], stdin=stdin)

    def _failure(self, what: str, rc: int, out: str, err: str) -> KubernetesError:
        program = shown(self._command[0])
        if rc in _LATE:
            return KubernetesError(f"Node {self.name}: {program} did not answer within {_TIMEOUT} seconds.")
        if rc == 127:
            return KubernetesError(
                f"Node {self.name}: {program} is not installed. Install kubectl on the machine that runs this task, or "
                "set the option kubectl."
            )
        text = _message(err or out)
        hint = " Give the user of the kubeconfig this right." if "Forbidden" in err else ""
        hint = hint or (" Set the option node to its name in the cluster." if "NotFound" in err else "")
        return KubernetesError(f"Node {self.name}: {program} {what}: {text.rstrip('.')}.{hint}")


def _message(text: str) -> str:
    """Return the last line of kubectl's error, without its start. Its warnings come before."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    line = next((one for one in reversed(lines) if one.startswith("Error from server")), lines[-1] if lines else "")
    line = line.partition("): ")[2] or line
    return "".join(letter if letter.isprintable() else shown(letter) for letter in line)[:300] or "no message"
