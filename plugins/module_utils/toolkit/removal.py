# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plan the removal of the container toolkit that the role installed, and of its runtime. Pure functions.

Module package_transaction removes packages, the repository and holds by its record, and module docker_daemon_config the
options by its own record.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import observed_files, owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.root_required import needs_root
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import directories
from ansible_collections.gpufleet.hosts.plugins.module_utils.daemon_config.json_text import (
    DEFAULT_PATH,
    DaemonConfigError,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import coexistence
from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes import distribution_paths
from ansible_collections.gpufleet.hosts.plugins.module_utils.kubernetes.role_variables import NODE_ROLE
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import record_of_role
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts import steps
from ansible_collections.gpufleet.hosts.plugins.module_utils.parts.steps import Step
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit import (
    config_toml,
    docker_runtime,
    hosts_without_engine,
    nvidia_docker_file,
    own_cdi_units,
    package_plan,
    toolkit_cdi_units,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri import registration_and_removal as cri_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.cri.cri_changes import CriPlan
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.kubernetes_node import generated_configuration
from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.toml_editor import TomlError

if t.TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host

# The package whose programs write files that no package contains: packaging/debian/
# nvidia-container-toolkit-base.postinst and deployments/systemd/nvidia-cdi-refresh.service in
# NVIDIA/nvidia-container-toolkit (d34b304).
_BASE = "nvidia-container-toolkit-base"
# What the packages require of each other. Before version 1.11, the toolkit had no base.
_REQUIRED = {
    "nvidia-container-toolkit": (_BASE, "libnvidia-container-tools", "libnvidia-container1"),
    "libnvidia-container-tools": ("libnvidia-container1",),
}
_CONFIG_RECORD = owned.CONTAINER_TOOLKIT_CONFIG_RECORD
_PROOF = "remove the image and the record of the proof in a container"


@dataclasses.dataclass
class ToolkitRemoval:
    """What the role removes. `packages` must not stay. `files`: what the programs of the packages wrote.

    `revokes`: the role has options in daemon.json. `options`: the options to keep, always empty. `restart`: what
    else needs a restart of Docker, always empty.
    """

    revokes: bool = False
    options: dict[str, t.Any] = dataclasses.field(default_factory=dict)
    restart: list[str] = dataclasses.field(default_factory=list)
    # Whether there is a record of package transactions, and one of the proof in a container.
    record: bool = False
    proof: bool = False
    # Whether a migration has saved descriptions of removed containers.
    has_saved: bool = False
    packages: list[str] = dataclasses.field(default_factory=list)
    files: list[str] = dataclasses.field(default_factory=list)
    # The units of the packages to disable. Otherwise their links would stay.
    disable: list[str] = dataclasses.field(default_factory=list)
    # Drop-ins for units of the packages.
    drop_ins: list[str] = dataclasses.field(default_factory=list)
    # The change of the configuration of a toolkit that stays.
    config: config_toml.ConfigChange | None = None
    # The program that writes the CDI specification.
    own_cdi: own_cdi_units.OwnCdi = dataclasses.field(default_factory=own_cdi_units.OwnCdi)
    # The program nvidia-docker.
    wrapper: nvidia_docker_file.WrapperFile = dataclasses.field(default_factory=nvidia_docker_file.WrapperFile)
    # The runtime in containerd and CRI-O.
    cri: CriPlan = dataclasses.field(default_factory=CriPlan)
    # What the role does. The next two fields are derived from it.
    steps: list[Step] = dataclasses.field(default_factory=list)
    acts: bool = False
    changes: list[str] = dataclasses.field(default_factory=list)
    reasons: list[str] = dataclasses.field(default_factory=list)
    problems: list[str] = dataclasses.field(default_factory=list)


def plan(host: Host, restart_policy: str = "when_safe") -> ToolkitRemoval:
    """Return what to remove, and why it is not possible. `restart_policy`: that of role container_engine."""
    result = ToolkitRemoval(record=observed_files.exists(host, owned.CONTAINER_TOOLKIT_RECORD))
    result.proof = observed_files.exists(host, owned.CONTAINER_PROOF_RECORD)
    result.has_saved = observed_files.exists(host, owned.MIGRATION)
    found = package_plan.found_on(host)
    result.packages, result.reasons = _packages(host, found)
    try:
        result.revokes = docker_runtime.is_registered(host)
    except DaemonConfigError as error:
        result.problems.append(str(error))
    result.drop_ins = [owned.CDI_REFRESH_DROP_IN] if observed_files.exists(host, owned.CDI_REFRESH_DROP_IN) else []
    if _BASE in result.packages:
        result.files, result.disable = _left_by_packages(host)
    elif observed_files.exists(host, _CONFIG_RECORD):
        _restore(host, result)
    number = coexistence.running(host, "docker")
    if number and (result.packages or result.revokes):
        result.problems.append(
            "NVIDIA's container toolkit cannot be removed: containers of Docker are running "
            f"({coexistence.counted(host, 'docker')}), and those with runtime nvidia need it. Nothing was changed. "
            "Stop the containers first."
        )
    blocked = blocked_by_node(host) if result.packages else None
    result.problems += [blocked] if blocked else []
    result.cri = cri_plan.removal(host, restart_policy)
    result.problems += result.cri.problems
    result.reasons += result.cri.reasons
    result.own_cdi = own_cdi_units.removal(host)
    result.wrapper = nvidia_docker_file.removal(host)
    if not result.record and found:
        result.reasons.append("the installed toolkit is kept because this role did not install it")
    result.steps = _steps(result)
    result.acts, result.changes = bool(result.steps), steps.texts(result.steps)
    if result.acts and host["uid"] != 0:
        result.problems.append(needs_root(host["uid"]))
    if not result.acts and not result.reasons:
        result.reasons.append("this role has not installed anything on this host")
    return result


def _packages(host: Host, found: t.Collection[str]) -> tuple[list[str], list[str]]:
    """Return the packages to remove, and why others of this role stay: packages of somebody else require them."""
    path = owned.CONTAINER_TOOLKIT_RECORD
    recorded = record_of_role.possibly_installed(host, path, list(host["installed_packages"]))
    removable = record_of_role.to_remove(host, path)
    ours = [name for name in package_plan.UNIT if name in removable]
    needed_by = {name: user for user in found if user not in recorded for name in _REQUIRED.get(user, ())}
    return [name for name in ours if name not in needed_by], [
        f"{name} stays, because {needed_by[name]} was installed before this role and requires it"
        for name in ours
        if name in needed_by
    ]


def blocked_by_node(host: Host) -> str | None:
    """Return why the toolkit cannot be removed from a node whose distribution has its own containerd."""
    node, texts = hosts_without_engine.own_containerd(host), host["cri_files"]["nodes"]
    if node is None:
        return None
    ours = next(
        (path for path in (distribution_paths.K0S_DROP_IN, *distribution_paths.SETTINGS.values()) if path in texts),
        None,
    )
    if ours:
        return (
            f"NVIDIA's container toolkit cannot be removed: {ours} still lets {node.title} use runtime nvidia. Nothing "
            f"was changed. Run role {NODE_ROLE} with {NODE_ROLE}_state=absent first."
        )
    try:
        program = generated_configuration.registered(host, node, has_runtime=True)
    except TomlError:
        return None
    number = coexistence.running(host, "k3s") + coexistence.running(host, "kubernetes")
    if program != docker_runtime.PATH or not number:
        return None
    return (
        f"NVIDIA's container toolkit cannot be removed: containers of {node.title} are running ({number}), and those "
        f"with runtime nvidia need it. Nothing was changed. Drain the node, stop {node.unit} and its containers first."
    )


def _left_by_packages(host: Host) -> tuple[list[str], list[str]]:
    """Return the files that the removed packages would leave, and the units whose links would stay."""
    specification = directories.real(toolkit_cdi_units.output(host))
    files = [path for path in (config_toml.PATH, _CONFIG_RECORD) if observed_files.exists(host, path)]
    if specification in [directories.real(spec["path"]) for spec in host["cdi_specs"]]:
        files.append(specification)
    units = {unit: host["services"].get(unit) or {} for unit in toolkit_cdi_units.UNITS}
    enabled = [
        unit
        for unit, state in units.items()
        if state.get("unit_file_state") == "enabled" or state.get("active_state") == "active"
    ]
    return files, enabled


def _steps(result: ToolkitRemoval) -> list[Step]:
    """Return the steps in their order. The engines must not know the runtime when its programs are removed."""
    restored = f"restore {', '.join(result.config.keys) if result.config else ''} in {config_toml.PATH}"
    options = f"remove the options of this role from {DEFAULT_PATH}"
    known = ["repository and holds that this role recorded"] if result.record else []
    return [
        *([steps.own(steps.FILE, _PROOF)] if result.proof else []),
        *([steps.own(steps.OPTION, options)] if result.revokes else []),
        *result.cri.steps,
        *result.own_cdi.steps,
        *steps.listed(steps.SERVICE, "disable {}", result.disable),
        *steps.listed(steps.PACKAGES, "remove {}", result.packages),
        *steps.listed(steps.PACKAGES, "remove the {}", known),
        *steps.listed(steps.FILE, "remove {}", [*result.files, *result.drop_ins]),
        *steps.listed(steps.FILE, "remove {}", [owned.MIGRATION] if result.has_saved else []),
        *([steps.own(steps.FILE, restored)] if result.config else []),
        *result.wrapper.steps,
    ]


def _restore(host: Host, result: ToolkitRemoval) -> None:
    """Plan the former keys of the configuration of a toolkit that stays."""
    try:
        result.config = config_toml.observed(host, {})
    except TomlError as error:
        result.problems.append(f"{config_toml.PATH} cannot be restored: {error}. Nothing was changed.")
