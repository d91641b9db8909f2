# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a host and a user see of the secrets in the arguments of the modules.

The tests start each module with a marker in every argument that can contain a secret. The marker contains characters
that Python escapes in the text of a list or a dictionary.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.module_utils import basic
from ansible.module_utils.common.parameters import PASS_VARS
from ansible.module_utils.testing import patch_module_args

from ansible_collections.gpufleet.hosts.plugins.module_utils.host import platform as host_platform
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import record_journal
from ansible_collections.gpufleet.hosts.plugins.modules import (
    gpu_container,
    gpu_container_info,
    gpu_container_proof,
    nvidia_driver_volume,
    package_transaction,
)
from ansible_collections.gpufleet.hosts.tests.unit.plugins.docker_daemon_host import Host as DaemonHost
from ansible_collections.gpufleet.hosts.tests.unit.plugins.module_utils.packages.fake_manager import Package
from ansible_collections.gpufleet.hosts.tests.unit.plugins.module_utils.packages.transaction_samples import new_host

MARK = "MARK3R"
SECRET = f"a\\b'c\"{MARK}"
LOGIN_FILE = f"machine https://mirror.example login u password {SECRET}\n"
# It is valid in a URL.
LOGIN = f"robot:{MARK}"


@pytest.fixture(name="log")
def _log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what Ansible sends to the journal or to syslog."""
    sent: list[str] = []
    monkeypatch.setattr(basic, "has_journal", True)
    monkeypatch.setattr(
        basic, "journal", SimpleNamespace(send=lambda **fields: sent.append(repr(fields))), raising=False
    )
    monkeypatch.setattr(basic.syslog, "syslog", lambda _priority, text: sent.append(text))
    monkeypatch.setattr(gpu_container_proof, "is_root", lambda: False)
    return sent


def run(module: Any, capsys: pytest.CaptureFixture[str], arguments: dict[str, Any]) -> str:
    """Return the result of a module as text, with its arguments: ansible-core 2.21 returns them only on request."""
    internal = {"_ansible_diff": True}
    if "inject_invocation" in PASS_VARS:
        internal["_ansible_inject_invocation"] = True
    with patch_module_args({**arguments, **internal}), pytest.raises(SystemExit):
        module.main()
    return capsys.readouterr().out


def seen_in(root: Path) -> list[str]:
    """Return the files that contain the marker and that not only root can read."""
    files = [path for path in root.rglob("*") if path.is_file() and MARK.encode() in path.read_bytes()]
    return [str(path.relative_to(root)) for path in files if path.stat().st_mode & 0o077]


URL = f"https://{LOGIN}@mirror.example/x"
STARTED = [
    (
        gpu_container,
        {
            "name": "trainer",
            "env": {"HF_TOKEN": SECRET, "PASSPHRASE_OF_X": SECRET},
            "command": ["serve", "--key", SECRET],
            "entrypoint": ["sh", "-c", SECRET],
            "labels": {"auth": SECRET},
            "engine_options": {"log_options": {"splunk-token": SECRET}, "cmd_args": [f"--creds={LOGIN}"]},
        },
        "trainer",
    ),
    (gpu_container, {"name": "trainer", "command": SECRET, "image": f"https://{LOGIN}@registry.example/i"}, "trainer"),
    (gpu_container_info, {"docker_host": f"tcp://{LOGIN}@docker.example", "timeout": -1}, "docker.example"),
    (nvidia_driver_volume, {"docker_host": f"tcp://{LOGIN}@docker.example", "timeout": -1}, "docker.example"),
    (gpu_container_proof, {"image": f"https://{LOGIN}@registry.example/i", "key": {"x": URL}}, "registry.example"),
    (
        package_transaction,
        {"record": "tools", "repositories": [{"name": "x", "url": URL, "key": URL, "fingerprint": "A" * 40}]},
        "mirror.example",
    ),
    # Ansible refuses these arguments before the module starts.
    (package_transaction, {"record": "tools", "files": [{"secret_content": LOGIN_FILE, "mode": "0777"}]}, "0777"),
    (gpu_container, {"name": "trainer", "env": {"TOKEN": SECRET}, "state": "unknown"}, "unknown"),
]


@pytest.mark.parametrize(("module", "arguments", "shown"), STARTED)
def test_no_module_logs_or_returns_a_secret(
    log: list[str], capsys: pytest.CaptureFixture[str], module: Any, arguments: dict[str, Any], shown: str
) -> None:
    result = run(module, capsys, arguments)
    assert shown in result
    assert MARK not in result
    assert MARK not in "".join(log)


@pytest.mark.parametrize("text", ["secret_content", "content"])
def test_package_transaction_keeps_secrets(
    tmp_path: Path,
    log: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    text: str,
) -> None:
    host = new_host(tmp_path / "root")
    repository = host.repository(packages=(Package("agent"),))
    monkeypatch.setattr(host_platform, "read", lambda *_given: {"package_manager": "apt", "name": "Debian"})
    monkeypatch.setattr(package_transaction, "BACKENDS", {"apt": lambda *_given, **_more: host.manager})
    monkeypatch.setattr(
        package_transaction.record_journal,
        "Journal",
        lambda name, create=record_journal.Journal: create(name, str(host.root)),
    )
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "root/var"))
    arguments = {
        "record": "tools",
        "install": ["agent"],
        "repositories": [
            {
                "name": repository.name,
                "url": repository.url,
                "key": repository.key,
                "fingerprint": repository.trust,
                "username": "robot",
                "password": SECRET,
                "proxy": "http://proxy.example:3128",
                "proxy_username": "agent",
                "proxy_password": SECRET,
            }
        ],
        "files": [
            {"path": "/etc/apt/auth.conf.d/x.conf", text: LOGIN_FILE, "mode": "0600"},
            {"path": "/etc/apt/preferences.d/x", "content": "Pin: version 1\n"},
        ],
    }
    for number in range(3):
        # Another password: the former file is part of the record until the transaction is complete.
        changed = json.loads(json.dumps(arguments).replace(MARK, f"{MARK}{number}" if number < 2 else f"{MARK}1"))
        result = run(package_transaction, capsys, changed)
        assert json.loads(result)["changed"] is (number < 2), result
        assert MARK not in result
        assert MARK not in "".join(log)
        # The diff of an ordinary file beside it stays readable.
        assert number or "Pin: version 1" in result
    login = tmp_path / "root/etc/apt/auth.conf.d/x.conf"
    assert login.read_text() == LOGIN_FILE.replace(MARK, f"{MARK}1")
    assert login.stat().st_mode & 0o777 == 0o600
    assert seen_in(tmp_path) == []
    assert MARK not in json.dumps(host.recorded())


@pytest.mark.parametrize(
    "secrets",
    [
        {"log-driver": "splunk", "log-opts": {"splunk-token": SECRET, "splunk-url": "https://splunk.example:8088"}},
        {"log-opts": {"x-api-key": SECRET, "splunk-url": "https://splunk.example:8088"}},
        {"proxies": {"http-proxy": f"http://{LOGIN}@proxy.example"}, "labels": ["splunk.example:8088"]},
        {"labels": [f"password={MARK}", "splunk.example:8088"]},
    ],
)
def test_docker_daemon_config_keeps_secrets(
    tmp_path: Path, log: list[str], monkeypatch: pytest.MonkeyPatch, secrets: dict[str, Any]
) -> None:
    host = DaemonHost(tmp_path, monkeypatch)
    host.write('{"debug": false}', 0o600)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for number in range(2):
        changed = json.loads(json.dumps({**secrets, "debug": True}).replace(MARK, f"{MARK}{number}"))
        result = host(changed)
        assert result["changed"], result
        assert MARK not in json.dumps(result)
        assert MARK not in "".join(log)
        # The diff of ordinary keys beside a secret stays readable.
        assert '"debug": true' in result["diff"]["after"]
        assert "splunk.example:8088" in result["diff"]["after"]
    assert f"{MARK}1" in host.file.read_text()
    assert seen_in(tmp_path) == []


def test_docker_daemon_config_names_no_secret_that_it_refuses(
    tmp_path: Path, log: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = DaemonHost(tmp_path, monkeypatch)({"registry-mirrors": [f"https://{LOGIN}@mirror.example"]})
    assert refused["failed"]
    assert "mirror.example" in refused["msg"]
    assert MARK not in json.dumps(refused) + "".join(log)
    assert seen_in(tmp_path) == []
