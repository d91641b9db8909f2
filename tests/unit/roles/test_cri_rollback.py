# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role's own tasks for containerd, with a containerd whose CRI plugin rejects a configuration."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.gpufleet.hosts.tests.unit.plugins import ansible_run
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import ROOT

TASKS = ROOT / "roles/nvidia_container_toolkit/tasks"
# Stands for systemd_service: records the requested state.
UNIT = """\
import os
from ansible.module_utils.basic import AnsibleModule

module = AnsibleModule({"name": {}, "state": {}})
with open(os.environ["CALLS"], "a") as file:
    file.write(module.params["state"] + "\\n")
module.exit_json(changed=True)
"""
# Prints the plugin as ctr does: containerd/containerd, v1.7.27, cmd/ctr/commands/plugins/plugins.go.
CTR = """#!/bin/sh
[ "$1 $2 $3" = "plugins ls --detailed" ] || exit 2
printf 'Type:            io.containerd.grpc.v1\\nID:              cri\\n'
grep -qs broken "$DROP_IN" || exit 0
printf 'Error:           \\n                 Code:           Unknown\\n'
printf '                 Message:        invalid plugin config: no corresponding runtime configured\\n'
"""
NOT_RUNNING = "#!/bin/sh\nexit 1\n"


def apply(
    folder: Path, former: str | None, content: str, *, unit: str = "containerd.service", ctr: str = CTR
) -> tuple[bool, str, list[str], str | None]:
    """Write a drop-in. Return whether that succeeds, the output, the requested states and the drop-in afterwards."""
    drop_in = folder / "drop-in.toml"
    if former is not None:
        drop_in.write_text(former)
    for name in ("cri.yml", "../../observe/tasks/files.yml"):
        lines = (TASKS / name).read_text(encoding="utf-8").splitlines()
        text = "\n".join(line for line in lines if line.strip() not in ("owner: root", "group: root"))
        text = text.replace("ansible.builtin.systemd_service", "fake_unit").replace("../../observe/tasks/", "")
        (folder / Path(name).name).write_text(text, encoding="utf-8")
    (folder / "library").mkdir()
    (folder / "library/fake_unit.py").write_text(UNIT, encoding="utf-8")
    for name, text in (("ctr", ctr), ("journalctl", "#!/bin/sh\necho last line of the journal\n")):
        (folder / name).write_text(text, encoding="utf-8")
        (folder / name).chmod(0o755)
    engine: dict[str, Any] = {"unit": unit, "action": "restarted", "marker": None, "marker_file": None}
    engine["files"] = [{"path": str(drop_in), "content": content, "former": former, "mode": "0644"}]
    play = {"hosts": "localhost", "gather_facts": False, "tasks": [{"ansible.builtin.include_tasks": "cri.yml"}]}
    (folder / "play.yml").write_text(yaml.safe_dump([play]), encoding="utf-8")
    environment = {
        **os.environ,
        "PATH": f"{folder}:{os.environ['PATH']}",
        "CALLS": str(folder / "calls"),
        "DROP_IN": str(drop_in),
    }
    values = {"ansible_python_interpreter": sys.executable, "__nvidia_container_toolkit_engine": engine}
    argv = ["ansible-playbook", "-i", "localhost,", "-c", "local", "-e", json.dumps(values), str(folder / "play.yml")]
    done = ansible_run.run(argv, env=environment)
    calls = (folder / "calls").read_text(encoding="utf-8").split()
    after = drop_in.read_text(encoding="utf-8") if drop_in.exists() else None
    return done.returncode == 0, done.stdout, calls, after


@pytest.mark.parametrize("former", [None, "works\n"])
def test_files_with_which_cri_does_not_work_are_restored(tmp_path: Path, former: str | None) -> None:
    good, shown, calls, after = apply(tmp_path, former, "broken\n")
    assert (good, calls, after) == (False, ["restarted", "restarted"], former), shown
    assert "Its CRI plugin does not work: invalid plugin config: no corresponding runtime configured. Fix" in shown


@pytest.mark.parametrize(
    ("former", "content", "more"),
    [
        ("works\n", "still works\n", {}),
        # It did not work before, ctr does not reach containerd, or the engine has no such plugin.
        ("broken\n", "broken, too\n", {}),
        (None, "broken\n", {"ctr": NOT_RUNNING}),
        (None, "broken\n", {"unit": "crio.service"}),
    ],
)
def test_files_stay_unless_cri_has_worked_before(
    tmp_path: Path, former: str | None, content: str, more: dict[str, Any]
) -> None:
    good, shown, calls, after = apply(tmp_path, former, content, **more)
    assert (good, calls, after) == (True, ["restarted"], content), shown
