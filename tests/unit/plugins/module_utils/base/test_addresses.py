# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Messages and world-readable files do not contain the logins of mirrors and proxies."""

from __future__ import annotations

from pathlib import Path

import jinja2
import pytest
import yaml
from ansible.plugins.test.core import search

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import addresses
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import plan as driver_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import key_download, nvidia_repository, preview
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import offers as packages_offers
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import host, platform
from ansible_collections.gpufleet.hosts.tests.unit.plugins.toolkit_samples import bare, nvidia

ROLES = Path(__file__).resolve().parents[5] / "roles"
LOGIN = "https://user:s3cret@mirror.example/cuda"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (LOGIN, "https://...@mirror.example/cuda"),
        (f"from {LOGIN} and http://t0ken@p.example: no",
         "from https://...@mirror.example/cuda and http://...@p.example: no"),
        ("http://u:a/b@c@p.example:3128/", "http://...@p.example:3128/"),
        ("https://m.example/x?proxy=http%3A%2F%2Fu%3As3cret%40p.example&a=1",
         "https://m.example/x?proxy=http%3A%2F%2F...%40p.example&a=1"),
        ("https://m.example/x?proxy=http%3A//u%3As3cret%40p.example&a=1",
         "https://m.example/x?proxy=http%3A//...%40p.example&a=1"),
        ("https://m.example/x?proxy=p.example&proxyuser=u&proxypass=s3cret&a=1",
         "https://m.example/x?proxy=p.example&proxyuser=...&proxypass=...&a=1"),
        ("https://m.example/%40scope", "https://m.example/%40scope"),
        ("https://mirror.example/cuda", "https://mirror.example/cuda"),
        ("systemd unit a@b.service of root@host", "systemd unit a@b.service of root@host"),
    ],
)  # fmt: skip
def test_logins_are_masked(text, expected):
    assert addresses.masked(text) == expected


def test_plans_contain_no_login():
    texts = nvidia(bare(), "12.6", mirror=LOGIN)["summary"]
    request = {"source": "nvidia", "branch": "580", "mirror": LOGIN}
    texts += driver_plan.plan(host("debian-12"), request, platform("debian-12")).summary
    runfile = {
        "source": "runfile",
        "version": "580.95.05",
        "runfile_url": LOGIN,
        "runfile_checksum": f"sha256:{'0' * 64}",
    }
    texts += driver_plan.plan(host("debian-12"), runfile, platform("debian-12")).summary
    assert sum("https://...@mirror.example/cuda" in text for text in texts) == 3
    assert "s3cret" not in str(texts)


def test_errors_contain_no_login(monkeypatch):
    def run(_argv):
        return 1, "", f"E: Failed to fetch {LOGIN}/x"

    def open_url(url, **_more):
        raise OSError(f"no way to {url}")

    monkeypatch.setattr(key_download, "open_url", open_url)
    for call in (
        lambda: preview._run_checked(run, ["apt-get"]),
        lambda: packages_offers.read("dnf", ["x"], run),
        lambda: key_download.fetch(LOGIN, "0" * 40),
    ):
        with pytest.raises(Exception, match=r"https://\.\.\.@mirror\.example/cuda") as raised:
            call()
        assert "s3cret" not in str(raised.value)


def written(task, **more):
    """Return the file mode of a task, and whether the task shows a diff."""
    environment = jinja2.Environment()
    environment.tests["search"] = search
    values = {"ansible_diff_mode": True, **more}
    for name, text in task.get("vars", {}).items():
        values[name] = environment.from_string(text).render(values) == "True"
    (arguments,) = (value for value in task.values() if isinstance(value, dict) and "mode" in value)
    return tuple(environment.from_string(str(text)).render(values) for text in (arguments["mode"], task["diff"]))


@pytest.mark.parametrize("wish", [{"mirror": LOGIN}, {"proxy": "http://u:s3cret@p.example:3128"}, {}])
@pytest.mark.parametrize(("manager", "key"), [("apt", "debian-12"), ("dnf", "el-9"), ("zypper", "sles-15")])
def test_only_root_can_read_files_with_a_login(manager, key, wish):
    text = (ROLES / f"nvidia_driver/tasks/repository-{manager}.yml").read_text(encoding="utf-8")
    block = yaml.safe_load(text)[-1]
    task = block["block"][-1]
    repository = {"url": wish.get("mirror", "https://m.example"), "proxy": wish.get("proxy")}
    login = jinja2.Template(block["vars"]["__nvidia_driver_login"]).render(__nvidia_driver_repository=repository)
    expected = ("0600", "False") if wish else ("0644", "True")
    assert written(task, __nvidia_driver_login=login == "True") == expected

    tasks = yaml.safe_load((ROLES / "cuda_toolkit/tasks/repository.yml").read_text(encoding="utf-8"))
    (task,) = (task for task in tasks if "ansible.builtin.copy" in task)
    files = nvidia(bare(key), "12.6", **wish)["files"]
    assert expected in [written(task, item=item) for item in files]
    for item in files:
        assert ("s3cret" in item["content"]) == (written(task, item=item) == ("0600", "False"))


def test_only_root_can_read_the_drivers_proxy_file_with_a_login():
    (task,) = (
        task
        for task in yaml.safe_load((ROLES / "nvidia_driver/tasks/files.yml").read_text(encoding="utf-8"))
        if "ansible.builtin.copy" in task
    )
    repository = {"url": "https://m.example/x", "proxy": "http://u:s3cret@p.example:3128"}
    item = {"content": nvidia_repository.apt_proxy(repository)}
    assert written(task, item=item) == ("0600", "False")
    assert written(task, item={"content": "options nvidia X=a@b\n"}) == ("0644", "True")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([LOGIN, None, ""], {"user:s3cret"}),
        ([LOGIN, "http://t0ken@p.example:3128"], {"user:s3cret", "t0ken"}),
        (["https://mirror.example/cuda", "http://@p.example", "https://p.example/a@b"], set()),
    ],
)
def test_logins_of_module_arguments(given, expected):
    assert addresses.logins(*given) == expected
