# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.owned import CONTAINERD_DROP_IN as DROP_IN
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import toml_editor
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri.containerd_drop_in import (
    CriRegistration,
    containerd,
)

V2, V3 = "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime"
BINARY = "/usr/bin/nvidia-container-runtime"
OLD = f"""\
version = 2 # of the file

[plugins."{V2}"]
  sandbox_image = "registry.example/pause:3.10"
  [plugins."{V2}".containerd]
    snapshotter = "overlayfs"
    [plugins."{V2}".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."{V2}".containerd.runtimes.runc.options]
        SystemdCgroup = true
"""
NEW = f"""\
version = 3
imports = ["/etc/containerd/other.d/*.toml"]

[plugins."{V3}".containerd.runtimes.runc.options]
SystemdCgroup = true
"""
# Docker's package containerd.io: docker/containerd-packaging, common/containerd.toml (2161c61).
OF_DOCKER = 'disabled_plugins = ["cri"]\n'
RUNC = {"runtime_type": "io.containerd.runc.v2"}
NVIDIA = {"runtime_type": "io.containerd.runc.v2", "options": {"SystemdCgroup": True, "BinaryName": BINARY}}


def cri(done: CriRegistration, table: str) -> dict:
    """Return the table of CRI in the drop-in."""
    assert done.problems == done.reasons == []
    assert done.drop_in is not None
    return toml_editor.parse(done.drop_in)["plugins"][table]


@pytest.mark.parametrize(("version", "cdi"), [("1.6.20~ds1-1+deb12u3", None), ("1.7.24~ds1-6", True)])
def test_old_containerd_replaces_the_table_so_the_drop_in_carries_it(version: str, cdi: bool | None) -> None:
    table = cri(containerd(version, OLD), V2)
    assert table["sandbox_image"] == "registry.example/pause:3.10"
    assert table["containerd"]["snapshotter"] == "overlayfs"
    assert table["containerd"]["runtimes"]["nvidia"] == NVIDIA
    assert table["containerd"]["runtimes"]["runc"]["options"] == {"SystemdCgroup": True}
    assert table.get("enable_cdi") == cdi
    assert "default_runtime_name" not in table["containerd"]


def test_old_containerd_uses_the_table_of_the_last_file_that_has_one() -> None:
    other = f'version = 2\n[plugins."{V2}"]\nsandbox_image = "other:1"\n'
    ours = f'version = 2\n[plugins."{V2}"]\nsandbox_image = "ours:1"\n'
    files = {"/etc/containerd/conf.d/10.toml": other, "/etc/containerd/conf.d/20.toml": "version = 2\n", DROP_IN: ours}
    table = cri(containerd("1.7.24", OLD, files), V2)
    assert table["sandbox_image"] == "other:1"
    # The base runtime of the root file is replaced, too.
    assert table["containerd"]["runtimes"] == {"runc": RUNC, "nvidia": {**NVIDIA, "options": {"BinaryName": BINARY}}}


# The files of Ubuntu and Debian. A table of runtimes replaces CRI's own one, and CRI does not start without its default
# runtime: containerd/containerd, v1.7.27, pkg/cri/config/config.go.
@pytest.mark.parametrize("default_runtime", [False, True])
@pytest.mark.parametrize("version", ["1.6.20~ds1-1+deb12u3", "1.7.28-0ubuntu1~24.04.1"])
@pytest.mark.parametrize("root", [None, f'version = 2\n[plugins."{V2}".cni]\nbin_dir = "/usr/lib/cni"\n'])
def test_old_containerd_keeps_the_runtime_that_it_has_by_default(
    root: str | None, version: str, default_runtime: bool
) -> None:
    table = cri(containerd(version, root, default_runtime=default_runtime), V2)
    assert table["containerd"]["runtimes"]["runc"] == RUNC
    assert set(table["containerd"]["runtimes"]) == {"runc", "nvidia"}


def test_runtimes_of_the_user_get_no_other_one() -> None:
    crun = 'default_runtime_name = "crun"\nruntimes.crun.runtime_type = "io.containerd.runc.v2"\n'
    table = cri(containerd("1.7.24", f'version = 2\n[plugins."{V2}".containerd]\n{crun}'), V2)
    assert set(table["containerd"]["runtimes"]) == {"crun", "nvidia"}
    assert "runc" not in cri(containerd("2.2.5", None), V3)["containerd"]["runtimes"]


@pytest.mark.parametrize(("version", "kept"), [("1.6.20", None), ("1.7.24", False)])
def test_cdi_that_the_user_has_disabled_stays_disabled_and_is_reported(version: str, kept: bool | None) -> None:
    done = containerd(version, f'version = 2\n[plugins."{V2}"]\nenable_cdi = false\n')
    assert toml_editor.parse(str(done.drop_in))["plugins"][V2]["enable_cdi"] is False
    assert done.problems == []
    assert ["enable_cdi = false" in reason for reason in done.reasons] == ([] if kept is None else [True])


def test_disabled_cdi_is_reported_where_tables_merge() -> None:
    done = containerd("2.2.5", f'version = 3\n[plugins."{V3}"]\nenable_cdi = false\n')
    assert "enable_cdi" not in str(done.drop_in)
    assert "enable_cdi = false" in " ".join(done.reasons)


def test_new_containerd_merges_so_the_drop_in_has_only_the_runtime() -> None:
    done = containerd("2.2.5", NEW)
    assert cri(done, V3) == {"containerd": {"runtimes": {"nvidia": NVIDIA}}}
    assert toml_editor.parse(str(done.drop_in))["version"] == 3
    assert done.root == {"imports": ["/etc/containerd/other.d/*.toml", DROP_IN]}


@pytest.mark.parametrize(
    ("version", "root", "number", "keys"),
    [
        ("1.6.20", None, 2, {"version": 2, "imports": [DROP_IN]}),
        ("1.7.24", "", 2, {"version": 2, "imports": [DROP_IN]}),
        ("2.0.0", None, 3, {"version": 3, "imports": [DROP_IN]}),
        ("2.3.0", "version = 4\n", 4, {"imports": [DROP_IN]}),
        ("2.2.5", "version = 2\n", 2, {"imports": [DROP_IN]}),
        ("2.2.5", 'version = 3\nimports = ["/etc/containerd/conf.d/*.toml"]\n', 3, {}),
        # Its import would replace the default one, and disable the drop-ins of others.
        ("2.2.5", None, 3, {}),
    ],
)
def test_drop_in_has_the_version_of_the_root_file(
    version: str, root: str | None, number: int, keys: dict[str, object]
) -> None:
    done = containerd(version, root)
    assert toml_editor.parse(str(done.drop_in))["version"] == number
    assert done.root == keys


# As containerd resolves imports: containerd/containerd, v1.7.27, services/server/config/config.go.
@pytest.mark.parametrize(
    ("pattern", "selects"),
    [
        ("/etc/containerd/conf.d/*.toml", True),
        ("conf.d/*.toml", True),
        ("./conf.d/../conf.d/99-*", True),
        ("/etc/containerd/*/*.toml", True),
        ("conf.d/99-gpufleet-nvidia.toml", True),
        # A star does not cross a directory.
        ("/etc/containerd/*.toml", False),
        ("*.toml", False),
        ("/etc/*", False),
        # Without a star, containerd reads the path as it is.
        ("conf.d/99-gpufleet-nvidia.tom?", False),
        ("other.d/*.toml", False),
    ],
)
@pytest.mark.parametrize(("version", "number"), [("1.7.24", 2), ("2.2.5", 3)])
def test_drop_in_is_imported_unless_an_import_selects_it(
    pattern: str, selects: bool, version: str, number: int
) -> None:
    done = containerd(version, f"version = {number}\nimports = ['{pattern}']\n")
    assert done.problems == []
    assert done.root == ({} if selects else {"imports": [pattern, DROP_IN]})


KATA = f'version = 2\n[plugins."{V2}".containerd.runtimes.kata]\nruntime_type = "io.containerd.kata.v2"\n'
CONF_D = "/etc/containerd/conf.d"


@pytest.mark.parametrize(
    ("imports", "files", "named"),
    [
        (f"'{CONF_D}/*.toml'", {f"{CONF_D}/99-kata.toml": KATA}, f"{CONF_D}/99-kata.toml"),
        ("'conf.d/*.toml'", {f"{CONF_D}/99-h.toml": KATA, f"{CONF_D}/z.toml": KATA}, f"{CONF_D}/99-h.toml, {CONF_D}/z"),
        (f"'{CONF_D}/*.toml', 'kata.toml'", {"/etc/containerd/kata.toml": KATA}, "/etc/containerd/kata.toml"),
        # containerd reads the imports of an imported file last.
        ("'a.toml'", {"/etc/containerd/a.toml": "imports = ['b/*']\n", "/etc/containerd/b/c.toml": KATA}, "b/c.toml"),
        (f"'{CONF_D}/*.toml'", {f"{CONF_D}/10-kata.toml": KATA}, None),
        (f"'{CONF_D}/*.toml'", {f"{CONF_D}/99-other.toml": "version = 2\noom_score = -999\n"}, None),
        ("'kata.toml'", {"/etc/containerd/kata.toml": KATA}, None),
    ],
)
@pytest.mark.parametrize("again", [False, True])
def test_file_that_replaces_the_table_of_the_drop_in_is_a_problem(
    imports: str, files: dict[str, str], named: str | None, again: bool
) -> None:
    ours = {DROP_IN: 'version = 2\n[plugins."io.containerd.grpc.v1.cri"]\nx = 1\n'} if again else {}
    done = containerd("1.7.24", f"version = 2\nimports = [{imports}]\n", {**ours, **files})
    assert (done.drop_in is None, len(done.problems)) == (named is not None, int(named is not None))
    if named:
        assert named in done.problems[0]


def test_later_file_is_no_problem_where_tables_merge() -> None:
    root = f"version = 2\nimports = ['{CONF_D}/*.toml']\n"
    assert containerd("2.2.5", root, {f"{CONF_D}/99-kata.toml": KATA}).problems == []
    # It has another default runtime.
    kata = f'version = 2\n[plugins."{V2}".containerd]\ndefault_runtime_name = "kata"\n'
    assert containerd("2.2.5", root, {f"{CONF_D}/99-kata.toml": kata}).problems == []
    (problem,) = containerd("2.2.5", root, {f"{CONF_D}/99-kata.toml": kata}, default_runtime=True).problems
    assert f"{CONF_D}/99-kata.toml" in problem
    # Without a root file, containerd imports the directory of the drop-in.
    kata = kata.replace(V2, V3).replace("version = 2", "version = 3")
    assert containerd("2.2.5", None, {f"{CONF_D}/99-kata.toml": kata}, default_runtime=True).problems
    assert containerd("2.2.5", None, {f"{CONF_D}/10-kata.toml": kata}, default_runtime=True).drop_in


def test_default_runtime_on_request() -> None:
    assert cri(containerd("1.7.24", OLD, default_runtime=True), V2)["containerd"]["default_runtime_name"] == "nvidia"
    # nvidia is not its own base.
    default = OLD.replace('snapshotter = "overlayfs"', 'default_runtime_name = "nvidia"')
    assert cri(containerd("1.7.24", default, default_runtime=True), V2)["containerd"]["runtimes"]["nvidia"] == NVIDIA


def test_runtime_that_somebody_else_registered_stays() -> None:
    there = (
        f'{NEW}[plugins."{V3}".containerd.runtimes.nvidia.options]\nBinaryName = "/opt/bin/nvidia-container-runtime"\n'
    )
    done = containerd("2.2.5", there, programs=["/opt/bin/nvidia-container-runtime"])
    assert (done.drop_in, done.root, done.problems) == (None, {}, [])
    assert "runtime nvidia is already registered in containerd" in " ".join(done.reasons)
    assert containerd("2.2.5", there.replace("/opt/bin/nvidia-container-runtime", "/usr/bin/runc")).drop_in
    # It is not the default runtime.
    assert containerd("2.2.5", there, default_runtime=True).drop_in


@pytest.mark.parametrize(
    ("version", "root", "existing", "words"),
    [
        ("2.1.5", OF_DOCKER, (), "disables CRI"),
        ("2.1.5", f'version = 3\ndisabled_plugins = ["{V3}"]\n', (), "disables CRI"),
        ("2.2.5", NEW, ("/var/lib/rancher/k3s/agent/etc/containerd/config.toml",), "k3s writes containerd's"),
        (
            "2.2.5",
            f'version = 3\n[plugins."{V3}".containerd.runtimes.nvidia]\n'
            'base_runtime_spec = "/etc/containerd/base-runtime-spec.json"\n',
            (),
            "nodeadm writes containerd's configuration, so it stays unchanged.",
        ),
        (
            "1.7.24",
            f'version = 2\n[plugins."{V2}".containerd.runtimes.runc]\n'
            'base_runtime_spec = "/etc/containerd/cri-base.json"\n',
            (),
            "Kubespray writes",
        ),
    ],
)
def test_files_of_others_are_left_alone_and_reported(
    version: str, root: str, existing: tuple[str, ...], words: str
) -> None:
    done = containerd(version, root, existing=existing)
    assert (done.drop_in, done.root, done.problems) == (None, {}, [])
    assert words in " ".join(done.reasons)


@pytest.mark.parametrize(
    ("version", "root", "words"),
    [
        ("1.7.24", "[plugins.cri]\n", "has version 1, for which drop-ins do not work. Migrate the file with"),
        ("2.3.0", "version = 5\n", "has version 5, which is not known. Known versions: 2, 3, 4."),
        (
            "1.7.24",
            "version = 3\n",
            "which containerd 1.7.24 does not read. Version 3 requires containerd 2.0 or later.",
        ),
        ("2.2.5", "version = 4\n", "Version 4 requires containerd 2.3 or later."),
        ("2.2.5", "version = \n", "is not valid TOML: Invalid value"),
    ],
)
def test_configuration_that_cannot_be_used_is_refused(version: str, root: str, words: str) -> None:
    done = containerd(version, root)
    assert (done.drop_in, done.root) == (None, {})
    assert words in " ".join(done.problems)


def test_file_that_is_not_toml_is_named() -> None:
    words = "is not valid TOML: Invalid value (at end of document). Nothing was changed. Correct the file, and run "
    (problem,) = containerd("2.1.5", NEW, {"/etc/containerd/conf.d/a.toml": "x = "}).problems
    assert problem.startswith(f"/etc/containerd/conf.d/a.toml {words}")
    (problem,) = containerd("2.1.5", "x = ").problems
    assert problem.startswith(f"/etc/containerd/config.toml {words}")
