# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A pynvml that cannot be used, and the version of one."""

from __future__ import annotations

import sys

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml.missing_pynvml import BindingMissing
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml.pynvml_host_or_controller import (
    binding_version,
    load_binding,
)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("", "is not an NVML binding: it does not have NVMLError"),
        ("import gone_missing", "No module named 'gone_missing'"),
        ("print 'two'", "SyntaxError"),
        ("1 / 0", "ZeroDivisionError"),
    ],
)
def test_an_unusable_pynvml_is_reported_as_missing(tmp_path, monkeypatch, code, words):
    (tmp_path / "pynvml.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    with pytest.raises(BindingMissing, match=words):
        load_binding()


@pytest.mark.parametrize(
    ("beside", "file", "version"),
    [
        ("nvidia_ml_py-12.550.89.dist-info", "pynvml.py", "12.550.89"),
        ("nvidia_ml_py-11.525.112.egg-info", "pynvml.py", "11.525.112"),
        ("nvidia_ml_py-12.550.89-py3.11.egg-info", "pynvml.py", "12.550.89"),
        ("pynvml-11.5.0.dist-info", "pynvml/__init__.py", "11.5.0"),
        ("other-1.0.dist-info", "pynvml.py", None),
    ],
)
def test_the_version_comes_from_the_metadata_beside_the_binding(tmp_path, beside, file, version):
    (tmp_path / beside).mkdir()
    assert binding_version(str(tmp_path / file)) == version


def test_a_binding_in_a_missing_directory_has_no_version():
    assert binding_version("/nowhere/pynvml.py") is None
