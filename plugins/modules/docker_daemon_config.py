#!/usr/bin/python
# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: docker_daemon_config
short_description: Manage individual options in Docker's daemon.json
version_added: 0.1.0
author:
  - gpufleet maintainers (@gpufleet)
description:
  - Merges options into the configuration file of the Docker daemon, and keeps all other keys.
  - The module does not reload or restart the daemon. RV(reload_sufficient) and RV(pending) say what is required.
  - A record on the host keeps for each option its value, the value that it replaced, and its O(managed_by). When an
    option is removed with O(state=absent) or O(purge=true), the module restores the replaced value. When the last
    option is removed, the module restores the original file, or removes the file if there was none before.
  - If C(dockerd) is installed, it validates a changed file before the file replaces the old one. Docker 23.0 and later
    have C(--validate). The module starts an older C(dockerd) as an unprivileged user. This C(dockerd) checks the file
    and exits before it changes anything. Without C(dockerd), the module only checks known options itself. The module
    fails if O(options) enables C(features.cdi) and C(dockerd) is older than 25.0, because C(dockerd) would ignore it.
  - C(dockerd) does not start if both the file and a flag in its unit set an option. If both have the same value, the
    module does not write the option to the file. Otherwise it fails.
  - If the file is not a JSON object, the module fails with the line and the column, and does not overwrite the file.
  - If the file is immutable, mounted, on a read-only file system or not a regular file, the module fails before it
    changes anything.
  - As in C(dockerd) 23.0 and later, an empty file has no options, and a UTF-8 byte-order mark is ignored. C(dockerd)
    before 23.0 does not start with such a file. On such a host, the module restores an empty file as V({}), and a file
    with a mark without the mark.
options:
  path:
    description:
      - The configuration file. If it is a symbolic link, the module writes its target.
    type: path
    default: /etc/docker/daemon.json
  options:
    description:
      - With O(state=present), the options to set. Other options of O(managed_by) stay, unless O(purge=true). Objects
        are merged key by key, but C(runtimes.<name>) and C(default-ulimits.<name>) are one value each.
      - V(null) removes an option. If somebody else wrote the option, RV(taken_over_keys) names it, and
        O(state=absent) or O(purge=true) restores its value. If another O(managed_by) requests a value, the module
        fails.
      - With O(state=absent), the options to remove. V(null) names an option with everything below it. By default, the
        module removes all options of O(managed_by).
      - With O(state=undone), top-level options that keep their current values. The module ignores the values in this
        dictionary. Name C(live-restore) here while containers are running, because a daemon without this option would
        stop them.
      - Two definitions of a runtime are equal if they differ only in an empty C(args) or C(runtimeArgs).
    type: dict
  state:
    description:
      - V(present) sets the options, V(absent) removes them and restores the replaced values.
      - V(undone) restores the file and the record from before the pending changes. Use V(undone) if the daemon does
        not start with a file that it accepted during validation. While the daemon is stopped, V(undone) treats changes
        as pending. They stop being pending when the module finds the daemon running with them.
      - The daemon applies the file as a whole, so V(undone) undoes the pending changes of every O(managed_by).
        RV(undone_keys) names their options.
      - V(undone) changes nothing if no change is pending. V(undone) fails if somebody has edited the file since.
    type: str
    choices: [present, absent, undone]
    default: present
  managed_by:
    description:
      - The name of the owner of the options. Two owners can set the same option to the same value. The module removes
        the option when neither of them requests it any longer. If they request different values, the module fails.
      - Ignored with O(state=undone).
    type: str
    default: user
  purge:
    description:
      - With O(state=present), whether O(options) is the complete list for O(managed_by). V(true) removes its other
        options and restores the replaced values. V(false) keeps them.
      - RV(revoked_keys) names the removed options.
    type: bool
    default: false
  lists:
    description:
      - V(union) adds the missing items to a list, and removes only these later. In C(exec-opts), C(labels) and
        C(storage-opts), an item replaces the item with the same key before the C(=). The module fails if
        C(default-address-pools) would contain a base twice with different sizes.
      - V(replace) treats a list as one value.
    type: str
    choices: [union, replace]
    default: union
  validate:
    description:
      - Whether C(dockerd) validates a changed file before it replaces the old one. The module always checks the types
        of known options and the flags in the unit.
    type: bool
    default: true
  dockerd:
    description:
      - The path of C(dockerd). By default, the module searches the usual directories.
    type: path
  service:
    description:
      - The systemd unit of the daemon. The module reads its flags and its start time.
    type: str
    default: docker.service
  backup:
    description:
      - Whether to create a backup of the file, with a timestamp in its name, before the module changes the file.
    type: bool
    default: false
  state_directory:
    description:
      - The directory of the record. Only root can read the record, because it may contain earlier content of the file.
    type: path
    default: /var/lib/gpufleet
attributes:
  check_mode:
    support: full
    description: Reports what would change, including errors of C(dockerd), and changes nothing.
  diff_mode:
    support: full
    description: Shows the file before and after the change. Passwords and tokens are masked.
  idempotent:
    support: full
    description: A second run changes nothing. The formatting of the file is kept until an option changes.
seealso:
  - name: dockerd reference
    description: All options of the daemon's configuration file.
    link: https://docs.docker.com/reference/cli/dockerd/
"""

EXAMPLES = r"""
- name: Keep containers running while the daemon restarts, and register NVIDIA's runtime
  gpufleet.hosts.docker_daemon_config:
    options:
      live-restore: true
      runtimes:
        nvidia:
          path: nvidia-container-runtime
  register: daemon_config

- name: Reload the daemon
  ansible.builtin.systemd_service:
    name: docker
    state: reloaded
  when: daemon_config is changed and daemon_config.reload_sufficient

- name: Remove a default runtime that another tool set
  gpufleet.hosts.docker_daemon_config:
    managed_by: migration
    options:
      default-runtime: null

- name: Set all options of my_playbook, and remove those that it set before and that are not listed here
  gpufleet.hosts.docker_daemon_config:
    managed_by: my_playbook
    purge: true
    options:
      log-driver: local

- name: Remove all options and restore the replaced values
  gpufleet.hosts.docker_daemon_config:
    state: absent

- name: Restore the options that the daemon last ran with
  gpufleet.hosts.docker_daemon_config:
    state: undone

- name: Remove one runtime only
  gpufleet.hosts.docker_daemon_config:
    state: absent
    options:
      runtimes:
        nvidia: null
"""

RETURN = r"""
changed_keys:
  description: Dotted names of the options whose value changed.
  returned: success
  type: list
  elements: str
  sample: [live-restore, runtimes.nvidia]
restart_required_keys:
  description: Options in RV(changed_keys) that require a restart of the daemon.
  returned: success
  type: list
  elements: str
  sample: [features.cdi]
reload_sufficient:
  description: Whether a reload applies all of RV(changed_keys). Also V(true) if nothing changed.
  returned: success
  type: bool
  sample: true
pending:
  description:
    - Options in the file that the running daemon has not applied, from this call or an earlier one. Empty if the daemon
      is not running, because it reads the file when it starts. O(state=undone) undoes these changes, too.
  returned: success
  type: dict
  contains:
    reload:
      description: Options for which a reload is enough.
      type: list
      elements: str
      sample: [live-restore]
    restart:
      description: Options that require a restart.
      type: list
      elements: str
      sample: [features.cdi]
owned_keys:
  description: All options of O(managed_by) after this call.
  returned: success
  type: list
  elements: str
  sample: [features.cdi, live-restore, runtimes.nvidia]
taken_over_keys:
  description:
    - Options whose value somebody else wrote, and that this call replaced, or removed for V(null). The record keeps the
      old value, and O(state=absent) restores it.
  returned: success
  type: list
  elements: str
  sample: [log-driver]
revoked_keys:
  description:
    - Options of O(managed_by) that this call removed, or of which it removed list items. An option that another
      O(managed_by) also requests stays in the file, and an option in RV(edited_keys) keeps its value.
    - With C(--diff), they are also shown below the changes of the file.
  returned: success
  type: list
  elements: str
  sample: [features.cdi]
undone_keys:
  description:
    - Options that were undone, by their O(managed_by). Empty if no change was pending.
  returned: when O(state=undone)
  type: dict
  sample:
    container_engine: [bip]
    my_playbook: [runtimes.nvidia]
edited_keys:
  description:
    - Options in RV(revoked_keys) that somebody has edited. They keep their values and are removed from the record.
  returned: success
  type: list
  elements: str
  sample: []
satisfied_by_flags:
  description: Options that are not in the file because a flag in the unit sets the same value.
  returned: success
  type: list
  elements: str
  sample: [live-restore]
config:
  description: The content of the file after this call. Passwords and tokens are masked.
  returned: success
  type: dict
  sample:
    features:
      cdi: true
    live-restore: true
validated_by:
  description: The C(dockerd) that validated the changed file. Empty if none did.
  returned: success
  type: str
  sample: /usr/sbin/dockerd 26.1.5
backup_file:
  description: The path of the backup.
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

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import atomic_file, pinned_environment
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.masked_module import MaskedModule as AnsibleModule
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.root_required import is_root
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config import (
    docker_options,
    dockerd_flags,
    dockerd_validation,
    file_replacement,
    json_text,
    record,
    secret_masking,
    undo,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config import plan as daemon_plan

# A user without privileges that owns no process.
UNPRIVILEGED = 65533


def read(path: str) -> str | None:
    """Return the text of a file, or None if the file does not exist."""
    try:
        with open(path, "rb") as file:
            return json_text.decode(file.read(), path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise json_text.DaemonConfigError(f"{path} cannot be read: {error.strerror}.{advice(error)}") from error


def advice(error: OSError) -> str:
    """Return what the user can do about an error."""
    return " Set become: true." if isinstance(error, PermissionError) and not is_root() else ""


def run_unprivileged(command: list[str]) -> tuple[int, str, str]:
    """Run a command without root privileges."""
    drop = {"user": UNPRIVILEGED, "group": UNPRIVILEGED, "extra_groups": []} if is_root() else {}
    try:
        done = subprocess.run(  # run_command cannot change the user
            command,
            check=False,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=60,
            cwd="/",
            env=pinned_environment.environment({"HOME": "/nonexistent"}),
            **drop,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return 127, "", str(error)
    return done.returncode, done.stdout, done.stderr


def find_dockerd(module: AnsibleModule) -> str | None:
    """Return the path of dockerd, or None if dockerd is not installed."""
    return module.params["dockerd"] or pinned_environment.find("dockerd")


def readable_text(module: AnsibleModule, text: str | None) -> str | None:
    """Return the text in a form that the installed dockerd reads."""
    if text is None or json_text.portable(text) == text:
        return text
    path = find_dockerd(module)
    version = dockerd_validation.version_of(runner(module), path) if path else ()
    return json_text.portable(text) if json_text.is_rejected_by(text, version) else text


def validate(module: AnsibleModule, text: str) -> str:
    """Validate the text in a temporary file with dockerd. Return the path and version of dockerd."""
    path = find_dockerd(module)
    if not path:
        return ""
    if not os.access(path, os.X_OK):
        raise json_text.DaemonConfigError(f"dockerd={path} is not an executable file. Correct or remove the option.")
    directory = tempfile.mkdtemp(prefix="gpufleet-")
    try:
        file = os.path.join(directory, "daemon.json")
        with open(file, "w", encoding="utf-8") as handle:
            handle.write(text)
        if is_root():
            os.chown(file, UNPRIVILEGED, UNPRIVILEGED)
            os.chown(directory, UNPRIVILEGED, UNPRIVILEGED)
        requested = module.params["options"] if module.params["state"] == "present" else {}
        return dockerd_validation.validate(module.run_command, run_unprivileged, path, file, requested)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def write_record(path: str, state: record.State) -> None:
    """Write the record, or remove it and its directories if it is empty."""
    if not state.record.entries and not state.written:
        atomic_file.remove_temporary(path)
        with contextlib.suppress(OSError):
            os.unlink(path)
            os.rmdir(os.path.dirname(path))
            os.rmdir(os.path.dirname(os.path.dirname(path)))
        return
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    file_replacement.replace(path, record.dump_state(state), 0o600)


def write_config(module: AnsibleModule, path: str, text: str | None, made_directory: bool) -> None:
    """Replace or remove the file. `made_directory`: remove its directory, too, if it is empty."""
    directory = os.path.dirname(path)
    if text is None:
        atomic_file.remove_temporary(path)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        if made_directory:
            with contextlib.suppress(OSError):
                os.rmdir(directory)
        return
    new = [place for place in (directory, path) if not os.path.exists(place)]
    os.makedirs(directory, mode=0o755, exist_ok=True)
    try:
        file_replacement.replace(path, text, 0o644)
    except OSError:
        if directory in new:
            os.rmdir(directory)
        raise
    for place in new if module.selinux_enabled() else []:
        module.set_context_if_different(place, module.selinux_default_context(place), changed=False)


def runner(module: AnsibleModule) -> dockerd_validation.Run:
    """Return a function that runs a command and returns status 127 if the program does not exist."""

    def run_command(command: list[str]) -> tuple[int, str, str]:
        try:
            return module.run_command(command, handle_exceptions=False)
        except OSError as error:
            return 127, "", str(error)

    return run_command


def boot_id() -> str:
    """Return the identifier of the current boot."""
    return (read("/proc/sys/kernel/random/boot_id") or "").strip()


def undo_pending(
    module: AnsibleModule,
    path: str,
    state: record.State,
    record_file: str,
    *,
    unit: str,
    unit_flags: list[dockerd_flags.Flag],
) -> dict:
    """Restore the file and the record from before the changes that the daemon has not applied."""
    shown_path, before = module.params["path"], read(path)
    is_applied = not state.written or dockerd_validation.has_applied(state.written, boot_id(), runner(module), unit)
    found = None if is_applied else undo.former(state, before, shown_path)
    if found:
        found = undo.keep_keys(found, before, state, module.params["options"] or {}, shown_path)
    text, new = (readable_text(module, found.text), found.state) if found else (before, state)
    config = {} if text is None else json_text.parse(text, shown_path)
    changed = undo.differing_names({} if before is None else json_text.parse(before, shown_path), config)
    restart = docker_options.restart_required(changed, config, dockerd_flags.runtimes(unit_flags))
    result = {
        "changed": found is not None,
        "changed_keys": changed,
        "restart_required_keys": restart,
        "reload_sufficient": not restart,
        "owned_keys": record.owned_keys(new.record, module.params["managed_by"]),
        "taken_over_keys": [],
        "revoked_keys": [],
        "undone_keys": undo.undone_keys(state.record, new.record),
        "edited_keys": [],
        "satisfied_by_flags": [],
        "config": secret_masking.masked_tree(config),
        "validated_by": "",
        "pending": {"reload": [], "restart": []},
        "diff": diff(shown_path, before, text),
    }
    if found:
        file_replacement.refuse_fixed(path, shown_path)
    if found and not module.check_mode:
        write_config(module, path, text, state.made_directory and not new.made_directory)
        write_record(record_file, new)
    return result


def diff(path: str, before: str | None, after: str | None, note: str = "") -> dict:
    """Return the masked diff of the file, followed by a note."""
    return {
        "before_header": path,
        "after_header": path,
        "before": secret_masking.masked_file(before or ""),
        "after": secret_masking.masked_file(after or ""),
        **({"prepared": note} if note else {}),
    }


def revoked_note(manager: str, keys: tuple[str, ...]) -> str:
    """Return the options that `manager` no longer requests, for the diff. The file may still contain them."""
    return f"no longer requested by {manager}: {', '.join(keys)}\n" if keys else ""


def run(module: AnsibleModule) -> dict:
    """Apply the requested state and return the result."""
    params = module.params
    refuse_unusable_options(params)
    shown_path = params["path"]
    path = os.path.realpath(shown_path)
    unit = params["service"] if "." in params["service"] else params["service"] + ".service"
    # The daemon reads the file through this path, even if somebody replaces a link.
    record_file = record.state_path(params["state_directory"], os.path.normpath(shown_path))

    file_replacement.refuse_special(path, shown_path)
    unit_flags = dockerd_flags.unit_flags("/", unit)
    refuse_other_file(unit_flags, unit, path, shown_path)
    state = record.load_state(read(record_file), record_file)
    if params["state"] == "undone":
        return undo_pending(module, path, state, record_file, unit=unit, unit_flags=unit_flags)
    before = read(path)
    in_swarm = dockerd_flags.is_in_swarm({} if before is None else json_text.parse(before, shown_path), unit_flags)
    plan = daemon_plan.plan(
        before,
        state,
        params["managed_by"],
        params["options"],
        present=params["state"] == "present",
        lists=params["lists"],
        purge=params["purge"],
        flags=unit_flags,
        path=shown_path,
        unit=unit,
        in_swarm=in_swarm,
    )
    run_command = runner(module)
    pending = dockerd_validation.pending(state.written, boot_id(), run_command, unit)
    is_applied = not state.written or dockerd_validation.has_applied(state.written, boot_id(), run_command, unit)
    for conflict in plan.conflicts:
        module.warn(conflict)
    is_written = plan.text != before
    if is_written:
        file_replacement.refuse_fixed(path, shown_path)
        plan = plan._replace(text=readable_text(module, plan.text))
    result = {**planned_result(params, plan, before, state), "pending": pending}
    new = plan.state
    if is_written:
        result["validated_by"] = validate(module, plan.text) if plan.text is not None and params["validate"] else ""
        new = new._replace(
            written=written_now(plan, pending, undo.remember_former(before, plan.text, state, is_applied=is_applied)),
            made_directory=state.made_directory or not os.path.isdir(os.path.dirname(path)),
        )
        result["pending"] = dockerd_validation.pending(
            {**new.written, "at": float("inf")}, boot_id(), run_command, unit
        )
    if module.check_mode:
        return result
    if result["changed"]:
        kept = {"before": before, "state": state, "is_applied": is_applied}
        return {**result, **write(module, path, record_file, plan, new=new, **kept)}
    if state.written and is_applied:
        # The daemon has applied the last change. Clearing it from the record is not a change of the host.
        write_record(record_file, state._replace(written=None))
    return result


def refuse_unusable_options(params: dict) -> None:
    """Refuse relative paths and an empty manager."""
    for name in ("path", "state_directory"):
        if not os.path.isabs(params[name]):
            raise json_text.DaemonConfigError(f"{name}={params[name]} is not an absolute path. Start the path with /.")
    if not params["managed_by"]:
        raise json_text.DaemonConfigError("managed_by is empty. Set a name, or remove the option.")


def refuse_other_file(unit_flags: list[dockerd_flags.Flag], unit: str, path: str, shown_path: str) -> None:
    """Refuse a path that is not the file that the daemon reads."""
    other = dockerd_flags.config_file_flag(unit_flags)
    if other and os.path.realpath(str(other.value)) != path:
        raise json_text.DaemonConfigError(
            f"path={shown_path} is not the configuration file of {unit}, which sets {other.text} in {other.place}. "
            f"Set path={other.value}."
        )


def planned_result(params: dict, plan: daemon_plan.DaemonPlan, before: str | None, state: record.State) -> dict:
    """Return what the module returns about a plan before it acts."""
    return {
        "changed": plan.text != before or plan.state.record != state.record,
        "changed_keys": list(plan.changed_keys),
        "restart_required_keys": plan.restart_keys,
        "reload_sufficient": not plan.restart_keys,
        "owned_keys": record.owned_keys(plan.state.record, params["managed_by"]),
        "taken_over_keys": record.taken_over_keys(state.record, plan.state.record),
        "revoked_keys": list(plan.revoked),
        "edited_keys": list(plan.edited),
        "satisfied_by_flags": plan.satisfied,
        "config": secret_masking.masked_tree(plan.config),
        "validated_by": "",
        "diff": diff(params["path"], before, plan.text, revoked_note(params["managed_by"], plan.revoked)),
    }


def written_now(plan: daemon_plan.DaemonPlan, pending: dict, former: dict) -> dict:
    """Return the entry of the record for a file that is written now and that the daemon has still to apply."""
    return {
        "at": time.monotonic_ns() // 1000,
        "boot_id": boot_id(),
        "reload": sorted({*pending["reload"], *set(plan.changed_keys) - set(plan.restart_keys)}),
        "restart": sorted({*pending["restart"], *plan.restart_keys}),
        "former": former,
    }


def write(
    module: AnsibleModule,
    path: str,
    record_file: str,
    plan: daemon_plan.DaemonPlan,
    *,
    before: str | None,
    state: record.State,
    new: record.State,
    is_applied: bool,
) -> dict:
    """Write the file and the record, and return what the result has in addition."""
    added = {}
    if plan.text != before:
        if module.params["backup"] and before is not None:
            added["backup_file"] = module.backup_local(path)
        # If the module is killed, the record must cover every key in the file. So the record first contains the old and
        # the new keys, and only the new keys after the file is written.
        entries = {**state.record.entries, **new.record.entries}
        write_record(
            record_file,
            new._replace(
                record=new.record._replace(entries=entries),
                original=state.original if new.original is None else new.original,
            ),
        )
        try:
            write_config(module, path, plan.text, new.made_directory)
        except OSError:
            write_record(record_file, state)
            raise
        new = new._replace(written={**new.written, "at": time.monotonic_ns() // 1000})
        # Keep the former file for a stopped daemon, too, because it may not start with the new one.
        if (is_applied and not plan.changed_keys) or not new.record.entries:
            new = new._replace(written=None)
    elif plan.text is None and not new.record.entries:  # somebody else has removed the file
        write_config(module, path, None, new.made_directory)
        new = new._replace(written=None)
    write_record(record_file, new)
    return added


def main() -> None:
    pinned_environment.pin()
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "default": json_text.DEFAULT_PATH},
            "options": {"type": "dict"},
            "state": {"type": "str", "choices": ["present", "absent", "undone"], "default": "present"},
            "managed_by": {"type": "str", "default": "user"},
            "purge": {"type": "bool", "default": False},
            "lists": {"type": "str", "choices": ["union", "replace"], "default": "union"},
            "validate": {"type": "bool", "default": True},
            "dockerd": {"type": "path"},
            "service": {"type": "str", "default": dockerd_flags.DEFAULT_UNIT},
            "backup": {"type": "bool", "default": False},
            "state_directory": {"type": "path", "default": record.DEFAULT_STATE_DIRECTORY},
        },
        mask=secret_masking.masked_arguments,
        required_if=[("state", "present", ["options"])],
        supports_check_mode=True,
    )
    try:
        result = run(module)
    except json_text.DaemonConfigError as error:
        module.fail_json(msg=str(error))
    except OSError as error:
        place = error.filename or module.params["path"]
        module.fail_json(msg=f"{place}: {error.strerror or error}.{advice(error)}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
