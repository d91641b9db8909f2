# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import record_ownership

KEY = "EB693B3035CD5710E231E123A4B469963BF863CC"
KEY_PACKAGE = "gpg-pubkey-3bf863cc"
CUDA = "/etc/yum.repos.d/gpufleet-nvidia-cuda.repo"
TOOLS = "/etc/yum.repos.d/tools.repo"


def removal(known: dict, installed: list[str], *others: dict, **more) -> record_ownership.PackageRemoval:
    return record_ownership.removal(known, installed, others, **{"enabled": {}, **more})


def stored(content: dict) -> dict:
    return json.loads(record_ownership.text(content))


def test_only_requested_packages_that_came_are_roots():
    begun = record_ownership.begin({}, ["vim"], asked=["vim", "app=2.0", "tool>=1", "libc6:i386"])
    assert begun["asked"] == ["app=2.0", "libc6:i386", "tool>=1"]
    after = ["vim", "app", "tool", "libc6", "dependency"]
    done = record_ownership.finish(begun, ["vim"], after, enabled={})
    assert stored(done) == {
        "files": {},
        "packages": ["app", "dependency", "libc6", "tool"],
        "requested": ["app", "libc6", "tool"],
    }
    found = removal(done, after)
    assert (found.requested, found.dependencies, found.uncertain) == (["app", "libc6", "tool"], ["dependency"], [])


def test_removal_after_an_interruption():
    begun = record_ownership.begin({"packages": ["old"]}, ["vim", "old"], asked=["app"])
    found = removal(begun, ["vim", "old", "app", "came", "other"], {"packages": ["other"]})
    assert (found.requested, found.dependencies, found.uncertain) == (["app"], ["old"], ["came"])
    assert found.packages == ["app", "came", "old"]


def test_a_package_from_before_an_interrupted_run_is_not_recorded():
    begun = record_ownership.begin(record_ownership.begin({}, ["vim", "users"]), ["vim"], asked=["app"])
    done = record_ownership.finish(begun, ["vim"], ["vim", "users", "app"], enabled={})
    assert done["packages"] == ["app"]


def test_packages_of_a_role_record_are_removed_as_dependencies():
    found = removal({"packages": ["cuda-toolkit-12-6", "gone"]}, ["vim", "cuda-toolkit-12-6"])
    assert (found.requested, found.dependencies) == ([], ["cuda-toolkit-12-6"])


def test_configuration_files_of_recorded_packages_are_purged():
    known = {"packages": ["app", "kept"], "pending": ["vim"], "uncertain": ["other"]}
    found = removal(known, ["vim", "kept"], config_files=["app", "kept", "other", "users"])
    assert found.unpurged == ["app", "other"]


@pytest.mark.parametrize(
    ("other", "keys"),
    [
        ({}, [KEY_PACKAGE]),
        ({"packages": [KEY_PACKAGE]}, []),
        ({"key": KEY}, []),
        ({"pending_key": KEY}, []),
        ({"former_keys": [KEY]}, []),
        ({"key": "A" * 40}, [KEY_PACKAGE]),
        ({"key": "sha256:" + "0" * 64}, []),
    ],
)
def test_a_key_is_removed_with_its_last_record(other, keys):
    known = {"packages": [KEY_PACKAGE, "app", "gpg-pubkey-8483c65d"], "key": KEY}
    found = removal(known, [KEY_PACKAGE, "app", "gpg-pubkey-8483c65d"], other)
    assert (found.keys, found.packages) == (keys, ["app"])


def test_a_second_record_shares_the_key_and_the_files_of_a_repository():
    first = {"packages": ["app", KEY_PACKAGE], "key": KEY, "repositories": ["tools"], "written": [TOOLS, "/etc/pin"]}
    before = ["app", KEY_PACKAGE]
    begun = record_ownership.begin({}, before, [first], asked=["second"], keys=[KEY], repositories=["tools"])
    second = record_ownership.finish(begun, before, [*before, "second"], [first], enabled={})
    assert (second["packages"], second["repositories"], second["written"]) == (
        [KEY_PACKAGE, "second"],
        ["tools"],
        [TOOLS],
    )
    found = removal(first, [*before, "second"], second)
    assert (found.keys, found.repositories, found.files) == ([], [], ["/etc/pin"])
    found = removal(second, [*before, "second"])
    assert (found.keys, found.repositories, found.files) == ([KEY_PACKAGE], ["tools"], [TOOLS])


def test_a_role_record_keeps_the_files_of_its_repository():
    known = {"repositories": ["gpufleet-nvidia-cuda"], "written": [CUDA, "/etc/apt/apt.conf.d/53gpufleet-nvidia-cuda"]}
    assert removal(known, []).files == known["written"]
    found = removal(known, [], {"packages": [], "key": KEY})
    assert (found.files, found.repositories) == ([], [])


def test_several_keys_are_removed():
    second = "B" * 40
    begun = record_ownership.begin({}, ["vim"], asked=["app"], keys=[KEY, second])
    after = ["vim", "app", KEY_PACKAGE, "gpg-pubkey-bbbbbbbb"]
    assert removal(begun, after).keys == ["gpg-pubkey-3bf863cc", "gpg-pubkey-bbbbbbbb"]
    assert removal(record_ownership.finish(begun, ["vim"], after, enabled={}), after).keys == [
        KEY_PACKAGE,
        "gpg-pubkey-bbbbbbbb",
    ]


@pytest.mark.parametrize(
    ("path", "repository", "expected"),
    [
        ("/etc/apt/sources.list.d/tools.sources", "tools", True),
        ("/usr/share/keyrings/tools.gpg.sha256", "tools", True),
        ("/etc/pki/rpm-gpg/RPM-GPG-KEY-tools", "tools", True),
        ("/etc/apt/apt.conf.d/53tools", "tools", True),
        ("/etc/zypp/credentials.d/tools", "tools", True),
        ("/etc/yum.repos.d/tools-extra.repo", "tools", False),
        ("/etc/yum.repos.d/my-tools.repo", "tools", False),
    ],
)
def test_files_of_a_repository(path, repository, expected):
    assert record_ownership.is_file_of(path, repository) is expected


def test_a_repository_of_the_user_is_not_recorded():
    begun = record_ownership.begin({}, [], repositories=["epel", "tools"], written=[TOOLS])
    assert begun["repositories"] == ["tools"]


def test_a_failed_transaction_records_no_repository():
    begun = record_ownership.begin(
        {"repositories": ["old"]}, ["vim"], repositories=["tools"], written=[TOOLS], previous={TOOLS: None}, keys=[KEY]
    )
    done = record_ownership.finish(begun, ["vim"], ["vim"], enabled={}, undone=[TOOLS])
    assert stored(done) == {"files": {}, "packages": [], "repositories": ["old"]}


def test_an_interrupted_run_keeps_the_first_content():
    begun = record_ownership.begin({}, ["vim"], previous={TOOLS: None}, written=[TOOLS])
    again = record_ownership.begin(
        begun, ["vim"], previous={TOOLS: {"content": "eA==", "mode": "0644"}, "/etc/pin": None}
    )
    assert again["previous"] == {TOOLS: None, "/etc/pin": None}


def test_holds_of_the_user_are_not_recorded():
    begun = record_ownership.begin({"holds": ["ours"]}, [], holds=["users", "new", "ours"], released=["users", "ours"])
    assert begun["holds"] == ["new", "ours"]
    done = record_ownership.finish(begun, [], ["new", "ours", "users"], enabled={}, held=["new", "users"])
    assert (done["holds"], done["released"]) == (["new"], [])


def item(module: str, stream: str, before: str | None = None) -> dict:
    return {"module": module, "name": f"{module}:{stream}", "before": before and f"{module}:{before}"}


def test_streams_of_several_modules_are_reset():
    first, second = item("nvidia-driver", "580"), item("php", "8.2", "7.4")
    begun = record_ownership.begin({}, [], streams=[first, second])
    assert begun["pending_stream"] == first
    enabled = {"nvidia-driver": "580", "php": "8.2"}
    done = record_ownership.finish(begun, [], [], enabled=enabled)
    assert done["pending_stream"] is None
    expected = [{"module": "nvidia-driver", "before": None}, {"module": "php", "before": "php:7.4"}]
    assert removal(begun, [], enabled=enabled).streams == removal(done, [], enabled=enabled).streams == expected
    # The user has enabled other streams since.
    assert removal(done, [], enabled={"nvidia-driver": "590", "php": "8.3"}).streams == []
    # A run was interrupted between two streams.
    assert removal(begun, [], enabled={}).streams == [{"module": "php", "before": "php:7.4"}]


def test_keys_of_others_stay():
    known = {"verified": ["/usr/local/cuda"], "runfile": "580.95.05", "later": False, "packages": []}
    done = stored(record_ownership.finish(record_ownership.begin(known, ["vim"]), ["vim"], ["vim"], enabled={}))
    assert done == {**known, "files": {}}


# No host is without packages.
BASE = "libc6"
NAMES = st.sets(st.sampled_from([f"p{number}" for number in range(8)]))
RUNS = st.lists(st.tuples(NAMES, NAMES, st.booleans()), min_size=1, max_size=4)


@given(NAMES, RUNS)
def test_a_record_names_exactly_what_came(first, runs):
    """Each run requests and installs packages, and finishes or is killed."""
    first = {BASE, *first}
    known, installed, by_name = {}, first, set()
    for asked, more, killed in [*runs, (set(), set(), False)]:
        known = stored(record_ownership.begin(known, installed, asked=asked))
        before, installed = installed, installed | asked | more
        by_name |= asked - before
        listed = record_ownership.removal(known, installed, enabled={})
        assert set(listed.packages) == installed - first
        if not killed:
            known = stored(record_ownership.finish(known, before, installed, enabled={}))
    assert {*known["packages"], *known.get("uncertain", [])} == installed - first
    assert set(known.get("requested", [])) == by_name
    # What a run requested is never uncertain.
    assert by_name <= set(known["packages"])


# The packages that another record and the user install or remove between the runs.
CHANGES = st.lists(st.tuples(NAMES, NAMES, NAMES, NAMES, st.booleans()), min_size=1, max_size=4)


@given(NAMES, CHANGES)
def test_packages_of_others_are_never_certain(first, changes):
    known, other, installed = {}, {"packages": []}, {BASE, *first}
    came = set()
    for asked, more, of_other, removed, killed in changes:
        installed -= removed
        other["packages"] = sorted({*other["packages"], *(of_other - installed)})
        installed |= of_other
        known = stored(record_ownership.begin(known, installed, [other], asked=asked))
        before, installed = installed, installed | asked | more
        came |= installed - before
        if not killed:
            known = stored(record_ownership.finish(known, before, installed, [other], enabled={}))
    known = stored(record_ownership.finish(known, installed, installed, [other], enabled={}))
    assert set(known["packages"]) <= came
    assert not set(known.get("uncertain", [])) & (first - came)


def test_a_removed_package_does_not_belong_to_the_record_any_more():
    done = record_ownership.finish(record_ownership.begin({}, [], asked=["agent"]), [], ["agent"], enabled={})
    gone = record_ownership.finish(record_ownership.begin(done, ["agent"]), ["agent"], [], enabled={})
    assert removal(gone, [], config_files=["agent"]).unpurged == ["agent"]
    # The user installs it again.
    assert removal(gone, ["agent"], config_files=[]).packages == []
    other = record_ownership.finish(
        record_ownership.begin({}, [], [gone], asked=["agent"]), [], ["agent"], [gone], enabled={}
    )
    assert removal(other, ["agent"], gone).packages == ["agent"]


def test_a_role_may_remove_only_what_it_asked_for_and_installed():
    known = record_ownership.normalized(
        {"packages": ["app", "lib", "gone"], "requested": ["app", "gone"], "asked": ["vim=9", "app"]}
    )
    assert record_ownership.removable(known, ["app", "lib", "other"], []) == {"app"}
