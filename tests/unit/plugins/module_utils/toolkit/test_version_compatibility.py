# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.toolkit.version_compatibility import obstacle, problems


@pytest.mark.parametrize(
    ("isolation", "engine", "version", "toolkit", "words"),
    [
        # Debian 12: the distribution's engines
        ("runtime", "docker", "20.10.24+dfsg1", "1.20.1-1", None),
        ("device_requests", "docker", "20.10.24+dfsg1", "1.20.1-1", None),
        (
            "cdi",
            "docker",
            "20.10.24+dfsg1",
            "1.20.1-1",
            "Docker 20.10.24+dfsg1 does not support CDI. Install Docker 25",
        ),
        ("cdi", "podman", "4.3.1+ds1", "1.20.1-1", "cannot read specifications of CDI 0.7.0"),
        ("cdi", "podman", "4.3.1+ds1", "1.18.2-1", None),
        ("cdi", "containerd", "1.6.20~ds1", "1.20.1-1", "or use isolation runtime"),
        # Debian 13
        ("cdi", "docker", "26.1.5+dfsg1", "1.20.1-1", None),
        ("cdi", "podman", "5.4.2+ds1", "1.20.1-1", None),
        ("cdi", "containerd", "1.7.24~ds1", "1.20.1-1", None),
        # Amazon Linux 2023
        ("cdi", "docker", "25.0.16-1.amzn2023", "1.20.1-1", "Install Docker 26.1 or later"),
        ("cdi", "docker", "25.0.16-1.amzn2023", "1.18.2-1", None),
        ("cdi", "containerd", "2.2.5", "1.20.1-1", None),
        # Docker's repository, with epochs
        ("cdi", "docker", "5:29.1.2-1~debian.12~bookworm", "1.20.1-1", None),
        ("cdi", "containerd", "1.7.15", "1.19.0-1", "Install containerd 1.7.16 or later"),
        ("cdi", "crio", "1.29.4", "1.19.1-1", "Install CRI-O 1.30 or later"),
        ("cdi", "crio", "1.23.0", "1.19.1-1", "does not support CDI. Install CRI-O 1.24"),
        (
            "device_requests",
            "podman",
            "5.4.2",
            "1.20.1-1",
            "Podman has no option --gpus. Use isolation cdi or runtime.",
        ),
        ("device_requests", "docker", "18.9.1", "1.20.1-1", "Install Docker 19.03 or later"),
        # Nothing is known yet.
        ("cdi", "docker", None, "1.20.1-1", None),
        ("cdi", "podman", "4.3.1", None, None),
    ],
)
def test_engine_and_isolation(
    isolation: str, engine: str, version: str | None, toolkit: str, words: str | None
) -> None:
    found = obstacle(isolation, engine, version, toolkit)
    assert (found is None) == (words is None)
    assert (words or "") in (found or "")


@pytest.mark.parametrize(
    ("engine", "version", "way_out"),
    [
        (
            "podman",
            "4.9.3+ds1",
            "Install Podman 5.1 or later, or set nvidia_container_toolkit_source=none on a host without the toolkit, "
            "so that the role writes a specification of CDI 0.5.0.",
        ),
        (
            "docker",
            "25.0.16",
            "Install Docker 26.1 or later, use isolation runtime, or set nvidia_container_toolkit_source=none on a "
            "host without the toolkit, so that the role writes a specification of CDI 0.5.0.",
        ),
    ],
)
def test_way_out_for_an_engine_that_cannot_read_the_specification(engine: str, version: str, way_out: str) -> None:
    assert str(obstacle("cdi", engine, version, "1.20.1-1")).endswith(f" since 1.19.0. {way_out}")
    # The way out works: without the toolkit, the engine can read the specification.
    assert problems(None, None, {engine: version}, ["cdi"]) == []


@pytest.mark.parametrize(
    ("driver", "engines", "required", "words"),
    [
        ("580.95.05", {"docker": "29.1.2"}, ["cdi", "device_requests", "runtime"], []),
        ("410.104", {"docker": "29.1.2"}, [], ["Driver 410.104 is too old"]),
        (None, {"docker": "29.1.2"}, [], []),
        ("580.95.05", {"docker": "20.10.24"}, [], []),
        ("580.95.05", {"docker": "20.10.24"}, ["cdi"], ["contains cdi, which this host cannot offer: Docker 20.10.24"]),
        # One of two engines is enough.
        ("580.95.05", {"docker": "20.10.24", "podman": "5.4.2"}, ["cdi"], []),
        ("580.95.05", {"podman": "5.4.2"}, ["cdi", "device_requests"], ["contains device_requests"]),
        ("580.95.05", {}, ["cdi"], []),
    ],
)
def test_required_isolations(
    driver: str | None, engines: dict[str, str], required: list[str], words: list[str]
) -> None:
    found = problems(driver, "1.20.1-1", engines, required)
    assert len(found) == len(words)
    assert all(word in text for word, text in zip(words, found))
