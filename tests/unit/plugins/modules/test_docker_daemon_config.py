# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import typing as t
from pathlib import Path

import pytest
from ansible.module_utils import basic

from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config import dockerd_flags
from ansible_collections.gpufleet.hosts.plugins.modules import docker_daemon_config
from ansible_collections.gpufleet.hosts.tests.unit.plugins.docker_daemon_host import Host

basic_run_command = basic.AnsibleModule.run_command


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(tmp_path, monkeypatch)


def test_new_file_is_removed_with_its_last_option(host: Host) -> None:
    there = host({"live-restore": True})
    assert there["changed"]
    assert there["changed_keys"] == ["live-restore"]
    assert there["reload_sufficient"]
    assert there["validated_by"] == f"{host.dockerd} 26.1.5"
    assert json.loads(host.file.read_text()) == {"live-restore": True}
    assert host.file.stat().st_mode & 0o777 == 0o644
    record = next(host.state.rglob("*.json"))
    assert record.stat().st_mode & 0o777 == 0o600

    again = host({"live-restore": True})
    assert not again["changed"]
    assert again["diff"]["before"] == again["diff"]["after"]

    gone = host(state="absent")
    assert gone["changed"]
    assert not host.file.parent.exists()
    assert not host.state.exists()
    assert not host(state="absent")["changed"]


def test_keys_mode_and_text_of_others_are_kept(host: Host) -> None:
    text = '{"labels": ["rack=b7"], "runtimes": {"kata": {"path": "/k"}}}'
    host.write(text, 0o600)
    host({"labels": ["site=x"], "runtimes": {"nvidia": {"path": "n"}}, "features": {"cdi": True}})
    assert json.loads(host.file.read_text()) == {
        "labels": ["rack=b7", "site=x"],
        "runtimes": {"kata": {"path": "/k"}, "nvidia": {"path": "n"}},
        "features": {"cdi": True},
    }
    assert host.file.stat().st_mode & 0o777 == 0o600
    part = host({"features": {"cdi": None}}, state="absent")
    assert part["changed_keys"] == ["features.cdi"]
    assert part["restart_required_keys"] == ["features.cdi"]
    assert not part["reload_sufficient"]
    host(state="absent")
    assert host.file.read_text() == text
    assert host.file.stat().st_mode & 0o777 == 0o600


def test_check_mode(host: Host) -> None:
    host.write("{}")
    result = host({"debug": True}, check=True)
    assert result["changed"]
    assert result["changed_keys"] == ["debug"]
    assert result["diff"]["before"] == "{}"
    assert result["diff"]["after"] == '{\n  "debug": true\n}\n'
    assert "--validate" in host.log.read_text()
    assert host.file.read_text() == "{}"
    assert not host.state.exists()


@pytest.mark.parametrize("check", [False, True])
def test_rejected_file_is_not_installed(host: Host, check: bool) -> None:
    host.write("{}")
    refused = host({"labels": ["refuse=1"]}, check=check)
    assert refused["failed"]
    assert "26.1.5 rejects the new file: unable to configure: refuse" in refused["msg"]
    assert host.file.read_text() == "{}"
    assert not host.state.exists()


@pytest.mark.parametrize("text", ['{"debug": true,}', "[]", '{"a": 1, "a": 2}'])
def test_invalid_file_is_not_changed(host: Host, text: str) -> None:
    host.write(text)
    for arguments in ({"options": {"debug": True}}, {"state": "absent"}):
        refused = host(**arguments)
        assert refused["failed"]
        assert str(host.file) in refused["msg"]
        assert host.file.read_text() == text
    assert not host.state.exists()


EMPTY = [b"", b" \n\n", b"\xef\xbb\xbf", b"\xef\xbb\xbf\r\n", b"null"]


@pytest.mark.parametrize("content", [*EMPTY, b'\xef\xbb\xbf{"mtu": 9000}\r\n', b'{\r\n"mtu": 9000}\r\n'])
def test_absent_restores_the_bytes(host: Host, content: bytes) -> None:
    host.write("")
    host.file.write_bytes(content)
    assert not host({})["changed"]
    assert host({"debug": True})["changed"]
    assert json.loads(host.file.read_text())["debug"]
    assert not host({"debug": True})["changed"]
    assert host(state="absent")["changed"]
    assert host.file.read_bytes() == content
    assert not host.state.exists()


@pytest.mark.parametrize("content", EMPTY)
def test_undone_restores_the_bytes(host: Host, content: bytes) -> None:
    host.write("")
    host.file.write_bytes(content)
    host.systemctl = "MainPID=7\nExecMainStartTimestampMonotonic=1"
    host({"features": {"cdi": True}})
    assert host(state="undone")["changed"]
    assert host.file.read_bytes() == content


@pytest.mark.parametrize(("content", "left"), [(b"", b"{}\n"), (b'\xef\xbb\xbf{"mtu": 9000}', b'{"mtu": 9000}')])
@pytest.mark.parametrize("back", ["absent", "undone"])
def test_old_dockerd_gets_a_file_that_it_reads(host: Host, content: bytes, left: bytes, back: str) -> None:
    host.dockerd.write_text(host.dockerd.read_text().replace("26.1.5", "18.9.1"))
    host.write("")
    host.file.write_bytes(content)
    host.systemctl = "MainPID=7\nExecMainStartTimestampMonotonic=1"
    host({"features": {"buildkit": True}})
    predicted = host(state=back, check=True)
    assert predicted["diff"]["after"] == left.decode()
    assert host(state=back)["diff"] == predicted["diff"]
    assert host.file.read_bytes() == left
    assert not host(state=back)["changed"]


def test_feature_that_dockerd_ignores_is_refused(host: Host) -> None:
    host.dockerd.write_text(host.dockerd.read_text().replace("26.1.5", "24.0.9"))
    host.write('{"features": {"cdi": true}}')
    assert "features.cdi: Docker 24.0.9 does not support CDI" in host({"features": {"cdi": True}, "mtu": 9000})["msg"]
    assert host({"mtu": 9000})["config"] == {"features": {"cdi": True}, "mtu": 9000}
    assert host({"features": {"cdi": False}})["config"]["features"] == {"cdi": False}


def test_invalid_utf_8_is_reported(host: Host) -> None:
    host.write("")
    host.file.write_bytes(b'{"a": "\xff"}')
    assert "byte 7: the file is not valid UTF-8" in host({"debug": True})["msg"]


def test_symbolic_link_is_kept(host: Host, tmp_path: Path) -> None:
    real = tmp_path / "real.json"
    real.write_text('{"mtu": 9000}')
    host.file.parent.mkdir(parents=True)
    host.file.symlink_to(real)
    host({"debug": True})
    assert host.file.is_symlink()
    assert json.loads(real.read_text()) == {"mtu": 9000, "debug": True}


def test_backup_has_the_old_content(host: Host) -> None:
    host.write('{"mtu": 9000}')
    done = host({"debug": True}, backup=True)
    assert Path(done["backup_file"]).read_text() == '{"mtu": 9000}'
    assert "backup_file" not in host({"debug": True}, backup=True)


def test_two_managers(host: Host) -> None:
    host({"features": {"cdi": True}}, managed_by="one")
    shared = host({"features": {"cdi": True}}, managed_by="two")
    assert shared["changed"]
    assert shared["changed_keys"] == []
    assert not host({"features": {"cdi": True}}, managed_by="two")["changed"]
    host(state="absent", managed_by="one")
    assert json.loads(host.file.read_text()) == {"features": {"cdi": True}}
    refused = host({"features": {"cdi": False}}, managed_by="three")
    assert '"features.cdi" is set to true by two, but three requests false' in refused["msg"]
    host(state="absent", managed_by="two")
    assert not host.file.exists()


def test_second_task_with_the_default_owner_keeps_the_options_of_the_first(host: Host) -> None:
    host({"runtimes": {"nvidia": {"path": "n"}}, "dns": ["1.1.1.1"]})
    second = host({"dns": ["9.9.9.9"], "debug": True})
    assert second["changed_keys"] == ["debug", "dns"]
    assert second["revoked_keys"] == []
    both = {"runtimes": {"nvidia": {"path": "n"}}, "dns": ["1.1.1.1", "9.9.9.9"], "debug": True}
    assert json.loads(host.file.read_text()) == both
    assert second["owned_keys"] == ["debug", "dns", "runtimes.nvidia"]
    assert not host({"runtimes": {"nvidia": {"path": "n"}}, "dns": ["1.1.1.1"]})["changed"]
    assert not host({"dns": ["9.9.9.9"], "debug": True})["changed"]
    host(state="absent")
    assert not host.file.exists()


def test_purge_removes_all_other_options_of_the_owner_and_names_them(host: Host) -> None:
    text = '{"mtu": 1400, "labels": ["rack=1"]}'
    host.write(text)
    host({"features": {"cdi": True}, "debug": True}, managed_by="other")
    kept = host.file.read_text()
    host({"features": {"cdi": True}, "mtu": 9000, "labels": ["rack=2"], "dns": ["1.1.1.1"], "icc": False})
    host.write(host.file.read_text().replace('"icc": false', '"icc": true'))
    for check in (True, False):
        purged = host({"dns": ["9.9.9.9"]}, purge=True, check=check)
        assert purged["changed_keys"] == ["dns", "labels", "mtu"]
        assert purged["revoked_keys"] == ["dns", "features.cdi", "icc", "labels", "mtu"]
        assert purged["edited_keys"] == ["icc"]
        assert purged["diff"]["prepared"] == "no longer requested by user: dns, features.cdi, icc, labels, mtu\n"
        assert purged["owned_keys"] == ["dns"]
    assert json.loads(host.file.read_text()) == {**json.loads(kept), "dns": ["9.9.9.9"], "icc": True}
    assert not host({"dns": ["9.9.9.9"]}, purge=True)["changed"]
    assert host({}, purge=True)["revoked_keys"] == ["dns"]
    assert not host({}, purge=True)["changed"]


def test_key_that_stays_for_another_owner_is_named_when_it_is_revoked(host: Host) -> None:
    for owner in ("one", "two"):
        host({"features": {"cdi": True}}, managed_by=owner)
    revoked = host(state="absent", managed_by="one")
    assert revoked["changed"]
    assert revoked["revoked_keys"] == ["features.cdi"]
    assert revoked["diff"]["before"] == revoked["diff"]["after"]
    assert revoked["diff"]["prepared"] == "no longer requested by one: features.cdi\n"


@pytest.mark.parametrize("purge", [False, True])
def test_option_moves_to_a_flag_with_the_same_value(host: Host, purge: bool) -> None:
    host({"live-restore": True, "debug": True})
    host.flags = [dockerd_flags.Flag("--live-restore", "live-restore", True, "unit")]
    moved = host({"live-restore": True, "debug": True}, purge=purge)
    assert moved["satisfied_by_flags"] == moved["revoked_keys"] == ["live-restore"]
    assert json.loads(host.file.read_text()) == {"debug": True}


def test_pending_options_are_returned_until_the_restart(host: Host) -> None:
    host.systemctl = "MainPID=7\nExecMainStartTimestampMonotonic=1\nStateChangeTimestampMonotonic=1"
    options = {"features": {"cdi": True}, "live-restore": True}
    first = host(options)
    assert first["pending"] == {"reload": ["live-restore"], "restart": ["features.cdi"]}
    assert host(options)["pending"] == first["pending"]

    more = host({**options, "debug": True})
    assert more["pending"] == {"reload": ["debug", "live-restore"], "restart": ["features.cdi"]}

    late = 10**18
    host.systemctl = f"MainPID=7\nExecMainStartTimestampMonotonic=1\nStateChangeTimestampMonotonic={late}"
    assert host({**options, "debug": True})["pending"] == {"reload": [], "restart": ["features.cdi"]}

    host.systemctl = f"{host.systemctl.replace('Monotonic=1', f'Monotonic={late}')}\nActiveState=active"
    done = host({**options, "debug": True})
    assert done["pending"] == {"reload": [], "restart": []}
    assert not done["changed"]
    assert json.loads(next(host.state.rglob("*.json")).read_text())["written"] is None


def test_other_configuration_file_in_the_unit(host: Host) -> None:
    host.flags = [dockerd_flags.Flag("--config-file=/x.json", "config-file", "/x.json", "/etc/systemd/system/d.conf")]
    assert "Set path=/x.json" in host({"debug": True})["msg"]


def test_missing_dockerd(host: Host) -> None:
    assert (
        "dockerd=/nowhere/dockerd is not an executable file" in host({"debug": True}, dockerd="/nowhere/dockerd")["msg"]
    )
    assert host({"debug": True}, validate=False, dockerd="/nowhere/dockerd")["validated_by"] == ""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"path": "daemon.json"}, "path=daemon.json is not an absolute path."),
        ({"state_directory": "state"}, "state_directory=state is not an absolute path."),
        ({"managed_by": ""}, "managed_by is empty."),
    ],
)
def test_wrong_argument_is_reported(host: Host, arguments: dict[str, t.Any], words: str) -> None:
    assert host({"debug": True}, **arguments)["msg"].startswith(words)
    assert not host.file.exists()


@pytest.mark.parametrize("user", [1000, 0])
@pytest.mark.parametrize("refused_at", ["reading", "writing"])
def test_missing_permission(host: Host, monkeypatch: pytest.MonkeyPatch, refused_at: str, user: int) -> None:
    def refuse(path: str, *_more: t.Any, **_options: t.Any) -> None:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr("os.geteuid", lambda: user)
    if refused_at == "reading":
        monkeypatch.setattr(docker_daemon_config, "open", refuse, raising=False)
    else:
        monkeypatch.setattr("os.makedirs", refuse)
    refused = host({"debug": True}, validate=False)
    assert refused["failed"]
    assert str(host.state) in refused["msg"]
    assert "Permission denied." in refused["msg"]
    assert ("Set become: true" in refused["msg"]) is (user != 0)


def test_options_are_required(host: Host) -> None:
    assert "options" in host()["msg"]


@pytest.mark.parametrize(
    ("proxy", "secret"),
    [
        ("http://u:s3cret@p:3128", "s3cret"),
        ("http://u:p@s3cret@p:3128", "s3cret"),
        ("http://:s3cret@p", "s3cret"),
        ("http://s3cret@p", "s3cret"),
    ],
)
def test_password_is_masked_and_idempotent(host: Host, proxy: str, secret: str) -> None:
    options = {"proxies": {"http-proxy": proxy}}
    for changed in (True, False):
        done = host(options)
        assert done["changed"] is changed
        assert secret not in repr(done)
    assert json.loads(host.file.read_text()) == options
    refused = host({"proxies": {"http-proxy": f"{proxy}/other"}}, managed_by="other")
    assert "http-proxy" in refused["msg"]
    assert secret not in repr(refused)
    assert host({"proxies": {"http-proxy": proxy.replace(secret, "new")}})["changed"]
    assert "new@p" in host.file.read_text()


@pytest.mark.parametrize("address", ["u:s3cret@r:5000", "s3cret@r", "https://u:s3/cret@r", "u:s3 cret@r"])
@pytest.mark.parametrize("key", ["insecure-registries", "registry-mirrors"])
def test_login_of_a_registry_is_masked(host: Host, key: str, address: str) -> None:
    host.write(json.dumps({key: [address]}))
    results = [host({}), host({key: ["r.example"]}, validate=False), host({"debug": True})]
    for result in results:
        assert "s3" not in repr(result)
    assert host.file.read_text() == json.dumps({key: [address]})


def test_token_is_masked(host: Host) -> None:
    options = {"log-opts": {"splunk-token": "s3cret"}}
    results = [host(options), host(options), host({"log-opts": {"splunk-token": "0ther-s3cret"}}, managed_by="other")]
    assert [result.get("changed") for result in results] == [True, False, None]
    assert "log-opts.splunk-token" in results[2]["msg"]
    host.write('{"log-opts": {"splunk-token": "s3cret"')
    results.append(host({}))
    assert "line 1" in results[3]["msg"]
    host.write(json.dumps(options))
    host.flags = [dockerd_flags.Flag("--log-opt splunk-token=s3cret", "log-opts", ["splunk-token=s3cret"], "unit")]
    results.append(host({"debug": True}, managed_by="other"))
    assert "would be set twice" in results[4]["msg"]
    assert "s3cret" not in repr(results)


def test_undone_restores_file_and_record(host: Host) -> None:
    host.write('{"labels": ["rack=b7"]}')
    host.systemctl = "MainPID=7\nExecMainStartTimestampMonotonic=1"
    host({"features": {"cdi": True}})
    good, record = host.file.read_text(), next(host.state.rglob("*.json"))
    host.systemctl = f"MainPID=7\nExecMainStartTimestampMonotonic={1 << 60}\nActiveState=active"
    host({"features": {"cdi": True}})
    known = record.read_text()
    host.systemctl = "MainPID=7\nExecMainStartTimestampMonotonic=1"
    bad = host({"bip": "172.30.0.1/16"}, purge=True)
    assert bad["pending"] == {"reload": [], "restart": ["bip", "features.cdi"]}

    predicted = host(state="undone", check=True)
    assert predicted["changed"]
    assert host.file.read_text() != good
    undone = host(state="undone")
    assert undone["changed"]
    assert undone["diff"] == predicted["diff"]
    assert undone["changed_keys"] == ["bip", "features.cdi"]
    assert undone["owned_keys"] == ["features.cdi"]
    assert host.file.read_text() == good
    assert record.read_text() == known
    assert not host(state="undone")["changed"]


def test_undone_keys(host: Host) -> None:
    host.systemctl = NOT_APPLIED
    host({"features": {"cdi": True}, "mtu": 1400}, managed_by="one")
    host.systemctl = APPLIED
    host({"features": {"cdi": True}, "mtu": 1400}, managed_by="one")
    host.systemctl = NOT_APPLIED
    more = {"features": {"cdi": True}, "bip": "172.30.0.1/16", "runtimes": {"n": {"path": "n"}}}
    host(more, managed_by="one", purge=True)
    host({"features": {"cdi": True, "x": True}}, managed_by="two")
    for check in (True, False):
        undone = host(state="undone", managed_by="three", check=check)
        assert undone["undone_keys"] == {"one": ["bip", "mtu", "runtimes.n"], "two": ["features.cdi", "features.x"]}
        assert undone["changed_keys"] == ["bip", "features.x", "mtu", "runtimes.n"]
    assert json.loads(host.file.read_text()) == {"features": {"cdi": True}, "mtu": 1400}
    assert host(state="undone")["undone_keys"] == {}


def test_taken_over_keys(host: Host) -> None:
    theirs = {"log-driver": "local", "default-runtime": "runc", "labels": ["rack=a1"], "mtu": 1400}
    host.write(json.dumps(theirs))
    wanted = {"log-driver": "journald", "default-runtime": None, "labels": ["rack=b7", "x=y"], "mtu": 1400, "bip": None}
    for check in (True, False):
        assert host(wanted, check=check)["taken_over_keys"] == ["default-runtime", "labels", "log-driver"]
    assert host(wanted)["taken_over_keys"] == []
    host.write(host.file.read_text().replace("journald", "syslog"))
    assert host(wanted)["taken_over_keys"] == ["log-driver"]
    host(state="absent")
    assert json.loads(host.file.read_text()) == {**theirs, "log-driver": "syslog"}


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"debug": None}, '"debug" is set to true by one, but two requests absent. Set the same value, or remove'),
        ({"runtimes": None}, ', but two requests "runtimes" set to absent, and one of these keys contains the other'),
    ],
)
def test_null_conflicts_with_a_value_of_another_manager(host: Host, wanted: dict[str, t.Any], words: str) -> None:
    host({"debug": True, "runtimes": {"n": {"path": "n"}}}, managed_by="one")
    before = host.file.read_text()
    for check in (True, False):
        assert words in host(wanted, managed_by="two", check=check)["msg"]
    assert host.file.read_text() == before


def test_undone_removes_a_new_file(host: Host) -> None:
    host.systemctl = "MainPID=7\nExecMainStartTimestampMonotonic=1"
    host({"bip": "172.30.0.1/16"})
    assert host(state="undone")["changed"]
    assert not host.file.parent.exists()
    assert not host.state.exists()


LATE = 1 << 60
NOT_APPLIED = "MainPID=7\nExecMainStartTimestampMonotonic=1"  # started before all changes
APPLIED = f"MainPID=9\nExecMainStartTimestampMonotonic={LATE}\nActiveState=active"
REBOOTED_AND_FAILING = f"MainPID=9\nExecMainStartTimestampMonotonic={LATE}\nActiveState=activating"
DOWN = "MainPID=0\nActiveState=failed"


@pytest.mark.parametrize(
    ("between", "expected"),
    [(NOT_APPLIED, None), (REBOOTED_AND_FAILING, None), (DOWN, None), (APPLIED, {"bip": "172.30.0.1/16"})],
)
@pytest.mark.parametrize("runs_between", [0, 1])
def test_all_pending_changes_are_undone_together(
    host: Host, between: str, expected: dict[str, t.Any] | None, runs_between: int
) -> None:
    host.systemctl = NOT_APPLIED
    host({"bip": "172.30.0.1/16"})
    host.systemctl = between
    for _run in range(runs_between):
        assert not host({"bip": "172.30.0.1/16"})["changed"]
    host({"bip": "172.30.0.1/16", "mtu": 1400})
    host.systemctl = NOT_APPLIED
    undone = host(state="undone")
    assert undone["changed"]
    assert undone["config"] == (expected or {})
    assert host.file.exists() is (expected is not None)
    assert not host(state="undone")["changed"]


@pytest.mark.parametrize("before", [None, '{"debug" : true}', '{"live-restore": false}'])
@pytest.mark.parametrize("is_ours", [False, True])
def test_undone_keeps_live_restore(host: Host, before: str | None, is_ours: bool) -> None:
    if before is not None:
        host.write(before)
    options: dict[str, t.Any] = {"labels": ["a=1"]} if is_ours else {}
    for state in (NOT_APPLIED, APPLIED):
        host.systemctl = state
        host(options)
    good = json.loads(host.file.read_text()) if host.file.exists() else {}
    host.systemctl = NOT_APPLIED
    host({**options, "live-restore": True, "log-opts": {"nonsense": "x"}})
    host.systemctl = DOWN
    undone = host({"live-restore": None, "mtu": None}, state="undone")
    assert undone["config"] == json.loads(host.file.read_text()) == {**good, "live-restore": True}
    assert undone["owned_keys"] == [*options, "live-restore"]
    assert not host({**options, "live-restore": True})["changed"]
    host(state="absent")
    assert (host.file.read_text() if host.file.exists() else None) == before
    assert not host.state.exists()


@pytest.mark.parametrize("before", [None, '{"debug": true}'])
def test_undone_restores_what_a_stopped_daemon_does_not_start_with(host: Host, before: str | None) -> None:
    if before is not None:
        host.write(before)
    host.systemctl = "MainPID=0\nActiveState=inactive"
    bad = {"log-opts": {"nonsense": "x"}}
    changed = host(bad)
    assert (changed["changed"], changed["pending"]) == (True, {"reload": [], "restart": []})
    assert not host(bad)["changed"]
    for state in (DOWN, REBOOTED_AND_FAILING):
        host.systemctl = state
        undone = host(state="undone", check=state == DOWN)
        assert (undone["changed"], undone["undone_keys"]) == (True, {"user": ["log-opts.nonsense"]})
    assert (host.file.read_text() if host.file.exists() else None) == before
    assert not host.state.exists()


def test_undone_keeps_what_a_stopped_daemon_has_started_with(host: Host) -> None:
    host.systemctl = DOWN
    host({"data-root": "/data"})
    host.systemctl = APPLIED
    assert not host(state="undone")["changed"]
    assert not host({"data-root": "/data"})["changed"]
    host.systemctl = DOWN
    host({"data-root": "/data", "log-opts": {"nonsense": "x"}})
    assert host(state="undone")["changed"]
    assert json.loads(host.file.read_text()) == {"data-root": "/data"}


def test_undone_restores_an_edit_between_two_changes(host: Host) -> None:
    host.systemctl = NOT_APPLIED
    host({"bip": "172.30.0.1/16"})
    host.write('{"bip": "172.31.0.1/16"}')
    host({"mtu": 1400})
    assert host(state="undone")["config"] == {"bip": "172.31.0.1/16"}


def test_reverted_change_is_not_undone(host: Host) -> None:
    host.write('{"debug": true}')
    for state in (NOT_APPLIED, APPLIED):
        host.systemctl = state
        host({"labels": ["a=1"]})
    host.systemctl = NOT_APPLIED
    good = host.file.read_text()
    host({"labels": ["a=1"], "bip": "172.30.0.1/16"})
    host({"labels": ["a=1"]}, purge=True)
    assert host.file.read_text() == good
    assert not host(state="undone")["changed"]
    assert host.file.read_text() == good


def test_applied_change_is_not_undone(host: Host) -> None:
    host.systemctl = "MainPID=7\nExecMainStartTimestampMonotonic=1"
    host({"bip": "172.30.0.1/16"})
    started = f"MainPID=7\nExecMainStartTimestampMonotonic={1 << 60}"
    host.systemctl = f"{started}\nActiveState=active"
    assert not host(state="undone")["changed"]
    assert "bip" in host.file.read_text()
    host.systemctl = f"{started}\nActiveState=activating"  # systemd restarts it again and again
    assert host(state="undone")["changed"]
    assert not host.file.exists()


def test_edited_file_is_not_undone(host: Host) -> None:
    host.systemctl = "MainPID=7\nExecMainStartTimestampMonotonic=1"
    host({"bip": "172.30.0.1/16"})
    host.write('{"bip": "172.31.0.1/16"}')
    refused = host(state="undone")
    for words in (str(host.file), "somebody has edited the file since", "Correct the file by hand"):
        assert words in refused["msg"]
    assert host.file.read_text() == '{"bip": "172.31.0.1/16"}'


def test_host_without_systemctl(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = basic.AnsibleModule.run_command

    def run_command(module: basic.AnsibleModule, args: list[str], **more: t.Any) -> tuple[int, str, str]:
        if args[0] == "systemctl":
            return basic_run_command(module, ["/nowhere/systemctl", *args[1:]], **more)
        return mine(module, args, **more)

    monkeypatch.setattr(basic.AnsibleModule, "run_command", run_command)
    done = host({"features": {"cdi": True}})
    assert (done.get("msg"), done["changed"]) == (None, True)
    assert done["pending"] == {"reload": [], "restart": []}
    assert not host({"features": {"cdi": True}})["changed"]
