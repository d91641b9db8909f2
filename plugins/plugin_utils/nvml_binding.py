# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run a module that needs pynvml, and send the controller's copy to a host that has none.

Such a module
- has the option `_nvml_binding_path` (type path) and passes it to `load_binding` of nvml or to `gather.gather`;
- returns `nvml_binding_missing=True` on `BindingMissing`, before it changes anything. All modules but nvidia_gpu_facts
  fail then.

Its action plugin has the module's name and is a subclass of `NvmlAction`.

If `gpufleet_host` shows that the host has a driver but no binding, the copy is sent at once. Otherwise, the module runs
without the copy first, and runs again with the copy if the binding is missing.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import marshal
import os
import sys
import tempfile
import zipfile
from collections.abc import Mapping

from ansible import constants as C
from ansible.plugins.action import ActionBase

from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml.missing_pynvml import NO_BINDING
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml.pynvml_host_or_controller import (
    BINDING,
    binding_version,
)

PROBE = "gpufleet.hosts.nvidia_gpu_facts"

# Flag of bytecode (PEP 552): Python does not compare it with its source.
_UNCHECKED_HASH = 0b01


class NvmlAction(ActionBase):
    """Run the module of the task, with the controller's pynvml if the host has none."""

    TRANSFERS_FILES = False
    _supports_async = True
    _supports_check_mode = True

    def run(self, tmp=None, task_vars=None):
        super().run(tmp, task_vars)
        wrap_async = bool(self._task.async_val) and not self._connection.has_native_async
        module, arguments = self._task.action, dict(self._task.args)
        missing = not self._task.delegate_to and lacks_binding(task_vars or {}) and controller_binding() is not None
        if not missing and wrap_async:
            # An asynchronous job cannot request the binding later, so a probe runs first.
            probe = self._execute_module(
                module_name=PROBE, module_args={"gather_subset": ["!all"]}, task_vars=task_vars
            )
            missing = probe.get("nvml_binding_missing")
            if probe.get("failed") and not missing:
                return probe  # The module would fail, too, and another rejected password could lock the account.
        elif not missing:
            result = self._execute_module(module_name=module, module_args=dict(arguments), task_vars=task_vars)
            missing = result.get("nvml_binding_missing")
            if not missing:
                return result
        if missing:
            binding = controller_binding()
            if binding is None:
                return no_binding_anywhere()
            arguments["_nvml_binding_path"] = self._send(binding)
        return self._execute_module(
            module_name=module, module_args=arguments, task_vars=task_vars, wrap_async=wrap_async
        )

    def _send(self, binding: str) -> str:
        """Send an archive of the controller's binding to the host and return its path."""
        directory = self._connection._shell.tmpdir or self._make_tmp_path()
        packed = pack(binding, C.DEFAULT_LOCAL_TMP)
        try:
            remote = self._connection._shell.join_path(directory, archive_name(binding))
            self._transfer_file(packed, remote)
        finally:
            os.unlink(packed)
        self._fixup_perms2([directory, remote])
        return remote


def lacks_binding(task_vars: dict) -> bool:
    """Return whether the observation of this run shows a driver but no binding."""
    host = task_vars.get("gpufleet_host")
    if not isinstance(host, Mapping):
        return False
    vendors = host.get("accelerators") or {}
    return bool(vendors.get("nvidia", {}).get("driver", {}).get("loaded")) and host.get("nvml_binding") is False


def no_binding_anywhere() -> dict:
    """Return the task result if neither the host nor the controller has a binding."""
    return {
        "failed": True,
        "msg": f"{NO_BINDING}: neither the host nor the controller has it. Install it on the controller, which sends "
        f"it to the hosts: {sys.executable} -m pip install nvidia-ml-py",
    }


def controller_binding() -> str | None:
    """Return the file of pynvml for the Python that runs Ansible, or None."""
    try:
        spec = importlib.util.find_spec(BINDING)
    except (ImportError, ValueError):
        return None
    origin = spec.origin if spec else None
    return origin if origin and origin.endswith(".py") and os.path.isfile(origin) else None


def archive_name(binding: str) -> str:
    """Return a name for the archive that contains the version of the binding."""
    return f"{BINDING}-{binding_version(binding) or '0'}.zip"


def pack(binding: str, directory: str) -> str:
    """Pack a binding, a file or a package, into an importable zip file and return its path."""
    handle, path = tempfile.mkstemp(prefix=f"{BINDING}-", suffix=".zip", dir=directory)
    with os.fdopen(handle, "wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        if os.path.basename(binding) != "__init__.py":
            _pack_file(archive, binding, os.path.basename(binding))
        else:
            package = os.path.dirname(binding)
            for name in sorted(os.listdir(package)):
                if name.endswith(".py"):
                    _pack_file(archive, os.path.join(package, name), f"{BINDING}/{name}")
    return path


def _pack_file(archive: zipfile.ZipFile, path: str, name: str) -> None:
    """Add a source file and its bytecode to the zip file, because compiling takes much longer than loading.

    A host with another version of Python ignores the bytecode and compiles the source.
    """
    archive.write(path, name)
    module = name[: -len(".py")].replace("/", ".")
    try:
        code = importlib.machinery.SourceFileLoader(module, path).get_code(module)
    except (SyntaxError, ValueError):
        return
    with open(path, "rb") as file:
        source_hash = importlib.util.source_hash(file.read())
    header = importlib.util.MAGIC_NUMBER + _UNCHECKED_HASH.to_bytes(4, "little") + source_hash
    archive.writestr(f"{name}c", header + marshal.dumps(code))
