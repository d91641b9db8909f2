# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tests of the runs of dnf in child processes: they must look like runs of the program."""

from __future__ import annotations

import os
import sys

import pytest

from ansible_collections.gpufleet.hosts.tests.solver import dnf_program


def _echo(args, exit_code):
    print(args, sys.argv[0], os.environ["LC_ALL"], sorted(os.environ), sys.stdin.read())
    print("a warning", file=sys.stderr)
    sys.exit(100)


def _raise(args, exit_code):
    raise AttributeError("'NoneType' object has no attribute 'tid'")


def _done(args, exit_code):
    sys.exit(0)


def _text(args, exit_code):
    sys.exit("no space")


class _Full:
    def flush(self):
        raise OSError("no space")


def _full(args, exit_code):
    sys.stdout = _Full()
    sys.exit(0)


ECHO = "['--quiet', 'shell'] dnf C ['LC_ALL'] remove dkms\nrun\n\n"


@pytest.mark.parametrize(
    ("main", "expected"),
    [
        (_echo, (100, ECHO, "a warning\n")),
        (_raise, (1, "", "AttributeError: 'NoneType' object has no attribute 'tid'\n")),
        (_done, (0, "", "")),
        (_text, (1, "", "no space\n")),
        (_full, (1, "", "")),
    ],
    ids=[
        "output and status",
        "an exception is status 1 with a traceback",
        "success",
        "a text is an error",
        "output that cannot be written",
    ],
)
def test_command(monkeypatch, capfd, main, expected):
    monkeypatch.setattr(dnf_program, "_program", lambda: main)
    here = os.getpid()

    rc, stdout, stderr = dnf_program.run(["dnf", "--quiet", "shell"], {"LC_ALL": "C"}, "remove dkms\nrun\n")

    assert (rc, stdout) == expected[:2]
    assert stderr.endswith(expected[2])
    assert bool(stderr) == bool(expected[2])
    assert os.getpid() == here
    assert capfd.readouterr() == ("", "")
