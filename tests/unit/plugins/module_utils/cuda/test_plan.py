# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import subprocess
import typing as t

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.cuda.plan import PROFILE_FILE, profile
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import nvidia_repository
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import record as packages_record
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import B200, T4, V100, host, platform
from ansible_collections.gpufleet.hosts.tests.unit.plugins.toolkit_samples import (
    KEY,
    URL,
    add,
    bare,
    converged,
    name,
    nvidia,
    resolve,
)

FINISH = "write down what a run that was cut off has brought"
WORKED = ["/usr/local/cuda-12.6", "/usr/local/cuda-13.0"]
PROXY = "http://proxy.example:3128"


# --- NVIDIA's repository ---

PLATFORMS = {
    ("debian-12", "x86_64"): (f"{URL}/debian12/x86_64", "/etc/apt/sources.list.d/gpufleet-nvidia-cuda.sources"),
    ("debian-13", "aarch64"): (f"{URL}/debian13/sbsa", "/etc/apt/sources.list.d/gpufleet-nvidia-cuda.sources"),
    ("ubuntu-24.04", "x86_64"): (f"{URL}/ubuntu2404/x86_64", "/etc/apt/sources.list.d/gpufleet-nvidia-cuda.sources"),
    ("el-8", "x86_64"): (f"{URL}/rhel8/x86_64", "/etc/yum.repos.d/gpufleet-nvidia-cuda.repo"),
    ("el-9", "x86_64"): (f"{URL}/rhel9/x86_64", "/etc/yum.repos.d/gpufleet-nvidia-cuda.repo"),
    ("el-9", "aarch64"): (f"{URL}/rhel9/sbsa", "/etc/yum.repos.d/gpufleet-nvidia-cuda.repo"),
    ("amazon-2023", "x86_64"): (f"{URL}/amzn2023/x86_64", "/etc/yum.repos.d/gpufleet-nvidia-cuda.repo"),
    ("sles-15", "x86_64"): (f"{URL}/sles15/x86_64", "/etc/zypp/repos.d/gpufleet-nvidia-cuda.repo"),
}


@pytest.mark.parametrize("place", PLATFORMS, ids="/".join)
@pytest.mark.parametrize(
    ("there", "wanted", "missing", "default"),
    [
        ((), ["12.6"], ["cuda-toolkit-12-6"], "12.6"),
        ((), ["12.6", "13.0"], ["cuda-toolkit-12-6", "cuda-toolkit-13-0"], "13.0"),
        (("12.6",), ["12.6", "13.0"], ["cuda-toolkit-13-0"], "13.0"),
        (("11.8",), ["12.6"], ["cuda-toolkit-12-6"], "12.6"),
    ],
)
def test_toolkits_of_nvidias_repository(
    place: tuple[str, str], there: tuple[str, ...], wanted: list[str], missing: list[str], default: str
) -> None:
    key, arch = place
    installed = {f"cuda-toolkit-{version.replace('.', '-')}": "1" for version in there}
    done = nvidia(bare(key, arch=arch, packages=installed), *wanted)
    url, path = PLATFORMS[place]
    assert done["problems"] == []
    assert done["packages"] == missing
    assert not [package for package in done["packages"] if package in ("cuda", "cuda-drivers")]
    assert done["repository"]["url"] == url
    (file,) = done["files"]
    assert file["path"] == path
    assert url in file["content"]
    assert done["keyring"] in file["content"]
    assert f"/usr/local/cuda-{default}/bin" in done["profile"]["content"]
    assert [toolkit["nvcc"] for toolkit in done["toolkits"]] == [f"/usr/local/cuda-{v}/bin/nvcc" for v in wanted]


@pytest.mark.parametrize("key", ["debian-12", "ubuntu-24.04", "el-9", "amazon-2023", "sles-15"])
@pytest.mark.parametrize("request_", [{}, {"proxy": PROXY}, {"default_version": "12.6"}, {"environment": False}])
def test_nothing_is_left_to_do_afterwards(key: str, request_: dict[str, t.Any]) -> None:
    there = {**converged(key, "12.6", "13.0", **request_), "uid": 1000}
    add(there, packages_record.TOOLKIT, {"packages": ["cuda-toolkit-12-6"], "key": KEY, "verified": WORKED})
    done = nvidia(there, "12.6", "13.0", **request_)
    assert (done["problems"], done["summary"], done["acts"], done["query"]) == ([], [], False, [])


def test_a_mirror_on_the_host_itself_is_reached_through_nothing() -> None:
    done = nvidia(bare(), "12.6", mirror="file:///srv/cuda", proxy=PROXY)
    assert nvidia_repository.APT_PROXY_FILE not in [file["path"] for file in done["files"]]


def test_what_came_is_tried_until_it_has_worked() -> None:
    def summary(there: dict[str, t.Any], **request: t.Any) -> list[str]:
        return nvidia(there, "12.6", "13.0", **request)["summary"]

    record = {"packages": ["cuda-toolkit-12-6"], "key": KEY}
    there = add(converged("debian-12", "12.6", "13.0"), packages_record.TOOLKIT, {**record, "verified": WORKED[:1]})
    assert summary(there) == ["try /usr/local/cuda-13.0"]
    assert summary(there, verify="none") == []
    # What only root can read is not missed by others.
    hidden = {"exists": True, "content": None}
    assert summary({**there, "uid": 1000, "files": {**there["files"], packages_record.TOOLKIT: hidden}}) == []
    add(there, packages_record.TOOLKIT, packages_record.verify(there, packages_record.TOOLKIT, WORKED[1:]))
    assert summary(there) == []
    assert packages_record.read(there, packages_record.TOOLKIT)["packages"] == record["packages"]
    # Another installation has all of them tried again.
    add(there, packages_record.TOOLKIT, packages_record.begin(there, packages_record.TOOLKIT, ["x"], key=KEY))
    assert summary(there) == [FINISH, "try /usr/local/cuda-12.6, /usr/local/cuda-13.0"]
    assert summary(there, verify="none") == [FINISH]
    add(there, packages_record.TOOLKIT, packages_record.finish(there, packages_record.TOOLKIT, ["x"], ["x"]))
    assert summary(there) == ["try /usr/local/cuda-12.6, /usr/local/cuda-13.0"]


def test_what_a_run_that_was_cut_off_brought_is_written_down_and_tried() -> None:
    there = converged("debian-12", "12.6")
    begun = packages_record.begin(bare(), packages_record.TOOLKIT, ["vim"], key=KEY, asked=["cuda-toolkit-12-6"])
    add(there, packages_record.TOOLKIT, begun)
    done = nvidia(there, "12.6")
    assert (done["finish"], done["packages"], done["acts"]) == (True, [], True)
    assert done["summary"] == [FINISH, "try /usr/local/cuda-12.6"]
    names = ["vim", "cuda-toolkit-12-6", "tmux"]
    add(there, packages_record.TOOLKIT, packages_record.finish(there, packages_record.TOOLKIT, names, names, key=KEY))
    assert nvidia(there, "12.6")["summary"] == ["try /usr/local/cuda-12.6"]
    add(
        there, packages_record.TOOLKIT, packages_record.verify(there, packages_record.TOOLKIT, ["/usr/local/cuda-12.6"])
    )
    assert not nvidia(there, "12.6")["acts"]
    # What is not known for certain is tried as well.
    add(there, packages_record.TOOLKIT, {"uncertain": ["cuda-toolkit-12-6"]})
    assert nvidia(there, "12.6")["untried"] == ["/usr/local/cuda-12.6"]


def test_another_default_changes_path_alone() -> None:
    done = nvidia(converged("debian-12", "12.6", "13.0"), "12.6", "13.0", default_version="12.6")
    assert done["summary"] == [f"write {PROFILE_FILE}"]
    assert "/usr/local/cuda-12.6/bin" in done["profile"]["content"]


@pytest.mark.parametrize(
    ("versions", "newest"),
    [(["13.0", "12.6"], "13.0"), (["9.2", "12.6", "12.10"], "12.10"), ("12.6,13.0", "13.0"), (12.6, "12.6")],
)
def test_the_newest_is_the_default(versions: t.Any, newest: str) -> None:
    assert resolve(bare(), source="nvidia", versions=versions)["default"] == f"/usr/local/cuda-{newest}"


def test_a_toolkit_that_came_by_other_means_is_kept() -> None:
    done = nvidia(add(bare(), "/usr/local/cuda-12.6/bin/nvcc", ""), "12.6", "13.0")
    assert done["packages"] == ["cuda-toolkit-13-0"]
    assert "CUDA 12.6: the one in /usr/local/cuda-12.6, which came by other means, is kept" in done["reasons"]


def test_what_was_not_looked_at_is_named() -> None:
    assert nvidia(host("debian-12"), "12.6")["unseen"] == ["/usr/local/cuda-12.6/bin/nvcc"]
    assert nvidia(host("debian-12", packages={"cuda-toolkit-12-6": "1"}), "12.6")["unseen"] == []


def test_versions_that_the_repository_has_not_are_named_with_those_it_has() -> None:
    offered = {
        "cuda-toolkit-12-6": ["12.6.3-1"],
        "cuda-toolkit-12-6-config-common": ["12.6.77-1"],
        "cuda-toolkit-13-0": ["13.0.2-1"],
        "cuda-toolkit-9-2": ["9.2.148-1"],
    }
    done = nvidia(bare(), "12.6", "12.99", offered=offered)
    assert done["problems"] == [
        "cuda_toolkit_versions: NVIDIA's repository for debian-12 has no 12.99. It has 9.2, 12.6, 13.0."
    ]
    assert nvidia(bare(), "12.6", offered=offered)["problems"] == []
    assert "It has no toolkit at all." in nvidia(bare(), "12.6", offered={})["problems"][0]


@pytest.mark.parametrize(
    ("key", "more", "words"),
    [
        ("debian-12", {"versions": []}, "say which versions are wanted, as cuda_toolkit_versions"),
        (
            "debian-12",
            {"default_version": "11.8"},
            "cuda_toolkit_default_version=11.8 is none of cuda_toolkit_versions",
        ),
        ("debian-11", {}, "no repository of NVIDIA's for debian-11 is known"),
    ],
)
def test_what_cannot_be_had_from_nvidia_is_refused(key: str, more: dict[str, t.Any], words: str) -> None:
    done = resolve(bare(key), **{"source": "nvidia", "versions": ["12.6"], **more})
    assert words in " ".join(done["problems"])


def test_an_architecture_without_a_repository_is_refused() -> None:
    assert "for debian-12 (riscv64) is known" in nvidia(bare(arch="riscv64"), "12.6")["problems"][0]


def test_a_mirror_with_its_key_and_a_proxy() -> None:
    wish = {"mirror": "https://mirror.example/cuda/", "proxy": PROXY, "key_fingerprint": "0" * 40}
    done = nvidia(bare(), "12.6", **wish)
    assert done["repository"]["url"] == "https://mirror.example/cuda/debian12/x86_64"
    assert done["key"] == "0" * 40
    assert [file["path"] for file in done["files"]][1] == nvidia_repository.APT_PROXY_FILE
    for key, words in (("el-9", f"proxy={PROXY}"), ("sles-15", "?proxy=http%3A%2F%2Fproxy.example%3A3128")):
        assert words in nvidia(bare(key), "12.6", **wish)["files"][0]["content"]


@pytest.mark.parametrize("key", ["debian-12", "el-9", "sles-15"])
def test_a_proxy_that_is_not_wanted_any_more_goes(key: str) -> None:
    there = add(converged(key, "12.6", proxy=PROXY), packages_record.TOOLKIT, {"key": KEY})
    done = nvidia(there, "12.6")
    assert done["acts"]
    assert not [file for file in done["files"] if PROXY.partition("//")[2] in file["content"]]


def test_the_repository_is_looked_into_as_it_will_be() -> None:
    look = nvidia(bare(), "12.6")["look"]
    assert look["repository"] == {
        "url": f"{URL}/debian12/x86_64",
        "key": f"{URL}/debian12/x86_64/3bf863cc.pub",
        "fingerprint": KEY,
    }
    assert "/etc/apt/sources.list.d/gpufleet-nvidia-cuda.sources" in look["without"]
    assert nvidia(bare(), "12.6", proxy=PROXY)["look"]["repository"]["proxy"] == PROXY


# --- a repository that is there already ---


def repository(key: str = "debian-12") -> dict[str, t.Any]:
    return nvidia(bare(key), "12.6")["repository"]


@pytest.mark.parametrize("key", ["debian-12", "el-9", "sles-15"])
def test_an_entry_of_somebody_elses_is_used_as_it_is(key: str) -> None:
    there = bare(key)
    name(there, repository(key), file="/etc/somewhere/else")
    done = nvidia(there, "12.6")
    assert (done["repository"], done["files"]) == (None, [])
    assert done["look"] == {"repository": None, "without": []}
    assert done["packages"] == ["cuda-toolkit-12-6"]


def test_an_entry_without_a_key_gives_way_and_so_does_what_brought_it() -> None:
    there = bare(packages={"cuda-keyring": "1.1-1"})
    name(there, repository(), file="/etc/apt/sources.list.d/cuda.list", signed=False)
    done = nvidia(there, "12.6")
    assert done["remove_files"] == ["/etc/apt/sources.list.d/cuda.list"]
    assert done["remove_packages"] == ["cuda-keyring"]
    assert done["repository"] is not None


@pytest.mark.parametrize("proxy", ["", PROXY])
@pytest.mark.parametrize("key", ["debian-12", "el-9", "sles-15"])
def test_what_the_driver_has_added_is_shared_and_stays_as_it_is(key: str, proxy: str) -> None:
    there = converged(key, "12.6", proxy=PROXY)
    del there["packages"]["cuda-toolkit-12-6"]
    add(there, packages_record.DRIVER, {"packages": ["libcuda1"], "key": KEY})
    done = nvidia(there, "12.6", proxy=proxy)
    assert (done["problems"], done["repository"], done["files"]) == ([], None, [])
    assert done["key"] == platform(key)["sources"]["nvidia"]["repository"]["fingerprint"]


def test_another_address_than_the_drivers_is_refused() -> None:
    there = converged("debian-12", "12.6")
    del there["packages"]["cuda-toolkit-12-6"]
    add(there, packages_record.DRIVER, {"packages": ["libcuda1"], "key": KEY})
    (problem,) = nvidia(there, "12.6", mirror="https://mirror.example")["problems"]
    assert "Set cuda_toolkit_mirror and cuda_toolkit_key_fingerprint as nvidia_driver_mirror" in problem


# --- the distribution's ---


def test_the_distributions_toolkit_beside_the_driver() -> None:
    done = resolve(bare(packages={"libcuda1": "535"}))
    assert (done["problems"], done["packages"], done["profile"]) == ([], ["nvidia-cuda-toolkit", "g++"], None)
    assert [toolkit["nvcc"] for toolkit in done["toolkits"]] == ["/usr/bin/nvcc"]
    assert done["reasons"] == ["CUDA 11.8 of debian-12"]


def test_nothing_is_left_to_do_with_the_distributions() -> None:
    there = bare(packages=dict.fromkeys(("libcuda1", "nvidia-cuda-toolkit", "g++"), "1"))
    for versions in ([], ["11.8"], 11.8):
        done = resolve({**there, "uid": 1000}, versions=versions)
        assert (done["problems"], done["acts"]) == ([], False)


@pytest.mark.parametrize(
    ("seen", "more", "words"),
    [
        (bare(), {}, "this role never installs a driver. Apply role nvidia_driver first"),
        (bare(driver={"library": "580.1"}), {}, "beside the driver 580.1 that did not come from packages"),
        (bare(), {"versions": ["12.4"]}, "cuda_toolkit_versions=12.4: debian-12 has 11.8 and no other"),
        (bare(), {"default_version": "12.4"}, "cuda_toolkit_default_version=12.4: debian-12 has 11.8 and no other"),
        (
            bare("el-9"),
            {},
            "the toolkit of el-9 is not known (known: debian-12, debian-13). Set cuda_toolkit_source=nvidia",
        ),
        (
            bare("ubuntu-24.04"),
            {},
            "is not known (known: debian-12, debian-13). Set cuda_toolkit_source=nvidia and the "
            'versions that are wanted, as cuda_toolkit_versions: ["12.6"], or',
        ),
        (bare(apt={"missing_components": ["non-free"]}), {}, "are not enabled: non-free"),
        (bare(packages={"libcuda1": "1"}, uid=1000), {}, "this needs root, and the host was seen as user 1000"),
    ],
)
def test_what_speaks_against_it_is_said_before_any_change(
    seen: dict[str, t.Any], more: dict[str, t.Any], words: str
) -> None:
    assert words in " ".join(resolve(seen, **more)["problems"])


# --- one that is there, and PATH ---


def test_a_preinstalled_toolkit_gets_on_path_and_off_again() -> None:
    there = add(bare(), "/usr/local/cuda-12.4/bin/nvcc", "")
    done = resolve(there, source="preinstalled", path="/usr/local/cuda-12.4/")
    text = profile("/usr/local/cuda-12.4/bin")
    assert (done["problems"], done["packages"]) == ([], [])
    assert [toolkit["nvcc"] for toolkit in done["toolkits"]] == ["/usr/local/cuda-12.4/bin/nvcc"]
    assert done["profile"] == {"state": "present", "path": PROFILE_FILE, "content": text}
    add(there, PROFILE_FILE, text)
    assert not resolve(there, source="preinstalled", path="/usr/local/cuda-12.4")["acts"]
    assert resolve(there, source="preinstalled", environment=False)["profile"]["state"] == "absent"


def test_a_preinstalled_toolkit_has_to_be_there() -> None:
    assert resolve(bare(), source="preinstalled")["unseen"] == ["/usr/local/cuda/bin/nvcc"]
    there = bare()
    there["files"]["/usr/local/cuda/bin/nvcc"] = {"exists": False, "content": None}
    assert "there is no /usr/local/cuda/bin/nvcc on this host" in resolve(there, source="preinstalled")["problems"][0]
    assert "Name its directory" in resolve(bare(), source="preinstalled", versions=["12.6"])["problems"][0]


@pytest.mark.parametrize(("environment", "state"), [("false", None), ("no", None), ("true", "present")])
def test_a_truth_value_may_be_a_text(environment: str, state: str | None) -> None:
    assert (nvidia(bare(), "12.6", environment=environment)["profile"] or {}).get("state") == state


def test_path_gets_the_directory_once_and_nothing_else_is_set() -> None:
    text = profile("/opt/x/bin")
    script = f'PATH=/usr/bin:/bin; {text}{text}echo "$PATH"'
    done = subprocess.run(["/bin/sh", "-euc", script], capture_output=True, text=True, check=True)
    assert done.stdout == "/opt/x/bin:/usr/bin:/bin\n"
    assert "LD_LIBRARY_PATH" not in text


# --- the driver ---


@pytest.mark.parametrize(
    ("driver", "version", "verify", "outcome"),
    [
        (None, "13.0", "auto", "compiled"),
        ("580.95.05", "13.0", "auto", "run"),
        ("580.95.05", "12.6", "auto", "run"),
        ("580.95.05", "12.6", "compile", "compiled"),
        ("580.95.05", "12.6", "none", "left"),
        ("570.172.08", "13.0", "auto", "refused"),
        ("570.172.08", "13.0", "run", "refused"),
        ("570.172.08", "13.0", "compile", "compiled, warned"),
        ("570.172.08", "13.0", "none", "left, warned"),
        ("535.309.01", "12.6", "auto", "run natively, warned"),
        ("535.309.01", "12.6", "compile", "compiled, warned"),
        ("525.147.05", "11.8", "auto", "run"),
        ("470.256.02", "11.8", "auto", "run natively, warned"),
        ("590.44.01", "13.9", "auto", "run natively, warned"),
        ("595.71.05", "13.9", "auto", "run"),
        ("580.95.05", "14.0", "auto", "run"),
        (None, "12.6", "run", "refused"),
    ],
)
def test_a_toolkit_is_tried_as_far_as_the_driver_goes(
    driver: str | None, version: str, verify: str, outcome: str
) -> None:
    there = bare(driver={"loaded": driver, "library": driver})
    done = nvidia(there, version, verify=verify)
    (toolkit,) = done["toolkits"]
    if done["problems"]:
        said = "refused"
    else:
        said = ("run" if toolkit["run"] else "compiled") if toolkit["verify"] else "left"
        said += " natively" if toolkit["options"] == ["-arch=native"] else ""
        said += ", warned" if done["warnings"] else ""
    assert said == outcome


def test_a_driver_that_is_too_old_is_named_with_the_way_out() -> None:
    (problem,) = nvidia(bare(driver={"loaded": "570.172.08"}), "13.0")["problems"]
    assert problem.startswith("driver 570.172.08 cannot run what CUDA 13.0 compiles: that needs 580 or newer.")
    assert "nvidia_driver_branch" in problem


K80, P100 = "0x102d", "0x15f8"
NO_CODE = "CUDA 13.0 compiles nothing for"


@pytest.mark.parametrize(
    ("gpus", "driver", "verify", "outcome"),
    [
        ((V100,), "580.95.05", "auto", "refused: 12.x"),
        ((V100,), "580.95.05", "run", "refused: 12.x"),
        ((V100,), None, "auto", "refused: 12.x"),
        ((P100, V100), "580.95.05", "auto", "refused: 12.x"),
        ((K80,), "470.256.02", "auto", "refused: 11.x"),
        # Another driver would not help.
        ((V100,), "570.172.08", "auto", "refused: 12.x"),
        ((V100,), "580.95.05", "compile", "compiled, warned"),
        ((V100,), "580.95.05", "none", "left, warned"),
        ((V100, T4), "580.95.05", "auto", "compiled, warned"),
        ((V100, T4), "580.95.05", "run", "run, warned"),
        ((V100, T4), "580.95.05", "compile", "compiled, warned"),
        ((T4,), "580.95.05", "auto", "run"),
        ((B200,), "580.95.05", "auto", "run"),
        ((), None, "auto", "compiled"),
    ],
)
def test_gpus_that_a_toolkit_has_dropped(gpus: tuple[str, ...], driver: str | None, verify: str, outcome: str) -> None:
    done = nvidia(bare("ubuntu-24.04", gpus=gpus, driver={"loaded": driver, "library": driver}), "13.0", verify=verify)
    (toolkit,) = done["toolkits"]
    said = ("run" if toolkit["run"] else "compiled") if toolkit["verify"] else "left"
    if done["problems"]:
        (problem,) = done["problems"]
        assert problem.startswith(f"{NO_CODE} the GPUs of this host, {gpus[0]} (")
        assert "cuda_toolkit_verify=compile" in problem
        said = f"refused: {problem.partition('of version ')[2].partition(',')[0]}"
    elif done["warnings"]:
        (warning,) = done["warnings"]
        assert warning.startswith(NO_CODE)
        assert gpus[0] in warning
        assert T4 not in warning
        said += ", warned"
    assert said == outcome


@pytest.mark.parametrize("version", ["11.8", "12.6"])
def test_older_toolkits_serve_older_gpus(version: str) -> None:
    done = nvidia(bare(gpus=(V100, P100), driver={"loaded": "580.95.05"}), version)
    assert (done["problems"], done["warnings"], done["toolkits"][0]["run"]) == ([], [], True)


def test_of_several_toolkits_the_one_that_has_dropped_the_gpus_is_refused() -> None:
    (problem,) = nvidia(bare(gpus=(V100,), driver={"loaded": "580.95.05"}), "12.6", "13.0")["problems"]
    assert problem.startswith(f"{NO_CODE} the GPUs of this host, {V100} (Volta). Ask for a toolkit of version 12.x")


# --- forms ---


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"versions": ["12.6.3"]}, "cuda_toolkit_versions has '12.6.3', which is not of the form '12.6'"),
        ({"versions": [12]}, "cuda_toolkit_versions has '12', which is not of the form"),
        ({"versions": ["latest"]}, "cuda_toolkit_versions has 'latest'"),
        ({"default_version": "x"}, "cuda_toolkit_default_version is 'x', which is not of the form"),
        ({"path": "cuda"}, "cuda_toolkit_path is 'cuda', which is not an absolute path"),
        ({"path": "/a:/b"}, "cuda_toolkit_path is '/a:/b'"),
        ({"mirror": "mirror.example"}, "cuda_toolkit_mirror is 'mirror.example', which is not of the form https://"),
        ({"proxy": "u:s3cret@proxy"}, "cuda_toolkit_proxy is '...@proxy', which is not of the form http://"),
        ({"key_fingerprint": "3BF863CC"}, "cuda_toolkit_key_fingerprint is '3BF863CC', which is not of the form"),
        ({"key_fingerprint": "sha256:0"}, "cuda_toolkit_key_fingerprint is 'sha256:0', which is not of the form"),
        ({"key_url": "u:s3cret@keys"}, "cuda_toolkit_key_url is '...@keys', which is not of the form https://"),
        ({"environment": "maybe"}, "cuda_toolkit_environment is 'maybe', which is not of the form true or false"),
    ],
)
def test_what_has_not_its_form_is_named(more: dict[str, t.Any], words: str) -> None:
    plan = resolve(bare(), **{"source": "nvidia", "versions": ["12.6"], **more})
    (problem,) = plan["problems"]
    assert words in problem
    assert (plan["acts"], plan["query"], plan["unseen"]) == (False, [], [])
