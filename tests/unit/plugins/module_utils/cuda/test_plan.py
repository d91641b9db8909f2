# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import subprocess
import typing as t

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.cuda import variables as cuda_request
from ansible_collections.gpufleet.hosts.plugins.module_utils.cuda.plan import PROFILE_FILE, files, profile
from ansible_collections.gpufleet.hosts.plugins.module_utils.packages import (
    nvidia_repository,
    record_of_role,
    selectors_of_allowed_packages,
)
from ansible_collections.gpufleet.hosts.plugins.modules import package_transaction
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import (
    B200,
    T4,
    V100,
    add_package,
    remove_package,
)
from ansible_collections.gpufleet.hosts.tests.unit.plugins.toolkit_samples import (
    KEY,
    URL,
    add,
    bare,
    converged,
    name,
    nvidia,
    repository,
    resolve,
    work,
)

WORKED = ["/usr/local/cuda-12.6", "/usr/local/cuda-13.0"]
PROXY = "http://proxy.example:3128"


# --- NVIDIA's repository ---

PLATFORMS = {
    ("debian-12", "x86_64"): f"{URL}/debian12/x86_64",
    ("debian-13", "aarch64"): f"{URL}/debian13/sbsa",
    ("ubuntu-24.04", "x86_64"): f"{URL}/ubuntu2404/x86_64",
    ("el-8", "x86_64"): f"{URL}/rhel8/x86_64",
    ("el-9", "x86_64"): f"{URL}/rhel9/x86_64",
    ("el-9", "aarch64"): f"{URL}/rhel9/sbsa",
    ("amazon-2023", "x86_64"): f"{URL}/amzn2023/x86_64",
    ("sles-15", "x86_64"): f"{URL}/sles15/x86_64",
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
def test_toolkits_come_from_nvidias_repository(
    place: tuple[str, str], there: tuple[str, ...], wanted: list[str], missing: list[str], default: str
) -> None:
    key, arch = place
    installed = {f"cuda-toolkit-{version.replace('.', '-')}": "1" for version in there}
    done = nvidia(bare(key, arch=arch, packages=installed), *wanted)
    assert done["problems"] == []
    assert work(done)["install"] == missing
    (added,) = work(done)["repositories"]
    assert added["url"] == PLATFORMS[place]
    assert added["key"].startswith(f"{added['url']}/")
    assert work(done)["uses_repositories"] == [added["name"]]
    assert (work(done)["files"], work(done)["purge"]) == ([], [])
    assert f"/usr/local/cuda-{default}/bin" in done["profile"]["content"]
    assert [toolkit["nvcc"] for toolkit in done["toolkits"]] == [f"/usr/local/cuda-{v}/bin/nvcc" for v in wanted]


@pytest.mark.parametrize("key", ["debian-12", "ubuntu-24.04", "el-9", "amazon-2023", "sles-15"])
@pytest.mark.parametrize("request_", [{}, {"proxy": PROXY}, {"default_version": "12.6"}, {"environment": False}])
def test_a_converged_host_has_no_changes(key: str, request_: dict[str, t.Any]) -> None:
    there = {**converged(key, "12.6", "13.0", **request_), "uid": 1000}
    add(there, record_of_role.TOOLKIT, {"packages": ["cuda-toolkit-12-6"], "key": KEY})
    add(there, owned.TOOLKIT_VERIFIED, "\n".join(WORKED))
    done = nvidia(there, "12.6", "13.0", **request_)
    assert (done["problems"], done["transaction"], done["profile"], done["untried"]) == ([], None, None, [])
    assert not done["acts"]


def test_a_run_that_only_removes_a_file_says_so_and_needs_root() -> None:
    there = add(converged("debian-12", "12.6"), nvidia_repository.APT_PREFERENCE_FILE, "# old")
    add(there, record_of_role.TOOLKIT, {"packages": ["cuda-toolkit-12-6"], "repositories": [owned.REPOSITORY_ID]})
    add(there, owned.TOOLKIT_VERIFIED, WORKED[0])
    done = nvidia(there, "12.6")
    removed = [{"path": nvidia_repository.APT_PREFERENCE_FILE, "state": "absent"}]
    assert [{name: file[name] for name in ("path", "state")} for file in work(done)["files"]] == removed
    texts = [step["text"] for step in done["steps"]]
    assert (texts, done["acts"]) == ([f"remove {nvidia_repository.APT_PREFERENCE_FILE}"], True)
    assert any("root" in problem for problem in nvidia({**there, "uid": 1000}, "12.6")["problems"])


def test_a_mirror_on_the_host_uses_no_proxy() -> None:
    done = nvidia(bare(), "12.6", mirror="file:///srv/cuda", proxy=PROXY)
    assert work(done)["files"] == []


def test_toolkits_are_verified_until_they_pass() -> None:
    def untried(there: dict[str, t.Any], **request: t.Any) -> list[str]:
        done = nvidia(there, "12.6", "13.0", **request)
        assert done["acts"] is bool(done["untried"])
        return done["untried"]

    record = {"packages": ["cuda-toolkit-12-6"], "key": KEY}
    there = add(converged("debian-12", "12.6", "13.0"), record_of_role.TOOLKIT, record)
    assert untried(there) == WORKED
    add(there, owned.TOOLKIT_VERIFIED, f"{WORKED[0]}\n")
    assert untried(there) == WORKED[1:]
    assert untried(there, verify="none") == []
    # Users other than root cannot read the record.
    hidden = {"exists": True, "content": None}
    assert untried({**there, "uid": 1000, "files": {**there["files"], record_of_role.TOOLKIT: hidden}}) == []
    add(there, owned.TOOLKIT_VERIFIED, f"{WORKED[0]}\n{WORKED[1]}\n")
    assert untried(there) == []


def test_an_interrupted_run_is_completed_and_the_toolkits_are_verified() -> None:
    there = converged("debian-12", "12.6")
    add(there, record_of_role.TOOLKIT, {"packages": [], "pending": ["vim"], "asked": ["cuda-toolkit-12-6"]})
    done = nvidia(there, "12.6")
    # The module completes the run and records its packages.
    assert (done["transaction"]["install"], done["acts"]) == ([], True)
    assert done["untried"] == ["/usr/local/cuda-12.6"]
    assert nvidia(there, "12.6", verify="none")["transaction"] is not None
    add(there, record_of_role.TOOLKIT, {"packages": ["cuda-toolkit-12-6"]})
    done = nvidia(there, "12.6")
    assert (done["transaction"], done["untried"]) == (None, ["/usr/local/cuda-12.6"])
    # Toolkits that the role possibly installed are verified, too.
    add(there, record_of_role.TOOLKIT, {"uncertain": ["cuda-toolkit-12-6"]})
    assert nvidia(there, "12.6")["untried"] == ["/usr/local/cuda-12.6"]


@pytest.mark.parametrize("key", ["debian-12", "el-9", "sles-15"])
def test_the_module_accepts_the_transaction(key: str) -> None:
    there = bare(key, packages={"cuda-keyring": "1.1-1", "libcuda1": "535.261.03-1"})
    wish = {**WITH_LOGIN, "proxy": PROXY, "proxy_username": "robot", "proxy_password": "pr0xy"}
    options = nvidia(there, "12.6", **wish)["transaction"]
    defaults = {name: [] for name in package_transaction.LISTS}
    fixed = {
        "may_upgrade": True,
        "lock_timeout": 1,
        "query_streams": [],
        "query_dependencies": [],
        "files": [],
        "repositories": [],
    }
    files = [{"content": "", "mode": "0644", **file} for file in options["files"]]
    request = package_transaction.request(
        {**defaults, **fixed, **options, "files": files}, there["os"]["package_manager"]
    )
    assert [str(item) for item in request.install] == ["cuda-toolkit-12-6"]
    assert [repository.password for repository in request.repositories] == ["s3cret"]


def test_the_transaction_never_installs_or_changes_the_driver() -> None:
    kept = [selectors_of_allowed_packages.parse(text) for text in nvidia(bare(), "12.6")["transaction"]["keep"]]

    def is_kept(name: str, version: str) -> bool:
        return selectors_of_allowed_packages.is_selected(kept, name, version)

    assert is_kept("libcuda1", "580.95.05-1")
    assert is_kept("nvidia-driver-cuda", "3:580.95.05-1.el9")
    assert is_kept("linux-modules-nvidia-580-open-generic", "6.8.0-90.91")
    # Libraries of the toolkit have other versions.
    assert not is_kept("libnvjitlink-12-6", "12.6.85-1")
    assert not is_kept("nvidia-support", "20220217+3~deb12u1")


def test_a_new_default_changes_only_path() -> None:
    done = nvidia(converged("debian-12", "12.6", "13.0"), "12.6", "13.0", default_version="12.6")
    assert (done["transaction"], done["profile"]["path"]) == (None, PROFILE_FILE)
    assert "/usr/local/cuda-12.6/bin" in done["profile"]["content"]


@pytest.mark.parametrize(
    ("versions", "newest"),
    [
        (["13.0", "12.6"], "13.0"),
        (["9.2", "12.6", "12.10"], "12.10"),
        ("12.6,13.0,", "13.0"),
        ("12.6", "12.6"),
    ],
)
def test_the_newest_version_is_the_default(versions: t.Any, newest: str) -> None:
    assert resolve(bare(), source="nvidia", versions=versions)["default"] == f"/usr/local/cuda-{newest}"


def test_a_toolkit_without_a_package_is_kept() -> None:
    done = nvidia(add(bare(), "/usr/local/cuda-12.6/bin/nvcc", ""), "12.6", "13.0")
    assert work(done)["install"] == ["cuda-toolkit-13-0"]
    assert "CUDA 12.6: the existing toolkit in /usr/local/cuda-12.6 is kept" in done["reasons"]


def test_a_version_that_is_listed_twice_is_installed_once() -> None:
    assert work(nvidia(bare(), "12.6", "13.0", "12.6"))["install"] == ["cuda-toolkit-12-6", "cuda-toolkit-13-0"]


def test_the_observation_reads_the_compilers_of_all_requested_toolkits() -> None:
    request = cuda_request.read({"versions": ["12.6", "13.0"], "path": "/opt/cuda/"})
    directories = ["/usr/local/cuda-12.6", "/usr/local/cuda-13.0", "/opt/cuda"]
    assert files(request) == [f"{directory}/bin/nvcc" for directory in directories]


@pytest.mark.parametrize(
    ("key", "more", "words"),
    [
        ("debian-12", {"versions": []}, "Set the versions to install, for example cuda_toolkit_versions"),
        (
            "debian-12",
            {"default_version": "11.8"},
            "cuda_toolkit_default_version=11.8 is not in cuda_toolkit_versions",
        ),
        ("debian-11", {}, "cuda_toolkit_source=nvidia does not support debian-11"),
    ],
)
def test_invalid_settings_for_source_nvidia_are_rejected(key: str, more: dict[str, t.Any], words: str) -> None:
    done = resolve(bare(key), **{"source": "nvidia", "versions": ["12.6"], **more})
    assert words in " ".join(done["problems"])


def test_an_architecture_without_a_repository_is_rejected() -> None:
    assert "does not support debian-12 (riscv64)" in nvidia(bare(arch="riscv64"), "12.6")["problems"][0]


def test_a_mirror_may_have_its_own_key_and_a_proxy() -> None:
    wish = {"mirror": "https://mirror.example/cuda/", "proxy": PROXY, "key_fingerprint": "0" * 40}
    done = nvidia(bare(), "12.6", **wish)
    (added,) = work(done)["repositories"]
    assert added["url"] == "https://mirror.example/cuda/debian12/x86_64"
    assert (added["fingerprint"], added["proxy"]) == ("0" * 40, PROXY)
    # The module writes the files of the repository.
    assert work(done)["files"] == []


@pytest.mark.parametrize("key", ["debian-12", "el-9", "sles-15"])
def test_a_removed_proxy_setting_removes_the_proxy(key: str) -> None:
    there = add(converged(key, "12.6", proxy=PROXY), record_of_role.TOOLKIT, {"key": KEY})
    done = nvidia(there, "12.6")
    (changed,) = work(done)["repositories"]
    assert "proxy" not in changed
    assert work(done)["install"] == []


# --- an existing repository ---


@pytest.mark.parametrize("key", ["debian-12", "el-9", "sles-15"])
def test_an_existing_entry_is_used(key: str) -> None:
    there = bare(key)
    name(there, repository(key), file="/etc/somewhere/else")
    done = nvidia(there, "12.6")
    assert {name for name, value in done["transaction"].items() if value} == {"install", "keep"}
    assert done["transaction"]["install"] == ["cuda-toolkit-12-6"]


def test_an_entry_without_a_key_is_replaced_with_its_package() -> None:
    there = bare(packages={"cuda-keyring": "1.1-1"})
    name(there, repository(), file="/etc/apt/sources.list.d/cuda.list", signed=False)
    done = nvidia(there, "12.6")
    assert work(done)["files"] == [{"path": "/etc/apt/sources.list.d/cuda.list", "state": "absent"}]
    assert work(done)["purge"] == ["cuda-keyring"]
    texts = [step["text"] for step in done["steps"]]
    assert {"purge cuda-keyring", "remove /etc/apt/sources.list.d/cuda.list"} <= {*texts}
    (added,) = work(done)["repositories"]
    assert "/etc/apt/sources.list.d/nvidia-ml.list" in added["replaces"]


@pytest.mark.parametrize("proxy", ["", PROXY])
@pytest.mark.parametrize("recorded", [{"key": KEY}, {"repositories": ["gpufleet-nvidia-cuda"]}])
@pytest.mark.parametrize("key", ["debian-12", "el-9", "sles-15"])
def test_the_drivers_repository_is_shared_and_not_changed(key: str, recorded: dict[str, t.Any], proxy: str) -> None:
    there = converged(key, "12.6", proxy=PROXY)
    remove_package(there, "cuda-toolkit-12-6")
    add(there, record_of_role.DRIVER, {"packages": ["libcuda1"], **recorded})
    done = nvidia(there, "12.6", proxy=proxy)
    assert (done["problems"], work(done)["repositories"], work(done)["files"]) == ([], [], [])
    # The repository stays if the driver is removed.
    assert work(done)["uses_repositories"] == ["gpufleet-nvidia-cuda"]


MIRROR = "https://mirror.example/cuda"
WITH_LOGIN = {"mirror": MIRROR, "repository_username": "robot", "repository_password": "s3cret"}
OTHER_KEY = "0" * 40
OF_DRIVER = {"packages": ["libcuda1"], "key": OTHER_KEY}


def url_of(done: dict[str, t.Any]) -> str:
    (added,) = work(done)["repositories"]
    return added["url"]


def with_mirror(key: str, *versions: str) -> dict[str, t.Any]:
    """Return a host with our entry for a mirror that has a login, a proxy and its own key."""
    there = converged(key, "12.6", **WITH_LOGIN, proxy=PROXY, key_fingerprint=OTHER_KEY)
    remove_package(there, "cuda-toolkit-12-6")
    for version in versions:
        add_package(there, f"cuda-toolkit-{version.replace('.', '-')}", "1")
    return there


@pytest.mark.parametrize("key", ["debian-12", "el-9", "sles-15"])
@pytest.mark.parametrize("more", [{}, {"proxy": "http://other.example:1", "key_fingerprint": KEY}])
def test_without_a_setting_the_mirror_of_the_driver_is_used_and_not_changed(key: str, more: dict[str, t.Any]) -> None:
    there = add(with_mirror(key), record_of_role.DRIVER, OF_DRIVER)
    done = nvidia(there, "12.6", **more)
    assert (done["problems"], work(done)["install"]) == ([], ["cuda-toolkit-12-6"])
    assert (work(done)["repositories"], work(done)["files"]) == ([], [])
    assert work(done)["uses_repositories"] == ["gpufleet-nvidia-cuda"]
    assert any("the mirror https://mirror.example/cuda/" in reason for reason in done["reasons"])
    assert "s3cret" not in str(done)


@pytest.mark.parametrize("key", ["debian-12", "el-9", "sles-15"])
@pytest.mark.parametrize("versions", [(), ("12.6",)])
@pytest.mark.parametrize("recorded", [{"key": OTHER_KEY}, {"repositories": ["gpufleet-nvidia-cuda"]}])
def test_the_mirror_of_a_removed_driver_is_not_changed(
    key: str, versions: tuple[str, ...], recorded: dict[str, t.Any]
) -> None:
    there = add(with_mirror(key, *versions), record_of_role.TOOLKIT, recorded)
    done = nvidia(there, "12.6")
    assert (done["problems"], work(done)["repositories"], work(done)["files"]) == ([], [], [])


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize(
    ("key", "file"),
    [
        ("debian-12", "/etc/apt/sources.list.d/mine.list"),
        ("debian-12", "/etc/apt/sources.list.d/cuda-debian12-x86_64.list"),
        ("el-9", "/etc/yum.repos.d/cuda-rhel9.repo"),
        ("sles-15", "/etc/zypp/repos.d/cuda-sles15.repo"),
    ],
)
def test_without_a_setting_a_mirror_of_the_user_is_used_and_not_changed(key: str, file: str, signed: bool) -> None:
    there = bare(key, packages={"cuda-keyring": "1.1-1"})
    name(there, repository(key, **WITH_LOGIN), file=file, signed=signed)
    done = nvidia(there, "12.6")
    assert (done["problems"], work(done)["repositories"], work(done)["files"]) == ([], [], [])
    assert (work(done)["purge"], work(done)["uses_repositories"]) == ([], [])
    # With a setting, the role adds its own entry.
    assert url_of(nvidia(there, "12.6", mirror="https://other.example/cuda")).startswith("https://other.example/cuda/")


@pytest.mark.parametrize(
    "url",
    [
        "https://mirror.example/os/rhel9/x86_64",
        "https://developer.download.nvidia.com/compute/machine-learning/repos/rhel9/x86_64",
        "https://mirror.example/cuda/rhel8/x86_64",
        "file:///var/cuda-repo-rhel9-12-6-local",
    ],
)
def test_other_repositories_are_not_mirrors(url: str) -> None:
    there = bare("el-9")
    name(there, {**repository("el-9"), "url": url}, file="/etc/yum.repos.d/mine.repo")
    assert url_of(nvidia(there, "12.6")) == f"{URL}/rhel9/x86_64"
    there["repositories"][0].update(url=f"{MIRROR}/rhel9/x86_64", enabled=False)
    assert url_of(nvidia(there, "12.6")) == f"{URL}/rhel9/x86_64"


def test_nvidias_own_repository_is_used_before_a_mirror_of_the_user() -> None:
    there = bare("el-9")
    name(there, {**repository("el-9"), "url": f"{MIRROR}/rhel9/x86_64"}, file="/etc/yum.repos.d/mine.repo")
    name(there, repository("el-9"), file="/etc/yum.repos.d/cuda-rhel9.repo")
    done = nvidia(there, "12.6")
    assert (work(done)["repositories"], work(done)["files"]) == ([], [])
    assert MIRROR not in str(done["reasons"])


def test_our_entry_for_another_release_is_replaced() -> None:
    there = with_mirror("debian-12")
    there["apt"]["sources"][0]["uris"] = [f"{URL}/debian11/x86_64"]
    assert url_of(nvidia(there, "12.6")) == f"{URL}/debian12/x86_64"
    add(there, record_of_role.DRIVER, OF_DRIVER)
    (problem,) = nvidia(there, "12.6")["problems"]
    assert problem.endswith("Correct the URL in /etc/apt/sources.list.d/gpufleet-nvidia-cuda.sources.")


def test_a_url_other_than_the_drivers_is_rejected() -> None:
    there = add(with_mirror("debian-12"), record_of_role.DRIVER, OF_DRIVER)
    (problem,) = nvidia(there, "12.6", mirror="https://other.example")["problems"]
    assert problem == (
        "Role nvidia_driver uses NVIDIA's repository with a URL other than https://other.example/debian12/x86_64. "
        "Remove cuda_toolkit_mirror to use that URL."
    )


# --- the distribution's ---


def test_the_distributions_toolkit_is_installed_beside_the_driver() -> None:
    done = resolve(bare(packages={"libcuda1": "535"}))
    assert (done["problems"], work(done)["install"], done["profile"]) == ([], ["nvidia-cuda-toolkit", "g++"], None)
    assert [toolkit["nvcc"] for toolkit in done["toolkits"]] == ["/usr/bin/nvcc"]
    assert done["reasons"] == ["CUDA 11.8 from debian-12"]


def test_a_host_with_the_distributions_toolkit_has_no_changes() -> None:
    there = bare(packages=dict.fromkeys(("libcuda1", "nvidia-cuda-toolkit", "g++"), "1"))
    for versions in ([], ["11.8"], "11.8"):
        done = resolve({**there, "uid": 1000}, versions=versions)
        assert (done["problems"], done["acts"]) == ([], False)


@pytest.mark.parametrize(
    ("seen", "more", "words"),
    [
        (bare(), {}, "this role never installs a driver. Apply role nvidia_driver first"),
        (bare(driver={"library": "580.1"}), {}, "but driver 580.1 was not installed from packages"),
        (bare(), {"versions": ["12.4"]}, "cuda_toolkit_versions=12.4 is not available: debian-12 only has 11.8"),
        (bare(), {"default_version": "12.4"}, "cuda_toolkit_default_version=12.4 is not available: debian-12 only has"),
        (
            bare("el-9"),
            {},
            "does not support el-9 (supported: debian-12, debian-13). Set cuda_toolkit_source=nvidia",
        ),
        (
            bare("ubuntu-24.04"),
            {},
            "(supported: debian-12, debian-13). Set cuda_toolkit_source=nvidia and the versions to install, for "
            'example cuda_toolkit_versions: ["12.6"]',
        ),
        (bare(apt={"missing_components": ["non-free"]}), {}, "are not enabled: non-free"),
        (bare(packages={"libcuda1": "1"}, uid=1000), {}, "This task needs root, but it runs as uid 1000"),
    ],
)
def test_problems_are_reported_before_any_change(seen: dict[str, t.Any], more: dict[str, t.Any], words: str) -> None:
    assert words in " ".join(resolve(seen, **more)["problems"])


# --- a preinstalled toolkit, and PATH ---


def test_a_preinstalled_toolkit_is_added_to_path_and_removed() -> None:
    there = add(bare(), "/usr/local/cuda-12.4/bin/nvcc", "")
    done = resolve(there, source="preinstalled", path="/usr/local/cuda-12.4/")
    text = profile("/usr/local/cuda-12.4/bin")
    assert (done["problems"], done["transaction"]) == ([], None)
    assert [toolkit["nvcc"] for toolkit in done["toolkits"]] == ["/usr/local/cuda-12.4/bin/nvcc"]
    assert done["profile"] == {"state": "present", "path": PROFILE_FILE, "content": text, "mode": "0644"}
    add(there, PROFILE_FILE, text)
    assert not resolve(there, source="preinstalled", path="/usr/local/cuda-12.4")["acts"]
    assert resolve(there, source="preinstalled", environment=False)["profile"]["state"] == "absent"


def test_a_missing_preinstalled_toolkit_is_an_error() -> None:
    there = bare()
    there["files"]["/usr/local/cuda/bin/nvcc"] = {"exists": False, "content": None}
    assert (
        "requires /usr/local/cuda/bin/nvcc, which does not exist"
        in resolve(there, source="preinstalled")["problems"][0]
    )
    assert "Remove both variables" in resolve(bare(), source="preinstalled", versions=["12.6"])["problems"][0]


@pytest.mark.parametrize(("environment", "state"), [("false", None), ("no", None), ("true", "present")])
def test_a_boolean_may_be_a_string(environment: str, state: str | None) -> None:
    assert (nvidia(bare(), "12.6", environment=environment)["profile"] or {}).get("state") == state


def test_the_profile_adds_the_directory_to_path_once() -> None:
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
        ("595.71.05", "13.9", "auto", "run natively, warned"),
        ("620.70.06", "13.9", "auto", "run"),
        ("580.95.05", "14.0", "auto", "run"),
        (None, "12.6", "run", "refused"),
    ],
)
def test_the_driver_determines_the_verification(driver: str | None, version: str, verify: str, outcome: str) -> None:
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


def test_the_error_for_an_old_driver_has_a_remedy() -> None:
    (problem,) = nvidia(bare(driver={"loaded": "570.172.08"}), "13.0")["problems"]
    assert problem.startswith("Driver 570.172.08 does not support CUDA 13.0, which requires driver 580 or newer.")
    assert "nvidia_driver_branch" in problem


K80, P100 = "0x102d", "0x15f8"
NO_CODE = "CUDA 13.0 does not support"


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
def test_gpus_that_a_toolkit_does_not_support_are_reported(
    gpus: tuple[str, ...], driver: str | None, verify: str, outcome: str
) -> None:
    done = nvidia(bare("ubuntu-24.04", gpus=gpus, driver={"loaded": driver, "library": driver}), "13.0", verify=verify)
    (toolkit,) = done["toolkits"]
    said = ("run" if toolkit["run"] else "compiled") if toolkit["verify"] else "left"
    if done["problems"]:
        (problem,) = done["problems"]
        assert problem.startswith(f"{NO_CODE} the GPUs of this host: {gpus[0]} (")
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
def test_older_toolkits_support_older_gpus(version: str) -> None:
    done = nvidia(bare(gpus=(V100, P100), driver={"loaded": "580.95.05"}), version)
    assert (done["problems"], done["warnings"], done["toolkits"][0]["run"]) == ([], [], True)


def test_only_the_toolkit_that_does_not_support_the_gpus_is_rejected() -> None:
    (problem,) = nvidia(bare(gpus=(V100,), driver={"loaded": "580.95.05"}), "12.6", "13.0")["problems"]
    assert problem.startswith(f"{NO_CODE} the GPUs of this host: {V100} (Volta). Use a toolkit of version 12.x")


# --- forms ---


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (
            {"versions": ["12.6.3"]},
            "cuda_toolkit_versions contains 12.6.3, which is not valid. Use the form '12.6' (only the first two "
            "numbers; NVIDIA's packages install the newest update).",
        ),
        # YAML reads 12.10 as 12.1.
        ({"versions": ["12.6", 12.10]}, "cuda_toolkit_versions contains 12.1, which YAML read as a number"),
        ({"default_version": 12.6}, "cuda_toolkit_default_version is 12.6, which YAML read as a number"),
        ({"versions": [12]}, "cuda_toolkit_versions contains 12, which is not valid"),
        ({"versions": ["latest"]}, "cuda_toolkit_versions contains latest"),
        ({"versions": {"a": 1}}, "cuda_toolkit_versions is {'a': 1}, but must be a list."),
        ({"default_version": "x"}, "cuda_toolkit_default_version is x, which is not valid. Use the form '12.6'"),
        ({"path": "cuda"}, "cuda_toolkit_path is cuda, which is not valid. Use the form /usr/local/cuda (an absolute"),
        ({"path": "/a:/b"}, "cuda_toolkit_path is /a:/b, which is not valid"),
        ({"mirror": "mirror.example"}, "cuda_toolkit_mirror is mirror.example, which is not valid. Use the form https"),
        ({"proxy": "u:s3cret@proxy"}, "cuda_toolkit_proxy is ...@proxy, which is not valid. Use the form http://"),
        ({"key_fingerprint": "3BF863CC"}, "cuda_toolkit_key_fingerprint is 3BF863CC, which is not valid"),
        ({"key_fingerprint": "sha256:0"}, "cuda_toolkit_key_fingerprint is sha256:0, which is not valid"),
        ({"key_url": "u:s3cret@keys"}, "cuda_toolkit_key_url is ...@keys, which is not valid. Use the form https://"),
        ({"environment": "maybe"}, "cuda_toolkit_environment is maybe, but must be true or false."),
        ({"verify": "yes"}, "cuda_toolkit_verify is yes, but must be one of auto, run, compile, none."),
        ({"version": "12.6"}, "Role cuda_toolkit has no variable cuda_toolkit_version."),
    ],
)
def test_invalid_values_are_named(more: dict[str, t.Any], words: str) -> None:
    plan = resolve(bare(), **{"source": "nvidia", "versions": ["12.6"], **more})
    (problem,) = plan["problems"]
    assert words in problem
    assert (plan["acts"], plan["transaction"], plan["steps"]) == (False, None, [])
