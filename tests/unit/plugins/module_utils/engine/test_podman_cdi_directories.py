# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The directories in which Podman searches for CDI specifications."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.engine import podman_cdi_directories

ETC, FRAGMENT = "/etc/containers/containers.conf", "/etc/containers/containers.conf.d/10-cdi.conf"
SHARED, HOME = "/usr/share/containers/containers.conf", "/home/a/.config/containers/containers.conf"
ROOTLESS = {"rootless": True, "environment": {"HOME": "/home/a"}}
OVERRIDE = {"environment": {"CONTAINERS_CONF_OVERRIDE": "/x"}}
BOTH = ("/etc/cdi", "/var/run/cdi")


def conf(*items: str) -> str:
    return f"[containers]\n[engine]\ncdi_spec_dirs = [{', '.join(items)}]\n"


@pytest.mark.parametrize(
    ("version", "files", "options", "expected"),
    [
        ((4, 3, 1), {}, {}, BOTH),
        ((5, 5, 1), {}, {}, ("/etc/cdi",)),
        ((5, 6, 0), {}, {}, BOTH),
        # Versions before 5.5 do not read the key.
        ((5, 4, 2), {ETC: conf('"/srv/cdi"')}, {}, BOTH),
        ((5, 5, 0), {FRAGMENT: conf('"/etc/cdi"', '"/var/run/cdi"')}, {}, BOTH),
        ((5, 6, 0), {SHARED: conf('"/a"'), ETC: conf('"/b"')}, {}, ("/b",)),
        ((5, 6, 0), {ETC: conf('"/b"'), FRAGMENT: conf('"/c"', "{append=true}")}, {}, ("/b", "/c")),
        ((5, 6, 0), {ETC: conf('"/b"'), HOME: conf('"/c"')}, {}, ("/b",)),
        ((5, 6, 0), {ETC: conf('"/b"'), HOME: conf('"/c"')}, ROOTLESS, ("/c",)),
        ((5, 6, 0), {ETC: conf('"/b"'), "/x": conf('"/d"')}, {"environment": {"CONTAINERS_CONF": "/x"}}, ("/d",)),
        ((5, 6, 0), {ETC: conf('"/b"'), "/x": conf('"/d"')}, OVERRIDE, ("/d",)),
        ((5, 6, 0), {ETC: "[engine\n", FRAGMENT: conf('"/c"')}, {}, ("/c",)),
    ],
)  # fmt: skip
def test_directories(tmp_path, version, files, options, expected):
    for path, text in files.items():
        file = tmp_path / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert podman_cdi_directories.cdi_directories(version, str(tmp_path), **options) == expected
