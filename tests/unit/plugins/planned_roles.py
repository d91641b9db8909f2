# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The roles and the action plugin gpu_host_plan in a directory, with fake modules instead of those that need a host."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
ROLES = ("observe", "nvidia_driver", "nvidia_persistenced", "container_engine", "nvidia_container_toolkit")
# Stands for gpu_host_info: returns the next observation of the file CALLS, and records the timeout of each call.
OBSERVATION = """\
import json
import os
from pathlib import Path
from ansible.module_utils.basic import AnsibleModule

names = ("services", "files", "package_lock_timeout", "driver_volume", "_declared")
module = AnsibleModule({name: {"type": "raw"} for name in names}, supports_check_mode=True)
calls = Path(os.environ["CALLS"])
known = json.loads(calls.read_text())
known["calls"].append(int(module.params["package_lock_timeout"] or 0))
calls.write_text(json.dumps(known))
module.exit_json(host=known["hosts"][min(len(known["calls"]), len(known["hosts"])) - 1])
"""
# Stands for package_transaction: every package has one version.
QUERY = """\
from ansible.module_utils.basic import AnsibleModule

names = ("record", "query", "query_streams", "query_dependencies", "repositories", "archive_components",
         "module_streams", "files", "rehearse_removals")
others = ("lock_timeout", "download_timeout")
module = AnsibleModule({name: {"type": "raw"} for name in (*names, *others)}, supports_check_mode=True)
module.exit_json(versions={name: ["580.95.05-1"] for name in module.params["query"] or []}, streams={})
"""
_FAKES = {
    "gpufleet.hosts.gpu_host_info": "next_observation",
    "gpufleet.hosts.package_transaction": "any_version",
    "gpufleet.hosts.gpu_host_plan": "gpu_host_plan",
    "gpufleet.hosts.observe": "observe",
}


def with_fakes(text: str) -> str:
    """Return a source with the names of the fake modules and of the copied roles."""
    for name, fake in _FAKES.items():
        text = text.replace(name, fake)
    return text


def install(folder: Path) -> dict[str, str]:
    """Copy the roles and the action plugin beside the playbook. Return the environment for ansible-playbook."""
    for name in ROLES:
        shutil.copytree(ROOT / "roles" / name, folder / "roles" / name)
        for path in (folder / "roles" / name / "tasks").iterdir():
            path.write_text(with_fakes(path.read_text(encoding="utf-8")), encoding="utf-8")
    plugin = (ROOT / "plugins/action/gpu_host_plan.py").read_text(encoding="utf-8")
    changes = {
        # The fake of the observation is a module, so the plugin must not run the program that replaces the module.
        "host_python.command_for_input(self, self._task_vars)": "None",
    }
    for text, other in changes.items():
        assert text in plugin
        plugin = plugin.replace(text, other)
    sources = {
        "action_plugins/gpu_host_plan.py": with_fakes(plugin),
        "library/next_observation.py": OBSERVATION,
        "library/any_version.py": QUERY,
    }
    for name, source in sources.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(source, encoding="utf-8")
    return dict(os.environ)


def observations(path: Path, *hosts: dict[str, Any]) -> dict[str, str]:
    """Write the observations of a host in the order of the module calls. Return the environment for the play."""
    path.write_text(json.dumps({"calls": [], "hosts": hosts}))
    return {"CALLS": str(path)}
