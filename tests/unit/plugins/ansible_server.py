# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program behind `ansible_run`: prepares Ansible once, then forks a process for each run of one of its commands.

It reads one JSON object a line from standard input: the command, its arguments, the environment, the directory and two
files for the output of a run. It writes the exit status of each run as one line. Its first argument is the socket of
`module_server`, which runs the modules that are written in Python on hosts with a local connection. The other arguments
are Python files that it runs once.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import importlib
import json
import os
import shlex
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

from ansible import constants
from ansible.cli.adhoc import AdHocCLI
from ansible.cli.inventory import InventoryCLI
from ansible.cli.playbook import PlaybookCLI
from ansible.executor import module_common, playbook_executor, task_executor, task_queue_manager, task_result
from ansible.plugins import loader
from ansible.plugins.action import command, copy, debug, fail, include_vars, set_fact
from ansible.plugins.connection import local

# Modules that most runs need. A run loads its other plugins itself.
IMPORTED = (
    module_common, playbook_executor, task_executor, task_queue_manager, task_result,
    command, copy, debug, fail, include_vars, set_fact,
)  # fmt: skip
# Plugins that most runs need. None stands for all plugins of a kind.
ACTIONS = ("assert", "command", "copy", "debug", "fail", "file", "include_vars", "normal", "set_fact", "template")
LOADED = (
    (loader.action_loader, ACTIONS),
    (loader.become_loader, None),
    (loader.cache_loader, ("memory",)),
    (loader.callback_loader, None),
    (loader.connection_loader, None),
    (loader.filter_loader, None),
    (loader.inventory_loader, ("host_list", "script", "auto", "yaml", "ini", "toml")),
    (loader.lookup_loader, ("file", "vars")),
    (loader.shell_loader, None),
    (loader.strategy_loader, ("linear",)),
    (loader.test_loader, None),
    (loader.vars_loader, None),
)


sys.path.insert(0, str(Path(__file__).parent))
import module_server

# The folder of the packed modules, which the runs of all servers share.
PACKED = Path(sys.argv[1]).parent / "packed"
COMMANDS = {"ansible": AdHocCLI, "ansible-inventory": InventoryCLI, "ansible-playbook": PlaybookCLI}


def packed_module(command_line: object, code: bytes | None) -> dict[str, str] | None:
    """Return the variables for a packed module that this Python should run; None if a command is something else."""
    if not code or b"_ANSIBALLZ_WRAPPER = True" not in code[:1000] or not isinstance(command_line, str):
        return None
    shell = shlex.split(command_line)
    if len(shell) != 3 or shell[:2] != ["/bin/sh", "-c"]:
        return None
    *variables, program, last, sleep, seconds = ["", "", "", "", *shlex.split(shell[2])]
    known = [variable.partition("=") for variable in variables if variable]
    if [program, last, sleep, seconds] != [sys.executable, "&&", "sleep", "0"] or not all(
        mark for _name, mark, _value in known
    ):
        return None
    return {name: value for name, _mark, value in known}


def run_modules(path: str) -> None:
    """Let the server with this socket run the modules of hosts with a local connection."""
    otherwise: Callable = local.Connection.exec_command

    def exec_command(self: object, cmd: object, in_data: bytes | None = None, sudoable: bool = True) -> tuple:
        variables = packed_module(cmd, in_data)
        if variables is None:
            return otherwise(self, cmd, in_data=in_data, sudoable=sudoable)
        return module_server.call(path, in_data, environment={**os.environ, **variables}, directory=os.getcwd())

    local.Connection.exec_command = exec_command


@contextlib.contextmanager
def kept_modules(temporary: Path) -> Iterator[None]:
    """Let a run use the packed modules of earlier runs, as packing one takes 0.3 s.

    Ansible keeps them by name. Fake modules of different tests have the same name, so each set of fakes has a folder.
    """
    folders = {Path(word).parent for word in sys.argv[1:] if word.endswith((".yml", ".json"))}
    parts = [f"{name}={value}" for name, value in sorted(os.environ.items()) if name.startswith("ANSIBLE_")]
    for folder in folders:
        parts += [f"{path.name}\0{path.read_text()}" for path in sorted(folder.glob("library/*")) if path.is_file()]
        if any(any(folder.glob(name)) for name in ("collections", "module_utils", "roles/*/library")):
            yield
            return
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    used = temporary / "ansiballz_cache"
    used.mkdir()
    for name in ("ansible", digest):
        (PACKED / name).mkdir(parents=True, exist_ok=True)
        for path in (PACKED / name).iterdir():
            os.link(path, used / path.name)
    yield
    for path in used.iterdir():
        if path.suffix != ".lock":
            # Ansible's own modules need no file of a test.
            path.replace(PACKED / ("ansible" if path.name.startswith("ansible.modules.") else digest) / path.name)


def perform(run: dict) -> int:
    """Run a command in this process. Return its exit status."""
    for number, name in ((0, os.devnull), (1, run["stdout"]), (2, run["stderr"])):
        descriptor = os.open(name, os.O_RDWR | os.O_CREAT, 0o600)
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(run["environment"])
    os.chdir(run["directory"])
    sys.argv = [run["command"], *run["arguments"]]
    # On the file system of the packed modules, whatever TMPDIR is in the environment of the run.
    with tempfile.TemporaryDirectory(dir=PACKED.parent) as folder, kept_modules(Path(folder)):
        constants.DEFAULT_LOCAL_TMP = folder
        try:
            COMMANDS[run["command"]].cli_executor(sys.argv)
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else 1
        except BaseException:
            traceback.print_exc()
            return 250
    return 0


def prepare() -> None:
    """Load what most runs need, because Ansible reads a plugin's documentation when it loads the plugin.

    Each run has a process, and so has each task of a host in it: each would do this again.
    """
    # Each run configures the collections again, with the same settings.
    warnings.filterwarnings("ignore", message="AnsibleCollectionFinder has already been configured")
    loader.init_plugin_loader()
    importlib.import_module("ansible_collections.ansible.builtin")
    for plugins, names in LOADED:
        if names is None:
            list(plugins.all(class_only=True))
        for name in names or ():
            plugins.get(name, class_only=True)
    # Ansible ignores group_vars and host_vars if all these plugins are loaded and this one has no instance.
    for name in constants.VARIABLE_PLUGINS_ENABLED:
        loader.vars_loader.get(name)
    # A process that needs one filter of a collection imports all of them.
    with contextlib.suppress(ModuleNotFoundError):
        importlib.import_module("ansible_collections.gpufleet.hosts")
        loader.filter_loader.get("gpufleet.hosts._site_turns")
        loader.action_loader.get("gpufleet.hosts.gpu_host_plan", class_only=True)
    # A run that waits for its tasks looks at them 1000 times a second otherwise.
    constants.DEFAULT_INTERNAL_POLL_INTERVAL = 0.01
    # The runs are short, and the collector would copy the memory of these objects to each process.
    gc.disable()


def main() -> None:
    """Fork a process for each line of standard input."""
    prepare()
    for path in sys.argv[2:]:
        exec(compile(Path(path).read_text(encoding="utf-8"), path, "exec"), {"__name__": "imported"})
    run_modules(sys.argv[1])
    for line in sys.stdin:
        process = os.fork()
        if process == 0:
            status = perform(json.loads(line))
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
        print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
