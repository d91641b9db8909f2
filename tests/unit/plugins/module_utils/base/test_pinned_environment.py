# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What modules and programs create and start does not depend on who started them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.temporary_directories import workspace

COLLECTION = "ansible_collections.gpufleet.hosts.plugins"
UMASKS = [0o022, 0o027, 0o077]
# A program that a user wrote stands in {user} for each that the collection could start.
PATHS = {"hostile": "{user}", "hostile first": "{user}:/usr/bin:/bin", "empty": "", "missing": None}
LOCALES = {
    "none": {},
    "German": {"LC_ALL": "de_DE.UTF-8", "LANG": "de_DE.UTF-8", "LANGUAGE": "de:fr"},
    "Turkish": {"LC_CTYPE": "tr_TR.UTF-8", "LC_MESSAGES": "tr_TR.UTF-8", "LANGUAGE": "tr"},
}
KEPT = {
    "https_proxy": "http://proxy:1",
    "no_proxy": "localhost",
    "DEBIAN_FRONTEND": "noninteractive",
    "HOME": "/nowhere",
}
FOREIGN = "#!/bin/sh\necho foreign\n"
NAMES = ("dpkg", "env", "cat", "modinfo", "systemctl", "dpkg-query", "rpm", "podman", "dockerd", "git")


def inherited(folder: Path, path: str, locale: str) -> dict[str, str]:
    """Return the environment of somebody who starts a module, with programs of another user."""
    user = folder / "home/x/bin"
    user.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        (user / name).write_text(FOREIGN)
        (user / name).chmod(0o755)
    value = PATHS[path]
    given = {**KEPT, **LOCALES[locale], **dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(user))}
    return {**given, **({} if value is None else {"PATH": value.format(user=user)})}


def started(program: str, folder: Path, env: dict[str, str], umask: int = 0o022, given: str = "") -> Any:
    """Return what a program prints as JSON."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env={**env, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        umask=umask,
        input=given,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


SEEN = """
import json, os, pathlib, stat, tempfile
def seen(text):
    program = {name: value for name, value in (line.split("=", 1) for line in text.splitlines() if "=" in line)}
    pathlib.Path("folder").mkdir()
    pathlib.Path("folder/file").write_text("x")
    mode = lambda path: oct(stat.S_IMODE(os.stat(path).st_mode))
    dropped = [name for name in ("TMPDIR", "TEMP", "TMP", "LANG", "LANGUAGE", "LC_CTYPE") if name in program]
    kept = {name: program.get(name) for name in ("https_proxy", "no_proxy", "DEBIAN_FRONTEND", "HOME")}
    print(json.dumps({"modes": [mode("folder"), mode("folder/file")], "dropped": dropped, "kept": kept,
        "locale": program["LC_ALL"], "bin": "/usr/bin" in program["PATH"].split(":"),
        "home": "home/x" in program["PATH"]}))
"""
PINNED = {
    "modes": ["0o755", "0o644"],
    "dropped": [],
    "kept": KEPT,
    "locale": "C",
    "bin": True,
    "home": False,
}


@pytest.mark.parametrize("locale", LOCALES)
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("umask", UMASKS)
def test_what_a_module_creates_and_starts_is_independent_of_its_caller(
    tmp_path: Path, umask: int, path: str, locale: str
) -> None:
    program = f"""{SEEN}
import subprocess
from {COLLECTION}.module_utils.base import pinned_environment
pinned_environment.pin()
seen(subprocess.run(["env"], capture_output=True, text=True, check=True).stdout)
"""
    assert started(program, tmp_path, inherited(tmp_path, path, locale), umask) == PINNED


RUNNERS = {
    "standalone": f"from {COLLECTION}.module_utils.base.standalone_program import run",
    "module": f"""
import subprocess
from {COLLECTION}.module_utils.base.program_runner import runner
class Module:
    def get_bin_path(self, name):
        import shutil
        return shutil.which(name)
    def run_command(self, argv, environ_update, data=None):
        done = subprocess.run(argv, capture_output=True, text=True, env={{**os.environ, **environ_update}})
        return done.returncode, done.stdout, done.stderr
run = runner(Module())
""",
}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("runner", RUNNERS)
def test_no_caller_changes_the_locale_or_the_programs(tmp_path: Path, runner: str, path: str) -> None:
    program = f"""{SEEN}
{RUNNERS[runner]}
rc, text, _errors = run(["env"], {{"LC_ALL": "de_DE.UTF-8", "PATH": os.getcwd() + "/home/x/bin", "EXTRA": "1"}})
given = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
print(json.dumps([rc, given.get("LC_ALL"), given.get("EXTRA"), "home/x" in given.get("PATH", ""), "foreign" in text]))
"""
    assert started(program, tmp_path, inherited(tmp_path, path, "German")) == [0, "C", "1", False, False]


def test_output_of_programs_is_utf_8_in_a_module(tmp_path: Path) -> None:
    # AnsibleModule calls setlocale after the pin, and the encoding of the C locale is ASCII.
    program = f"""
import json, locale
from {COLLECTION}.module_utils.base import pinned_environment, standalone_program
pinned_environment.pin()
locale.setlocale(locale.LC_ALL, "")
print(json.dumps(standalone_program.run(["printf", r"\\303\\244"])))
"""
    given = {**inherited(tmp_path, "missing", "German"), "LC_ALL": "C.UTF-8"}
    assert started(program, tmp_path, given) == [0, "\u00e4", ""]


def test_a_program_that_only_a_user_has_is_not_installed(tmp_path: Path) -> None:
    env = inherited(tmp_path, "hostile", "none")
    (tmp_path / "home/x/bin/only-here").write_text(FOREIGN)
    (tmp_path / "home/x/bin/only-here").chmod(0o755)
    for runner in RUNNERS.values():
        assert started(f"{SEEN}{runner}\nprint(json.dumps(run(['only-here'])[0]))", tmp_path, env) == 127


# Each entry point, up to the point where it would look at the host.
MODULES = sorted(
    path.stem
    for path in Path(__file__).parents[5].joinpath("plugins/modules").glob("*.py")
    if "def main" in path.read_text(encoding="utf-8")
)
MODULE = f"""{SEEN}
import importlib, subprocess
module = importlib.import_module("{COLLECTION}.modules.NAME")
def stop(*_arguments, **_options):
    seen(subprocess.run(["env"], capture_output=True, text=True, check=True).stdout)
    raise SystemExit
module.AnsibleModule = stop
module.main()
"""
PROGRAMS = {
    "observe.program": "{'options': {'files': []}, 'check_mode': True, 'facts': None}",
    "facts.program": "{'driver_root': None}",
    "toolkit.cdi_program": "{'path': '/nowhere'}",
    "vendor_driver.cdi_program": "{'path': '/nowhere'}",
}
PROGRAM = f"""{SEEN}
import importlib, subprocess
program = importlib.import_module("{COLLECTION}.module_utils.NAME")
def stop(*_arguments, **_options):
    seen(subprocess.run(["env"], capture_output=True, text=True, check=True).stdout)
    raise SystemExit
for owner, name in (("observe_call", "observe"), ("facts_call", "result")):
    if hasattr(program, owner):
        setattr(getattr(program, owner), name, stop)
program.refresh = stop
program.main(OPTIONS)
"""


# Run each program in a process and a folder of its own. All of them import Ansible's part only once.
EACH = """
import json, os, sys
from ansible.module_utils import basic
for name, program in json.load(sys.stdin).items():
    if os.fork() == 0:
        os.mkdir(name)
        os.chdir(name)
        output = os.open("output", os.O_WRONLY | os.O_CREAT)
        os.dup2(output, 1)
        os.dup2(output, 2)
        exec(program, {"__name__": "__main__"})
        sys.exit()
    os.wait()
print("{}")
"""


@pytest.fixture(scope="module")
def entry_points(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder with the output of each entry point."""
    folder = tmp_path_factory.mktemp("entry_points")
    programs = {name: MODULE.replace("NAME", name) for name in MODULES}
    for name, options in PROGRAMS.items():
        programs[name] = PROGRAM.replace("NAME", name).replace("OPTIONS", options)
    started(EACH, folder, inherited(folder, "hostile first", "German"), 0o077, json.dumps(programs))
    return folder


@pytest.mark.parametrize("name", [*MODULES, *PROGRAMS])
def test_every_entry_point_pins_its_state_first(entry_points: Path, name: str) -> None:
    output = (entry_points / name / "output").read_text(encoding="utf-8")
    assert output.startswith("{"), output
    assert json.loads(output) == PINNED


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_the_unattended_run_pins_its_state(tmp_path: Path) -> None:
    program = f"""{SEEN}
from {COLLECTION}.module_utils.unattended import pull_program as pull
pull.STATE = os.getcwd() + "/state"
def settings(_path):
    seen(pull.Pull({{}}, pull.STATE)._do(["env"])[1])
    os._exit(0)
pull.read_settings = settings
print = lambda text, print=print: print(text, flush=True)
pull.say = lambda text: None
pull.main()
"""
    found = started(program, tmp_path, inherited(tmp_path, "hostile first", "German"), 0o077)
    assert found == {**PINNED, "locale": "C.UTF-8"}


@pytest.mark.parametrize("umask", UMASKS)
def test_the_user_of_apt_can_read_the_keys_in_a_view(tmp_path: Path, umask: int) -> None:
    (tmp_path / "var/tmp").mkdir(parents=True)
    before = os.umask(umask)
    try:
        with workspace(str(tmp_path)) as directory:
            key = Path(directory) / "root/usr/share/keyrings"
            key.mkdir(parents=True)
            modes = [oct(path.stat().st_mode)[-3:] for path in (key, *key.parents) if str(path) > directory]
        assert set(modes) == {"755"}
        assert os.umask(umask) == umask
    finally:
        os.umask(before)
