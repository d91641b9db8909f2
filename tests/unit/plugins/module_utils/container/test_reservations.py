# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reservations of concurrent runs on one host."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.container import reservations as container_reservations
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.reservations import (
    LIFETIME,
    ReservationError,
    Reservations,
    directory_for,
)

NOBODY = ("docker", "nobody")


class Clock:
    def __init__(self, now=100.0):
        self.now = now

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def reservations(tmp_path, clock):
    (tmp_path / "run").mkdir()
    return Reservations(str(tmp_path / "run"), clock, clock.sleep)


def names(reservations, exclude=NOBODY):
    return [holder.name for holder in reservations.holders(exclude)]


def test_reservation_is_a_holder_until_released(reservations):
    token = reservations.reserve("docker", "a", ["GPU-2", "GPU-1"], exclusive=True)
    (holder,) = reservations.holders(NOBODY)
    assert (holder.engine, holder.name, holder.uuids, holder.exclusive) == (
        "docker",
        "a",
        frozenset({"GPU-1", "GPU-2"}),
        True,
    )
    assert str(holder) == "docker container a (reserved by a run in progress for at most 300 s)"
    assert reservations.release(token)
    assert names(reservations) == []
    assert not reservations.release(token)


def test_own_reservations_are_excluded(reservations):
    reservations.reserve("docker", "a", ["GPU-1"], exclusive=True)
    assert names(reservations, exclude=("docker", "a")) == []
    assert names(reservations, exclude=("podman", "a")) == ["a"]


def test_second_run_keeps_the_reservation_of_the_first(reservations):
    """The first run may still start the container with its GPUs."""
    first = reservations.reserve("docker", "a", ["GPU-1"], exclusive=True)
    reservations.reserve("docker", "a", ["GPU-2"], exclusive=True)
    assert [holder.uuids for holder in reservations.holders(NOBODY)] == [{"GPU-1"}, {"GPU-2"}]
    assert reservations.release(first)
    assert [holder.uuids for holder in reservations.holders(NOBODY)] == [{"GPU-2"}]


@pytest.mark.parametrize(("later", "expected"), [(LIFETIME - 1, ["a"]), (LIFETIME, []), (-1000, [])])
def test_reservation_expires_even_if_the_clock_is_set_back(reservations, clock, later, expected):
    reservations.reserve("docker", "a", ["GPU-1"], exclusive=False)
    clock.now += later
    assert names(reservations) == expected


@pytest.mark.parametrize(("later", "expected"), [(LIFETIME + 599, ["a"]), (LIFETIME + 600, []), (-1000, [])])
def test_reservation_lasts_for_its_lifetime(reservations, clock, later, expected):
    reservations.reserve("docker", "a", ["GPU-1"], exclusive=False, lifetime=LIFETIME + 600)
    clock.now += later
    assert names(reservations) == expected


def test_reader_does_not_trust_the_directory_of_another_user(reservations, tmp_path):
    """Check mode and gpu_container_info read without the lock."""
    reservations.reserve("docker", "a", ["GPU-1"], exclusive=True)
    (tmp_path / "run").chmod(0o777)
    with pytest.raises(ReservationError, match="only this user can write to"):
        reservations.holders(NOBODY)


def test_reader_does_not_wait_for_a_pipe(reservations, tmp_path):
    os.mkfifo(tmp_path / "run" / "gpu-reservations.json")
    assert names(reservations) == []


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "{}",
        "null",
        "5",
        "true",
        "[1]",
        pytest.param("[" * 100000, id="depth"),
        '[{"token":"t","engine":"docker","name":"a","uuids":[],"exclusive":true,"lifetime":Infinity,"expires":Infinity}]',
        pytest.param(
            '[{"token":"t","engine":"docker","name":"a","uuids":[],"exclusive":true,"lifetime":1%s,"expires":200}]'
            % ("0" * 400),
            id="ages",
        ),
        '[{"token":"t","engine":"docker","name":"a","uuids":[["GPU-1"]],"exclusive":true,"lifetime":300,"expires":200}]',
        '[{"token": 1}]',
        '[{"token":"t","engine":"docker","name":"a","uuids":"GPU-1","exclusive":true,"expires":200}]',
    ],
)
def test_damaged_file_counts_as_empty_and_is_replaced(reservations, tmp_path, content):
    path = tmp_path / "run" / "gpu-reservations.json"
    path.write_text(content, encoding="utf-8")
    assert names(reservations) == []
    reservations.reserve("docker", "b", ["GPU-1"], exclusive=True)
    assert [entry["name"] for entry in json.loads(path.read_text(encoding="utf-8"))] == ["b"]


def test_missing_directory_is_created(tmp_path, clock):
    reservations = Reservations(str(tmp_path / "new"), clock, clock.sleep)
    assert names(reservations) == []
    with reservations.locked():
        reservations.reserve("docker", "a", ["GPU-1"], exclusive=True)
    assert names(reservations) == ["a"]


def test_lock_file_that_cannot_be_opened_is_named(tmp_path, clock):
    (tmp_path / "file").write_text("", encoding="utf-8")
    with (
        pytest.raises(
            ReservationError, match=r"The lock file .*file/gpu-reservations\.lock cannot be opened: .*Set become: true"
        ),
        Reservations(str(tmp_path / "file"), clock).locked(),
    ):
        pass


@pytest.mark.parametrize(
    ("owners", "environment", "expected"),
    [
        ({"/run/user/1000": 1000}, {}, "/run/user/1000/gpufleet"),
        ({"/run/mine": 1000, "/run/user/1000": 1000}, {"XDG_RUNTIME_DIR": "/run/mine"}, "/run/mine/gpufleet"),
        # After `become`, XDG_RUNTIME_DIR may name the directory of the login user.
        (
            {"/run/user/0": 0, "/run/user/1000": 1000},
            {"XDG_RUNTIME_DIR": "/run/user/0"},
            "/run/user/1000/gpufleet",
        ),
        # After `become`, a user may have no runtime directory.
        ({}, {}, "/tmp/gpufleet-1000"),
        ({}, {"XDG_RUNTIME_DIR": "/run/user/1000"}, "/tmp/gpufleet-1000"),
        ({"/run/user/1000": 0}, {}, "/tmp/gpufleet-1000"),
    ],
)
def test_each_user_has_a_directory(monkeypatch, owners, environment, expected):
    monkeypatch.setattr(container_reservations, "_owner", owners.get)
    assert directory_for(1000, environment) == expected
    assert directory_for(0, environment) == "/run/gpufleet"


def test_directory_must_belong_to_the_user(tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    (tmp_path / "mine").mkdir()
    other_user = os.geteuid() + 1
    for place in ("/mine", "/file", "/none"):
        found = directory_for(other_user, {"XDG_RUNTIME_DIR": place}, root=str(tmp_path))
        assert found == f"/tmp/gpufleet-{other_user}"
    assert container_reservations._owner(str(tmp_path)) == os.geteuid()
    assert container_reservations._owner(str(tmp_path / "file")) is None
    assert container_reservations._owner(str(tmp_path / "none")) is None


@pytest.mark.parametrize("wrong", ["writable", "link"])
def test_directory_that_others_can_change_is_refused(tmp_path, clock, wrong):
    place = tmp_path / "gpufleet-1000"
    real = tmp_path / "real"
    real.mkdir()
    if wrong == "link":
        place.symlink_to(real)
    else:
        place.mkdir()
        place.chmod(0o777)
    with (
        pytest.raises(
            ReservationError,
            match=r"gpufleet-1000 is not a directory that only this user can write to. Remove the",
        ),
        Reservations(str(place), clock).locked(),
    ):
        pass


def test_lock_that_is_never_released_is_named(reservations, tmp_path, clock):
    with (
        reservations.locked(),
        pytest.raises(
            ReservationError, match=r"Another run has held the lock .*gpu-reservations\.lock for 120 s\. Run `fuser"
        ),
        Reservations(str(tmp_path / "run"), clock, clock.sleep).locked(),
    ):
        pass


def _take_one(directory, name, gpus, started):
    reservations = Reservations(directory)
    started.wait()
    with reservations.locked():
        taken = set().union(*(holder.uuids for holder in reservations.holders(("docker", name))))
        free = sorted(set(gpus) - taken)
        if free:
            reservations.reserve("docker", name, free[:1], exclusive=True)


def test_concurrent_runs_never_reserve_the_same_gpu(tmp_path):
    gpus = [f"GPU-{index}" for index in range(8)]
    context = multiprocessing.get_context("fork")
    started = context.Event()
    workers = [context.Process(target=_take_one, args=(str(tmp_path), f"c{n}", gpus, started)) for n in range(12)]
    for worker in workers:
        worker.start()
    started.set()
    for worker in workers:
        worker.join(30)
        assert worker.exitcode == 0
    holders = Reservations(str(tmp_path)).holders(NOBODY)
    assert sorted(uuid for holder in holders for uuid in holder.uuids) == gpus


def _die_with_the_lock(directory, ready):
    with Reservations(directory).locked():
        ready.set()
        os.kill(os.getpid(), signal.SIGKILL)


def test_lock_of_a_killed_run_is_released(tmp_path):
    context = multiprocessing.get_context("fork")
    ready = context.Event()
    worker = context.Process(target=_die_with_the_lock, args=(str(tmp_path), ready))
    worker.start()
    worker.join(30)
    assert ready.is_set()
    with Reservations(str(tmp_path)).locked():
        pass
