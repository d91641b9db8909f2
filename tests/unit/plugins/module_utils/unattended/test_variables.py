# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables of playbook user_data, and its document."""

from __future__ import annotations

import base64
import gzip
import json
import subprocess
import sys

import pytest
import yaml
from ansible.errors import AnsibleFilterError

from ansible_collections.gpufleet.hosts.plugins.filter.user_data_internal import user_data
from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.unattended import pull_program
from ansible_collections.gpufleet.hosts.plugins.module_utils.unattended import user_data as documents

GOOD = {
    "platform": "ubuntu-24.04",
    "repository": "https://git.example/site.git",
    "revision": "v1.4.0",
    "collection": "gpufleet.hosts:0.1.0",
}


@pytest.mark.parametrize(
    "values",
    [
        {"repository": "git@git.example:team/site.git"},
        {"repository": "ssh://git@git.example/site.git"},
        {"revision": "3c0f1a2b" * 5},
        {"collection": "git+https://git.example/hosts.git,v0.1.0"},
        {"collection": "git+https://git.example/hosts.git," + "3c0f1a2b" * 5},
        {"collection": "git+https://git.example/hosts.git,hosts-1.2.3"},
        {"collection": "git+ssh://git@git.example/hosts.git,1.2.0-rc.1"},
        *(
            {"collection": f"git+https://git.example/hosts.git,{tag}"}
            for tag in ("0.1.0+1", "v0.1.0-beta1+build.5", "V0.1.0", "hosts-V1.2.3", "v0.1.0+build")
        ),
        {"revision": "v0.1.0+1"},
        {"collection": "gpufleet.hosts:==0.1.0"},
        {"collection": "https://mirror.example/gpufleet-hosts-0.1.0.tar.gz"},
        {"environment": {"https_proxy": "http://proxy.example:3128"}},
        {"environment": {"PIP_KEYRING_PROVIDER": "subprocess", "TOKENIZERS_PARALLELISM": "false"}},
        {"environment": {"ANSIBLE_HOST_KEY_CHECKING": "false", "keyboard": "us", "TOKENIZER_CACHE": "/x"}},
        {"environment": {"SSL_KEY_FILE": "/etc/ssl/host.key", "AWS_SHARED_CREDENTIALS_FILE": "/etc/aws"}},
        {"environment": {"GIT_AUTHOR_EMAIL": "host@git.example", "SITE": "ssh://git@git.example/site.git"}},
        {"packages": ["ansible@git+https://git.example:8443/ansible.git@v12.3.0", "nvidia-ml-py==13.590.44"]},
        {"attempts": 20},
    ],
)
def test_pinned_sources_without_logins_are_accepted(values):
    assert user_data({**GOOD, **values}).startswith("#cloud-config\n")


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ({"platform": "fedora-43"}, ["unattended_platform", "fedora-43", "amazon-2023"]),
        ({"revision": None}, ["unattended_revision is not set", "a tag"]),
        ({"revision": "main"}, ["unattended_revision is main", "branch"]),
        ({"revision": "0123abc"}, ["abbreviated commit hash", "git rev-parse 0123abc"]),
        ({"repository": ""}, ["unattended_repository is not set"]),
        ({"repository": "site"}, ["unattended_repository", "site"]),
        ({"repository": "https://user:secret@git.example/site.git"}, ["unattended_repository", "login"]),
        ({"repository": "https://git.example/site.git?private=secret"}, ["unattended_repository", "login"]),
        ({"repository": "https://secret@git.example/site.git"}, ["unattended_repository", "login"]),
        ({"repository": "ssh://git:secret@git.example/site.git"}, ["unattended_repository", "login"]),
        ({"collection": "gpufleet.hosts"}, ["unattended_collection", "does not pin a version", "gpufleet.hosts:0.1.0"]),
        ({"collection": "gpufleet.hosts:>=0.1.0"}, ["unattended_collection"]),
        ({"collection": "git+https://git.example/hosts.git,main"}, ["unattended_collection", "does not pin a version"]),
        *(
            ({"collection": f"git+https://git.example/hosts.git,{pin}"}, ["unattended_collection", "a version"])
            for pin in ("release-1.x", "release-1.2", "develop/foo", "release/1.2.3", "1.2.x", "v1", "0123abc")
        ),
        ({"collection": "git+https://secret@git.example/hosts.git,v1"}, ["unattended_collection", "login"]),
        ({"packages": ["ansible", "x@https://u:secret@git.example/x.whl"]}, ["unattended_packages", "login"]),
        ({"packages": ["https://secret@mirror.example/x-1.0.tar.gz"]}, ["unattended_packages", "login"]),
        ({"packages": ["https://mirror.example/x-1.0.tar.gz?secret"]}, ["unattended_packages", "login"]),
        ({"attempts": 21}, ["unattended_attempts is 21", "20 or less"]),
        ({"interval": 1}, ["unattended_interval is 1", "5 or more"]),
        ({"interval": "daily"}, ["unattended_interval", "daily"]),
        ({"environment": {"GIT_TOKEN": "secret"}}, ["unattended_environment.GIT_TOKEN", "pull.env"]),
        (
            {"environment": {"https_proxy": "http://u:secret@proxy"}},
            ["unattended_environment.https_proxy contains a login"],
        ),
        ({"environment": {"PIP_PROXY": "u:secret@proxy:3128"}}, ["unattended_environment.PIP_PROXY", "pull.env"]),
        (
            {"environment": {"PIP_EXTRA_INDEX_URL": "https://a/simple https://tok:secret@b/simple"}},
            ["unattended_environment.PIP_EXTRA_INDEX_URL", "pull.env"],
        ),
        ({"environment": {"PIP_INDEX_URL": "https://secret@a/simple"}}, ["unattended_environment.PIP_INDEX_URL"]),
        *(
            ({"environment": {name: "x"}}, [f"unattended_environment.{name} has a name that looks like a", "pull.env"])
            for name in (
                *("AWS_SECRET_ACCESS_KEY", "DBPASSWORD", "mysql_passwd", "API_KEYS", "SSL_KEY_FILE", "PASS"),
                *("SSHPASS", "PGPASS", "DBPASS", "TOKEN1", "PASSWORD2", "API_KEY2", "SECRETKEY", "AWS_ACCESSKEY"),
                *("SecretAccessKey", "sshKey", "KEYRING_TOKEN", "TOKENIZERSECRET", "KEY_FILE_1", "AWS_CREDENTIALS"),
            )
        ),
        ({"environment": {"A": "1\nB=2"}}, ["'A'"]),
        ({"playbook": "site.txt"}, ["unattended_playbook", "site.yml"]),
        ({"intervall": 60}, ["unattended_intervall", "unattended_interval?"]),
    ],
)
def test_bad_input_is_refused_with_the_variable_and_the_way_out(values, texts):
    with pytest.raises(AnsibleFilterError) as caught:
        user_data({**GOOD, **values})
    message = str(caught.value)
    assert all(text in message for text in texts), message
    assert "secret@" not in message


def document(**values):
    return yaml.safe_load(user_data({**GOOD, **values}))


def files(found):
    return {file["path"]: content(file) for file in found["write_files"]}


def content(file):
    if file.get("encoding") == "gz+b64":
        return gzip.decompress(base64.b64decode(file["content"])).decode()
    return file["content"]


def test_the_program_uses_the_paths_of_the_collection():
    assert (pull_program.SETTINGS, pull_program.STATE) == (owned.PULL_SETTINGS, owned.PULL_STATE)


def test_the_settings_reach_the_host():
    written = files(
        document(interval=30, attempts=3, ec2_tag=True, environment={"no_proxy": "a b%c", "quoted": 'it\'s \\ "x"'})
    )
    settings = json.loads(written[owned.PULL_SETTINGS])
    assert {name: settings[name] for name in ("repository", "revision", "collection")} == {
        name: GOOD[name] for name in ("repository", "revision", "collection")
    }
    assert (settings["interval"], settings["attempts"], settings["ec2_tag"]) == (30, 3, True)
    assert "OnUnitInactiveSec=30min" in written[owned.PULL_TIMER]
    # After a reboot, the unit was not active yet.
    assert "OnBootSec=" in written[owned.PULL_TIMER]
    assert 'Environment="no_proxy=a b%%c"\n' in written[owned.PULL_UNIT]
    assert """Environment="quoted=it's \\\\ \\"x\\""\n""" in written[owned.PULL_UNIT]
    assert "TimeoutStartSec=10800\n" in written[owned.PULL_UNIT]
    assert f"ExecStart=/usr/bin/python3 {owned.PULL_PROGRAM}" in written[owned.PULL_UNIT]


@pytest.mark.parametrize(
    ("platform", "package", "python"),
    [("debian-13", "python3-venv", "python3"), ("amazon-2023", "python3.11-pip", "python3.11")],
)
def test_a_platform_has_its_own_python_for_ansible(platform, package, python):
    found = document(platform=platform)
    assert package in found["packages"]
    assert json.loads(files(found)[owned.PULL_SETTINGS])["python"] == python


def test_the_program_in_the_user_data_runs_without_the_collection(tmp_path):
    program = tmp_path / "pull.py"
    program.write_text(files(document())[owned.PULL_PROGRAM])
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"import runpy; print(runpy.run_path({str(program)!r})['SETTINGS'])"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == owned.PULL_SETTINGS


def test_user_data_that_ec2_rejects_is_refused():
    text = user_data(GOOD)
    assert text == user_data(GOOD)
    assert len(text.encode()) < documents.LIMIT
    with pytest.raises(AnsibleFilterError, match="EC2 accepts at most 16384"):
        user_data({**GOOD, "environment": {f"VARIABLE_{number}": "x" * 100 for number in range(120)}})


def test_the_program_in_the_user_data_is_complete(tmp_path):
    program = tmp_path / "pull"
    program.write_text(files(document())[owned.PULL_PROGRAM])
    call = "found = run_path(sys.argv[1]); print(found['failed_task'].__globals__ is found['Pull'].run.__globals__)"
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; from runpy import run_path; {call}", str(program)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "True"
    checked = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F", program],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout
