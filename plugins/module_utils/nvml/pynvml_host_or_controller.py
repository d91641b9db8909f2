# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which pynvml is used: the host's own or the one that the controller sent, and the version of it."""

from __future__ import annotations

import importlib
import os
import re
import sys
from types import ModuleType

from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml.missing_pynvml import BindingMissing

BINDING = "pynvml"
_BINDING_NEEDS = ("NVMLError", "nvmlInit", "nvmlShutdown", "nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex")
_DISTRIBUTION = re.compile(r"^(?:nvidia_ml_py|nvidia-ml-py|pynvml)-(\d[\w.]*?)(?:-py[\d.]+)?\.(?:dist|egg)-info$")
_ARCHIVE = re.compile(r"-(\d[\w.]*)\.zip$")


def load_binding(extra_path: str | None = None) -> ModuleType:
    """Import the host's pynvml or, if that fails, the pynvml at `extra_path`, a directory or a zip file."""
    try:
        return _import_binding()
    except BindingMissing:
        if extra_path is None:
            raise
    sys.path.insert(0, extra_path)
    return _import_binding()


def binding_version(path: str) -> str | None:
    """Return the version of a binding from the metadata beside it, because pynvml has no version attribute.

    The name of a zip file from the controller contains the version.
    """
    directory = os.path.dirname(path)
    if os.path.basename(directory) == BINDING:
        directory = os.path.dirname(directory)
    in_archive = _ARCHIVE.search(directory)
    if in_archive:
        return in_archive.group(1)
    try:
        names = sorted(os.listdir(directory))
    except OSError:
        return None
    return next((match.group(1) for match in map(_DISTRIBUTION.match, names) if match), None)


def _import_binding() -> ModuleType:
    try:
        binding = importlib.import_module(BINDING)
    except Exception as error:
        # Not only ImportError: a module for another Python version can raise any exception.
        sys.modules.pop(BINDING, None)
        raise BindingMissing(f"{type(error).__name__}: {error}") from error
    missing = [name for name in _BINDING_NEEDS if not hasattr(binding, name)]
    if missing:
        sys.modules.pop(BINDING, None)
        place = getattr(binding, "__file__", BINDING)
        raise BindingMissing(f"{place} is not an NVML binding: it does not have {missing[0]}")
    return binding
