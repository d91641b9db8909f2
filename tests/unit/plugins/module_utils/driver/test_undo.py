# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.base import owned
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver import removal as driver_removal
from ansible_collections.gpufleet.hosts.tests.unit.plugins.driver_samples import host

PIN, UPGRADES = owned.DRIVER_APT_PREFERENCES, owned.DRIVER_UNATTENDED_UPGRADES
OLD, NEW = "535.261.03-1", "535.309.01-0+deb12u1"


def there(files: dict, version: str | None = None, unfinished: tuple[str, ...] = ()) -> dict:
    texts = {path: {"exists": text is not None, "content": text} for path, text in files.items()}
    packages = {"libcuda1": version, "nvidia-smi": OLD} if version else {}
    return host("debian-12", packages=packages, files=texts, package_state={"unfinished": list(unfinished)})


def put(path: str, text: str | None) -> dict:
    return {"path": path, "state": "absent" if text is None else "present", "content": text or ""}


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        # A failed installation on a bare host.
        (there({}), there({PIN: "new", UPGRADES: "new"}), [put(PIN, None), put(UPGRADES, None)]),
        (there({PIN: None}), there({PIN: "new"}), [put(PIN, None)]),
        # A failed upgrade.
        (there({PIN: "old"}, OLD), there({PIN: "new"}, OLD), [put(PIN, "old")]),
        # nvidia_driver_hold: false removed it.
        (there({PIN: "old"}, OLD), there({PIN: None}, OLD), [put(PIN, "old")]),
        # A package was installed, or is unfinished.
        (there({PIN: "old"}, OLD), there({PIN: "new"}, NEW), []),
        (there({PIN: "old"}, OLD), there({PIN: "new"}, OLD, ("nvidia-kernel-dkms",)), []),
        # Files of this role that pin nothing.
        (there({owned.MODPROBE: "old"}), there({owned.MODPROBE: "new"}), []),
        (there({PIN: "old"}, OLD), there({PIN: "old"}, OLD), []),
    ],
)
def test_former_pin_is_restored(before, now, expected):
    assert driver_removal.files_to_restore(before, now, "535.309.01") == expected


UNIT = "nvidia-fabricmanager.service"
PLAN = {"version": "535.309.01", "lockstep": ["libcuda1", "libcudadebugger1"], "optional": ["libcudadebugger1"],
        "services": [UNIT]}  # fmt: skip


def plan(**todo) -> dict:
    return {**PLAN, "todo": {"release": [], "remove": [], "stream": None, **todo}}


def equipped(version: str = OLD, *more: str, held=(), active: str = "active", stream: str = "570-open", files=None):
    return host(
        packages={"libcuda1": version, **dict.fromkeys(more, OLD)},
        held=held,
        services={UNIT: {"load_state": "loaded", "active_state": active}},
        module_streams={"nvidia-driver": stream},
        files=files or {},
    )


PINNED = {PIN: {"exists": True, "content": "new"}}
STREAM = {"stream": {"module": "nvidia-driver", "name": "nvidia-driver:580-open", "before": "nvidia-driver:570-open"}}


@pytest.mark.parametrize(
    ("before", "now", "todo", "expected"),
    [
        (equipped(OLD, "imex-old"), equipped(OLD, "imex-old"), {"remove": ["imex-old"], **STREAM}, []),
        (equipped(OLD, "imex-old"), equipped(OLD), {"remove": ["imex-old"]}, ["the package imex-old"]),
        # The driver was installed, so the replaced packages are not restored.
        (equipped(OLD, "imex-old"), equipped(NEW), {"remove": ["imex-old"], **STREAM}, []),
        (equipped(held=["libcuda1"]), equipped(), {"release": ["libcuda1", "gone"]}, ["the hold on libcuda1"]),
        (equipped(held=["libcuda1"]), equipped(held=["libcuda1"]), {"release": ["libcuda1"]}, []),
        (equipped(), equipped(active="failed"), {}, [f"the running service {UNIT}"]),
        (equipped(active="inactive"), equipped(active="failed"), {}, []),
        (equipped(), equipped(files=PINNED), {}, [f"the former {PIN}"]),
        (equipped(), equipped(stream="580-open"), STREAM, ["the former stream of module nvidia-driver"]),
    ],
)
def test_missing_items_are_named(before, now, todo, expected):
    assert driver_removal.missing(before, now, plan(**todo)) == expected
