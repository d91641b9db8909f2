# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The library that every program of a simulated host preloads."""

from __future__ import annotations

import ctypes
import errno
import os
import subprocess
import sys

import pytest

from ansible_collections.gpufleet.hosts.tests.unit.sandbox.nvml_lab import SIMULATOR

SYS_PIPE2, SYS_MMAP, SYS_FINIT, SYS_INIT, SYS_DELETE = 293, 9, 313, 175, 176


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Compile the library for a test directory with a fake gpusim that logs its calls."""
    home = tmp_path_factory.mktemp("gpusim")
    command = ["gcc", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", f'-DHOME="{home}"', "-o", home / "preload.so"]
    subprocess.run([*command, SIMULATOR / "src" / "kernel.c"], check=True)
    (home / "kernel-release").write_text("6.1.0-99-amd64\n#1 SMP PREEMPT_DYNAMIC Debian 6.1.999-1\n")
    gpusim = home / "gpusim"
    gpusim.write_text(
        f"#!/bin/sh\n"
        f'[ "$1" = load ] && content=$(head -c 20 "$2")\n'
        f'echo "$1|$content|$3|$GPUSIM_AS_KERNEL" >>{home}/asked\n'
        f"exit $(cat {home}/answer)\n"
    )
    gpusim.chmod(0o755)
    return home


def run(home, code: str, answer: int = 0) -> tuple[str, list[str]]:
    """Run Python with the library preloaded. Return its output and the calls of gpusim."""
    (home / "answer").write_text(str(answer))
    (home / "asked").write_text("")
    prelude = (
        "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "def call(name, *arguments):\n"
        "    rc = getattr(libc, name)(*arguments)\n"
        "    return rc, ctypes.get_errno() if rc < 0 else 0\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", prelude + code],
        env={**os.environ, "LD_PRELOAD": str(home / "preload.so")}, text=True, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), (home / "asked").read_text().splitlines()


def test_a_host_has_its_own_kernel_release(home):
    printed, _asked = run(home, "u = os.uname(); print(u.release, u.version, u.machine, sep='|')")
    assert printed == f"6.1.0-99-amd64|#1 SMP PREEMPT_DYNAMIC Debian 6.1.999-1|{os.uname().machine}"


def test_a_host_without_a_kernel_release_has_the_real_one(home):
    os.rename(home / "kernel-release", home / "away")
    try:
        assert run(home, "print(os.uname().release)")[0] == os.uname().release
    finally:
        os.rename(home / "away", home / "kernel-release")


@pytest.mark.skipif(os.geteuid() != 0, reason="loading a module is for root")
@pytest.mark.parametrize(
    "code",
    [
        "fd = os.open('{module}', os.O_RDONLY); print(call('finit_module', fd, b'a=1 b', 0))",
        "fd = os.open('{module}', os.O_RDONLY); print(call('syscall', {finit}, fd, b'a=1 b', 0))",
        "data = open('{module}', 'rb').read(); print(call('init_module', data, len(data), b'a=1 b'))",
        "data = open('{module}', 'rb').read(); print(call('syscall', {init}, data, len(data), b'a=1 b'))",
    ],
)
@pytest.mark.parametrize("answer", [0, errno.ENOEXEC, errno.ENODEV, errno.EKEYREJECTED, errno.EEXIST])
def test_every_call_that_loads_a_module_runs_gpusim(home, tmp_path, code, answer):
    module = tmp_path / "some.ko"
    module.write_text("a module's bytes")
    filled = code.format(module=module, finit=SYS_FINIT, init=SYS_INIT)
    printed, asked = run(home, filled, answer)
    assert printed == str((-1 if answer else 0, answer))
    assert asked == ["load|a module's bytes|a=1 b|1"]


@pytest.mark.skipif(os.geteuid() != 0, reason="unloading a module is for root")
@pytest.mark.parametrize(
    "code", ["call('delete_module', b'nvidia', 2048)", "call('syscall', {delete}, b'nvidia', 2048)"]
)
def test_every_call_that_unloads_a_module_runs_gpusim(home, code):
    printed, asked = run(home, f"print({code.format(delete=SYS_DELETE)})", errno.EWOULDBLOCK)
    assert printed == str((-1, errno.EWOULDBLOCK))
    assert [line.split("|")[0] for line in asked] == ["unload"]


def test_other_system_calls_keep_all_six_arguments(home):
    code = (
        f"libc.syscall.restype = ctypes.c_long\n"
        f"at = libc.syscall({SYS_MMAP}, None, ctypes.c_long(8192), 3, 0x22, -1, ctypes.c_long(0))\n"
        f"ctypes.memset(at, 7, 8192)\nprint(at > 0)\n"
        f"print(call('syscall', {SYS_PIPE2}, None, 0))"
    )
    assert run(home, code)[0].splitlines() == ["True", str((-1, errno.EFAULT))]


def test_an_invalid_descriptor_is_an_error_of_the_caller(home):
    assert run(home, "print(call('finit_module', 99, b'', 0))") == (str((-1, errno.EBADF)), [])


def test_other_files_are_opened_normally(home, tmp_path):
    path = tmp_path / "file"
    code = (
        f"fd = os.open('{path}', os.O_CREAT | os.O_WRONLY, 0o640); os.write(fd, b'x'); os.close(fd)\n"
        f"print(oct(os.stat('{path}').st_mode & 0o777), open('{path}').read())\n"
        f"try: os.open('/nowhere', os.O_RDONLY)\nexcept FileNotFoundError: print('not found')"
    )
    old = os.umask(0o022)
    try:
        assert run(home, code)[0].splitlines() == ["0o640 x", "not found"]
    finally:
        os.umask(old)


def test_shells_and_their_children_work(home):
    done = subprocess.run(
        ["sh", "-c", "uname -r; ls / | grep -c usr; echo a | tr a b"],
        env={**os.environ, "LD_PRELOAD": str(home / "preload.so")}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == "6.1.0-99-amd64\n1\nb\n"
    assert done.stderr == ""


def test_the_library_exports_only_the_replaced_functions(home):
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", home / "preload.so"], capture_output=True, text=True, check=True
    )
    assert sorted(line.split()[-1] for line in listed.stdout.splitlines()) == [
        "delete_module", "finit_module", "fopen", "fopen64", "init_module", "ioctl", "open", "open64", "openat",
        "openat64", "syscall", "uname",
    ]  # fmt: skip
    assert ctypes.CDLL(str(home / "preload.so"))
