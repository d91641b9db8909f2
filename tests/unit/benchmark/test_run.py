# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The benchmark as a program: exit status, messages and JSON. Ansible's programs are replaced, except where noted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from ansible_collections.gpufleet.hosts.tests.benchmark import measure

BENCHMARK = Path(__file__).resolve().parents[2] / "benchmark"

# Print the recap and record the entries that the test chose for the playbook.
ANSIBLE_PLAYBOOK = """\
#!{python}
import json, os, sys, time
answers = json.load(open({answers!r}))
answer = answers.get(sys.argv[-1].split("/")[-2], {{}})
if "error" in answer:
    sys.exit(answer["error"])
if "REMOTE_CALLS" in os.environ:
    with open(os.environ["REMOTE_CALLS"], "w") as stream:
        stream.writelines(json.dumps(entry) + "\\n" for entry in answer.get("entries", []))
until = time.process_time() + answer.get("cpu", 0)
while time.process_time() < until:
    pass
for host in answer.get("hosts", ["sim"]):
    print(f"{{host:<26}} : ok=4    changed={{answer.get('changed', 0)}}    unreachable=0    failed=0    skipped=1")
"""
# The ad-hoc command reads /proc/net/snmp. Each call adds to the counter of datagrams.
ANSIBLE = """\
#!{python}
import base64, json, pathlib, sys
answers = json.load(open({answers!r}))
state = pathlib.Path({answers!r} + ".datagrams")
datagrams = int(state.read_text() if state.exists() else 0)
state.write_text(str(datagrams + answers.get("datagrams", 0)))
text = f"Tcp: RtoMin ActiveOpens\\nTcp: 200 7\\nUdp: InDatagrams OutDatagrams\\nUdp: 9 {{datagrams}}\\n"
pathlib.Path(sys.argv[-1], "sim").write_text(json.dumps({{"content": base64.b64encode(text.encode()).decode()}}))
"""


@pytest.fixture
def benchmark(tmp_path):
    """Return a function that runs the benchmark with replaced programs."""

    def execute(answers, *arguments):
        (tmp_path / "answers.json").write_text(json.dumps(answers))
        for name, source in (("ansible-playbook", ANSIBLE_PLAYBOOK), ("ansible", ANSIBLE)):
            program = tmp_path / "bin" / name
            program.parent.mkdir(exist_ok=True)
            program.write_text(source.format(python=sys.executable, answers=str(tmp_path / "answers.json")))
            program.chmod(0o755)
        output = tmp_path / "output" / "benchmark.json"
        done = subprocess.run(
            [sys.executable, str(BENCHMARK / "run.py"), "--json", str(output), "--repeats", "1", *arguments],
            env={**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=False,
        )
        return done, json.loads(output.read_text()) if output.exists() else None

    return execute


def entries(calls, results):
    module = {"host": "sim", "module": "setup", "task": "t", "seconds": 0.1}
    return [module] * calls + [{"host": "sim", "result": result, "task": "t"} for result in results]


@pytest.mark.parametrize(
    ("answers", "status", "message"),
    [
        ({"playbooks": {"entries": entries(1, ["ok"] * 3 + ["skipped"])}}, 0, ""),
        (
            {"playbooks": {"entries": entries(2, ["ok"])}},
            1,
            "bench: limit exceeded: sim: module calls: 2 (limit: 1)\n",
        ),
        (
            {
                "playbooks": {
                    "entries": [*entries(1, ["ok"]), {"host": "sim", "sent": 250_000}, {"host": "sim", "sent": 1}]
                }
            },
            1,
            "bench: limit exceeded: sim: sent bytes: 250001 (limit: 250000)\n",
        ),
        (
            {"playbooks": {"entries": entries(1, ["ok"])}, "datagrams": 2},
            1,
            "bench: limit exceeded: sim: connections and datagrams: 2 (limit: 0)\n",
        ),
    ],
)
def test_counts_of_a_converged_run(benchmark, answers, status, message):
    done, written = benchmark({"baseline": {"entries": entries(35, ["ok"] * 30)}, **answers}, "--only", "counts")
    assert (done.returncode, done.stderr) == (status, message), done.stdout
    assert written["counts"]["site"]["sim"]["calls"] == len(
        [e for e in answers["playbooks"]["entries"] if "module" in e]
    )
    assert written["counts"]["baseline"]["sim"]["results"] == {"ok": 30}


def test_counts_of_site_alone_on_hosts_that_other_variables_configured(benchmark):
    answers = {"playbooks": {"entries": entries(1, ["ok"] * 4)}, "baseline": {"error": "no NVIDIA driver"}}
    done, written = benchmark(answers, "--only", "site", "--extra-vars", "gaudi_driver_version=1.23.0")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert (set(written["counts"]), written["counts"]["site"]["sim"]["calls"]) == ({"site"}, 1)
    # The hosts must be converged already.
    done, _written = benchmark({"playbooks": {"changed": 1}}, "--only", "site")
    assert (done.returncode, "site.yml changed sim" in done.stderr) == (2, True)
    done, _written = benchmark({"playbooks": {"entries": entries(2, ["ok"] * 4)}}, "--only", "site")
    assert (done.returncode, done.stderr) == (1, "bench: limit exceeded: sim: module calls: 2 (limit: 1)\n")


def test_times_contain_the_cpu_time_per_host(benchmark):
    answers = {"playbooks": {"cpu": 0.4, "hosts": ["one", "two"]}, "baseline": {"hosts": ["one", "two"]}}
    done, written = benchmark(answers, "--only", "times")
    assert done.returncode == 1, done.stderr
    assert "wall time / baseline" in done.stderr
    playbooks = written["times"]["playbooks"]
    assert set(playbooks) == {"site", "gather", "floor", "baseline"}
    assert playbooks["site"]["cpu_seconds_per_host"] - playbooks["baseline"]["cpu_seconds_per_host"] > 0.15


@pytest.mark.parametrize(
    ("answers", "part", "message"),
    [
        ({"playbooks": {"error": "no route to host"}}, "counts", "playbooks/site.yml failed:\nno route to host"),
        ({"playbooks": {"changed": 1}}, "counts", "playbooks/site.yml changed sim."),
        ({"playbooks": {"changed": 1}}, "times", "playbooks/site.yml changed sim."),
        ({"baseline": {"changed": 2}}, "times", "tests/benchmark/baseline/site.yml changed sim."),
        ({"playbooks": {"hosts": []}}, "times", "playbooks/site.yml ran on no host."),
    ],
)
def test_a_run_that_cannot_be_measured(benchmark, answers, part, message):
    done, written = benchmark(answers, "--only", part)
    assert done.returncode == 2
    assert done.stderr.startswith(f"bench: {message}"), done.stderr
    assert written is None


def test_the_time_per_host_by_fleet_size(benchmark):
    """Real ansible-inventory."""
    done, written = benchmark({}, "--only", "scale", "--sizes", "50", "2", "10", "--scale-repeats", "2")
    assert done.returncode == 0, done.stderr
    assert [row["hosts"] for row in written["scale"]["rows"]] == [2, 10, 50]
    assert [check["what"] for check in written["checks"]] == [
        "controller CPU seconds per host, 50 hosts",
        "time per host, 50 hosts / 10 hosts",
    ]
    done, _written = benchmark({}, "--only", "scale", "--scale-host", "nonesuch")
    assert (done.returncode, "the inventory has no host nonesuch" in done.stderr) == (2, True)


def test_an_inventory_with_many_names_of_one_host(tmp_path):
    """Real ansible-inventory. The connection must not depend on the directory of the new inventory."""
    sandbox = measure.ROOT / "tests/sandbox/inventory.yml"
    path = measure.aliases(["-i", str(sandbox), "-i", str(BENCHMARK / "ssh.yml")], "sim-a100", 3, tmp_path)
    hosts = json.loads(path.read_text())["all"]["children"]["gpu_hosts"]["hosts"]
    assert list(hosts) == ["sim-a100-000", "sim-a100-001", "sim-a100-002"]
    for variables in hosts.values():
        assert variables["ansible_host"] == "sim-a100"
        assert f'-F "{sandbox.parent}/' in variables["ansible_ssh_common_args"]


def test_the_callback_counts_module_executions_and_task_results(tmp_path):
    """Real Ansible, on localhost."""
    ping = {"ansible.builtin.ping": {}}
    tasks = [
        {"name": "One execution", **ping},
        {"name": "One execution per item, one result", **ping, "loop": [1, 2, 3]},
        {"name": "No execution", **ping, "when": False},
        {"name": "Only on the controller", "ansible.builtin.debug": {}, "changed_when": True},
        {"name": "No result of a host", "ansible.builtin.meta": "end_play", "when": False},
        {"name": "Failed", **ping, "failed_when": True, "ignore_errors": True},
        {"name": "The include counts, too", "ansible.builtin.include_tasks": "included.yml"},
    ]
    (tmp_path / "included.yml").write_text(yaml.safe_dump([{"name": "Included", **ping}]))
    (tmp_path / "play.yml").write_text(yaml.safe_dump([{"hosts": "all", "gather_facts": False, "tasks": tasks}]))
    calls = tmp_path / "calls.jsonl"
    done = subprocess.run(
        ["ansible-playbook", "-i", "localhost,", "-c", "local", str(tmp_path / "play.yml")],
        env={
            **os.environ,
            "ANSIBLE_PYTHON_INTERPRETER": sys.executable,
            "REMOTE_CALLS": str(calls),
            "ANSIBLE_CALLBACK_PLUGINS": str(BENCHMARK / "callback"),
            "ANSIBLE_LOCAL_TEMP": str(tmp_path / "local"),
            "ANSIBLE_REMOTE_TEMP": str(tmp_path / "remote"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    counted = measure.counted(json.loads(line) for line in calls.read_text().splitlines())
    assert counted["localhost"]["modules"] == {"ansible.builtin.ping": 6}
    assert counted["localhost"]["calls"] == 6
    assert counted["localhost"]["sent"] > 6 * 100_000  # Ansible sends its library with each module.
    assert counted["localhost"]["results"] == {"ok": 4, "changed": 1, "skipped": 1, "failed": 1}
