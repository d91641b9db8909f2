# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The check of PyTorch in the acceptance test: the host's Python in a container, and the judgement of its speed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "gpu"))

from acceptance import checks, framework, framework_checks

TORCH = """\
__version__ = "2.11.0"
class version:
    cuda = {cuda!r}
class distributed:
    is_available = staticmethod(lambda: True)
    is_nccl_available = staticmethod(lambda: True)
"""


@pytest.fixture
def torch(tmp_path, monkeypatch):
    """Install a package with the name of PyTorch. Return a function that sets its version of CUDA."""

    def install(cuda="13.0"):
        (tmp_path / "torch").mkdir(exist_ok=True)
        (tmp_path / "torch/__init__.py").write_text(TORCH.format(cuda=cuda), encoding="utf-8")

    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    return install


def test_python_of_the_host_runs_below_another_directory(torch, monkeypatch):
    """The path /proc/self/root stands for the directory where a container has the host's directories."""
    torch()
    found = framework.find([sys.executable])
    monkeypatch.delenv("PYTHONPATH")
    monkeypatch.setattr(framework, "MOUNTED", "/proc/self/root")
    program = "import ctypes, json, torch; print(torch.__version__, json.__file__)"
    done = subprocess.run(found.inside("-c", program), capture_output=True, text=True, check=False)
    version, path = done.stdout.split()
    assert (version, found.has_nccl) == ("2.11.0", True)
    assert path.startswith("/proc/self/root/")


@pytest.mark.parametrize("cuda", [None, "13.0"])
def test_pytorch_without_cuda_is_not_used(torch, cuda):
    torch(cuda)
    assert (framework.find([sys.executable]) is not None) is bool(cuda)


def test_a_host_without_pytorch_is_no_error(monkeypatch):
    monkeypatch.setattr(framework, "_ASK", "import no_such_module")
    assert framework.find([sys.executable, "/nonesuch"]) is None


def test_a_container_gets_the_directories_of_pytorch_and_no_others():
    found = framework.Framework(
        interpreter="/usr/bin/python3",
        version="2.11.0",
        has_nccl=True,
        executable="/usr/bin/python3.12",
        prefix="/usr",
        path=("/opt/torch/lib/python3.12/site-packages", "/tmp/x"),
        loader="/usr/lib64/ld-linux-x86-64.so.2",
        library_path=("/usr/lib64",),
    )
    assert found.directories == ["/opt", "/usr"]
    assert found.volumes("/host") == ["/host/opt:/host/opt:ro", "/host/usr:/host/usr:ro"]


def run_of(*tflops, all_reduce=None):
    return {"tflops": list(tflops), "all_reduce": all_reduce, "loaded": ["/usr/lib64/libcuda.so.580.95.05"]}


@pytest.mark.parametrize(
    ("outside", "inside", "problems"),
    [
        (run_of(800.0), run_of(790.0), []),
        (run_of(800.0), run_of(770.0), ["GEMM inside is 0.963 of the host's speed, less than 0.97"]),
        (run_of(800.0, 800.0, all_reduce=300.0), run_of(800.0, 801.0, all_reduce=298.0), []),
        (
            run_of(800.0, 800.0, all_reduce=300.0),
            run_of(800.0, 801.0, all_reduce=200.0),
            ["all-reduce inside is 0.667 of the host's speed, less than 0.97"],
        ),
        (run_of(800.0), {"error": "exit 1: no GPU"}, ["PyTorch in the container: exit 1: no GPU"]),
        ({"error": "exit 1: no GPU"}, {"error": "did not run"}, ["PyTorch on the host: exit 1: no GPU"]),
    ],
)
def test_slow_and_failed_runs_are_problems(outside, inside, problems):
    count = len(outside.get("tflops", [1]))
    found = framework_checks.judge(outside, inside, count, has_nccl=True)[0]
    assert found[: len(problems)] == problems
    assert bool(found) is bool(problems)


def test_the_best_values_of_all_runs_count():
    runs = [run_of(780.0, 801.0, all_reduce=290.0), run_of(800.0, 790.0, all_reduce=300.0)]
    combined = framework_checks.best(runs)
    assert (combined["tflops"], combined["all_reduce"]) == ([800.0, 801.0], 300.0)
    assert "error" in framework_checks.best([runs[0], {"error": "exit 1"}])
    assert "error" in framework_checks.best([])


def test_a_failed_run_ends_the_measurement():
    calls = []

    def on_host():
        calls.append("host")
        return run_of(800.0)

    def in_container():
        calls.append("container")
        return {"error": "exit 1"}

    assert framework_checks.in_turns(on_host, in_container)[1] == {"error": "exit 1"}
    assert calls == ["host", "container"]


@pytest.mark.parametrize(("seconds", "problems"), [(1.2, 0), (10.4, 1)])
def test_a_container_that_the_engine_kills_is_a_problem(seconds, problems):
    event = {"task": "Remove", "item": "ct", "status": "ok", "seconds": seconds, "result": {}}
    assert len(checks.slow_stops([event])) == problems
