# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Configure this host from a pinned commit of its site repository, and write the outcome to a file.

gpufleet-pull.service runs this program, which the user data of the host contains after error_in_output.py. It needs
only Python 3.9 and git.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import glob
import http.client
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import time
import traceback
import urllib.request

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.pinned_environment import environment, pin
from ansible_collections.gpufleet.hosts.plugins.module_utils.unattended.error_in_output import (
    NO_REFERENCE,
    NO_SUCH_PIN,
    RECAP,
    failed_task,
    first_error,
    last_error,
    last_line,
)

# Those of base/owned.py, which this program does not contain.
SETTINGS = "/etc/gpufleet/pull.json"
STATE = "/var/lib/gpufleet/pull"
METADATA = "http://169.254.169.254/latest"
# The first wait between two attempts, in seconds. Each further wait is twice as long, up to the longest.
WAIT, LONGEST_WAIT = 10, 300
# What git and pip get at most, in seconds. A package manager that is killed can leave packages half installed.
LIMIT = 900
PACKAGE_MANAGERS = ("apt-get", "dnf", "dpkg")
# The unit ends a run after so many seconds.
RUN_LIMIT = 3 * 3600
# The locks for which dpkg and `apt-get update` do not wait.
LOCKS = ("/var/lib/dpkg/lock-frontend", "/var/lib/apt/lists/lock", "/var/cache/apt/archives/lock")
LOCK_LIMIT, LOCK_POLL = 600, 5
# Our references in the repository. No name of a branch or a tag of the server can get there. PIN is set after a fetch.
NAMES = "refs/gpufleet"
PIN, TAG = f"{NAMES}/pin", f"{NAMES}/tag"
# The types of the settings.
SETTING_TYPES = {
    **dict.fromkeys(("repository", "revision", "playbook", "inventory", "collection", "python"), str),
    **dict.fromkeys(("packages", "host_packages"), list),
    **dict.fromkeys(("interval", "attempts"), int),
    "ec2_tag": bool,
}
TYPE_NAMES = {str: "a quoted string", list: "a list of strings", int: "a number of 1 or more", bool: "true or false"}
COMMIT = re.compile(r"[0-9a-f]{40}")
# The modules need the Python of the system, which has the modules of its package manager.
INVENTORY = """gpu_hosts:
  hosts:
    localhost: {ansible_connection: local, ansible_python_interpreter: /usr/bin/python3}
"""


class PullFailure(Exception):
    """The run cannot go on. `state`: unavailable (another attempt may help), invalid or failed."""

    def __init__(self, state: str, reason: str) -> None:
        super().__init__(reason)
        self.state = state

    def outcome(self) -> dict:
        """Return what the outcome says about it."""
        return {"state": self.state, "changed": None, "commit": None, "reason": str(self)}


class Pull:
    """One run on this host."""

    def __init__(self, settings: dict, state: str = STATE) -> None:
        """Take the settings of the user data. `state`: the directory for the environment, the site and the outcome."""
        self.settings, self.state = settings, state
        self.python = f"{state}/venv/bin/python"
        self.collections = f"{state}/collections"
        # The repository with everything that was fetched, and the working tree of the pinned commit.
        self.repository, self.site = f"{state}/repository.git", f"{state}/site"
        # The programs of the environment are not in PATH, so that tasks find the same programs as in a push run.
        self.programs = f"{state}/venv/bin"
        self.environment = {
            **environment({"HOME": "/root", **os.environ}),
            "LC_ALL": "C.UTF-8",  # Ansible refuses to run without UTF-8
            "ANSIBLE_COLLECTIONS_PATH": self.collections,
            "ANSIBLE_FORCE_COLOR": "false",
            "ANSIBLE_NOCOLOR": "true",
            "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.default",
            "DEBIAN_FRONTEND": "noninteractive",
            "GIT_TERMINAL_PROMPT": "0",
        }

    def run(self) -> dict:
        """Run until the host is configured, or no further attempt can help. Return the outcome."""
        attempt, limit = 1, self.settings["attempts"]
        try:
            found = self._attempt()
            while found["state"] == "unavailable" and attempt < limit:
                wait = min(WAIT * 2 ** (attempt - 1), LONGEST_WAIT)
                say(f"attempt {attempt} of {limit} failed: {found['reason']}. Next attempt in {wait} seconds.")
                time.sleep(wait)
                attempt += 1
                found = self._attempt()
        except Exception as error:  # an unexpected one, or SIGTERM during the wait
            found = as_failure(error).outcome()
        return {**found, "attempts": attempt}

    def _attempt(self) -> dict:
        try:
            return self._converge()
        except PullFailure as failure:
            return failure.outcome()

    def _converge(self) -> dict:
        self._require_programs()
        commit = self._commit()
        self._install()
        problem = self._check_out(commit)
        if problem and self._is_damaged():
            self._require_fetched(self._replace())
            commit = self._commit()
            problem = self._check_out(commit)
        if problem:
            raise PullFailure("failed", f"commit {commit} of the repository cannot be checked out: {problem}")
        self._require_files(commit)
        status, output = self._run_playbook()
        recap = RECAP.findall(output)
        if status:
            # The message of a task can contain secrets, and everybody can read the outcome.
            raise PullFailure(
                "failed", f"{failed_task(output, status)}. journalctl --unit gpufleet-pull shows the details."
            )
        if not recap:
            raise PullFailure("failed", f"{self.settings['playbook']} has no play for localhost")
        changed = sum(int(numbers[1]) for numbers in recap)
        return {"state": "changed" if changed else "unchanged", "changed": changed, "commit": commit, "reason": None}

    def _check_out(self, commit: str) -> str | None:
        """Make the working tree of a commit. Return why this failed, or None."""
        create_private(self.site)  # a killed git can leave a broken working tree
        repository = ["config", "remote.origin.url", self.settings["repository"]]  # for relative URLs of submodules
        fetch = ["fetch", "--quiet", "--no-tags", f"file://{self.repository}", f"+{PIN}:{PIN}"]
        for arguments in (["init", "--quiet"], repository, fetch, ["checkout", "--quiet", "--detach", commit]):
            status, output = self._do(["git", "-C", self.site, *arguments])
            if status:
                return first_error(output)
        status, output = self._do(["git", f"--git-dir={self.site}/.git", "rev-parse", "--verify", "HEAD"])
        if status or output.strip() != commit:
            return first_error(output) if status else f"git checked out {output.strip()}"
        if os.path.exists(f"{self.site}/.gitmodules"):
            status, output = self._do(
                ["git", "-C", self.site, "submodule", "--quiet", "update", "--init", "--recursive"]
            )
            if status:
                raise PullFailure("unavailable", f"a submodule of the repository cannot be read: {first_error(output)}")
        return None

    def _require_files(self, commit: str) -> None:
        """Fail if the commit lacks the playbook or the inventory. Ansible ignores an inventory that does not exist."""
        for name in ("playbook", "inventory"):
            path = os.path.normpath(self.settings[name] or ".")
            is_outside = os.path.isabs(path) or path.split("/")[0] == ".."
            if is_outside or not os.path.exists(f"{self.site}/{path}"):
                raise PullFailure(
                    "invalid",
                    f"commit {commit} of the repository has no file {self.settings[name]}. Correct unattended_{name}, "
                    f"which is {name} in {SETTINGS}.",
                )

    def _run_playbook(self) -> tuple[int, str]:
        """Run the playbook of the working tree. Return the status of ansible-playbook and its output."""
        write(f"{self.state}/inventory.yml", INVENTORY)
        argv = [f"{self.programs}/ansible-playbook", "--connection", "local", "--limit", "localhost"]
        argv += ["--inventory", f"{self.state}/inventory.yml"]
        if self.settings["inventory"]:
            argv += ["--inventory", f"{self.site}/{self.settings['inventory']}"]
        # In this directory, Ansible reads the ansible.cfg of the repository.
        argv.append(f"{self.site}/{self.settings['playbook']}")
        return self._do(argv, to_journal=True, directory=self.site)

    def _require_programs(self) -> None:
        """Install what cloud-init could not install, for example because a mirror did not answer."""
        if shutil.which("git") and self._do([self.settings["python"], "-c", "import ensurepip, venv"])[0] == 0:
            return
        wanted = self.settings["host_packages"]
        commands = [["dnf", "-y", "install", *wanted]]
        if shutil.which("apt-get"):
            wait = ["-o", "DPkg::Lock::Timeout=600"]
            commands = [
                ["dpkg", "--configure", "-a"],  # completes an interrupted installation
                ["apt-get", *wait, "update"],
                ["apt-get", *wait, "-y", "--no-install-recommends", "install", *wanted],
            ]
        for argv in commands:
            if argv[0] != "dnf":
                wait_for_locks()
            status, output = self._do(argv)
            if status:
                raise PullFailure("unavailable", f"{' and '.join(wanted)} could not be installed: {last_line(output)}")

    def _commit(self) -> str:
        """Return the commit of the pinned revision, and fetch it. A commit that was fetched before needs no network."""
        url, revision = self.settings["repository"], self.settings["revision"]
        is_commit = bool(COMMIT.fullmatch(revision))
        # A killed fetch can leave a commit without its files, so that the commit itself proves nothing.
        if is_commit and self._git("rev-parse", "--verify", "--quiet", PIN) == (0, f"{revision}\n"):
            return revision
        found = self._fetch()
        kind = "commit" if is_commit else "tag"
        missing = f"the repository {url} has no {kind} {revision}. Push it, or pin another {kind}."
        if found[0] and not is_commit and NO_REFERENCE.search(found[1]):
            raise PullFailure("invalid", missing)
        self._require_fetched(found)
        # git reads 40 digits as an object, also if a branch or a tag has this name.
        status, output = self._git("rev-parse", "--verify", "--quiet", f"{revision if is_commit else TAG}^{{commit}}")
        if status:
            raise PullFailure("invalid", missing)
        commit = output.strip()
        status, output = self._git("update-ref", PIN, commit)
        if status:
            raise PullFailure("failed", f"git cannot pin commit {commit}: {first_error(output)}")
        return commit

    def _git(self, *arguments: str) -> tuple[int, str]:
        return self._do(["git", f"--git-dir={self.repository}", *arguments])

    def _require_fetched(self, result: tuple[int, str]) -> None:
        if result[0]:
            reason = f"the repository {self.settings['repository']} cannot be read: {first_error(result[1])}"
            raise PullFailure("unavailable", reason)

    def _fetch(self) -> tuple[int, str]:
        """Fetch the pinned revision. Return the status and the output of git."""
        if self._git("rev-parse", "--git-dir")[0]:
            return self._replace()
        for path in glob.glob(f"{self.repository}/**/*.lock", recursive=True):
            os.unlink(path)  # a killed git left it
        status, output = self._fetch_into(self.repository)
        return self._replace() if status and self._is_damaged() else (status, output)

    def _replace(self) -> tuple[int, str]:
        """Fetch into a new repository. It replaces the former one only after the fetch."""
        new = f"{self.repository}.new"
        create_private(new)
        status, output = self._do(["git", f"--git-dir={new}", "init", "--quiet", "--bare"])
        if status == 0:
            status, output = self._fetch_into(new)
        if status == 0:
            shutil.rmtree(self.repository, ignore_errors=True)
            os.rename(new, self.repository)
        return status, output

    def _fetch_into(self, repository: str) -> tuple[int, str]:
        """Fetch only the pinned revision, into our own names: a branch can have the name of a tag or a commit."""
        revision = self.settings["revision"]
        if not COMMIT.fullmatch(revision):
            return self._fetch_references(repository, f"+refs/tags/{revision}:{TAG}")
        found = self._fetch_references(repository, f"+{revision}:{NAMES}/commit")
        if found[0]:
            # Some servers refuse to send a commit that is not the last one of a branch.
            found = self._fetch_references(repository, f"+refs/heads/*:{NAMES}/heads/*", f"+refs/tags/*:{NAMES}/tags/*")
        return found

    def _fetch_references(self, repository: str, *references: str) -> tuple[int, str]:
        argv = ["git", f"--git-dir={repository}", "fetch", "--quiet", "--force", "--no-tags", "--prune"]
        return self._do([*argv, self.settings["repository"], *references])

    def _is_damaged(self) -> bool:
        """Return whether the repository cannot be cloned. A power failure can leave empty files.

        git fsck also reports defects in old commits with which git works.
        """
        check = f"{self.state}/check"
        create_private(check)
        status, _output = self._do(["git", "clone", "--quiet", "--mirror", f"file://{self.repository}", check])
        shutil.rmtree(check, ignore_errors=True)
        return status != 0

    def _install(self) -> None:
        """Install Ansible and the collection, unless a former run has installed exactly these."""
        wanted = {name: self.settings[name] for name in ("python", "packages", "collection")}
        marker = f"{self.state}/installed.json"
        # An upgrade of the distribution can replace the Python for which the packages were installed.
        if (
            read_json(marker) == wanted
            and any(map(read_json, glob.glob(f"{self.collections}/ansible_collections/*/*/MANIFEST.json")))
            and self._do([f"{self.programs}/ansible", "--version"])[0] == 0
        ):
            return
        with contextlib.suppress(FileNotFoundError):
            os.unlink(marker)  # first, because the run can be killed at any time
        for path in (f"{self.state}/venv", self.collections):
            shutil.rmtree(path, ignore_errors=True)
        galaxy = [f"{self.programs}/ansible-galaxy", "collection", "install", "--no-deps", "--collections-path"]
        steps = [
            ("Python's environment", [self.settings["python"], "-m", "venv", f"{self.state}/venv"]),
            ("Ansible", [self.python, "-m", "pip", "install", "--quiet", *self.settings["packages"]]),
            ("the collection", [*galaxy, self.collections, self.settings["collection"]]),
        ]
        for name, argv in steps:
            status, output = self._do(argv)
            if status:
                state = "invalid" if name == "the collection" and NO_SUCH_PIN.search(output) else "unavailable"
                raise PullFailure(state, f"{name} could not be installed: {last_error(output)}")
        os.sync()  # after a power failure, the marker must not outlive what it stands for
        write(marker, json.dumps(wanted))

    def _do(self, argv: list[str], *, to_journal: bool = False, directory: str | None = None) -> tuple[int, str]:
        """Return the status of a program, and its output, or its errors if it failed.

        `to_journal`: print each line at once, and return only the output. The errors go to the journal.
        """
        say(f"running {' '.join(argv[:3])}")
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "encoding": "utf-8", "errors": "replace"}
        options = {**streams, "env": self.environment, "cwd": directory}
        limit = None if argv[0] in PACKAGE_MANAGERS else LIMIT
        try:
            if not to_journal:
                done = subprocess.run(argv, check=False, timeout=limit, stderr=subprocess.PIPE, **options)
                return done.returncode, done.stdout if done.returncode == 0 or not done.stderr.strip() else done.stderr
            lines = []
            with subprocess.Popen(argv, **options) as process:
                try:
                    for line in process.stdout or ():
                        sys.stdout.write(line)
                        sys.stdout.flush()
                        lines.append(line)
                except PullFailure:  # SIGTERM
                    process.kill()
                    raise
            return process.returncode, "".join(lines)
        except subprocess.TimeoutExpired:
            return 124, f"{argv[0]} did not end within {limit} seconds"
        except OSError as error:
            return 127, str(error)


def tag_instance(outcome: dict, metadata: str = METADATA) -> str | None:
    """Set the tag gpufleet:outcome of this EC2 instance. Return why this failed, or None."""
    if shutil.which("aws") is None:
        return "the program aws is not installed"
    try:
        token = fetch(f"{metadata}/api/token", "PUT", {"X-aws-ec2-metadata-token-ttl-seconds": "60"})
        header = {"X-aws-ec2-metadata-token": token}
        document = json.loads(fetch(f"{metadata}/dynamic/instance-identity/document", "GET", header))
        instance, region = document["instanceId"], document["region"]
    except (OSError, ValueError, KeyError, TypeError, http.client.HTTPException) as error:
        return f"the instance metadata service cannot be read: {error}"
    argv = ["aws", "ec2", "create-tags", "--region", region, "--resources", instance]
    argv += ["--tags", f"Key=gpufleet:outcome,Value={outcome['state']} {outcome['time']}"]
    try:
        options = {"stdin": subprocess.DEVNULL, "encoding": "utf-8", "errors": "replace", "timeout": 60}
        done = subprocess.run(argv, check=False, capture_output=True, **options)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return None if done.returncode == 0 else last_line(done.stderr)


def fetch(url: str, method: str, headers: dict) -> str:
    """Return the answer of the instance metadata service. A proxy is not used for this address."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(urllib.request.Request(url, method=method, headers=headers), timeout=5) as answer:
        return answer.read().decode()


def as_failure(error: Exception) -> PullFailure:
    """Return the failure for any error, so that every run has an outcome."""
    if isinstance(error, PullFailure):
        return error
    say("".join(traceback.format_exception(type(error), error, error.__traceback__)))
    text = f"unexpected {type(error).__name__}: {last_line(str(error))}"
    return PullFailure("failed", f"{text}. journalctl --unit gpufleet-pull shows the details.")


def read_json(path: str) -> object:
    """Return the content of a file, or None if it does not exist or is damaged."""
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError):
        return None


def read_settings(path: str) -> dict:
    """Return the settings. Users change them, too."""
    try:
        with open(path, encoding="utf-8") as file:
            settings = json.load(file)
    except OSError as error:
        reason = f"{path} cannot be read: {error.strerror}. Launch the instance with new user data."
        raise PullFailure("invalid", reason) from error
    except ValueError as error:
        raise PullFailure("invalid", f"{path} is not valid JSON: {error}. Correct it.") from error
    if not isinstance(settings, dict):
        raise PullFailure("invalid", f"{path} is not a JSON object. Correct it.")
    for name, kind in SETTING_TYPES.items():
        if name not in settings:
            raise PullFailure("invalid", f"{path} has no key {name}. Correct it.")
        value = settings[name]
        is_number = isinstance(value, int) and not isinstance(value, bool)
        valid = is_number and value >= 1 if kind is int else isinstance(value, kind)
        if kind is list:
            valid = valid and all(isinstance(item, str) for item in value)
        if not valid:
            given = value if kind is int and is_number else f"of type {type(value).__name__}"
            raise PullFailure("invalid", f"{name} in {path} is {given}, but must be {TYPE_NAMES[kind]}. Correct it.")
    return settings


def wait_for_locks() -> None:
    """Wait until no other program installs packages, for example unattended-upgrades."""
    for _poll in range(LOCK_LIMIT // LOCK_POLL):
        locked = [path for path in LOCKS if is_locked(path)]
        if not locked:
            return
        say(f"waiting for the lock {locked[0]}")
        time.sleep(LOCK_POLL)


def is_locked(path: str) -> bool:
    """Return whether another process holds the lock of a package manager."""
    # struct flock of a 64-bit Linux. Taking the lock would let the other one fail.
    question = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    with contextlib.suppress(OSError), open(path, "rb") as file:
        return struct.unpack("hhqqi4x", fcntl.fcntl(file, fcntl.F_GETLK, question))[0] != fcntl.F_UNLCK
    return False


def create_private(path: str) -> None:
    """Create an empty directory that only root can read, because the repository can be private."""
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path, 0o700)


def write(path: str, text: str) -> None:
    """Replace a file, so that a killed run never leaves a part of it."""
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        file.write(text)
        os.fchmod(file.fileno(), 0o644)
    os.replace(f"{path}.new", path)


def say(text: str) -> None:
    """Print a message for the journal."""
    with contextlib.suppress(OSError):  # journald can be restarted at any time
        sys.stdout.write(f"gpufleet-pull: {text}\n")
        sys.stdout.flush()


def stop_on_sigterm() -> None:
    """Let SIGTERM raise Failure, so that a stopped run has an outcome, too."""
    start = time.monotonic()

    def stop(*_signal: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        # systemd started to count a moment earlier.
        late = time.monotonic() - start > RUN_LIMIT - 60
        limit = f"the run did not end within {RUN_LIMIT // 3600} hours"
        raise PullFailure("failed", limit if late else "the service was stopped")

    signal.signal(signal.SIGTERM, stop)


def main() -> int:
    """Run once, unless another run is in progress."""
    pin()
    sys.stdout.reconfigure(errors="backslashreplace")
    os.makedirs(STATE, exist_ok=True)
    # Everybody who can read the file could lock it.
    with open(f"{STATE}/lock", "w", encoding="utf-8", opener=lambda *how: os.open(*how, mode=0o600)) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            say("another run is in progress. Nothing was changed.")
            return 0
        settings = {}
        try:
            settings = read_settings(SETTINGS)
            stop_on_sigterm()
            outcome = Pull(settings).run()
        except Exception as error:
            outcome = {**as_failure(error).outcome(), "attempts": 0}
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the rest takes less than TimeoutStopSec
        now = datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0)
        pause = datetime.timedelta(minutes=settings.get("interval", 0))
        outcome = {
            **outcome,
            "time": now.isoformat(),
            "next": (now + pause).isoformat() if pause else None,
            **{name: settings.get(name) for name in ("repository", "revision", "playbook", "collection")},
        }
        path = f"{STATE}/outcome.json"
        if settings.get("ec2_tag"):
            # First, because the metadata service and aws can fail in any way.
            write(path, json.dumps({**outcome, "tag": "not set yet"}, indent=2) + "\n")
            outcome["tag"] = tag_instance(outcome) or "set"
        write(path, json.dumps(outcome, indent=2) + "\n")
    say(f"{outcome['state']}: {outcome['reason'] or str(outcome['changed']) + ' changes'}")
    return 0 if outcome["state"] in ("changed", "unchanged") else 1


if __name__ == "__main__":
    raise SystemExit(main())
