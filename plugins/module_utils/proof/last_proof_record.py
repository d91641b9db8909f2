# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The record of the last proof, and the key by which a run decides whether the host needs another one."""

from __future__ import annotations

import hashlib
import json
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import observed_files, owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import nvidia_driver, nvidia_group
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import config_toml, docker_runtime

if t.TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host

IMAGE = "image"
# The parts of a key whose values say nothing to a reader, with the reason for another proof.
_OPAQUE = {
    "boot": "the host was booted",
    "specifications": "the CDI specifications changed",
    "configuration": f"{config_toml.PATH} changed",
}
_TITLES = {"driver": "the driver", "toolkit": "NVIDIA's container toolkit", "image": "the image", "gpus": "the GPUs"}


class ProofRecord(t.NamedTuple):
    """The last proof. `passed`: None if it was interrupted. `problems`: why it failed, as sentences."""

    key: dict[str, str]
    passed: bool | None
    problems: list[str]
    methods: list[dict[str, t.Any]]


def key(host: Host, engines: t.Iterable[str], image: str) -> dict[str, str]:
    """Return what the result of a proof depends on. `engines`: those whose containers get GPUs."""
    toolkit = host["packages"].get("nvidia-container-toolkit-base") or host["engines"]["container_toolkit"]
    specifications = sorted(f"{spec['path']} {spec.get('digest')}" for spec in host["cdi_specs"])
    found = {
        "boot": host["identity"]["boot"],
        "driver": nvidia_driver(host)["loaded"] or "",
        "gpus": " ".join(sorted(nvidia_group(host)["gpus"])),
        "toolkit": toolkit["version"] or "",
        "specifications": _digest("\n".join(specifications)) if specifications else "",
        "configuration": _digest(observed_files.content(host, config_toml.PATH) or ""),
        IMAGE: image,
    }
    for name in engines:
        found[name] = _engine(host, name)
    return found


def _engine(host: Host, name: str) -> str:
    """Describe an engine: its version, and what Docker offers to containers."""
    seen: t.Any = host["engines"]
    info = (name == "docker" and seen["docker"].get("info")) or {}
    parts = [str(info.get("server_version") or seen[name]["version"] or "")]
    if info:
        parts += [f"runtimes {','.join(sorted(info.get('runtimes') or ()))}"]
        parts += [f"default {info['default_runtime']}"] if info.get("default_runtime") else []
        parts += ["CDI"] if info.get("cdi_spec_dirs") else []
        # Until the restart, Docker has no option --gpus.
        parts += ["restart pending"] if docker_runtime.needs_restart(host) else []
    return ", ".join(parts)


def read(text: str | None) -> ProofRecord | None:
    """Read the record, None if there is none. A damaged record counts as none, because a proof writes it anew."""
    try:
        found = json.loads(text or "")
        return ProofRecord(dict(found["key"]), found["passed"], list(found["problems"]), list(found["methods"]))
    except (ValueError, KeyError, TypeError):
        return None


def dump(record: ProofRecord) -> str:
    """Return the text of a record."""
    return json.dumps(record._asdict(), indent=1, sort_keys=True) + "\n"


def observed(host: Host) -> ProofRecord | None:
    """Return the record of a host."""
    return read(observed_files.content(host, owned.CONTAINER_PROOF_RECORD))


def reason(record: ProofRecord | None, current: t.Mapping[str, str], *, with_image: bool = True) -> str | None:
    """Return why the host needs a proof, or None if the record is current and the proof passed."""
    if record is None:
        return "no proof has run yet"
    if record.passed is None:
        return "the last proof was interrupted"
    if not record.passed:
        return "the last proof failed"
    return changed(record, current, with_image=with_image)


def changed(record: ProofRecord, current: t.Mapping[str, str], *, with_image: bool = True) -> str | None:
    """Return what has changed since the proof, or None."""
    texts = []
    for name in sorted({*record.key, *current}):
        before, after = record.key.get(name, ""), current.get(name, "")
        if before == after or (name == IMAGE and not with_image):
            continue
        title = _TITLES.get(name, name)
        texts.append(_OPAQUE.get(name) or f"{title} changed from {before or 'none'} to {after or 'none'}")
    return "; ".join(texts) or None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest() if text else ""
