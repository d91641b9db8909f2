# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Definitions of repositories: which are valid, and which error a user gets for the others."""

from __future__ import annotations

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import nvidia_repository
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository import repository_options as repositories
from ansible_collections.gpufleet.hosts.plugins.module_utils.repository.repository_options import (
    Repository,
    RepositoryError,
)

URL, PROXY = "https://m.example/cuda", "http://p.example:3128"
FINGERPRINT = "EB693B3035CD5710E231E123A4B469963BF863CC"
PLAIN = {"name": "cuda", "url": URL, "key": f"{URL}/x.pub", "fingerprint": FINGERPRINT}
LOGIN = {"username": "robot", "password": "s3cret"}
PROXY_LOGIN = {"proxy_username": "agent", "proxy_password": "pr0xy"}


def read(manager: str, *definitions: dict) -> list[Repository]:
    """Validate definitions as a module does."""
    spec = {"repositories": {"type": "list", "elements": "dict", "options": repositories.OPTIONS}}
    validated = ArgumentSpecValidator(spec).validate({"repositories": list(definitions)})
    assert validated.error_messages == []
    return repositories.read(validated.validated_parameters["repositories"], manager)


@pytest.mark.parametrize("manager", ["apt", "dnf", "zypper"])
def test_a_definition_needs_only_name_url_key_and_fingerprint(manager):
    assert read(manager, PLAIN) == [Repository("cuda", URL, f"{URL}/x.pub", FINGERPRINT)]


GOOD = [
    ("apt", {"suite": "bookworm", "components": ["stable", "non-free/x"]},
     {"suite": "bookworm", "components": ("stable", "non-free/x")}),
    ("apt", {"suite": "debian12/x86_64/"}, {"suite": "debian12/x86_64/"}),
    ("apt", {"priority": -5}, {"priority": -5}),
    ("dnf", {"priority": 10, "module_hotfixes": True}, {"priority": 10, "module_hotfixes": True}),
    ("zypper", {"priority": 90}, {"priority": 90}),
    # False is the same as not set.
    ("apt", {"module_hotfixes": False}, {}),
    ("apt", {"description": "NVIDIA CUDA"}, {"description": "NVIDIA CUDA"}),
    ("dnf", {"url": "https://m.example/$releasever/?token=1"}, {"url": "https://m.example/$releasever/?token=1"}),
    ("apt", {"url": "file:///srv/cuda", "key": "/my key.pub"}, {"url": "file:///srv/cuda", "key": "/my key.pub"}),
    ("apt", {"url": "http://[::1]:8080/x"}, {"url": "http://[::1]:8080/x"}),
    ("apt", {"key": "file:///srv/x.pub"}, {"key": "file:///srv/x.pub"}),
    ("zypper", {"fingerprint": " eb69 3b30 35cd 5710 e231 e123 a4b4 6996 3bf8 63cc "}, {}),
    ("apt", {"fingerprint": "SHA256:" + "A" * 64}, {"trust": "sha256:" + "a" * 64}),
    ("apt", {"fingerprint": "a" * 64}, {"trust": "A" * 64}),
    ("dnf", {**LOGIN, "proxy": PROXY, **PROXY_LOGIN}, {**LOGIN, "proxy": PROXY, **PROXY_LOGIN}),
    ("dnf", {"replaces": ["/etc/yum.repos.d/old.repo"]}, {"replaces": ("/etc/yum.repos.d/old.repo",)}),
]  # fmt: skip


@pytest.mark.parametrize(("manager", "options", "values"), GOOD)
def test_valid_options(manager, options, values):
    expected = {"name": "cuda", "url": URL, "key": f"{URL}/x.pub", "trust": FINGERPRINT, **values}
    assert read(manager, {**PLAIN, **options}) == [Repository(**expected)]


BAD = [
    ("apt", {"name": ".."}, "repositories[0].name is '..', which is not valid. Use letters, digits"),
    ("apt", {"name": "a/b"}, "repositories[0].name is 'a/b'"),
    ("apt", {"name": "a\n"}, "repositories[0].name is"),
    ("apt", {"key": ""}, "repositories[0].key is missing. Set name, url, key and fingerprint"),
    ("apt", {"fingerprint": ""}, "repositories[0].fingerprint is missing."),
    ("apt", {"url": "https://robot:s3cret@m.example/cuda"},
     "repositories[0].url is https://...@m.example/cuda, but a URL must not contain a login. Remove the login from the "
     "URL, and set username and password."),
    ("apt", {"key": "https://s3cret@m.example/x.pub"}, "repositories[0].key is https://...@m.example/x.pub, but"),
    ("apt", {"proxy": "http://a:s3cret@p.example"}, "the URL, and set proxy_username and proxy_password."),
    ("apt", {"url": "m.example/cuda"}, "repositories[0].url is 'm.example/cuda', which is not valid. Set an http"),
    ("apt", {"url": "robot:s3cret@m.example/cuda"}, "repositories[0].url is '...@m.example/cuda', which"),
    ("apt", {"url": "gopher://m.example/cuda"}, "repositories[0].url is 'gopher://m.example/cuda', which is not"),
    ("apt", {"url": "/srv/cuda"}, "repositories[0].url is '/srv/cuda', which is not valid."),
    ("apt", {"url": "https://m.example/a b"}, "repositories[0].url is"),
    ("dnf", {"url": "https://m.example/a\nsslverify=0"}, "repositories[0].url is"),
    ("apt", {"url": "https://m.example:99999/a"}, "repositories[0].url is"),
    ("apt", {"url": "https://[1:2]/a"}, "repositories[0].url is"),
    ("apt", {"key": "x.pub"}, "repositories[0].key is 'x.pub', which is not valid."),
    ("apt", {"proxy": "p.example:3128"}, "repositories[0].proxy is 'p.example:3128', which is not valid."),
    ("dnf", {"description": "a\nsslverify=0"}, "repositories[0].description is 'a\\nsslverify=0'"),
    ("zypper", {"description": "a\rb"}, "repositories[0].description is 'a\\rb'"),
    ("apt", {"fingerprint": "3BF863CC"}, "repositories[0].fingerprint: '3BF863CC' is neither the full fingerprint"),
    ("dnf", {"suite": "stable"}, "repositories[0].suite is set, but dnf does not support suite. Omit it."),
    ("zypper", {"components": ["main"]}, "repositories[0].components is set, but zypper does not support"),
    ("apt", {"module_hotfixes": True}, "repositories[0].module_hotfixes is set, but apt does not support"),
    ("zypper", {"module_hotfixes": True}, "repositories[0].module_hotfixes is set, but zypper does not support"),
    ("apt", {"signed": "metadata"}, "repositories[0].signed is set, but apt does not support signed"),
    ("apt", {"suite": "stable"}, "repositories[0].suite is stable, but repositories[0].components is not set. Set the"),
    ("apt", {"components": ["main"]}, "a suite that ends with a slash (/) has no components."),
    ("apt", {"suite": "a b", "components": ["main"]}, "repositories[0].suite is 'a b', which is not valid."),
    ("apt", {"suite": "a", "components": ["main", "b\nTrusted: yes"]}, "repositories[0].components contains 'b\\nT"),
    ("apt", {"priority": 0}, "repositories[0].priority is 0, which is not valid for apt. Set a number from -32767"),
    ("apt", {"priority": 99999}, "to 32766, except 0."),
    ("dnf", {"priority": -1}, "repositories[0].priority is -1, which is not valid for dnf. Set a number from 1"),
    ("zypper", {"url": f"{URL}?credentials=x"}, "but zypper does not support a URL with ? or #."),
    ("apt", {"username": "robot"},
     "repositories[0].username is set, but repositories[0].password is not. Set both, or remove"),
    ("apt", {"proxy": PROXY, "proxy_password": "s3cret"},
     "repositories[0].proxy_password is set, but repositories[0].proxy_username is not."),
    ("apt", {**LOGIN, "password": "s3cret x"}, "repositories[0].password contains a space"),
    ("apt", {**LOGIN, "url": "file:///srv/cuda"}, "repositories[0].username is set, but repositories[0].url is file:"),
    ("apt", PROXY_LOGIN, "repositories[0].proxy_username is set, but repositories[0].proxy is not set."),
    ("apt", {"replaces": ["/etc/apt/../shadow.list"]}, "repositories[0].replaces contains '/etc/apt/../shadow.list'"),
    ("apt", {"replaces": ["/etc/passwd"]}, "not the absolute path of a repository or key file."),
    ("apt", {"replaces": ["cuda.list"]}, "repositories[0].replaces contains 'cuda.list'"),
    ("apt", {"replaces": ["/etc/apt/sources.list.d/cuda.sources"]}, "which a defined repository uses. Remove this"),
    ("apt", {"replaces": ["/usr/share/keyrings/cuda.gpg"]}, "which a defined repository uses. Remove this path."),
]  # fmt: skip


@pytest.mark.parametrize(("manager", "options", "words"), BAD)
def test_the_error_names_the_option_and_shows_no_login(manager, options, words):
    with pytest.raises(RepositoryError) as raised:
        read(manager, {**PLAIN, **options})
    assert words in str(raised.value)
    assert "s3cret" not in str(raised.value)


OTHER = {**PLAIN, "name": "other", "url": "https://m.example/other"}
CONFLICTS = [
    ("dnf", {**OTHER, "name": "cuda"}, "repositories[1].name is cuda, like that of repositories[0]. Set another name"),
    ("dnf", {**PLAIN, "name": "b", "url": f"{URL}/"},
     f"repositories[1].url is {URL}/, like that of repositories[0] (cuda)"),
    # apt selects the proxy and the priority by server.
    ("apt", {**OTHER, "priority": 600}, "have different values of priority, but apt supports only one for each server"),
    ("apt", {**OTHER, "url": "http://M.example:8080/b", "proxy": PROXY}, "have different values of proxy"),
    ("dnf", {**OTHER, "replaces": ["/etc/yum.repos.d/cuda.repo"]}, "repositories[1].replaces contains"),
]  # fmt: skip


@pytest.mark.parametrize(("manager", "other", "words"), CONFLICTS)
def test_conflicting_definitions_are_refused(manager, other, words):
    with pytest.raises(RepositoryError) as raised:
        read(manager, PLAIN, other)
    assert words in str(raised.value)


FITTING = [
    ("apt", {**PLAIN, "suite": "a", "components": ["main"]},
     {**PLAIN, "name": "b", "suite": "b", "components": ["main"]}),
    ("apt", {**PLAIN, "url": "file:///a", "proxy": PROXY}, {**OTHER, "url": "file:///b"}),
    ("apt", {**PLAIN, "priority": 600}, {**OTHER, "priority": 600}),
    ("dnf", {**PLAIN, "priority": 10, "proxy": PROXY}, OTHER),
]  # fmt: skip


@pytest.mark.parametrize(("manager", "one", "other"), FITTING)
def test_two_definitions(manager, one, other):
    assert [repository.name for repository in read(manager, one, other)] == [one["name"], other["name"]]


SETTINGS = {"mirror": "", "key_url": "", "key_fingerprint": "", "proxy": ""}
MIRROR = {"mirror": "https://m.example/nvidia"}
NVIDIA_LOGIN = {"repository_username": "robot", "repository_password": "s3cret"}


@pytest.mark.parametrize("platform", ["debian-12", "el-9", "el-10", "sles-15"])
@pytest.mark.parametrize(
    ("settings", "values"),
    [
        ({}, {}),
        ({**MIRROR, **NVIDIA_LOGIN, "proxy": PROXY, **PROXY_LOGIN}, {**LOGIN, "proxy": PROXY, **PROXY_LOGIN}),
        # The login is for the mirror and for NVIDIA's installer, not for NVIDIA's server and not for a directory.
        (NVIDIA_LOGIN, {}),
        ({"mirror": "file:///srv/nvidia", **NVIDIA_LOGIN}, {}),
    ],
)
def test_definition_of_nvidias_repository(platform, settings, values):
    source = nvidia_repository.of_platform(platform)["nvidia"]["repository"]
    described = nvidia_repository.describe(source, {"arch": "x86_64"}, {**SETTINGS, **settings})
    manager = described["type"]
    (repository,) = read(manager, nvidia_repository.definition(described))
    url = f"{settings.get('mirror', nvidia_repository.BASE)}/{source['path'].format(arch='x86_64')}"
    expected = {
        "name": "gpufleet-nvidia-cuda",
        "description": "NVIDIA CUDA",
        "url": url,
        "key": f"{url}/{source['key']}",
        "trust": source["fingerprint"],
        "replaces": tuple(path.format(arch="x86_64") for path in source["legacy_files"]),
        # dnf's modular filtering hides packages of the repository without module streams.
        "module_hotfixes": platform == "el-10",
        **values,
    }
    assert repository == Repository(**expected)
