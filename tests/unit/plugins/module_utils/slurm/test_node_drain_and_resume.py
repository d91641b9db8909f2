# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Slurm's commands print, and which commands drain and resume a node. The texts are of Slurm 22.05."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.slurm.node_drain_and_resume import (
    SlurmClient,
    SlurmError,
    parse_node,
)

NODE = """NodeName=gpu-1 Arch=x86_64 CoresPerSocket=1
   CPUAlloc=0 CPUEfctv=2 CPUTot=2 CPULoad=0.52
   AvailableFeatures=(null)
   ActiveFeatures=(null)
   Gres={gres}
   NodeAddr=gpu-1 NodeHostName=gpu-1 Version=22.05.8
   OS=Linux 6.1.0 #1 SMP State=IDLE
   RealMemory=1 AllocMem=0 FreeMem=100 Sockets=2 Boards=1
   State={state} ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A
   Partitions=debug
{reason}
"""


def node_text(state="IDLE", reason="", gres="(null)"):
    return NODE.format(state=state, gres=gres, reason=reason and f"   Reason={reason}\n")


@pytest.mark.parametrize(
    ("state", "closed", "busy", "down"),
    [
        ("IDLE", False, False, False),
        ("IDLE*", False, False, False),
        ("MIXED", False, True, False),
        ("ALLOCATED+DRAIN", True, True, False),
        ("IDLE+DRAIN", True, False, False),
        ("IDLE*+DRAIN", True, False, False),
        ("MIXED+DRAIN+POWERING_UP", True, True, False),
        ("IDLE+COMPLETING", False, True, False),
        ("DOWN+DRAIN", True, False, True),
        ("DOWN*", True, False, True),
        ("DOWN+DRAIN+REBOOT_ISSUED", True, False, True),
        ("IDLE+RESERVED", False, False, False),
        ("IDLE+FAIL", True, False, False),
    ],
)
def test_states_of_a_node(state, closed, busy, down):
    node = parse_node(node_text(state))
    assert (node.is_closed, node.is_busy, node.is_down) == (closed, busy, down)


@pytest.mark.parametrize(
    ("text", "reason", "author"),
    [
        ("", "", ""),
        ("bad disk [root@2026-11-28T14:00:00]", "bad disk", "root"),
        ("gpufleet: x [1] [admin@2026-11-28T14:00:00]", "gpufleet: x [1]", "admin"),
        ("Not responding [slurm@2026-11-28T14:00:00]", "Not responding", "slurm"),
        ("no author", "no author", ""),
        ("x State=IDLE [root@2026-11-28T14:00:00]", "x State=IDLE", "root"),
    ],
)
def test_the_reason_and_its_author(text, reason, author):
    node = parse_node(node_text("IDLE+DRAIN", text))
    assert (node.reason, node.author, node.is_closed) == (reason, author, True)


@pytest.mark.parametrize(
    ("state", "silent"),
    [("IDLE", False), ("IDLE*+DRAIN", True), ("DOWN+NOT_RESPONDING", True), ("UNKNOWN+DRAIN", True), ("MIXED", False)],
)
def test_a_node_whose_slurmd_does_not_answer(state, silent):
    assert parse_node(node_text(state)).is_silent is silent


def test_the_gpus_of_a_node():
    assert parse_node(node_text(gres="gpu:a100:8(S:0-1)")).gres == "gpu:a100:8(S:0-1)"
    assert parse_node(node_text()).gres == ""


class Commands:
    def __init__(self, *answers):
        self.answers, self.calls = list(answers), []

    def __call__(self, argv, **_options):
        self.calls.append(" ".join(argv))
        return self.answers.pop(0) if self.answers else (0, "", "")


def test_jobs_are_named_with_their_users_and_escaped():
    commands = Commands((0, "4711 alice RUNNING\n4712_1 b\x1bb COMPLETING\n", ""))
    assert SlurmClient(commands, "gpu-1").jobs() == [
        "job 4711 of alice (RUNNING)",
        "job 4712_1 of b\\x1bb (COMPLETING)",
    ]
    assert "--nodelist=gpu-1" in commands.calls[0]


def test_many_jobs_are_counted():
    commands = Commands((0, "".join(f"{number} alice RUNNING\n" for number in range(50)), ""))
    jobs = SlurmClient(commands, "gpu-1").jobs()
    assert (len(jobs), jobs[-1]) == (21, "30 more jobs")


@pytest.mark.parametrize(("state", "verb"), [("IDLE+DRAIN", "UNDRAIN"), ("DOWN+DRAIN", "RESUME")])
def test_a_node_that_a_reboot_took_down_is_resumed_too(state, verb):
    commands = Commands()
    SlurmClient(commands, "gpu-1").resume(parse_node(node_text(state)))
    assert commands.calls == [f"timeout --kill-after=2 30 scontrol update NodeName=gpu-1 State={verb}"]


REFUSED = (1, "", "slurm_update error: Invalid node state specified")
UNKNOWN, DRAINED, OPEN = ((0, node_text(state), "") for state in ("UNKNOWN*+DRAIN", "IDLE+DRAIN", "IDLE"))


@pytest.mark.parametrize(
    ("answers", "verbs"),
    [
        # Measured with Slurm 22.05 after a restart of slurmctld: an error, and the drain has ended.
        ([REFUSED, OPEN], ["UNDRAIN"]),
        ([REFUSED, UNKNOWN, DRAINED], ["UNDRAIN", "UNDRAIN"]),
        ([REFUSED, UNKNOWN, (0, node_text("DOWN*+DRAIN"), "")], ["UNDRAIN", "RESUME"]),
    ],
)
def test_a_node_is_resumed_whose_state_a_new_controller_does_not_know(answers, verbs):
    commands, waited = Commands(*answers), []
    SlurmClient(commands, "gpu-1", sleep=waited.append).resume(parse_node(UNKNOWN[1]))
    assert [call.rpartition("State=")[2] for call in commands.calls if " update " in call] == verbs
    assert len(waited) == len(verbs) - 1


@pytest.mark.parametrize("state", [DRAINED, UNKNOWN])
def test_a_node_that_stays_drained_is_an_error_after_a_finite_time(state):
    waited = []
    client = SlurmClient(Commands(*[REFUSED, state, state] * 50), "gpu-1", sleep=waited.append)
    with pytest.raises(SlurmError, match="Invalid node state specified"):
        client.resume(parse_node(state[1]))
    assert sum(waited) < 60


@pytest.mark.parametrize(
    ("status", "err", "message"),
    [
        (124, "", "did not answer `scontrol show` within 5 seconds"),
        (137, "", "did not answer `scontrol show` within 5 seconds"),
        (1, "slurm_load_node error: Unable to contact slurm controller", "Unable to contact"),
        (127, "scontrol is not installed", "Install Slurm's client, or set the directory"),
        (0, "", "printed no node"),
    ],
)
def test_a_controller_that_does_not_answer_is_an_error(status, err, message):
    with pytest.raises(SlurmError, match=message):
        SlurmClient(Commands((status, "", err)), "gpu-1", timeout=5).node()


@pytest.mark.parametrize("name", ["gpu-[1-2]", "a,b", "", "-x", "a b", "ALL;"])
def test_a_name_is_that_of_one_node(name):
    with pytest.raises(SlurmError, match="one Slurm node"):
        SlurmClient(Commands(), name)
