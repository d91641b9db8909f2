# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Adapter kubernetes: the node gets no new pod, and its pods are evicted as often as their disruption budgets require.

The record of the drain is an annotation of the node, so it does not matter which machine runs the module.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes import pod_eviction
from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes.kubectl_client import KubernetesClient
from ansible_collections.gpufleet.hosts.plugins.module_utils.workload.adapter_protocol import (
    WorkloadError,
    WorkloadView,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.workload.drain_reason import shown_reason
from ansible_collections.gpufleet.hosts.plugins.module_utils.workload.drain_record import WorkloadRecord, parse

RECORD = "gpufleet.github.io/drain"
REASON = "gpufleet.github.io/drain-reason"
LABELS = "gpufleet.github.io/drain-labels"


class KubernetesWorkload:
    """The pods of one node. `labels`: labels of the node during the drain, for example to stop an operator's pods."""

    name = "kubernetes"
    gaps = ("Static pods, DaemonSets and pods with a fixed nodeName start on a cordoned node, too.",)
    closes = True

    def __init__(
        self, client: KubernetesClient, rules: pod_eviction.EvictionRules, labels: Mapping[str, str] | None = None
    ) -> None:
        self._client, self._rules, self._labels = client, rules, dict(labels or {})
        self._refused: dict[str, str] = {}

    def view(self) -> WorkloadView:
        """Read the node and its pods."""
        # The pods first: a pod that ends in between is work, and no work is missed.
        verdicts = [(pod, pod_eviction.verdict(pod, self._rules)) for pod in self._client.pods()]
        node = self._client.node()
        work = []
        for pod, verdict in verdicts:
            if verdict.action == pod_eviction.IGNORE:
                continue
            refused = self._refused.get(pod["metadata"]["uid"])
            is_refused = refused and verdict.action == pod_eviction.EVICT
            work.append((dataclasses.replace(verdict, why=str(refused)) if is_refused else verdict).text())
        return WorkloadView(is_cordoned(node), shown_reason(_annotations(node).get(REASON) or ""), "", tuple(work))

    def close(self, reason: str) -> None:
        """Cordon the node, and set the labels."""

        def patch(node: Mapping[str, Any]) -> dict[str, Any] | None:
            known = _annotations(node)
            if is_cordoned(node) and REASON not in known:
                raise WorkloadError("Somebody cordoned this node in the meantime. Nothing was changed. Run again.")
            now = node["metadata"].get("labels") or {}
            saved = _saved(known)
            former = {**{name: now.get(name) for name in self._labels}, **saved}
            wanted = {REASON: reason, **({LABELS: json.dumps(former, sort_keys=True)} if former else {})}
            if is_cordoned(node) and {**known, **wanted} == known:
                return None
            return {
                "metadata": {"annotations": wanted, "labels": self._labels},
                "spec": {"unschedulable": True},
            }

        self._client.change(patch)

    def reopen(self) -> None:
        """Uncordon the node, and restore its labels. A label that somebody else has changed since then stays."""

        def patch(node: Mapping[str, Any]) -> dict[str, Any]:
            known, now = _annotations(node), node["metadata"].get("labels") or {}
            saved = _saved(known)
            mine = {
                name: value for name, value in saved.items() if now.get(name) == self._labels.get(name, now.get(name))
            }
            return {
                "metadata": {"annotations": {REASON: None, LABELS: None}, "labels": mine},
                "spec": {"unschedulable": None},
            }

        self._client.change(patch)

    def evict(self) -> int:
        """Evict the pods that may be evicted, and return how many evictions were accepted."""
        self._refused = {}
        accepted = 0
        for pod in self._client.pods():
            if pod_eviction.verdict(pod, self._rules).action != pod_eviction.EVICT:
                continue
            answer = self._client.evict(pod)
            if answer.refused:
                self._refused[pod["metadata"]["uid"]] = f"cannot be evicted now: {answer.refused}"
            elif not answer.is_gone:
                accepted += 1
        return accepted

    def stop(self, identifiers: tuple[str, ...]) -> None:
        """Pods are evicted, not stopped."""

    def start(self, identifiers: tuple[str, ...]) -> list[str]:
        """The controllers of evicted pods start them on other nodes."""
        return []


class KubernetesRecords:
    """The record of a drain in an annotation of the node."""

    def __init__(self, client: KubernetesClient) -> None:
        self._client = client

    def read(self) -> WorkloadRecord | None:
        """Return the record, or None if this collection drained nothing."""
        text = _annotations(self._client.node()).get(RECORD)
        if text is None:
            return None
        record = parse(text)
        if record is None:
            raise WorkloadError(
                f"Annotation {RECORD} of the node is not a record of a drain, so the owner of a drain is unknown. Read "
                "the annotation, end the drain by hand if there is one, and remove the annotation."
            )
        return record

    def write(self, record: WorkloadRecord) -> None:
        """Replace the record."""
        self._set(json.dumps(dataclasses.asdict(record), sort_keys=True))

    def remove(self) -> None:
        """Remove the record."""
        self._set(None)

    def _set(self, text: str | None) -> None:
        self._client.change(
            lambda node: (
                None if _annotations(node).get(RECORD) == text else {"metadata": {"annotations": {RECORD: text}}}
            )
        )


def is_cordoned(node: Mapping[str, Any]) -> bool:
    """Return whether the node gets no new pod."""
    return bool((node.get("spec") or {}).get("unschedulable"))


def _annotations(node: Mapping[str, Any]) -> Mapping[str, str]:
    return node["metadata"].get("annotations") or {}


def _saved(annotations: Mapping[str, str]) -> dict[str, str | None]:
    """Return the labels before the drain. Raise WorkloadError if the annotation is damaged."""
    try:
        saved = json.loads(annotations.get(LABELS) or "{}")
    except (ValueError, RecursionError):
        saved = None
    if not isinstance(saved, dict) or not all(one is None or isinstance(one, str) for one in saved.values()):
        raise WorkloadError(
            f"Annotation {LABELS} of the node is damaged, so its former labels are unknown. Restore the labels by "
            "hand, remove the annotation, and run again."
        )
    return saved
