# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of containerd and CRI-O on a host: first run, second run, removal."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import toml_editor
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri import registration_and_removal as cri_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri.containerd_versions import ROOT_FILE
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri.cri_changes import CONTAINERD, CRIO, CriPlan
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri.vendor_runtimes import NVIDIA, CriRuntime
from ansible_collections.gpufleet.hosts.tests.unit.plugins import container_toolkit_samples as samples

DROP_IN, RECORD = owned.CONTAINERD_DROP_IN, owned.CONTAINERD_CONFIG_RECORD
V2, V3 = "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime"
OLD = f'version = 2\n\n[plugins."{V2}"]\nsandbox_image = "pause:3.10" # ours\n'
NEW = f'version = 3\nimports = [\n  "/etc/containerd/other.d/*.toml",\n]\n\n[plugins."{V3}"]\nx = 1\n'
RUNNING = {"load_state": "loaded", "active_state": "active", "active_since_us": 4711}


def host(engine: str, version: str, **texts: t.Any) -> dict[str, t.Any]:
    """Describe a host with a running containerd or CRI-O, and its files."""
    seen = samples.host("debian-13", {engine: version})
    seen["services"][f"{engine}.service"] = dict(RUNNING)
    name = {"containerd": "containerd", "crio": "cri-o"}[engine]
    seen["engines"][engine] = {"package": name, "version": version}
    seen["cri_files"] |= texts
    return seen


def plan(seen: dict[str, t.Any], *, policy: str = "when_safe", default: bool = False, **more: str) -> CriPlan:
    engines = {
        name: seen["engines"][name]["version"] for name in ("containerd", "crio") if seen["engines"][name]["package"]
    }
    there = t.cast("t.Any", seen)
    return cri_plan.plan(there, {**engines, **more}, default_runtime=default, restart_policy=policy)


def carried_out(seen: dict[str, t.Any], done: CriPlan) -> dict[str, t.Any]:
    """Write and remove the files of a plan."""
    for engine in done.engines:
        for file in engine.files:
            texts = seen["cri_files"]["crio" if engine.unit == CRIO else "containerd"]
            assert texts.get(file.path, (seen["files"].get(file.path) or {}).get("content")) == file.former
            texts.pop(file.path, None)
            if file.path == RECORD:
                seen["files"][RECORD] = {"exists": file.content is not None, "content": file.content}
            elif file.content is not None:
                texts[file.path] = file.content
    return seen


HABANA = CriRuntime(
    "gaudi_driver",
    "Intel's container runtime",
    "habana",
    "/usr/bin/habana-container-runtime",
    owned.GAUDI_CONTAINERD_DROP_IN,
    owned.GAUDI_CRIO_DROP_IN,
)


@pytest.mark.parametrize("first_gone", ["nvidia", "habana"])
@pytest.mark.parametrize("root", [None, NEW])
def test_two_runtimes_share_the_root_file_and_leave_no_trace(root: str | None, first_gone: str) -> None:
    texts = {} if root is None else {ROOT_FILE: root}
    seen = host("containerd", "2.1.5", containerd=dict(texts))
    there = t.cast("t.Any", seen)
    carried_out(seen, plan(seen))
    second = cri_plan.plan(there, {"containerd": "2.1.5"}, HABANA, default_runtime=False, restart_policy="when_safe")
    carried_out(seen, second)
    drop_in = toml_editor.parse(seen["cri_files"]["containerd"][HABANA.containerd_drop_in])
    habana = drop_in["plugins"][V3]["containerd"]["runtimes"]["habana"]
    assert habana["options"] == {"BinaryName": "/usr/bin/habana-container-runtime"}
    assert toml_editor.parse(seen["cri_files"]["containerd"][ROOT_FILE])["imports"][-2:] == [
        DROP_IN,
        HABANA.containerd_drop_in,
    ]
    for runtime in (NVIDIA, HABANA):
        again = cri_plan.plan(
            there, {"containerd": "2.1.5"}, runtime, default_runtime=False, restart_policy="when_safe"
        )
        assert (again.engines, again.reasons, again.problems) == ([], [], [])
    order = [NVIDIA, HABANA] if first_gone == "nvidia" else [HABANA, NVIDIA]
    carried_out(seen, cri_plan.removal(there, "when_safe", order[0]))
    # The other drop-in is still read: the root file has its import, and a version.
    left = toml_editor.parse(seen["cri_files"]["containerd"][ROOT_FILE])
    assert (left["version"], left["imports"][-1]) == (3, order[1].containerd_drop_in)
    assert order[0].containerd_drop_in not in left["imports"]
    again = cri_plan.plan(there, {"containerd": "2.1.5"}, order[1], default_runtime=False, restart_policy="when_safe")
    assert (again.engines, again.problems) == ([], [])
    carried_out(seen, cri_plan.removal(there, "when_safe", order[1]))
    assert (seen["cri_files"]["containerd"], seen["files"][RECORD]["exists"]) == (texts, False)


@pytest.mark.parametrize(
    ("version", "root", "written"),
    [
        ("1.7.24", OLD, [DROP_IN, RECORD, ROOT_FILE]),
        ("1.6.20", None, [DROP_IN, RECORD, ROOT_FILE]),
        ("2.1.5", NEW, [DROP_IN, RECORD, ROOT_FILE]),
        ("2.2.5", None, [DROP_IN]),
        ("1.7.24", OLD.replace("\n", "\r\n"), [DROP_IN, RECORD, ROOT_FILE]),
        ("2.1.5", NEW + '[plugins."a#b"] # [x]\n"c#" = 1\n', [DROP_IN, RECORD, ROOT_FILE]),
        ("2.2.5", 'version = 3\nimports = ["/etc/containerd/conf.d/*.toml"]\n', [DROP_IN]),
    ],
)
def test_runtime_is_registered_once_and_removed_without_a_trace(
    version: str, root: str | None, written: list[str]
) -> None:
    seen = host("containerd", version, containerd={} if root is None else {ROOT_FILE: root})
    done = plan(seen)
    (engine,) = done.engines
    assert ([file.path for file in engine.files], engine.action, engine.marker) == (written, "restarted", 4711)
    assert done.changes == [*(f"write {path}" for path in written), f"restart {CONTAINERD}"]
    carried_out(seen, done)
    again = plan(seen)
    assert (again.engines, again.changes, again.reasons, again.problems) == ([], [], [], [])
    gone = cri_plan.removal(t.cast("t.Any", seen), "when_safe")
    # containerd does not start if an imported file does not exist.
    paths = [file.path for file in gone.engines[0].files]
    assert ROOT_FILE not in paths or paths.index(ROOT_FILE) < paths.index(DROP_IN)
    carried_out(seen, gone)
    assert seen["cri_files"]["containerd"] == ({} if root is None else {ROOT_FILE: root})
    assert seen["files"].get(RECORD, {}).get("content") is None
    assert cri_plan.removal(t.cast("t.Any", seen), "when_safe").changes == []


def test_drop_in_follows_its_source_in_old_versions() -> None:
    seen = host("containerd", "1.7.24", containerd={ROOT_FILE: OLD})
    carried_out(seen, plan(seen))
    texts = seen["cri_files"]["containerd"]
    texts[ROOT_FILE] = texts[ROOT_FILE].replace("pause:3.10", "pause:3.11")
    done = plan(seen)
    assert done.changes == [f"write {DROP_IN}", f"restart {CONTAINERD}"]
    assert "pause:3.11" in str(done.engines[0].files[0].content)


def test_disabled_cdi_is_reported_and_the_runtime_registered() -> None:
    seen = host("containerd", "1.7.24", containerd={ROOT_FILE: OLD + "enable_cdi = false\n"})
    done = plan(seen)
    assert len(done.engines) == 1
    carried_out(seen, done)
    again = plan(seen)
    assert (again.changes, again.problems, again.reasons) == ([], [], done.reasons)
    assert "enable_cdi = false" in again.reasons[0]


def test_import_that_the_user_has_removed_is_written_again() -> None:
    seen = host("containerd", "1.7.24", containerd={})
    carried_out(seen, plan(seen))
    seen["cri_files"]["containerd"][ROOT_FILE] = "version = 2\nroot = '/data'\n"
    done = plan(seen)
    text = next(file.content for file in done.engines[0].files if file.path == ROOT_FILE)
    assert toml_editor.parse(str(text)) == {"version": 2, "root": "/data", "imports": [DROP_IN]}


def test_import_beside_the_user_s_own_is_removed() -> None:
    seen = host("containerd", "2.1.5", containerd={ROOT_FILE: NEW})
    carried_out(seen, plan(seen))
    mine = f'version = 3\nimports = ["/mine.toml", "{DROP_IN}"]\n'
    seen["cri_files"]["containerd"][ROOT_FILE] = mine
    carried_out(seen, cri_plan.removal(t.cast("t.Any", seen), "when_safe"))
    assert seen["cri_files"]["containerd"] == {ROOT_FILE: 'version = 3\nimports = ["/mine.toml"]\n'}


# --- restart ----------------------------------------------------------------------------------------------------------


def test_without_a_restart_nothing_is_changed_but_reported() -> None:
    seen = host("containerd", "2.1.5", containerd={ROOT_FILE: NEW})
    done = plan(seen, policy="never")
    assert (done.engines, done.changes) == ([], [])
    assert done.reasons == [
        f"the registration of runtime nvidia in containerd was not changed: it needs a restart of {CONTAINERD}, but "
        "container_engine_restart_policy is never. Set it to when_safe"
    ]
    # An engine that does not run needs no restart.
    seen["services"][CONTAINERD]["active_state"] = "inactive"
    (engine,) = plan(seen, policy="never").engines
    assert (engine.action, bool(engine.files)) == (None, True)


@pytest.mark.parametrize(("since", "applies"), [(4711, True), (4712, False)])
@pytest.mark.parametrize(
    ("engine", "version", "action"),
    [
        ("containerd", "2.1.5", f"restart {CONTAINERD}"),
        ("crio", "1.30.1", f"reload {CRIO}"),
        ("crio", "1.24.6", f"restart {CRIO}"),
    ],
)
def test_files_of_an_interrupted_run_are_applied(
    engine: str, version: str, action: str, since: int, applies: bool
) -> None:
    seen = host(engine, version)
    done = plan(seen)
    carried_out(seen, done)
    (change,) = done.engines
    # The role removes the marker after it has applied the files.
    assert change.marker_file
    seen["files"][change.marker_file] = {"exists": True, "content": f"{change.marker}\n"}
    seen["services"][f"{engine}.service"]["active_since_us"] = since
    assert plan(seen).changes == ([action] if applies else [])
    # The marker of one engine does not concern the other.
    other = host("crio" if engine == "containerd" else "containerd", "2.2.5")
    carried_out(other, plan(other))
    other["files"][change.marker_file] = {"exists": True, "content": "4711\n"}
    assert plan(other).changes == []


# --- hosts that stay as they are --------------------------------------------------------------------------------------


def test_containerd_of_docker_stays_unless_kubernetes_uses_it() -> None:
    seen = host("containerd", "2.1.5", containerd={ROOT_FILE: NEW})
    assert plan(seen, docker="28.5.1").changes == []
    seen["services"]["kubelet.service"] = {"active_state": "active", "unit_file_state": "enabled"}
    assert plan(seen, docker="28.5.1").changes


@pytest.mark.parametrize(
    ("root", "words"),
    [
        (
            f'version = 2\n[plugins."{V2}".containerd.runtimes]\n'
            'runc.base_runtime_spec = "/etc/containerd/cri-base.json"\n',
            "Kubespray writes containerd's configuration, so it stays unchanged. Register runtime nvidia with Kubespr",
        ),
        (
            NEW,
            "containerd is installed without a package, so its configuration stays unchanged. Register runtime nvidia "
            "with the tool that installed it",
        ),
        ("version =\n", "containerd is installed without a package, so"),
        (None, "containerd is installed without a package, so"),
    ],
)
def test_containerd_without_a_package_is_reported(root: str | None, words: str) -> None:
    seen = host("containerd", "2.1.5", containerd={} if root is None else {ROOT_FILE: root})
    seen["engines"]["containerd"] = {"package": None, "version": None}
    done = cri_plan.plan(t.cast("t.Any", seen), {"containerd": None}, default_runtime=False, restart_policy="when_safe")
    assert (done.engines, done.changes, done.problems, done.later) == ([], [], [], False)
    assert done.reasons[0].startswith(words)


def test_engine_that_this_run_installs_is_planned_later() -> None:
    seen = samples.host("debian-13")
    done = plan(seen, containerd="1.7.24")
    assert (done.later, done.engines) == (True, [])
    assert done.changes == ["register runtime nvidia in containerd after it is installed"]


@pytest.mark.parametrize(
    ("version", "root", "words"),
    [
        ("2.3.0", "version = 5\n", f"{ROOT_FILE} has version 5, which is not known. Known versions: 2, 3, 4."),
        ("1.7.24", "[plugins]\n", "has version 1, for which drop-ins do not work"),
        ("2.1.5", "version =\n", f"{ROOT_FILE} is not valid TOML"),
    ],
)
def test_configuration_that_cannot_be_used_is_refused(version: str, root: str, words: str) -> None:
    done = plan(host("containerd", version, containerd={ROOT_FILE: root}))
    assert (len(done.problems), done.changes) == (1, [])
    assert words in done.problems[0]


@pytest.mark.parametrize(
    ("version", "text", "writes"), [("1.7.24", OLD, False), ("2.1.5", NEW, False), ("2.2.5", None, True)]
)
def test_files_with_logins_are_not_rewritten(version: str, text: str | None, writes: bool) -> None:
    seen = host("containerd", version, containerd={ROOT_FILE: text} if text else {}, masked=["/etc/containerd/x.toml"])
    done = plan(seen)
    assert (bool(done.changes), bool(done.reasons)) == (writes, not writes)
    assert writes or "/etc/containerd/x.toml contains logins" in done.reasons[0]


def test_root_file_that_got_logins_is_not_restored() -> None:
    seen = host("containerd", "2.1.5", containerd={ROOT_FILE: NEW})
    carried_out(seen, plan(seen))
    seen["cri_files"]["masked"] = [ROOT_FILE]
    done = cri_plan.removal(t.cast("t.Any", seen), "when_safe")
    assert done.engines == []
    assert "it contains logins" in done.problems[0]


def test_drop_in_that_no_engine_reads_is_named() -> None:
    path = "/etc/containerd/config.d/99-nvidia.toml"
    seen = host("containerd", "2.2.5", others=[path])
    assert plan(seen).reasons == [f"{path} is a drop-in of nvidia-ctk that no engine reads. Remove it."]


def test_removal_is_refused_while_containers_run() -> None:
    seen = host("containerd", "2.2.5")
    carried_out(seen, plan(seen))
    seen["engine_processes"]["containers"] = {"kubernetes": 3}
    (problem,) = cri_plan.removal(t.cast("t.Any", seen), "when_safe").problems
    assert "containers of containerd are running (3)" in problem


# --- CRI-O ------------------------------------------------------------------------------------------------------------


def test_file_of_crio_that_is_not_toml_is_named() -> None:
    texts = {"/etc/crio/crio.conf": "", "/etc/crio/crio.conf.d/10.conf": "x = "}
    done = plan(host("crio", "1.30.1", crio=texts))
    (problem,) = done.problems
    assert (problem.partition(" is not")[0], done.engines) == ("/etc/crio/crio.conf.d/10.conf", [])


@pytest.mark.parametrize(
    ("version", "policy", "action"),
    [("1.30.1", "never", "reloaded"), ("1.24.6", "when_safe", "restarted"), ("1.24.6", "never", None)],
)
def test_crio_is_reloaded_where_that_is_enough(version: str, policy: str, action: str | None) -> None:
    seen = host("crio", version, crio={"/etc/crio/crio.conf.d/10-crio.conf": "[crio.runtime]\n"})
    done = plan(seen, policy=policy)
    if action is None:
        assert (done.engines, len(done.reasons)) == ([], 1)
        return
    (engine,) = done.engines
    assert ([file.path for file in engine.files], engine.action) == ([owned.CRIO_DROP_IN], action)
    carried_out(seen, done)
    assert plan(seen, policy=policy).changes == []
    gone = cri_plan.removal(t.cast("t.Any", seen), policy)
    assert gone.changes == [f"remove {owned.CRIO_DROP_IN}", f"{action.removesuffix('ed')} {CRIO}"]


@pytest.mark.parametrize(
    ("unread", "root", "named"),
    [
        (["/srv/a.toml"], 'imports = ["/srv/a.toml"]', "/srv/a.toml"),
        ([ROOT_FILE], 'imports = ["/srv/a.toml", "/srv/x/[0-9]*.toml"]', "/srv/a.toml, /srv/x/[0-9]*.toml"),
        ([ROOT_FILE], 'imports = ["/srv/b.toml"]', None),
        ([ROOT_FILE], f'imports = ["/srv/b.toml", "{DROP_IN}"]', None),
    ],
)
def test_import_that_was_not_read_is_a_problem_that_names_it(unread: list[str], root: str, named: str | None) -> None:
    texts = {ROOT_FILE: f"version = 2\n{root}\n", "/srv/b.toml": ""}
    done = plan(host("containerd", "1.7.24", containerd=texts, unread=unread))
    assert bool(done.engines) is (named is None)
    assert [f"imports {named}, which could not be read" in text for text in done.problems] == [True] * bool(named)


@pytest.mark.parametrize(("version", "mode"), [("1.7.24", "0600"), ("2.1.5", "0644")])
def test_drop_in_that_carries_the_table_of_the_root_file_has_its_mode(version: str, mode: str) -> None:
    root = OLD if mode == "0600" else NEW
    done = plan(host("containerd", version, containerd={ROOT_FILE: root}, mode="0600"))
    modes = {file.path: file.mode for file in done.engines[0].files}
    assert (modes[DROP_IN], modes[ROOT_FILE]) == (mode, "0600")
