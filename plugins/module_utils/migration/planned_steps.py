# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the migration from nvidia-docker 1 and 2. Pure functions of the observation.

Each step is one that a killed run can repeat. The order protects the user's files and containers:

1. Restore a file that an interrupted migration has lost, then save the files that a purge deletes.
2. Remove containers and volumes while the plugin still answers. Then stop the plugin.
3. Install the toolkit and purge the old packages in one transaction.
4. Restore the files, and remove the rest. Only then does role nvidia_container_toolkit reload Docker.
5. Delete the saved files.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import observed_files, owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config import json_text, record
from ansible_collections.gpufleet.hosts.plugins.module_utils.migration import (
    leftovers,
    observed_leftovers,
    old_packages,
    old_runtime_entry,
    old_sources,
)

if t.TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import (
        Host,
        NvidiaDocker,
        OldContainer,
    )

Step = dict[str, t.Any]
_APT = "/etc/apt/"
# Docker keeps a plugin that it has used until it stops: moby/moby, volume/drivers/extpoint.go.
_REMEMBERED = "the volume plugin of nvidia-docker 1.0, which Docker remembers"


@dataclasses.dataclass
class Migration:
    """What the migration does. `before`, `after` and `last`: the steps around the transaction of the packages.

    `purge`: the old packages. `files`: the files of the package manager to remove in the transaction. `takes_runtime`:
    whether runtime nvidia in daemon.json becomes ours. `drops_flag`: whether the flag that registers it is removed.
    `volumes`: the volumes of the plugin to remove. `kept`: the files that the purge must not lose.
    """

    before: list[Step] = dataclasses.field(default_factory=list)
    after: list[Step] = dataclasses.field(default_factory=list)
    last: list[Step] = dataclasses.field(default_factory=list)
    purge: list[str] = dataclasses.field(default_factory=list)
    files: list[str] = dataclasses.field(default_factory=list)
    kept: list[str] = dataclasses.field(default_factory=list)
    volumes: list[str] = dataclasses.field(default_factory=list)
    # Why Docker must restart, or None.
    restart: str | None = None
    takes_runtime: bool = False
    drops_flag: bool = False
    changes: list[str] = dataclasses.field(default_factory=list)
    reasons: list[str] = dataclasses.field(default_factory=list)
    problems: list[str] = dataclasses.field(default_factory=list)


def plan(host: Host, *, remove_containers: bool) -> Migration:
    """Return the migration. `remove_containers`: whether to remove stopped containers that cannot start again."""
    result, seen = Migration(), leftovers.traces(host)
    if not seen:
        return result
    _restore(result, seen)
    plugin_goes = _plugin(result, host, seen, remove_containers=remove_containers)
    _packages(result, host, plugin_goes=plugin_goes)
    _kept(result, host, seen)
    _sources(result, host, seen)
    _runtime(result, host, seen)
    _rest(result, seen, plugin_goes=plugin_goes)
    if seen["saved"] or result.kept:
        result.last = [{"do": "forget"}]
    if result.last and not result.kept:
        result.changes.append(f"delete the saved files in {owned.MIGRATION}")
    unknown = leftovers.unknown_runtime(host, leftovers.runtimes(host) | {"nvidia"})
    if unknown:
        result.reasons.append(f"containers with unknown runtimes cannot start: {_listed(unknown)}. Create them again")
    return result


def after(host: Host, migration: Migration) -> Host:
    """Return the host as the migration leaves it for the rest of the plan: its repositories and Docker's options."""
    if not migration.changes:
        return host
    found = old_sources.without(host, old_sources.of_host(host))
    daemon = dict(host["docker_daemon_json"])
    if migration.drops_flag:
        daemon["flags"] = [flag for flag in daemon["flags"] if not _registers(flag)]
    file = host["files"][owned.DAEMON_JSON]
    if migration.takes_runtime and file["content"] is not None:
        tree = old_runtime_entry.without(json_text.parse(file["content"], owned.DAEMON_JSON))
        text = json_text.dump(tree, file["content"]) if tree else None
        changed = {**file, "exists": text is not None, "content": text}
        found["files"] = {**host["files"], owned.DAEMON_JSON: changed}
        daemon["content"] = tree if tree else None
        missing = daemon.get("missing_runtimes", {})
        daemon["missing_runtimes"] = {name: path for name, path in missing.items() if name != old_runtime_entry.NAME}
    found["docker_daemon_json"] = daemon
    return t.cast("Host", found)


def _restore(result: Migration, seen: NvidiaDocker) -> None:
    """Restore what an interrupted run has purged, before anything else."""
    for path, state in seen["copies"].items():
        if state == observed_leftovers.GONE:
            result.before.append({"do": "restore", "path": path})
            result.changes.append(f"restore {path} from the interrupted migration")


def _plugin(result: Migration, host: Host, seen: NvidiaDocker, *, remove_containers: bool) -> bool:
    """Plan the containers and the volumes of the plugin. Return whether the plugin itself can be removed."""
    using = leftovers.blocked(host)
    volumes = seen["volumes"]
    if volumes is None:
        result.reasons.append("the volume plugin stays, because Docker's database of volumes cannot be read")
        return False
    docker = host["services"].get("docker.service") or {}
    if (volumes or using) and docker.get("active_state") != "active":
        result.reasons.append("the volume plugin stays, because Docker does not run and cannot remove its volumes")
        return False
    removable = [one for one in using if not one["running"]] if remove_containers else []
    staying = [one for one in using if one not in removable]
    in_use = {name for one in staying for name in one["volumes"]}
    result.volumes = [name for name in volumes if name not in in_use]
    if docker.get("active_state") == "active" and (result.volumes or (seen["answers"] and not staying)):
        result.restart = _REMEMBERED
        # The marker has the start time of the Docker that must restart, so it has no effect afterwards. It comes first,
        # because a run that continues finds no volumes any more.
        result.before.append({"do": "mark_restart", "since": docker.get("active_since_us")})
    for one in removable:
        result.before.append({"do": "remove_container", "id": one["id"], "name": one["name"]})
        result.changes.append(
            f"remove container {one['name']}, and keep its description in {owned.MIGRATION_CONTAINERS}"
        )
    for name in result.volumes:
        result.before.append({"do": "remove_volume", "name": name})
        result.changes.append(f"remove volume {name} of the plugin nvidia-docker")
    if staying:
        result.reasons.append(_staying(staying, removes=remove_containers))
        return False
    if seen["service"].get("active_state") == "active" or seen["service"].get("unit_file_state") == "enabled":
        result.before.append({"do": "stop_unit", "unit": observed_leftovers.UNIT})
        result.changes.append(f"stop and disable {observed_leftovers.UNIT}")
    return True


def _staying(containers: list[OldContainer], *, removes: bool) -> str:
    advice = "Create them again with module gpu_container, and remove the old ones"
    if not removes and any(not one["running"] for one in containers):
        advice += (
            ". To remove stopped ones, set nvidia_container_toolkit_migrate_remove_containers to true: "
            f"{owned.MIGRATION_CONTAINERS} then keeps their descriptions"
        )
    return (
        "the volume plugin of nvidia-docker 1.0 stays, because containers use its volumes and cannot start without it: "
        f"{_listed(containers)}. {advice}"
    )


def _listed(containers: list[OldContainer]) -> str:
    return leftovers.names(containers)


def _packages(result: Migration, host: Host, *, plugin_goes: bool) -> None:
    installed = old_packages.packages(host)
    names = {*installed, *old_packages.conffiles(host), *old_packages.incomplete(host)}
    result.purge = sorted(name for name in names if name != old_packages.PLUGIN or plugin_goes)
    if result.purge:
        result.changes.append(f"purge {', '.join(result.purge)}")


def _kept(result: Migration, host: Host, seen: NvidiaDocker) -> None:
    """Save the files that the purge deletes with the user's changes, and restore them afterwards."""
    lost = {step["path"] for step in result.before if step["do"] == "restore"}
    files = [path for path in observed_leftovers.KEPT if observed_files.exists(host, path) or path in lost]
    if not result.purge:
        return
    result.kept = files
    result.before[len(lost) : len(lost)] = [
        {"do": "save", "path": path}
        for path in files
        if seen["copies"].get(path) not in (observed_leftovers.EQUAL, observed_leftovers.GONE)
    ]
    if files:
        result.changes.append(f"keep {', '.join(files)} through the purge")
    result.after += [{"do": "restore", "path": path} for path in files]


def _sources(result: Migration, host: Host, seen: NvidiaDocker) -> None:
    sources = old_sources.of_host(host)
    whole = old_sources.whole_files(host, sources)
    result.files = whole
    partly = sorted({source.file for source in sources} - {*whole})
    for path in partly:
        places = [source.place for source in sources if source.file == path]
        result.before.append({"do": "remove_entries", "path": path, "places": places})
    for key in seen["keys"]:
        if key["alone"] and key["path"].startswith(_APT):
            result.files.append(key["path"])
        else:
            result.before.append({"do": "remove_key", "path": key["path"]})
    if whole:
        result.changes.append(f"remove {', '.join(result.files)}")
    result.changes += [f"remove the old entries from {path}" for path in partly]
    result.changes += [
        f"remove the expired key from {step['path']}" for step in result.before if step["do"] == "remove_key"
    ]


def _runtime(result: Migration, host: Host, seen: NvidiaDocker) -> None:
    """Take over the runtime that package nvidia-docker2 registered. The user's own registration stays."""
    daemon = host["docker_daemon_json"]
    content = daemon.get("content") or {}
    of_package = old_packages.WRAPPER in result.purge or bool(seen["saved"])
    path = record.state_path(owned.STATE_DIRECTORY, owned.DAEMON_JSON)
    is_ours = old_runtime_entry.is_recorded(observed_files.content(host, path), path)
    # Without the runtime, Docker does not start with this default runtime.
    is_shipped = old_runtime_entry.is_shipped(content) and not is_ours
    if of_package and is_shipped and content.get("default-runtime") != "nvidia":
        result.takes_runtime = True
        result.after.append({"do": "release_runtime", "path": owned.DAEMON_JSON})
    for flag in daemon.get("flags", []):
        place = _place(flag)
        if _registers(flag):
            result.drops_flag = True
            result.after.append({"do": "drop_flag", "path": place})
            result.changes.append(f"remove --add-runtime=nvidia from {place}, which {owned.DAEMON_JSON} replaces")


def _place(flag: t.Mapping[str, t.Any]) -> str:
    return str(flag["place"]).rpartition(" in ")[2]


def _registers(flag: t.Mapping[str, t.Any]) -> bool:
    """Return whether a flag registers the runtime in a file of the administrator."""
    is_own = _place(flag).startswith("/etc/") and _place(flag) != "/etc/docker-runtimes.d"
    return flag["key"] == "runtimes" and is_own and any(str(word).startswith("nvidia=") for word in flag["value"])


def _rest(result: Migration, seen: NvidiaDocker, *, plugin_goes: bool) -> None:
    purged = old_packages.PLUGIN in result.purge
    files = [path for path in seen["files"] if plugin_goes and not (purged and path in observed_leftovers.OF_PACKAGE)]
    files += seen["hooks"]
    result.after += [{"do": "remove_file", "path": path} for path in files]
    if files:
        result.changes.append(f"remove {', '.join(files)}")
    if plugin_goes and seen["has_user"]:
        result.after.append({"do": "remove_user", "name": observed_leftovers.DRIVER})
        result.changes.append(f"remove user {observed_leftovers.DRIVER}")
    if result.drops_flag or any(path in observed_leftovers.UNITS for path in files):
        result.after.append({"do": "reload_systemd"})
        result.changes.append("reload systemd")
