#!/usr/bin/python
# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Install, remove and hold packages in one recorded transaction."""

from __future__ import annotations

DOCUMENTATION = r"""
module: package_transaction
short_description: Install, remove and hold packages in one recorded transaction
version_added: 0.1.0
author:
  - gpufleet maintainers (@gpufleet)
description:
  - Configures package repositories, installs, removes and holds packages with apt, dnf 4 or zypper, and records this
    under a name.
  - O(state=absent) removes the recorded packages, repositories, files and holds, and nothing else. It does not
    reinstall packages that a transaction removed, and does not revert upgrades or downgrades. It does not restore files
    that a transaction removed because of O(files) or O(repositories[].replaces).
  - Reads the repositories through a private view, simulates the transaction with the package manager's own solver, and
    fails before the first change if the transaction would remove or change a package that the options do not allow.
    After it has written repositories or other files, it simulates and checks the transaction again.
  - A repository that cannot be read is only a warning, and the others are used, unless O(repositories),
    O(uses_repositories) or O(files) has its entry, no other repository is known to offer a requested package, or no
    repository can be read. If it has security updates of the distribution, the warning says so.
  - If the transaction fails, the module installs the removed and replaced packages in their former versions again, and
    sets their holds again. If no new package is installed, it also restores the repositories, the other files and the
    module streams. The message lists what it restored, and everything that it could not restore.
  - A message of a failure begins with the cause and has at most 600 characters. The rest is in
    F(/var/lib/gpufleet/package_failure.txt) on the host, which only root can read. The next failure replaces the file,
    and a success removes it.
  - If the module or the host is stopped during the transaction, the next run with the same record repairs the packages,
    and then applies its own options.
  - If no change is necessary, the module needs no network.
  - The host needs only Python and the package manager's command.
options:
  record:
    description: >-
      Name of the record, in lower-case letters, digits and underscores. Use one record for everything that belongs
      together, for example the packages of one role. Other records keep their packages and repositories.
    type: str
    required: true
  state:
    description:
      - V(present) makes the changes that the other options request. An item that you remove from O(install) or
        O(repositories) stays on the host.
      - V(absent) removes the packages that the transactions of O(record) installed and that nothing else needs. It also
        removes their repositories and other files, restores the previous module streams and releases their holds. Of
        the other options, only O(remove), O(keep), O(idle_commands), O(lock_timeout) and O(download_timeout) apply.
      - With apt, V(absent) purges the packages. This removes their configuration files, and the scripts of some
        packages also delete data, for example databases.
    type: str
    choices: [present, absent]
    default: present
  install:
    description:
      - Packages to install, each as C(name), C(name=version), C(name>=version), or the absolute path of a package file
        on the host.
      - C(name) installs the version that the package manager prefers, by default the newest one. It does not upgrade an
        installed package.
      - C(name) may be virtual, that is, a name that packages only provide. An installed package or another item that
        provides it suffices. Otherwise exactly one available package must provide it. For such a name, each run needs
        the repositories.
      - C(name=version) also upgrades or downgrades an installed package. A version without a revision or release, such
        as C(580.95.05), selects the newest build of this version.
      - C(name>=version) keeps an installed package that is new enough. Otherwise it installs the version that the
        package manager prefers, or the newest version if the preferred one is too old.
      - A package file is not installed again if exactly its version is installed. The module reads the file in each
        run.
      - With apt, C(name:architecture) selects an architecture other than the host's. This form is also valid in
        O(remove) and O(purge).
    type: list
    elements: str
    default: []
  remove:
    description:
      - Names of packages to remove in the same transaction. With apt, their configuration files stay.
      - With O(state=absent), recorded packages that must not stay. The module fails before the first change if another
        package needs them.
    type: list
    elements: str
    default: []
  purge:
    description: >-
      Names of packages to remove in the same transaction. With apt, this also removes their configuration files, and
      the scripts of some packages also delete data.
    type: list
    elements: str
    default: []
  hold:
    description:
      - Packages to hold at their version after the transaction, as C(name) or C(name=version). The module holds every
        installed package that an item selects, including dependencies and packages that other programs installed.
      - Names and versions may have wildcards. After a tilde, they are regular expressions. A regular expression may
        match any part of a name, but must match the whole version, with or without epoch and release. For example,
        V(~^libnvidia-=580.95.05) selects all packages whose names start with C(libnvidia-) and that have this version.
      - The module releases its own holds when a later transaction changes the packages.
      - An item that you remove from this list does not end a hold. List the packages in O(release) instead.
      - zypper locks packages by name, so a lock also applies to other versions.
    type: list
    elements: str
    default: []
  release:
    description: >-
      Packages whose holds the module releases, in the form of O(hold), even if it did not set them. Packages that
      O(hold) also selects are held after the transaction.
    type: list
    elements: str
    default: []
  may_change:
    description: >-
      Installed packages that the transaction may also remove, upgrade or downgrade, in the form of O(hold). By default,
      it changes only the packages in O(install), O(remove) and O(purge).
    type: list
    elements: str
    default: []
  may_upgrade:
    description: Whether the transaction may upgrade any installed package for a dependency.
    type: bool
    default: false
  keep:
    description: >-
      Packages that the transaction must neither change nor install as a dependency, in the form of O(hold). It does not
      apply to packages in O(install), O(remove) and O(purge). With O(state=absent), packages that stay.
    type: list
    elements: str
    default: []
  repositories:
    description: Signed repositories to add, or to change if they exist. Other entries of the host stay.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: Name of the repository's files, and with dnf and zypper the ID of the repository.
        type: str
        required: true
      description:
        description: Description of the repository. The default is its name.
        type: str
      url:
        description: URL without a login, with one of the schemes V(http), V(https), V(ftp) and V(file).
        type: str
        required: true
      suite:
        description: With apt, the suite, or a path that ends with a slash. The default is V(/).
        type: str
      components:
        description: With apt, the components of the suite.
        type: list
        elements: str
      key:
        description: >-
          Public key of the repository, as a URL or as the absolute path of a key file on the host. With apt, the key
          signs the metadata; with dnf, every package, or the metadata with O(repositories[].signed=metadata); with
          zypper, the metadata, or every package if the metadata is not signed.
        type: str
        required: true
      fingerprint:
        description: >-
          The full fingerprint of the key with 40 or 64 hexadecimal digits, or the SHA-256 digest of the key file as
          V(sha256:0123...). The module fails before the first change if the key is different. With a fingerprint, the
          file must contain only this key, and the module writes only its packets. For a file with several keys, use its
          digest.
        type: str
        required: true
      priority:
        description: >-
          Priority of the repository. With dnf and zypper, lower numbers come first. With apt, it is the pin priority of
          all packages from the repository's server.
        type: int
      module_hotfixes:
        description: With dnf, whether the packages are visible even if a module has packages with the same names.
        type: bool
      signed:
        description: >-
          With dnf, what the key signs. V(packages), the default, checks the signature of every package. V(metadata)
          checks the signature of the metadata, which contains the digests of the packages.
        type: str
        choices: [packages, metadata]
      username:
        description: >-
          User name for the repository. It is also used for the key if the key is on the same server. Requires
          O(repositories[].password).
        type: str
      password:
        description: Password for the repository.
        type: str
      proxy:
        description: Proxy for the repository, for example V(http://proxy.example:3128).
        type: str
      proxy_username:
        description: User name for the proxy. Requires the proxy and its password.
        type: str
      proxy_password:
        description: Password for the proxy.
        type: str
      replaces:
        description: Files of older entries of the same repository, which are removed.
        type: list
        elements: path
  uses_repositories:
    description: >-
      Names of repositories that another record may have added and that the packages need. They stay until no record
      needs them.
    type: list
    elements: str
    default: []
  archive_components:
    description: With apt, components such as V(contrib) to enable in the entries of the archive of Debian or Ubuntu.
    type: list
    elements: str
    default: []
  module_streams:
    description: With dnf, module streams to enable, each as C(module:stream). Another stream of the module is reset.
    type: list
    elements: str
    default: []
  files:
    description: >-
      Configuration files of the package manager that are written before the transaction, for example pins. The
      simulation uses them.
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description: Absolute path below F(/etc/apt), F(/etc/dnf), F(/etc/yum.repos.d) or F(/etc/zypp).
        type: path
        required: true
      state:
        description: Whether the file is V(present) or V(absent).
        type: str
        choices: [present, absent]
        default: present
      content:
        description: >-
          Text of the file. It must not contain a login. Use O(files[].secret_content) for a file with a login.
        type: str
        default: ""
      secret_content:
        description: >-
          Text of a file that contains a login. The file has the mode C(0600), and its text is neither logged nor shown.
        type: str
      mode:
        description: Mode of a file with O(files[].content). With V(0600), its text is not shown, either.
        type: str
        choices: ["0644", "0600"]
        default: "0644"
  query:
    description:
      - Packages whose available versions are returned in RV(versions). Wildcards select all names that they match.
      - The module then only reads the repositories as the other options would configure them, and changes nothing.
        Outside check mode, the downloaded package lists stay on the host, so that the next transaction downloads only
        what has changed.
    type: list
    elements: str
    default: []
  query_streams:
    description: With dnf, modules whose streams are returned in RV(streams). Like O(query), changes nothing.
    type: list
    elements: str
    default: []
  query_dependencies:
    description:
      - With apt, packages whose field C(Depends) is returned in RV(dependencies). Like O(query), changes nothing.
    type: list
    elements: str
    default: []
  together_with:
    description:
      - With O(state=absent), further records that are removed in the same transaction. Use it for packages that need
        packages of O(record).
    type: list
    elements: str
    default: []
  rehearse_removals:
    description:
      - Removals to simulate in this order, as O(state=absent) would carry them out one after the other. The result is
        RV(removals). The module fails if one of them would break other packages. Like O(query), changes nothing.
    type: list
    elements: dict
    default: []
    suboptions:
      record:
        description: Name of the record.
        type: str
        required: true
      together_with:
        description: See O(together_with).
        type: list
        elements: str
        default: []
      remove:
        description: See O(remove).
        type: list
        elements: str
        default: []
      keep:
        description: See O(keep).
        type: list
        elements: str
        default: []
  idle_commands:
    description:
      - Names of commands that the scripts of packages must not run. In this transaction, the scripts find commands with
        these names that do nothing and succeed. Nothing stays on the host.
      - Use it for a script that needs the Internet, for example V(update-pciids), which waits for a long time without
        it.
    type: list
    elements: str
    default: []
  lock_timeout:
    description: Maximum time in seconds to wait for another package manager.
    type: int
    default: 60
  download_timeout:
    description:
      - Maximum time in seconds for which a download of metadata or packages may receive no data. The module then ends
        the download and fails with its URL.
      - The module downloads the packages before it installs them, and never ends a running installation.
    type: int
    default: 120
attributes:
  check_mode:
    description: >-
      Simulates the transaction with the package manager's solver. dnf and zypper may refresh the cached metadata of
      the host's repositories. Nothing else on the host changes, and the metadata of new repositories is not kept.
    support: full
  diff_mode:
    description: >-
      Shows every package with its old and its new version, and the files of the repositories. The output contains a
      digest instead of each login.
    support: full
  idempotent:
    description: A second run with the same options changes nothing and needs no network.
    support: full
notes:
  - Requires root. Without a record of this name, check mode, O(query), O(query_streams), O(query_dependencies) and
    O(rehearse_removals) work without root.
  - Supports Debian, Ubuntu, Enterprise Linux, Amazon Linux 2023, SLES and systems that are derived from them. dnf 5 is
    not supported.
  - To hold packages with dnf, also list C(python3-dnf-plugin-versionlock) in O(install).
  - The module installs no recommended packages and no weak dependencies. zypper accepts licenses automatically.
seealso:
  - module: ansible.builtin.package
"""

EXAMPLES = r"""
- name: Install a monitoring agent from its own repository and hold it
  gpufleet.hosts.package_transaction:
    record: monitoring
    repositories:
      - name: monitoring
        url: https://packages.example/debian
        suite: stable
        components: [main]
        key: https://packages.example/key.asc
        fingerprint: 0123456789ABCDEF0123456789ABCDEF01234567
    install: [agent=2.4.1, agent-plugins]
    hold: [agent]

- name: Replace the agent with the conflicting package collector
  gpufleet.hosts.package_transaction:
    record: monitoring
    install: [collector]
    remove: [agent, agent-plugins]

- name: Remove the packages and the repository of the record, with apt also the configuration files
  gpufleet.hosts.package_transaction:
    record: monitoring
    state: absent

- name: List the available versions of a package
  gpufleet.hosts.package_transaction:
    record: monitoring
    query: [agent]
  register: offered
"""

RETURN = r"""
changes:
  description: >-
    The changed packages, or in check mode those of the simulation. C(action) is install, upgrade, downgrade, reinstall
    or remove. C(before) and C(after) are versions in the package manager's format, or null. The result does not list
    module streams. If only a stream changes, the task is reported as changed and this list is empty.
  type: list
  elements: dict
  returned: success, without O(query), O(query_streams), O(query_dependencies) and O(rehearse_removals)
  sample: [{name: libcuda1, action: upgrade, before: 580.82.07-1, after: 580.95.05-1, arch: amd64}]
files:
  description: Paths of the configuration files that were written or removed.
  type: list
  elements: str
  returned: success, without O(query), O(query_streams), O(query_dependencies) and O(rehearse_removals)
  sample: [/etc/apt/sources.list.d/monitoring.sources]
held:
  description: Packages that are newly held.
  type: list
  elements: str
  returned: success, without O(query), O(query_streams), O(query_dependencies) and O(rehearse_removals)
  sample: [agent]
released:
  description: Packages that are no longer held. With dnf, also released locks on versions that are not installed.
  type: list
  elements: str
  returned: success, without O(query), O(query_streams), O(query_dependencies) and O(rehearse_removals)
  sample: []
repaired:
  description: What an interrupted run left incomplete. The module repaired it, or would repair it in check mode.
  type: list
  elements: str
  returned: success, without O(query), O(query_streams), O(query_dependencies) and O(rehearse_removals)
  sample: [dpkg was interrupted]
kept:
  description: >-
    With O(state=absent), recorded packages that stay, because other packages need them, O(keep) selects them, or the
    user holds them.
  type: list
  elements: str
  returned: success, without O(query), O(query_streams), O(query_dependencies) and O(rehearse_removals)
  sample: []
removals:
  description: The packages that each removal of O(rehearse_removals) would remove, and those of its records that stay.
  type: list
  elements: dict
  returned: with O(rehearse_removals)
  sample: [{record: monitoring, removed: [agent], kept: []}]
versions:
  description: The available versions of each package in O(query), newest first, in the package manager's format.
  type: dict
  returned: with O(query), O(query_streams) or O(query_dependencies)
  sample: {agent: ["2.4.1-1", "2.4.0-1"]}
hidden:
  description: >-
    The packages in O(query) that a repository has, but that dnf's configuration hides, each with a sentence that names
    the line and its file.
  type: dict
  returned: with O(query), if there are such packages
  sample: {agent: "The repositories have agent, but dnf hides it because of exclude=a* in /etc/dnf/dnf.conf."}
streams:
  description: The available streams of each module in O(query_streams).
  type: dict
  returned: with O(query), O(query_streams) or O(query_dependencies)
  sample: {nvidia-driver: [580-dkms, 580-open]}
dependencies:
  description: >-
    The field C(Depends) of each available or installed version of each package in O(query_dependencies).
  type: dict
  returned: with O(query), O(query_streams) or O(query_dependencies)
  sample: {agent: {"2.4.1-1": "agent-libs (= 2.4.1-1), libc6"}}
"""

import contextlib
import dataclasses
import os
import re
from typing import Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import pinned_environment
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.masked_module import MaskedModule as AnsibleModule
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.masked_module import hidden, without_logins
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.program_runner import Run
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.root_required import needs_root
from ansible_collections.gpufleet.hosts.plugins.module_utils.host import platform as host_platform
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers import (
    backend,
    idle_commands,
    package_to_install,
    stalled_downloads,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.apt import Apt
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.dnf import Dnf
from ansible_collections.gpufleet.hosts.plugins.module_utils.package_managers.zypper import Zypper
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import (
    failure_report,
    foreign_dkms,
    record_journal,
    removal_transaction,
    selectors_of_allowed_packages,
    transaction,
    transaction_lock,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import key_trust
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import repository_options as repositories

BACKENDS = {"apt": Apt, "dnf": Dnf, "zypper": Zypper}
ERRORS = (
    package_to_install.ItemError,
    backend.PackageManagerError,
    record_journal.JournalError,
    transaction_lock.TransactionLockError,
    selectors_of_allowed_packages.SelectorError,
    key_trust.KeyTrustError,
    repositories.RepositoryError,
    transaction.TransactionError,
    # A file or a directory of the host is not usable.
    OSError,
)
_DIRECTORIES = ("/etc/apt/", "/etc/dnf/", "/etc/yum.repos.d/", "/etc/zypp/")
LISTS = (
    "install",
    "remove",
    "purge",
    "hold",
    "release",
    "may_change",
    "keep",
    "uses_repositories",
    "archive_components",
    "module_streams",
)


def request(options: dict[str, Any], manager: str) -> transaction.TransactionRequest:
    """Check the options and convert them."""

    def selectors(name: str) -> tuple[selectors_of_allowed_packages.Selector, ...]:
        return tuple(selectors_of_allowed_packages.parse(text) for text in options[name])

    for name in ("archive_components", "module_streams", "query_streams", "query_dependencies"):
        needed = "apt" if name in ("archive_components", "query_dependencies") else "dnf"
        if options[name] and manager != needed:
            raise transaction.TransactionError(
                f"{name} is set, but this host uses {manager}. Set it only with {needed}."
            )
    items = tuple(package_to_install.item(text) for text in options["install"])
    for name in (*(item.name for item in items), *options["remove"], *options["purge"]):
        if ":" in name and manager != "apt":
            raise transaction.TransactionError(
                f"{name!r} has an architecture, but {manager} does not use this form. Remove the colon and the "
                "architecture: the host's own architecture is the default."
            )
    for stream in options["module_streams"]:
        if not re.fullmatch(r"[^\s:]+:[^\s:]+", stream):
            raise transaction.TransactionError(
                f"module_streams: {stream!r} is not a valid stream. Write module:stream."
            )
    for item in options["files"]:
        if not item["path"].startswith(_DIRECTORIES) or os.path.normpath(item["path"]) != item["path"]:
            raise transaction.TransactionError(
                f"files: {item['path']!r} is not a file of the package manager. Use a path below "
                f"{', '.join(_DIRECTORIES)}."
            )
    return transaction.TransactionRequest(
        install=items,
        remove=tuple(options["remove"]),
        purge=tuple(options["purge"]),
        hold=selectors("hold"),
        release=selectors("release"),
        may_change=selectors("may_change"),
        may_upgrade=options["may_upgrade"],
        keep=selectors("keep"),
        repositories=tuple(repositories.read(options["repositories"], manager)),
        uses=tuple(options["uses_repositories"]),
        components=tuple(options["archive_components"]),
        streams=tuple(options["module_streams"]),
        files=tuple(map(_file, options["files"])),
        lock_timeout=options["lock_timeout"],
    )


def rehearsal(options: dict[str, Any], program: backend.Backend) -> list[dict[str, Any]]:
    """Simulate the removals in `rehearse_removals`, and return what each would remove."""
    wanted = options["rehearse_removals"]
    removals = [
        removal_transaction.RecordedRemoval(
            transaction.TransactionRequest(
                remove=tuple(one["remove"]),
                keep=tuple(selectors_of_allowed_packages.parse(text) for text in one["keep"]),
            ),
            record_journal.Journal(one["record"]),
            tuple(record_journal.Journal(name) for name in one["together_with"]),
        )
        for one in wanted
    ]
    return [
        {
            "record": one["record"],
            "removed": sorted({change.name for change in result.changes}),
            "kept": result.kept,
        }
        for one, result in zip(wanted, removal_transaction.rehearse(removals, program))
    ]


def _file(item: dict[str, Any]) -> backend.RepositoryFile:
    """Convert an item of `files`."""
    secret = item.get("secret_content")
    if secret and item["content"]:
        raise transaction.TransactionError(f"files: {item['path']} has content and secret_content. Remove one of them.")
    text = secret or item["content"]
    return backend.RepositoryFile(
        item["path"], text.encode() if item["state"] == "present" else None, 0o600 if secret else int(item["mode"], 8)
    )


def masked(value: Any) -> Any:
    """Mask the arguments for the log of the host and the result. The text of a file may contain a login."""
    if isinstance(value, dict):
        return {
            name: hidden(item) if name in ("content", "secret_content") else masked(item)
            for name, item in value.items()
        }
    return [masked(item) for item in value] if isinstance(value, list) else without_logins(value)


def diff(result: transaction.TransactionResult) -> list[dict[str, str]]:
    """Return Ansible's diff: a list of the packages, and one entry for each file."""
    before = "".join(f"{change.name} {change.before}\n" for change in result.changes if change.before)
    after = "".join(f"{change.name} {change.after}\n" for change in result.changes if change.after)
    packages = {"before_header": "packages", "after_header": "packages", "before": before, "after": after}
    return [packages, *result.files] if before or after else [*result.files]


def fail(module: AnsibleModule, text: str, *, is_reading: bool) -> None:
    """Fail with the cause. A task that only reads writes no file, so its message is complete."""
    if is_reading or os.geteuid() != 0:
        module.fail_json(msg=text)
    if len(text) > failure_report.LIMIT:
        failure_report.write(text)
    module.fail_json(msg=failure_report.condensed(text))


def warn(module: AnsibleModule, program: backend.Backend) -> None:
    """Warn of the repositories that could not be read and that were not necessary."""
    for text in program.failures.warnings:
        module.warn(text)


def _run(module: AnsibleModule, manager: str) -> contextlib.AbstractContextManager[Run]:
    """Return what runs the programs of the package manager."""
    options = module.params
    limits = stalled_downloads.DownloadLimits(options["download_timeout"], options["lock_timeout"], options["record"])
    # A simulation runs no scripts of packages.
    idle = () if module.check_mode else options["idle_commands"]
    run = stalled_downloads.runner(module, manager, limits, reports=not module.check_mode)
    return idle_commands.replaced(idle, run)


def argument_spec() -> dict:
    """Return the options."""
    texts = {"type": "list", "elements": "str", "default": []}
    return {
        "record": {"type": "str", "required": True},
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        **dict.fromkeys((*LISTS, "query", "query_streams", "query_dependencies"), texts),
        "may_upgrade": {"type": "bool", "default": False},
        "repositories": {"type": "list", "elements": "dict", "default": [], "options": repositories.OPTIONS},
        "files": {
            "type": "list",
            "elements": "dict",
            "default": [],
            "options": {
                "path": {"type": "path", "required": True},
                "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
                "content": {"type": "str", "default": ""},
                "secret_content": {"type": "str", "no_log": True},
                "mode": {"type": "str", "choices": ["0644", "0600"], "default": "0644"},
            },
        },
        "together_with": texts,
        "rehearse_removals": {
            "type": "list",
            "elements": "dict",
            "default": [],
            "options": {
                "record": {"type": "str", "required": True},
                **dict.fromkeys(("together_with", "remove", "keep"), texts),
            },
        },
        "idle_commands": texts,
        "lock_timeout": {"type": "int", "default": 60},
        "download_timeout": {"type": "int", "default": 120},
    }


def act(
    wanted: transaction.TransactionRequest,
    program: backend.Backend,
    record: record_journal.Journal,
    options: dict,
    *,
    check_mode: bool,
) -> transaction.TransactionResult:
    """Install or remove."""
    if options["state"] == "present":
        return transaction.present(wanted, program, record, check_mode=check_mode)
    beside = [record_journal.Journal(name) for name in options["together_with"]]
    return removal_transaction.absent(wanted, program, record, check_mode=check_mode, together_with=beside)


def main() -> None:
    """Read the options, carry out the transaction, and report it."""
    pinned_environment.pin()
    module = AnsibleModule(
        argument_spec=argument_spec(),
        mask=masked,
        supports_check_mode=True,
    )
    options = module.params
    platform = host_platform.read("/", os.uname().machine)
    manager = platform["package_manager"]
    if manager not in BACKENDS:
        module.fail_json(
            msg=f"package_transaction does not support {platform['name']}. Use a host with Debian, Ubuntu, Enterprise "
            "Linux, Amazon Linux 2023, SLES, or a system that is derived from one of these."
        )
    question = transaction.Question(options["query"], options["query_streams"], options["query_dependencies"])
    program = None
    try:
        with contextlib.ExitStack() as stack:
            wanted = request(options, manager)
            program = BACKENDS[manager](
                stack.enter_context(_run(module, manager)), lock_timeout=options["lock_timeout"]
            )
            record = record_journal.Journal(options["record"])
            if question:
                found = transaction.query(wanted, question, program, record, is_real=not module.check_mode)
                warn(module, program)
                module.exit_json(changed=False, **found)
            if options["rehearse_removals"]:
                module.exit_json(changed=False, removals=rehearsal(options, program))
            # A user without privileges can simulate, but not act.
            if os.geteuid() != 0 and not module.check_mode:
                module.fail_json(msg=needs_root(os.geteuid()))
            result = act(wanted, program, record, options, check_mode=module.check_mode)
    except ERRORS as error:
        if program is not None:
            warn(module, program)
        text = failure_report.naming_variables(str(error), options["record"])
        text = " ".join(filter(None, (foreign_dkms.causes(text), text)))
        fail(module, text, is_reading=bool(question or options["rehearse_removals"]) or module.check_mode)
    warn(module, program)
    if not module.check_mode:
        failure_report.remove()
    module.exit_json(
        changed=result.changed,
        changes=[dataclasses.asdict(change) for change in result.changes],
        files=[item["after_header"] for item in result.files],
        held=result.held,
        released=result.released,
        repaired=result.repaired,
        kept=result.kept,
        diff=diff(result),
    )


if __name__ == "__main__":
    main()
