# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A transaction that ends at any point is completed by the next run, and then removed without a trace."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.backend import PackageManagerError
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages.record_journal import Journal
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages.transaction import TransactionError
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import file_writing
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository.file_writing import RepositoryFile
from ansible_collections.gpufleet.hosts.tests.unit.plugins.module_utils.packages.fake_manager import (
    SOURCES,
    Killed,
    Package,
)
from ansible_collections.gpufleet.hosts.tests.unit.plugins.module_utils.packages.transaction_samples import (
    Host,
    new_host,
)


@contextlib.contextmanager
def killed_at(host: Host, number: int) -> Iterator[None]:
    """End the process at one of its calls of the package manager, or before or after it writes a file or the record."""
    kill = host.manager.kill
    kill.at, kill.count = number, 0

    def with_points(function: Callable) -> Callable:
        def wrapped(*given: Any) -> Any:
            kill.point()
            result = function(*given)
            kill.point()
            return result

        return wrapped

    with pytest.MonkeyPatch.context() as patch:
        for place, name in ((Journal, "_write"), (Journal, "forget"), (file_writing, "write")):
            patch.setattr(place, name, with_points(getattr(place, name)))
        with contextlib.suppress(Killed):
            yield
    kill.at = None


# --- one transaction that does everything -------------------------------------------------------------------------


def everything(root: Path, manager: str) -> tuple[Host, dict[str, Any]]:
    host = new_host(
        root,
        Package("app", "2-1", needs=("lib>=2-1", "new")),
        Package("lib", "2-1"),
        Package("new"),
        installed=(
            Package("app", "1-1"),
            Package("lib", "1-1"),
            Package("old"),
            Package("needs-old", needs=("old",)),
            Package("mine"),
        ),
        name=manager,
        enabled={"nvidia": "1"},
        offered_streams={"nvidia": ["1", "2"]},
    )
    host.manager.hold(["mine", "app"])
    replaced = root / "etc/yum.repos.d/former.repo"
    replaced.parent.mkdir(parents=True)
    replaced.write_text("[former]\n")
    options = {
        "install": ["app", "app>=2", "agent"],
        "remove": ["old"],
        "hold": ["app", "agent", "new", "mine"],
        "release": ["app"],
        "may_change": ["lib", "needs-old"],
        "repositories": [
            host.repository(packages=(Package("agent", needs=("agent-lib",)), Package("agent-lib")), priority=5)
        ],
        "components": ["contrib"],
        "streams": ["nvidia:2"],
        "files": [RepositoryFile("/etc/apt/preferences.d/pins", b"pins", 0o600)],
    }
    return host, options


def without_record(host: Host) -> tuple:
    files, *rest = host.snapshot()
    return {path: content for path, content in files.items() if "/gpufleet/" not in path}, *rest


@pytest.mark.parametrize("manager", ["apt", "dnf", "zypper"])
@pytest.mark.parametrize("number_of_kills", [1, 2])
def test_the_next_run_completes_a_killed_one(tmp_path: Path, manager: str, number_of_kills: int) -> None:
    whole, options = everything(tmp_path / "whole", manager)
    whole.present(**options)
    expected = without_record(whole)
    whole.absent()
    expected_afterwards = without_record(whole)
    number, is_complete = 0, False
    while not is_complete:
        number += 1
        host, options = everything(tmp_path / str(number), manager)
        for _run in range(number_of_kills):
            is_complete = True
            with killed_at(host, number):
                host.present(**options)
            is_complete = host.manager.kill.count < number
        host.present(**options)
        assert without_record(host) == expected, number
        assert not host.present(**options).changed, number
        assert not host.journal.is_unfinished()
        host.absent()
        assert without_record(host) == expected_afterwards, number
        assert not (host.root / "var/lib/gpufleet").exists(), number
    assert number > 30


@pytest.mark.parametrize("manager", ["apt", "dnf", "zypper"])
def test_absent_after_a_killed_run(tmp_path: Path, manager: str) -> None:
    number, is_complete = 0, False
    while not is_complete:
        number += 1
        host, options = everything(tmp_path / str(number), manager)
        files, state, enabled, _metadata, locks = host.snapshot()
        with killed_at(host, number):
            host.present(**options)
        is_complete = host.manager.kill.count < number
        host.absent()
        now, now_state, now_enabled, now_metadata, now_locks = host.snapshot()
        # What was removed or upgraded stays so.
        assert {*now_state["all"]} <= {*state["all"]} | {"new"}, number
        assert "new" not in now_state["all"] or now_state["all"]["app"].startswith("2-1"), number
        assert {*now, "/etc/yum.repos.d/former.repo"} == {*files}, number
        assert now[SOURCES] == files[SOURCES], number
        assert (now_enabled, now_metadata) == (enabled, set()), number
        assert "mine" in now_locks, number
        assert now_locks <= locks, number


@pytest.mark.parametrize("then_absent", [True, False])
def test_a_hold_that_a_killed_run_released_is_set_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then_absent: bool
) -> None:
    host, options = everything(tmp_path, "apt")

    def act(*_given: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(host.manager, "act", act)
        host.present(**{**options, "hold": []})
    assert host.manager.state()["held"] == ["mine"]
    if then_absent:
        host.absent()
    else:
        host.present(install=["new"])
    assert host.manager.state()["held"] == ["app", "mine"]
    host.absent()
    assert host.manager.state()["held"] == ["app", "mine"]


@pytest.mark.parametrize("manager", ["apt", "dnf", "zypper"])
def test_absent_completes_a_killed_absent(tmp_path: Path, manager: str) -> None:
    whole, options = everything(tmp_path / "whole", manager)
    whole.present(**options)
    whole.absent()
    expected = whole.snapshot()
    number, is_complete = 0, False
    while not is_complete:
        number += 1
        host, options = everything(tmp_path / str(number), manager)
        host.present(**options)
        with killed_at(host, number):
            host.absent()
        is_complete = host.manager.kill.count < number
        host.absent()
        assert host.snapshot() == expected, number
        assert not (host.root / "var/lib/gpufleet").exists(), number


@pytest.mark.parametrize("manager", ["apt", "dnf", "zypper"])
@pytest.mark.parametrize("number", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize(
    "method",
    ["wait", "broken", "installed", "enabled_streams", "view", "offers", "streams", "simulate", "apply", "act", "hold"],
)
def test_any_call_fails(tmp_path: Path, manager: str, method: str, number: int) -> None:
    host, options = everything(tmp_path, manager)
    before = host.snapshot()
    host.manager.failing = {method: number}
    try:
        host.present(**options)
        assert host.manager.calls.count(method) < number
        return
    except (PackageManagerError, TransactionError) as error:
        assert f"{method} failed." in str(error)
        message = str(error)
    host.manager.failing = {}
    if "changed as planned" in message or host.journal.is_unfinished():
        host.present(**options)
        assert not host.present(**options).changed
        return
    assert host.snapshot() == before


# --- any transaction ----------------------------------------------------------------------------------------------

NAMES = ("a", "b", "c", "d", "e")


@st.composite
def universes(draw: st.DrawFn) -> dict[str, Any]:
    packages = []
    for position, name in enumerate(NAMES):
        for version in ("1-1", "2-1")[: draw(st.integers(1, 2))]:
            later = NAMES[position + 1 :]
            needed = draw(st.lists(st.sampled_from(later), max_size=2, unique=True)) if later else []
            minimum = draw(st.sampled_from(["", ">=1-1", ">=2-1"]))
            conflicts = draw(st.lists(st.sampled_from([n for n in NAMES if n != name and n not in needed]), max_size=1))
            conflicts = conflicts if draw(st.integers(0, 3)) == 0 else []
            packages.append(Package(name, version, tuple(f"{one}{minimum}" for one in needed), tuple(conflicts)))
    names = st.lists(st.sampled_from(NAMES), max_size=2, unique=True)
    install = draw(names)
    return {
        "packages": packages,
        "installed": draw(names),
        "held": draw(names),
        "install": [name + draw(st.sampled_from(["", "=1", "=2", ">=2"])) for name in install],
        "remove": [name for name in draw(names) if name not in install],
        "hold": draw(names),
        "manager": draw(st.sampled_from(["apt", "dnf", "zypper"])),
        "second": draw(st.integers(1, 60)),
    }


def build(root: Path, universe: dict[str, Any]) -> tuple[Host, dict[str, Any]]:
    # Every host has packages.
    host = new_host(root, *universe["packages"], installed=(Package("base"),), name=universe["manager"])
    for name in universe["installed"]:
        with contextlib.suppress(PackageManagerError, TransactionError):
            host.present(install=[f"{name}=1"])
    host.journal.forget()
    host.manager.hold([name for name in universe["held"] if name in host.manager.packages])
    return host, {**{name: universe[name] for name in ("install", "remove", "hold")}, "may_change": ["*"]}


def is_possible(root: Path, universe: dict[str, Any]) -> bool:
    host, options = build(root, universe)
    try:
        host.present(**options)
    except (PackageManagerError, TransactionError):
        return False
    return not host.present(check_mode=True, **options).changed


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(universes())
def test_any_killed_transaction_is_completed_and_then_removed(universe: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        if not is_possible(Path(directory, "0"), universe):
            return
        for number in range(1, 200):
            host, options = build(Path(directory, str(number)), universe)
            initial, locks = {*host.manager.packages}, {*host.manager.locks}
            with killed_at(host, number):
                host.present(**options)
            is_complete = host.manager.kill.count < number
            with killed_at(host, universe["second"]):
                host.present(**options)
            host.present(**options)
            assert not host.present(**options).changed
            present = {*host.manager.packages}
            kept = host.absent().kept
            left = {*host.manager.packages}
            assert left - initial <= {*kept}
            assert left >= present & initial
            assert {*host.manager.unneeded(kept, [], kept)} <= initial
            # The user's holds are the only ones that stay.
            assert {*host.manager.locks} & left == locks & left
            assert not (host.root / "var/lib/gpufleet").exists()
            if is_complete:
                return


def test_the_view_has_the_files_that_a_killed_run_wrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = new_host(tmp_path, name="zypper")
    options = {"install": ["agent"], "repositories": [host.repository(packages=(Package("agent"),))]}

    def apply(*_given: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(host.manager, "apply", apply)
        host.present(**options)
    host.present(**options)
    # The package manager has not imported the key yet.
    assert {file.path for file in host.manager.seen} == {
        "/usr/share/pki/tools.asc",
        "/etc/zypp/repos.d/tools.repo",
    }
    assert "agent" in host.manager.packages


def incomplete(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the package manager be killed in the middle of the next transaction."""
    act = host.manager.act

    def killed(*_given: Any) -> None:
        monkeypatch.setattr(host.manager, "act", act)
        host.manager.damage = ["agent is unpacked"]
        raise PackageManagerError("apt-get was killed by signal 9.")

    def repair(_planned: Any) -> None:
        host.manager.damage = []
        host.manager.packages["agent"] = "1-1"

    monkeypatch.setattr(host.manager, "act", killed)
    monkeypatch.setattr(host.manager, "repair", repair)


@pytest.mark.parametrize("can_repair", [True, False])
def test_packages_of_a_killed_package_manager_are_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_repair: bool
) -> None:
    host = new_host(tmp_path, installed=(Package("vim"),))
    options = {"install": ["agent"], "repositories": [host.repository(packages=(Package("agent"),))]}
    incomplete(host, monkeypatch)

    def fail(_planned: Any) -> None:
        raise PackageManagerError("dpkg failed.")

    with monkeypatch.context() as patch, pytest.raises(TransactionError, match=r"apt-get was killed") as error:
        if not can_repair:
            patch.setattr(host.manager, "repair", fail)
        host.present(**options)
    assert ("The next run repairs the packages and completes the record: agent is unpacked." in str(error.value)) == (
        not can_repair
    )
    host.present(**options)
    assert host.recorded()["requested"] == ["agent"]
    host.absent()
    assert "agent" not in host.manager.packages
    assert not (tmp_path / "var/lib/gpufleet").exists()


def test_a_killed_removal_decides_what_the_user_needs_only_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, library = Package("agent", needs=("agent-lib",)), Package("agent-lib")
    host = new_host(tmp_path, agent, library, installed=(Package("vim"),))
    host.present(install=["agent"])
    given = []
    unneeded = host.manager.unneeded

    def see(names: list[str], without: list[str], requested: list[str]) -> list[str]:
        given.append(sorted(requested))
        return unneeded(names, without, requested)

    def act(*_given: Any) -> None:
        raise Killed

    monkeypatch.setattr(host.manager, "unneeded", see)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(host.manager, "act", act)
        host.absent()
    host.absent()
    # apt loses the mark of a dependency when it is killed.
    assert given == [["agent"], ["agent", "agent-lib"]]
    assert {*host.manager.packages} == {"vim"}


@pytest.mark.parametrize("can_repair", [True, False])
def test_packages_that_look_complete_are_repaired_after_the_package_manager_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_repair: bool
) -> None:
    """rpm adds a package to its database before it runs its scripts, so `broken` finds nothing."""
    host = new_host(tmp_path, Package("agent"), Package("tool"), installed=(Package("vim"),))

    def killed(*_given: Any) -> None:
        host.manager.packages["agent"] = "1-1"
        raise PackageManagerError("zypper was killed by signal 9.")

    with monkeypatch.context() as patch, pytest.raises(TransactionError, match=r"^zypper was killed") as error:
        patch.setattr(host.manager, "act", killed)
        if not can_repair:
            host.manager.failing["repair"] = 0
        host.present(install=["agent", "tool"])
    host.manager.failing.clear()
    if can_repair:
        assert [change.name for change in host.manager.repaired or []] == ["agent", "tool"]
        assert not host.journal.is_unfinished()
    else:
        assert "The packages could not be repaired: repair failed. The next run tries again." in str(error.value)
        assert host.present(install=["agent", "tool"]).repaired == ["an interrupted transaction"]
        assert [change.name for change in host.manager.repaired or []] == ["agent", "tool"]


def test_a_failure_after_the_installation_reinstalls_nothing(tmp_path: Path) -> None:
    host = new_host(tmp_path, Package("agent"), installed=(Package("vim"),))
    host.manager.failing["hold"] = 1
    with pytest.raises(TransactionError, match=r"hold failed"):
        host.present(install=["agent"], hold=["agent"])
    assert host.manager.repaired is None
