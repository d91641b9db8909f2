# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compares the resolver's choices with a table written by hand (`files/driver_table.yml`)."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import yaml

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import plan as driver_plan
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.resolution_types import Resolution
from ansible_collections.gpufleet.hosts.tests.unit.plugins import driver_samples
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import ROOT, host, offer, platform

TABLE = yaml.safe_load((Path(__file__).parent / "files" / "driver_table.yml").read_text(encoding="utf-8"))
GPUS = TABLE["gpus"]
# From the requirements and the documentation, not from the table or the code.
PLATFORMS = (
    *("debian-12", "debian-13", "ubuntu-22.04", "ubuntu-24.04", "ubuntu-26.04"),
    *("el-8", "el-9", "el-10", "amazon-2023", "sles-15"),
)
ARCHES = ("x86_64", "aarch64")
SOURCES = ("auto", "distribution", "nvidia", "runfile", "preinstalled")
FLAVORS = ("auto", "open", "proprietary")
COLUMNS = ("V100", "T4", "A100", "H100", "B200", "GB200", "mixed")
VERSION = "580.95.05"
RUNFILE = {"version": VERSION, "runfile_checksum": "sha256:" + "0" * 64}
ANSWER = {"source", "flavor", "branch", "build", "headers", "packages", "optional", "free", "prerequisites", "stream"}
ANSWER |= {"repository", "pin"}


def lines(text: str) -> list[list[str]]:
    """Split a table into words; the first line has the column names."""
    return [line.split() for line in text.splitlines()[1:]]


def records(name: str) -> list[list[str]]:
    return lines(TABLE[name])


def rows(key: str) -> dict[tuple[str, str, str], str]:
    """Return a platform's answers by requested source, requested flavor and GPUs."""
    text = TABLE["platforms"][key]["rows"]
    assert text.split("\n", 1)[0].split() == ["asked", *COLUMNS]
    found = {}
    for source, flavor, *cells in lines(text):
        assert len(cells) == len(COLUMNS), (key, source, flavor)
        assert (source, flavor, COLUMNS[0]) not in found, f"{key} has {source} {flavor} twice"
        found.update({(source, flavor, gpu): cell for gpu, cell in zip(COLUMNS, cells)})
    return found


def resolve(key: str, gpus: str, request: dict, arch: str = "x86_64", **more) -> Resolution:
    """Resolve for a bare host of the table."""
    kernel = more.pop("kernel", None) or TABLE["platforms"][key]["kernel"][arch]
    there = host(key, tuple(GPUS[gpus]["ids"]), arch=arch, kernel=kernel, **more)
    return driver_samples.resolve(there, request, platform(key))


def expect_refusal(result: Resolution, words: list[str], gpus: str) -> None:
    """Assert that there is one error with these words, and nothing to install."""
    assert (len(result.errors), result.packages) == (1, [])
    for word in words:
        assert word.replace("{gpu}", GPUS[gpus]["shown"]) in result.errors[0]


def of_arch(value, arch: str):
    return value[arch] if isinstance(value, dict) else value


# --- the table is complete ---


def test_the_table_knows_each_platform_and_no_other():
    assert tuple(TABLE["platforms"]) == PLATFORMS
    assert tuple(GPUS) == COLUMNS
    known = {path.stem for path in (ROOT / "roles/nvidia_driver/vars").glob("*-*.yml")}
    assert known == set(PLATFORMS)


@pytest.mark.parametrize("key", PLATFORMS)
def test_every_combination_has_a_row_and_every_name_a_meaning(key):
    expected = rows(key)
    assert set(expected) == set(itertools.product(SOURCES, FLAVORS, COLUMNS))
    answers = set(TABLE["platforms"][key]["answers"])
    assert set(expected.values()) - set(TABLE["refusals"]) == answers
    for answer in TABLE["platforms"][key]["answers"].values():
        assert set(answer) <= ANSWER
        assert {"source", "flavor", "branch", "build", "headers", "packages"} <= set(answer)


def test_every_refusal_is_used_and_names_a_way_out():
    used = {cell for key in PLATFORMS for cell in rows(key).values()}
    assert set(TABLE["refusals"]) <= used
    assert all(len(words) >= 3 for words in TABLE["refusals"].values())


def test_every_platform_and_source_has_its_companions_components_and_secure_boot():
    pairs = {(key, source) for key in PLATFORMS for source in platform(key)["sources"]}
    for name in ("companions", "components", "secure_boot"):
        assert {tuple(record[:2]) for record in records(name)} == pairs, name
    assert {key for key, *_rest in records("kernels")} == {key for key, _source in pairs}


def imex_of(key: str, answer: dict) -> list[str]:
    """Return the IMEX packages for an answer."""
    of = [key, answer["source"], answer["branch"]]
    return next((record[-1].split(",") for record in records("companions") if record[:3] == of), [])


# --- the code matches the table ---


@pytest.mark.parametrize("gpus", COLUMNS)
@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize("key", PLATFORMS)
def test_resolver_matches_every_row_of_the_table(key, arch, gpus):
    expected = rows(key)
    for source, flavor in itertools.product(SOURCES, FLAVORS):
        request = {"source": source, "flavor": flavor, **(RUNFILE if source == "runfile" else {})}
        result = resolve(key, gpus, request, arch)
        name = expected[source, flavor, gpus]
        where = f"{key} {arch} source={source} flavor={flavor} {gpus}: {name}, {result.errors}"
        if name in TABLE["refusals"]:
            assert result.errors, where
            expect_refusal(result, TABLE["refusals"][name], gpus)
            continue
        answer = TABLE["platforms"][key]["answers"][name]
        assert result.errors == [], where
        chosen = {field: getattr(result, field) for field in ("source", "flavor", "branch")}
        assert {**chosen, "build": result.module_build}.items() <= answer.items(), where
        # Their NVLink spans machines, which requires IMEX.
        imex = imex_of(key, answer) if gpus == "GB200" else []
        # No source shows whether Ubuntu's archive has IMEX for every branch.
        is_optional = answer["source"] == "distribution"
        packages = [*answer["packages"], *([] if is_optional else imex)]
        optional = [*answer.get("optional", []), *(imex if is_optional else [])]
        assert result.kernel_packages == of_arch(answer["headers"], arch), where
        assert [item for item in result.packages if item not in result.optional] == packages, where
        assert result.optional == optional, where
        kept = [item for item in [*packages, *optional] if item not in answer.get("free", [])]
        assert sorted(result.lockstep) == sorted(kept), where
        assert result.prerequisites == answer.get("prerequisites", []), where
        assert result.stream == answer.get("stream"), where
        assert (result.repository or {}).get("url") == of_arch(answer.get("repository"), arch), where
        assert result.patterns.get("pin", []) == answer.get("pin", []), where
        assert result.services == []
        assert result.reasons, where


@pytest.mark.parametrize("key", [*PLATFORMS, "gentoo-2"])
@pytest.mark.parametrize("row", lines(TABLE["adopted"]["rows"]), ids="-".join)
def test_installed_driver_is_kept_or_refused(key, row):
    there, asked, *cells = row
    version = TABLE["adopted"]["version"]
    driver = {"library": version, "loaded": version, "on_disk": version, "kernel_module_flavor": there}
    data = platform(key) if key in PLATFORMS else None
    for runfile, source, arch in itertools.product((False, True), ("auto", "preinstalled"), ARCHES):
        for gpus, cell in zip(COLUMNS, cells):
            described = host(key, tuple(GPUS[gpus]["ids"]), arch=arch, driver={**driver, "runfile": runfile})
            result = driver_samples.resolve(described, {"source": source, "flavor": asked}, data)
            if cell == "keep":
                assert (result.errors, result.action, result.source) == ([], "adopt", "preinstalled")
                assert (result.version, result.flavor, result.packages) == (version, there, [])
            else:
                expect_refusal(result, TABLE["adopted"]["refusals"][cell], gpus)


def test_installed_driver_rows_are_complete():
    asked = {(row[0], row[1]) for row in lines(TABLE["adopted"]["rows"])}
    assert asked == set(itertools.product(("open", "proprietary"), FLAVORS))


@pytest.mark.parametrize("row", records("companions"), ids=" ".join)
def test_companions_match_the_table(row):
    key, source, branch, *cells = row
    switch, nvlink5, imex = ([] if cell == "-" else cell.split(",") for cell in cells)
    request = {"source": source, "branch": branch}
    bare = resolve(key, "H100", request)
    assert bare.errors == []
    nvswitches = resolve(key, "H100", request, nvidia={"nvswitches": ["0000:83:00.0"]})
    assert [name for name in nvswitches.packages if name not in bare.packages] == switch
    assert nvswitches.services == (["nvidia-fabricmanager.service"] if switch else [])
    assert set(switch) <= set(nvswitches.lockstep)
    assert any("error 802" in reason for reason in nvswitches.reasons) is not bool(switch)
    managed = resolve(key, "H100", request, nvidia={"nvlink5_switches": ["mlx5_0"]})
    assert [name for name in managed.packages if name not in bare.packages] == switch + nvlink5
    assert any("error 802" in reason for reason in managed.reasons) is not bool(nvlink5)
    asked = resolve(key, "H100", {**request, "imex": True})
    if imex:
        assert [name for name in asked.packages if name not in bare.packages] == imex
        assert set(imex) <= set(asked.lockstep)
    else:
        expect_refusal(
            asked, ["nvidia_driver_imex is true", f"source {source}", "nvidia_driver_source to nvidia"], "H100"
        )


@pytest.mark.parametrize(("case", "packages"), TABLE["renames"].items())
def test_package_names_follow_the_branch(case, packages):
    key, source, branch = case.split()
    result = resolve(key, "A100", {"source": source, "branch": branch, "flavor": "open", "module_build": "dkms"})
    assert result.errors == []
    assert sorted(name for name in result.packages if name not in result.optional) == sorted(packages.split())


@pytest.mark.parametrize(("key", "kernel", "packages"), records("kernels"))
def test_kernel_packages_match_the_table(key, kernel, packages):
    arch = "aarch64" if any(word in kernel for word in ("aarch64", "arm64", "64k")) else "x86_64"
    result = resolve(key, "A100", {}, arch, kernel=kernel)
    if packages == "refused":
        assert len(result.errors) == 1
        assert kernel in result.errors[0]
        return
    wanted = packages.replace("@", kernel).split(",")
    assert result.errors == []
    assert (result.prebuilt or result.kernel_packages) == wanted


@pytest.mark.parametrize(("key", "source", "video", "opencl"), records("components"))
def test_components_match_the_table(key, source, video, opencl):
    bare = resolve(key, "A100", {"source": source})
    for name, cell in (("video", video), ("opencl", opencl)):
        more = resolve(key, "A100", {"source": source, "components": ["compute", name]})
        assert more.errors == []
        came = [item for item in more.packages if item not in bare.packages]
        assert came == ([] if cell == "-" else cell.split(","))
        assert set(came) <= set(more.lockstep)


@pytest.mark.parametrize(("key", "source", "modern", "old"), records("secure_boot"))
@pytest.mark.parametrize("enrolled", [False, True])
def test_secure_boot_matches_the_table(key, source, modern, old, enrolled):
    # `-`: the source has no driver for the GPU.
    for gpus, cell in ((gpus, cell) for gpus, cell in (("A100", modern), ("V100", old)) if cell != "-"):
        request = {"source": source, "secure_boot_key_enrolled": enrolled}
        result = resolve(key, gpus, request, secure_boot={"enabled": True})
        if cell == "loads" or enrolled:
            assert result.errors == []
        else:
            (error,) = result.errors
            for word in ("Secure Boot is enabled", "mokutil --import", "nvidia_driver_secure_boot_key_enrolled"):
                assert word in error


@pytest.mark.parametrize("key", PLATFORMS)
def test_plan_matches_table(key):
    """The plan executes the resolution with the platform's tools."""
    name = rows(key)["auto", "auto", "A100"]
    answer = TABLE["platforms"][key]["answers"][name]
    there = host(key, tuple(GPUS["A100"]["ids"]), kernel=TABLE["platforms"][key]["kernel"]["x86_64"])
    asked = driver_plan.plan(there, {}, platform(key)).todo.query
    assert set(answer["packages"]) <= set(asked)
    for header in of_arch(answer["headers"], "x86_64"):
        assert header in asked or any(header.startswith(f"{name}-") for name in asked)
    full = f"{answer['branch']}.100.01-1"
    available = {**offer(there, asked, full), **{name: [full] for name in answer["packages"]}}
    result = driver_plan.plan(there, {}, platform(key), available)
    assert result.errors == []
    kept = [item for item in answer["packages"] if item not in answer.get("free", [])]
    work = result.todo.transaction
    assert {f"{item}={full}" for item in kept} <= set(work.install)
    assert set(kept) <= set(work.hold)
    pinned = [file["content"] for file in work.files if file["path"] == owned.DRIVER_APT_PREFERENCES]
    assert [f"Package: {' '.join(answer['pin'])}\n" in text for text in pinned] == ([True] if "pin" in answer else [])
