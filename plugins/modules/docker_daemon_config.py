#!/usr/bin/python
# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: docker_daemon_config
short_description: Own some keys of Docker's daemon.json and leave all others alone
version_added: 0.1.0
author:
  - gpufleet maintainers (@gpufleet)
description:
  - Merges options into the configuration file of the Docker daemon. Keys that others wrote stay as they are.
  - A record on the host says which values were set on whose behalf, and what they replaced. An option that is no longer
    wanted is taken back, and what stood there before comes back; with the last one, the file is what it was, or gone.
  - Before a changed file becomes live it is checked, by C(dockerd) itself wherever there is one. Docker 23.0 and later
    have C(--validate) for that; 19.03 and 20.10 are started as an unprivileged user, which makes them read and check
    the file and then stop before they touch anything. Without C(dockerd), known options are checked by their type.
  - An option that C(dockerd) already gets as a flag from its unit is left out when both say the same, and is an error
    when they do not, since C(dockerd) refuses to start with both.
  - A file that is not a JSON object is reported with line and column, and never overwritten.
  - As for C(dockerd) 23.0 and later, an empty file has no options, and a UTF-8 byte-order mark does not count. A file
    with options of ours has no such mark. Once they are taken back, the file is empty, or has its mark, as before. On a
    host with an older C(dockerd), which does not start with either, it holds V({}), or has no mark.
  - Neither reloads nor restarts the daemon; RV(reload_sufficient) and RV(pending) say what is needed.
options:
  path:
    description:
      - The configuration file. If it is a symbolic link, what it points to is written.
    type: path
    default: /etc/docker/daemon.json
  options:
    description:
      - With O(state=present), all that O(managed_by) wants in the file. Objects are merged key by key; what is below
        C(runtimes.<name>) and C(default-ulimits.<name>) is one value.
      - V(null) means that the key is to be absent. What somebody wrote there by other means than this module is taken
        out, and comes back when O(managed_by) no longer wants that; RV(taken_over_keys) names it. If another
        O(managed_by) wants a value there, that is an error, as with any two values.
      - With O(state=absent), the keys to take back, where V(null) names a key with all that is below it. Left out, all
        of O(managed_by) are taken back.
      - With O(state=undone), top-level keys that stay as they are although they belong to what is undone, whatever
        value is given here. For example C(live-restore), while containers run that a daemon without it would stop.
      - Two ways to write one runtime are equal if they differ only in an empty C(args) or C(runtimeArgs).
    type: dict
  state:
    description:
      - Whether the options are to be in the file, or to be taken back.
      - V(undone) goes back to the file and the record as they were before the changes that wait to be taken up by the
        daemon. It is for a daemon that does not start with what it had accepted when asked.
      - The daemon takes up the file as a whole, so V(undone) goes back behind all changes that wait, of every
        O(managed_by). RV(undone_keys) says whose options they were.
      - Where no change waits, nothing happens. Where somebody changed the file since by other means than this module,
        it is an error, and nothing is undone.
    type: str
    choices: [present, absent, undone]
    default: present
  managed_by:
    description:
      - On whose behalf the keys are set. Each name has its own keys; wanting one key with different values under two
        names is an error. A key that two names want stays until both have taken it back.
      - It does not limit O(state=undone).
    type: str
    default: user
  lists:
    description:
      - V(union) adds the items that are missing, and takes back only those. In C(exec-opts), C(labels) and
        C(storage-opts) an item replaces the one with the same key before the C(=).
      - V(replace) takes a list as one value.
    type: str
    choices: [union, replace]
    default: union
  validate:
    description:
      - Whether C(dockerd) is asked before a changed file becomes live. Types of known options and conflicts with the
        unit are checked in any case.
    type: bool
    default: true
  dockerd:
    description:
      - The daemon's program. Left out, it is looked for in the usual directories.
    type: path
  service:
    description:
      - The systemd unit of the daemon, whose flags are compared and whose start says what is pending.
    type: str
    default: docker.service
  backup:
    description:
      - Keep a copy of the file with a time stamp in its name before it is changed.
    type: bool
    default: false
  state_directory:
    description:
      - Where the record lies. It may hold what stood in the file before, so only root can read it.
    type: path
    default: /var/lib/gpufleet
attributes:
  check_mode:
    support: full
    description: Says what would change, C(dockerd)'s opinion included, and changes nothing.
  diff_mode:
    support: full
    description: The file before and after. Passwords and tokens are masked.
  idempotent:
    support: full
    description: A second run changes nothing. The form in which others wrote the file is kept until a key changes.
seealso:
  - name: dockerd reference
    description: All options of the daemon's configuration file.
    link: https://docs.docker.com/reference/cli/dockerd/
"""

EXAMPLES = r"""
- name: Keep containers alive while the daemon restarts, and know NVIDIA's runtime
  gpufleet.hosts.docker_daemon_config:
    options:
      live-restore: true
      runtimes:
        nvidia:
          path: nvidia-container-runtime
  register: daemon_config

- name: Let the daemon read it again
  ansible.builtin.systemd_service:
    name: docker
    state: reloaded
  when: daemon_config is changed and daemon_config.reload_sufficient

- name: Take a default runtime out that somebody else left there
  gpufleet.hosts.docker_daemon_config:
    managed_by: migration
    options:
      default-runtime: null

- name: Take back all that was set, and bring back what stood there before
  gpufleet.hosts.docker_daemon_config:
    state: absent

- name: Go back to the options with which the daemon did start
  gpufleet.hosts.docker_daemon_config:
    state: undone

- name: Take back one runtime only
  gpufleet.hosts.docker_daemon_config:
    state: absent
    options:
      runtimes:
        nvidia: null
"""

RETURN = r"""
changed_keys:
  description: Options whose value changed, as dotted names.
  returned: success
  type: list
  elements: str
  sample: [live-restore, runtimes.nvidia]
restart_required_keys:
  description: Those of RV(changed_keys) that a reload of the daemon does not make effective.
  returned: success
  type: list
  elements: str
  sample: [features.cdi]
reload_sufficient:
  description: Whether a reload makes all of RV(changed_keys) effective. True also when nothing changed.
  returned: success
  type: bool
  sample: true
pending:
  description:
    - Options that are in the file but that the running daemon has not taken up, from this call or an earlier one. Empty
      where the daemon does not run, since it reads the file when it starts.
  returned: success
  type: dict
  contains:
    reload:
      description: Options for which a reload is enough.
      type: list
      elements: str
      sample: [live-restore]
    restart:
      description: Options that wait for a restart.
      type: list
      elements: str
      sample: [features.cdi]
owned_keys:
  description: All options that O(managed_by) owns after this call.
  returned: success
  type: list
  elements: str
  sample: [features.cdi, live-restore, runtimes.nvidia]
taken_over_keys:
  description:
    - Options in which this call replaced, or took out for V(null), what somebody had written by other means than this
      module. The former value is kept in the record, and comes back when O(managed_by) takes the option back.
  returned: success
  type: list
  elements: str
  sample: [log-driver]
undone_keys:
  description:
    - Options that went back to what they were, by the name on whose behalf they had been set (O(managed_by)). Empty
      where no change waited.
  returned: when O(state=undone)
  type: dict
  sample:
    container_engine: [bip]
    my_playbook: [runtimes.nvidia]
edited_keys:
  description:
    - Options that were ours, are no longer wanted, and that somebody changed in the meantime. They stay as they are and
      are ours no longer.
  returned: success
  type: list
  elements: str
  sample: []
satisfied_by_flags:
  description: Options that were left out, because a flag in the unit says the same.
  returned: success
  type: list
  elements: str
  sample: [live-restore]
config:
  description: What is in the file after this call. Passwords and tokens are masked.
  returned: success
  type: dict
  sample:
    features:
      cdi: true
    live-restore: true
validated_by:
  description: Which C(dockerd) checked the changed file. Empty where none did.
  returned: success
  type: str
  sample: /usr/sbin/dockerd 26.1.5
backup_file:
  description: The copy of the file as it was.
  returned: when O(backup=true) and an existing file was changed
  type: str
  sample: /etc/docker/daemon.json.4242.2026-01-31@12:00:00~
"""

import contextlib
import os
import shutil
import subprocess
import tempfile
import time

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import daemon_config

# Any user without rights will do, and one whom nobody is does not meet others' processes.
UNPRIVILEGED = 65533


def read(path: str) -> str | None:
    """The text of a file, None where there is none."""
    try:
        with open(path, "rb") as file:
            return daemon_config.decoded(file.read(), path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise daemon_config.DaemonConfigError(f"{path}: cannot be read: {error.strerror}.{way_out(error)}") from error


def way_out(error: OSError) -> str:
    return " Set become: true; this needs root." if isinstance(error, PermissionError) and os.geteuid() != 0 else ""


def run_unprivileged(command: list[str]) -> tuple[int, str, str]:
    """Run a command as a user without rights. Root only: anybody else is unprivileged already."""
    drop = {"user": UNPRIVILEGED, "group": UNPRIVILEGED, "extra_groups": []} if os.geteuid() == 0 else {}
    try:
        done = subprocess.run(  # run_command cannot change the user
            command,
            check=False,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=60,
            cwd="/",
            env={"PATH": os.environ.get("PATH", os.defpath), "HOME": "/nonexistent", "LC_ALL": "C"},
            **drop,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return 127, "", str(error)
    return done.returncode, done.stdout, done.stderr


def program(module: AnsibleModule) -> str | None:
    directories = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"]
    return module.params["dockerd"] or module.get_bin_path("dockerd", opt_dirs=directories)


def restored(module: AnsibleModule, text: str | None) -> str | None:
    """The text as it was before the first option of ours, or in a form that the host's dockerd starts with."""
    if text is None or daemon_config.plain(text) == text:
        return text
    dockerd = program(module)
    version = daemon_config.dockerd_version(guarded(module), dockerd) if dockerd else ()
    return daemon_config.plain(text) if daemon_config.too_old(text, version) else text


def validated(module: AnsibleModule, text: str) -> str:
    """Let the host's dockerd read the text from a file that only it can see."""
    dockerd = program(module)
    if not dockerd:
        return ""
    if not os.access(dockerd, os.X_OK):
        raise daemon_config.DaemonConfigError(f"dockerd: {dockerd} is not there or cannot be run.")
    directory = tempfile.mkdtemp(prefix="gpufleet-")
    try:
        file = os.path.join(directory, "daemon.json")
        with open(file, "w", encoding="utf-8") as handle:
            handle.write(text)
        if os.geteuid() == 0:
            os.chown(file, UNPRIVILEGED, UNPRIVILEGED)
            os.chown(directory, UNPRIVILEGED, UNPRIVILEGED)
        return daemon_config.validate(module.run_command, run_unprivileged, dockerd, file)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def write_state(path: str, state: daemon_config.State) -> None:
    """Write the record, or remove it and its directories when there is nothing left to remember."""
    if not state.record.entries and not state.written:
        with contextlib.suppress(OSError):
            os.unlink(path)
            os.rmdir(os.path.dirname(path))
            os.rmdir(os.path.dirname(os.path.dirname(path)))
        return
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(path))
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(daemon_config.dump_state(state))
    os.replace(temporary, path)


def write_config(module: AnsibleModule, path: str, text: str | None, made_directory: bool) -> None:
    """Put the text in place at once, with the mode and owner that the file has."""
    directory = os.path.dirname(path)
    if text is None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        if made_directory:
            with contextlib.suppress(OSError):
                os.rmdir(directory)
        return
    is_new = not os.path.exists(path)
    os.makedirs(directory, mode=0o755, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=module.tmpdir)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    module.atomic_move(temporary, path)
    if is_new:
        os.chmod(path, 0o644)


def guarded(module: AnsibleModule) -> daemon_config.Run:
    """A runner for which a program that is not there has failed, and the module has not."""

    def run_command(command: list[str]) -> tuple[int, str, str]:
        try:
            return module.run_command(command, handle_exceptions=False)
        except OSError as error:
            return 127, "", str(error)

    return run_command


def boot_id() -> str:
    return (read("/proc/sys/kernel/random/boot_id") or "").strip()


def undo(module: AnsibleModule, path: str, state: daemon_config.State, state_file: str, unit: str) -> dict:
    """Go back to what was there before the changes that the daemon has not taken up."""
    shown_path, before = module.params["path"], read(path)
    is_done = not state.written or daemon_config.taken_up(state.written, boot_id(), guarded(module), unit)
    found = None if is_done else daemon_config.former(state, before, shown_path)
    if found:
        found = daemon_config.keeping(found, before, state, module.params["options"] or {}, shown_path)
    text, new = (restored(module, found.text), found.state) if found else (before, state)
    config = {} if text is None else daemon_config.parse(text, shown_path)
    changed = daemon_config.differing_names({} if before is None else daemon_config.parse(before, shown_path), config)
    restart = daemon_config.restart_required(changed, config)
    result = {
        "changed": found is not None,
        "changed_keys": changed,
        "restart_required_keys": restart,
        "reload_sufficient": not restart,
        "owned_keys": daemon_config.owned_keys(new.record, module.params["managed_by"]),
        "taken_over_keys": [],
        "undone_keys": daemon_config.undone_keys(state.record, new.record),
        "edited_keys": [],
        "satisfied_by_flags": [],
        "config": daemon_config.masked_tree(config),
        "validated_by": "",
        "pending": {"reload": [], "restart": []},
        "diff": diff(shown_path, before, text),
    }
    if found and not module.check_mode:
        write_config(module, path, text, state.made_directory and not new.made_directory)
        write_state(state_file, new)
    return result


def diff(path: str, before: str | None, after: str | None) -> dict:
    return {
        "before_header": path,
        "after_header": path,
        "before": daemon_config.masked_file(before or ""),
        "after": daemon_config.masked_file(after or ""),
    }


def run(module: AnsibleModule) -> dict:
    params = module.params
    for name in ("path", "state_directory"):
        if not os.path.isabs(params[name]):
            raise daemon_config.DaemonConfigError(f"{name}={params[name]} is not an absolute path.")
    if not params["managed_by"]:
        raise daemon_config.DaemonConfigError(
            "managed_by is empty. Name on whose behalf the keys are set, or leave it out."
        )
    shown_path = params["path"]
    path = os.path.realpath(shown_path)
    unit = params["service"] if "." in params["service"] else params["service"] + ".service"
    state_file = daemon_config.state_path(params["state_directory"], path)

    flags = daemon_config.unit_flags("/", unit)
    other = daemon_config.config_file_flag(flags)
    if other and os.path.realpath(str(other.value)) != path:
        raise daemon_config.DaemonConfigError(
            f"path: {unit} makes dockerd read {other.value} ({other.text} in {other.place}), not {shown_path}. "
            f"Set path={other.value}."
        )
    state = daemon_config.load_state(read(state_file), state_file)
    if params["state"] == "undone":
        return undo(module, path, state, state_file, unit)
    before = read(path)
    in_swarm = daemon_config.in_swarm({} if before is None else daemon_config.parse(before, shown_path), flags)
    plan = daemon_config.plan(
        before,
        state,
        params["managed_by"],
        params["options"],
        present=params["state"] == "present",
        lists=params["lists"],
        flags=flags,
        path=shown_path,
        unit=unit,
        in_swarm=in_swarm,
    )
    run_command = guarded(module)
    pending = daemon_config.pending(state.written, boot_id(), run_command, unit)
    is_proven = not state.written or daemon_config.taken_up(state.written, boot_id(), run_command, unit)
    for conflict in plan.conflicts:
        module.warn(conflict)
    is_written = plan.text != before
    if is_written:
        plan = plan._replace(text=restored(module, plan.text))
    result = {
        "changed": is_written or plan.state.record != state.record,
        "changed_keys": list(plan.changed_keys),
        "restart_required_keys": plan.restart_keys,
        "reload_sufficient": not plan.restart_keys,
        "owned_keys": daemon_config.owned_keys(plan.state.record, params["managed_by"]),
        "taken_over_keys": daemon_config.taken_over_keys(state.record, plan.state.record),
        "edited_keys": list(plan.edited),
        "satisfied_by_flags": plan.satisfied,
        "config": daemon_config.masked_tree(plan.config),
        "validated_by": "",
        "diff": diff(shown_path, before, plan.text),
    }
    if is_written and plan.text is not None and params["validate"]:
        result["validated_by"] = validated(module, plan.text)
    new = plan.state
    if is_written:
        waiting = {
            "reload": sorted({*pending["reload"], *set(plan.changed_keys) - set(plan.restart_keys)}),
            "restart": sorted({*pending["restart"], *plan.restart_keys}),
        }
        new = new._replace(
            written={
                "at": time.monotonic_ns() // 1000,
                "boot_id": boot_id(),
                **waiting,
                "former": daemon_config.remember_former(before, plan.text, state, is_proven=is_proven),
            },
            made_directory=state.made_directory or not os.path.isdir(os.path.dirname(path)),
        )
        pending = daemon_config.pending({**new.written, "at": float("inf")}, boot_id(), run_command, unit)
    result["pending"] = pending
    if module.check_mode:
        return result
    if not result["changed"]:
        if state.written and is_proven:
            # A note to ourselves that has done its work; nothing of the host's changes with it.
            write_state(state_file, state._replace(written=None))
        return result

    if is_written:
        if params["backup"] and before is not None:
            result["backup_file"] = module.backup_local(path)
        # First the record of all that may be ours after a crash, then the file, then the record of what is.
        entries = {**state.record.entries, **new.record.entries}
        write_state(
            state_file,
            new._replace(
                record=new.record._replace(entries=entries),
                original=state.original if new.original is None else new.original,
            ),
        )
        write_config(module, path, plan.text, new.made_directory)
        new = new._replace(written={**new.written, "at": time.monotonic_ns() // 1000})
        if (is_proven and not any(pending.values())) or not new.record.entries:
            new = new._replace(written=None)
    write_state(state_file, new)
    return result


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "default": daemon_config.DEFAULT_PATH},
            "options": {"type": "dict"},
            "state": {"type": "str", "choices": ["present", "absent", "undone"], "default": "present"},
            "managed_by": {"type": "str", "default": "user"},
            "lists": {"type": "str", "choices": ["union", "replace"], "default": "union"},
            "validate": {"type": "bool", "default": True},
            "dockerd": {"type": "path"},
            "service": {"type": "str", "default": daemon_config.DEFAULT_UNIT},
            "backup": {"type": "bool", "default": False},
            "state_directory": {"type": "path", "default": daemon_config.DEFAULT_STATE_DIRECTORY},
        },
        required_if=[("state", "present", ["options"])],
        supports_check_mode=True,
    )
    # Ansible would return the arguments as they are, passwords included.
    invocation = {"module_args": daemon_config.masked_tree(module.params)}
    try:
        result = run(module)
    except daemon_config.DaemonConfigError as error:
        module.fail_json(msg=daemon_config.masked(str(error)), invocation=invocation)
    except OSError as error:
        place = error.filename or module.params["path"]
        module.fail_json(msg=f"{place}: {error.strerror or error}.{way_out(error)}", invocation=invocation)
    module.exit_json(invocation=invocation, **result)


if __name__ == "__main__":
    main()
