# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What role cuda_toolkit passes to module package_transaction, its report, and its verification program."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.cuda import toolkit_removal
from ansible_collections.gpufleet.hosts.tests.unit.plugins import ansible_run
from ansible_collections.gpufleet.hosts.tests.unit.plugins.toolkit_samples import DISTRIBUTIONS, add, bare, nvidia

ROLE = Path(__file__).resolve().parents[3] / "roles/cuda_toolkit"
VARS = yaml.safe_load((ROLE / "vars/main.yml").read_text(encoding="utf-8"))
STATE = "/var/lib/gpufleet"
# Stands for module package_transaction. It reports its options, and whether results of a verification exist.
MODULE = """\
import json
import os
from pathlib import Path
from ansible.module_utils.basic import AnsibleModule

names = ("record", "state", "lock_timeout", "may_upgrade", "install", "purge", "remove", "keep", "repositories",
         "uses_repositories", "files", "download_timeout")
module = AnsibleModule({name: {"type": "raw"} for name in names}, supports_check_mode=True)
folder = Path(os.environ["FOLDER"])
options = {name: value for name, value in module.params.items() if value is not None}
(folder / "options.json").write_text(json.dumps([options, (folder / "cuda_toolkit_verified").exists()]))
module.exit_json(**json.loads(os.environ["RESULT"]))
"""


def run(folder: Path, names: list[str], result: dict[str, Any], **values: Any) -> subprocess.CompletedProcess[str]:
    """Run task files of the role with a stand-in for module package_transaction, which has this result."""
    tasks = folder / "role/tasks"
    tasks.mkdir(parents=True)
    steps = []
    for name in names:
        text = (ROLE / "tasks" / name).read_text(encoding="utf-8").replace(STATE, str(folder))
        for step in yaml.safe_load(text.replace("gpufleet.hosts.package_transaction", "transaction")):
            for owner in ("owner", "group"):
                step.get("ansible.builtin.copy", {}).pop(owner, None)
            if "ansible.builtin.include_role" in step:
                step["ansible.builtin.debug"] = {"msg": step.pop("ansible.builtin.include_role")["name"]}
            steps.append(step)
    (tasks / "main.yml").write_text(yaml.safe_dump(steps))
    (tasks.parent / "vars").mkdir()
    (tasks.parent / "vars/main.yml").write_text(yaml.safe_dump(VARS))
    (folder / "library").mkdir()
    (folder / "library/transaction.py").write_text(MODULE)
    play = {"hosts": "localhost", "gather_facts": False, "roles": [str(tasks.parent)]}
    (folder / "play.yml").write_text(yaml.safe_dump([play]))
    local = {"ansible_remote_tmp": str(folder / "remote"), "ansible_python_interpreter": sys.executable}
    argv = [
        "ansible-playbook",
        "-i",
        "localhost,",
        "-c",
        "local",
        "-e",
        json.dumps({"cuda_toolkit_download_timeout": 99, **values, **local}),
    ]
    environment = {**os.environ, "FOLDER": str(folder), "RESULT": json.dumps(result), "HOME": str(folder),
                   "ANSIBLE_CALLBACK_RESULT_FORMAT": "json"}  # fmt: skip
    argv.append(str(folder / "play.yml"))
    return ansible_run.run(argv, env=environment)


def files(folder: Path, *existing: str) -> dict[str, Any]:
    """Return the observation of the role's files. The record and the results of the verification are in `folder`."""
    known = [f"{folder}/cuda_toolkit.json", f"{folder}/cuda_toolkit_verified", "/etc/profile.d/gpufleet-cuda.sh"]
    return {path: {"exists": Path(path).name in existing, "content": None} for path in known}


def test_the_module_receives_every_option_of_the_plan(tmp_path: Path) -> None:
    plan = nvidia(bare(packages={"cuda-keyring": "1.1-1"}), "12.6", mirror="https://mirror.example/cuda")
    done = run(tmp_path, ["install.yml"], {"changed": True}, __cuda_toolkit_plan=plan, gpufleet_host={})
    assert done.returncode == 0, done.stdout + done.stderr
    options, _verified = json.loads((tmp_path / "options.json").read_text())
    transaction = {name: value for name, value in plan["transaction"].items() if value or name in options}
    assert transaction == {name: options[name] for name in transaction}
    fixed = {"record": "cuda_toolkit", "may_upgrade": True, "lock_timeout": VARS["__cuda_toolkit_lock_timeout"]}
    assert options == {**transaction, **fixed, "download_timeout": 99}


@pytest.mark.parametrize("works", [True, False])
def test_new_toolkits_are_verified_again_until_they_work(tmp_path: Path, works: bool) -> None:
    plan = nvidia(bare(), "12.6")
    nvcc = tmp_path / "nvcc"
    nvcc.write_text("#!/bin/sh\n" + (WORKS if works else "exit 1") + "\n")
    nvcc.chmod(0o755)
    plan["toolkits"][0]["nvcc"] = str(nvcc)
    (tmp_path / "cuda_toolkit_verified").write_text("/usr/local/cuda-12.6\n")
    host = {"files": files(tmp_path, "cuda_toolkit.json", "cuda_toolkit_verified")}
    tasks = ["install.yml", "verify.yml"]
    done = run(tmp_path, tasks, {"changed": True}, __cuda_toolkit_plan=plan, gpufleet_host=host)
    assert (done.returncode == 0) is works, done.stdout + done.stderr
    _options, was_verified = json.loads((tmp_path / "options.json").read_text())
    # Otherwise, the run after an interrupted one would not verify them.
    assert not was_verified
    results = tmp_path / "cuda_toolkit_verified"
    assert (results.read_text() if results.exists() else None) == ("/usr/local/cuda-12.6\n" if works else None)


@pytest.mark.parametrize(
    ("packages", "result", "reasons"),
    [
        ([], {"changed": False, "kept": []}, ["this role has not installed anything on this host"]),
        (["cuda-toolkit-12-6"], {"changed": True, "kept": []}, []),
        (
            ["cuda-toolkit-11-8", "cuda-toolkit-12-6"],
            {"changed": True, "kept": ["cuda-toolkit-11-8", "libgomp1"]},
            [
                "toolkits that this role did not install are kept: cuda-toolkit-11-8",
                "dependencies that other packages need are kept: libgomp1",
            ],
        ),
    ],
)
def test_a_removal_removes_the_toolkits_and_reports_what_it_kept(
    tmp_path: Path, packages: list[str], result: dict[str, Any], reasons: list[str]
) -> None:
    recorded = [name for name in packages if name == "cuda-toolkit-12-6"]
    host = bare()
    host["installed_packages"] = dict.fromkeys(packages, "1 all")
    add(host, owned.TOOLKIT_RECORD, {"packages": recorded})
    host["files"].update(files(tmp_path, "cuda_toolkit_verified"))
    (tmp_path / "cuda_toolkit_verified").touch()
    removal = toolkit_removal.plan({**host, "uid": 0}, DISTRIBUTIONS)
    done = run(tmp_path, ["absent.yml"], result, gpufleet_host=host, gpufleet_plan={"cuda_toolkit": removal})
    assert done.returncode == 0, done.stdout + done.stderr
    options, was_verified = json.loads((tmp_path / "options.json").read_text())
    # The file would keep the directory of the record.
    assert not was_verified
    assert (options["record"], options["state"], options["remove"]) == ("cuda_toolkit", "absent", recorded)
    assert options["keep"] == [name for name in packages if name not in recorded]
    shown = done.stdout.partition("Show the report")[2].partition("=> ")[2]
    report, _end = json.JSONDecoder().raw_decode(shown)
    assert report["cuda_toolkit_report"]["reasons"] == reasons


def trial(home: Path, nvcc: str, run: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the verification with a fake compiler, which writes its options and input to the file `seen`."""
    home.mkdir()
    compiler = home.parent / "nvcc"
    compiler.write_text(f'#!/bin/sh\necho "$*" >{home.parent}/seen\ncat add.cu >>{home.parent}/seen\n{nvcc}\n')
    compiler.chmod(0o755)
    argv = ["/bin/sh", "-euc", VARS["__cuda_toolkit_trial"], "trial", str(compiler), run, *options]
    environment = {"HOME": str(home), "PATH": "/usr/bin:/bin"}
    program = VARS["__cuda_toolkit_program"]
    return subprocess.run(argv, input=program, capture_output=True, text=True, check=False, env=environment)


WORKS = "printf '#!/bin/sh\\necho 1 + 41 = 42\\n' >add; chmod +x add"
FAILS = "printf '#!/bin/sh\\necho no device; exit 1\\n' >add; chmod +x add"


@pytest.mark.parametrize(
    ("nvcc", "run", "rc", "out"),
    [
        (WORKS, "yes", 0, "1 + 41 = 42\n"),
        (WORKS, "no", 0, ""),
        (FAILS, "yes", 1, "no device\n"),
        (FAILS, "no", 0, ""),
        ("exit 2", "yes", 2, ""),
        ("exit 2", "no", 2, ""),
    ],
)
def test_the_verification_compiles_runs_and_leaves_no_files(
    tmp_path: Path, nvcc: str, run: str, rc: int, out: str
) -> None:
    done = trial(tmp_path / "home", nvcc, run, "-arch=native")
    assert (done.returncode, done.stdout) == (rc, out)
    assert (tmp_path / "seen").read_text() == f"-arch=native -o add add.cu\n{VARS['__cuda_toolkit_program']}"
    assert list((tmp_path / "home").iterdir()) == []
