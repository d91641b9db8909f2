# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables of playbook user_data, with their types and accepted values."""

from __future__ import annotations

import dataclasses
import difflib
import re
import typing as t

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import url_logins, variable_fields
from ansible_collections.gpufleet.hosts.plugins.module_utils.base.variable_fields import VariableError, variable

ROLE = "unattended"
_URL = r"(https?|ssh|git|file)://\S+|[\w.-]+@[\w.-]+:\S+"
# A password, also without a scheme, and a query of a URL, which can be a login.
_PASSWORD = re.compile(r"[^\s/@]+:[^\s/@]*@|://\S*\?")
_SSH_USER = re.compile(r"(?<=ssh://)[^\s/@:]+@")
# Names that usually are branches.
_BRANCHES = ("main", "master", "trunk", "develop", "devel", "head", "HEAD", "stable", "latest")
# A commit, or a tag with a version. A name such as release-1.2 usually is a branch, but hosts-1.2.3 is a tag.
_GIT = re.compile(
    r"git\+[^\s,]+,(?:[0-9a-f]{40}"
    r"|(?:[vV]?\d+(?:\.\d+)+|[A-Za-z][\w-]*[-_][vV]?\d+(?:\.\d+){2,})(?:[-+.]?[A-Za-z]+[-.]?\d+)?"
    r"(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?)"  # build metadata, see semver.org
)
_RELEASE = re.compile(r"[a-z_]\w*\.[a-z_]\w*:(==)?\d+\.\d+\.\d+\S*")
_ARCHIVE = re.compile(r"(?:https?://|file://|/)\S+-\d+\.\d+\.\d+\S*\.tar\.gz")
_NAME = re.compile(r"[A-Za-z_]\w*")
_SECRET = re.compile(r"pass|secret|token|key|credential", re.IGNORECASE)
# Words in the names of variables that contain no secret, for example PIP_KEYRING_PROVIDER.
_HARMLESS = re.compile(r"(?:^|(?<=_))(?:KEYRING|TOKENIZERS?|HOST_KEY_CHECKING|KEYBOARD)(?=_|$)", re.IGNORECASE)
# With this number of attempts, the waits between them take 75 minutes. The service ends a run after 3 hours.
_MOST_ATTEMPTS = 20


class Platform(t.NamedTuple):
    """What a host needs before Ansible can be installed: its packages, and the Python for Ansible."""

    packages: list[str]
    python: str


# ansible-core 2.19 needs Python 3.11. Ubuntu 22.04 has it in universe, and Amazon Linux 2023 in its core repository
# (docs.aws.amazon.com/linux/al2023/ug/python.html).
PLATFORMS = {
    "debian-12": Platform(["git", "python3-venv"], "python3"),
    "debian-13": Platform(["git", "python3-venv"], "python3"),
    "ubuntu-24.04": Platform(["git", "python3-venv"], "python3"),
    "ubuntu-22.04": Platform(["git", "python3.11", "python3.11-venv"], "python3.11"),
    "amazon-2023": Platform(["git", "python3.11", "python3.11-pip"], "python3.11"),
}


@dataclasses.dataclass(frozen=True)
class UnattendedRequest:
    """The variables, without the prefix `unattended_`. Empty text means that a variable is not set."""

    platform: str = variable("", choices=("", *PLATFORMS))
    repository: str = variable("", form=_URL, sample="https://git.example/site.git")
    revision: str = variable("", form=r"[\w./+-]+", sample="v1.4.0 (a tag) or a commit hash of 40 digits")
    playbook: str = variable("site.yml", form=r"[\w./-]+\.ya?ml", sample="site.yml (a path in the repository)")
    inventory: str = variable("", form=r"[\w./-]+", sample="inventory/hosts.yml (a path in the repository)")
    collection: str = variable(
        "", form=r"\S+", sample="gpufleet.hosts:0.1.0 or git+https://git.example/hosts.git,v0.1.0"
    )
    # Package ansible contains the collections that this one depends on, so that only one thing comes from Galaxy.
    packages: list[str] = variable(
        ["ansible>=12.3.0,<13", "nvidia-ml-py>=11.525,<14", "tomlkit>=0.12.5,<1"],
        form=r"[^\s-]\S*",
        sample="ansible==12.3.0",
    )
    interval: int = variable(60, minimum=5)
    attempts: int = variable(5, minimum=1)
    environment: dict[str, t.Any] = variable({}, sample="{https_proxy: 'http://proxy.example:3128'}")
    ec2_tag: bool = variable(False)


def read(values: t.Mapping[str, t.Any]) -> UnattendedRequest:
    """Return the request with the user's values, converted and checked."""
    known = [*variable_fields.table(UnattendedRequest)]
    unknown = sorted(set(values) - set(known))
    if unknown:
        near = difflib.get_close_matches(unknown[0], known, 1)
        meant = f"Did you mean {ROLE}_{near[0]}? " if near else ""
        raise VariableError(
            f"Unknown variable {ROLE}_{unknown[0]}. {meant}Known variables: "
            f"{', '.join(f'{ROLE}_{name}' for name in known)}."
        )
    request = variable_fields.read(UnattendedRequest, ROLE, values)
    for name in ("platform", "repository", "revision", "collection"):
        if not getattr(request, name):
            rule = variable_fields.table(UnattendedRequest)[name][0]
            form = rule.sample or f"one of {', '.join(PLATFORMS)}"
            raise VariableError(f"{ROLE}_{name} is not set. Use the form {form}.")
    for name in ("repository", "collection", "packages"):
        given = getattr(request, name)
        if any(_has_login(text) for text in (given if isinstance(given, list) else [given])):
            raise VariableError(
                f"{ROLE}_{name} contains a login, or a query string that may contain one. Every user of the instance "
                "can read its user data. Give the host read access in another way, for example with a deploy key in "
                "the image (see docs/aws.md)."
            )
    if request.attempts > _MOST_ATTEMPTS:
        raise VariableError(f"{ROLE}_attempts is {request.attempts}, but must be {_MOST_ATTEMPTS} or less.")
    if request.revision in _BRANCHES:
        raise VariableError(
            f"{ROLE}_revision is {request.revision}, which is the name of a branch. Hosts would follow every commit. "
            "Use a tag or a commit."
        )
    if re.fullmatch(r"(?=.*[a-f])[0-9a-f]{7,39}", request.revision):
        raise VariableError(
            f"{ROLE}_revision is {request.revision}, which is an abbreviated commit hash. Write all 40 digits, "
            f"as git rev-parse {request.revision} prints them."
        )
    _check_collection(request.collection)
    _check_environment(request.environment)
    return request


def _has_login(text: str) -> bool:
    """Return whether a text has a URL with a login. An SSH user name is not a login."""
    addresses = _SSH_USER.sub("", text)
    return bool(_PASSWORD.search(addresses)) or url_logins.without_login(addresses) != addresses


def _check_collection(collection: str) -> None:
    if any(form.fullmatch(collection) for form in (_GIT, _RELEASE, _ARCHIVE)):
        return
    raise VariableError(
        f"{ROLE}_collection is {collection}, which does not pin a version. Use the form gpufleet.hosts:0.1.0, "
        "git+https://git.example/hosts.git,v0.1.0 (a tag with a version, or a commit hash of 40 digits), or the path "
        "or URL of an archive such as gpufleet-hosts-0.1.0.tar.gz."
    )


def _check_environment(environment: t.Mapping[str, t.Any]) -> None:
    for name, value in environment.items():
        if not _NAME.fullmatch(str(name)) or not isinstance(value, (str, int)) or "\n" in str(value):
            raise VariableError(
                f"{ROLE}_environment has the invalid entry {name!r}. A name consists of letters, digits and _, and a "
                "value is a string or a number on one line. "
                "Use the form {https_proxy: 'http://proxy.example:3128'}."
            )
        login = _has_login(str(value))
        if login or _is_secret(str(name), str(value)):
            problem = "contains a login" if login else "has a name that looks like a secret"
            raise VariableError(
                f"{ROLE}_environment.{name} {problem}, and every user of the instance can read its user data. "
                "Write it to /etc/gpufleet/pull.env in the image instead."
            )


def _is_secret(name: str, value: str) -> bool:
    """Return whether a variable looks like a secret by its name. The path of a file with a secret is not a secret."""
    is_path = name.upper().endswith("_FILE") and value.startswith("/")
    return not is_path and bool(_SECRET.search(_HARMLESS.sub("", name)))
