# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a reload of the driver's modules takes from the GPUs: MIG devices, and settings that the driver does not store.

Pure functions of the observed host, its GPU facts and the plan. A process on a GPU prevents a reload, but MIG devices
and settings exist on idle hosts, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ansible_collections.gpufleet.hosts.plugins.module_utils.base.versions import upstream_version
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.kernel_modules import kernel_module_loading
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.resolution_types import DriverPlan
from ansible_collections.gpufleet.hosts.plugins.module_utils.driver.variables import DriverRequest
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware.vendor_names import nvidia_driver, nvidia_group

if TYPE_CHECKING:
    from ansible_collections.gpufleet.hosts.plugins.module_utils.base.observation_types import Host

# The subsets of the GPU facts that contain the settings.
SUBSETS = ("!all", "identity", "power", "clocks")
_VARIABLE = "nvidia_driver_reload_loses_settings"


def is_planned(host: Host, request: DriverRequest, result: DriverPlan) -> bool:
    """Return whether the run reloads the loaded modules, now or after it has installed another driver."""
    if not request.activate or not nvidia_driver(host)["loaded"]:
        return False
    if result.todo.modules["unload"]:
        return True
    todo = result.todo
    if not (todo.transaction.install or todo.runfile or todo.build):
        return False
    if kernel_module_loading.gpu_users(host) or kernel_module_loading.dependent_modules(host):
        return False
    driver = nvidia_driver(host)
    versions = {upstream_version(version) for version in (result.version, driver["loaded"]) if version}
    flavors = {result.flavor, driver["kernel_module_flavor"]} - {None}
    return len(versions) > 1 or len(flavors) > 1


def reported(host: Host, request: DriverRequest, result: DriverPlan, facts: Mapping[str, Any] | None) -> DriverPlan:
    """Return the plan with the error or the reasons about its reload. `facts`: with SUBSETS, or None without them."""
    lost = [*_mig_devices(host, facts), *(_settings(facts) if _is_readable(facts) else [])]
    if lost and not request.reload_loses_settings:
        return result.refused(
            f"This run would reload the driver's kernel modules, and the GPUs would lose: {'; '.join(lost)}. To reload "
            f"nevertheless, set {_VARIABLE} to true, and restore what the GPUs need after the run."
        )
    if lost:
        result = result.but(f"{_VARIABLE} is true: the reload of the driver drops {'; '.join(lost)}")
    if facts is not None and not _is_readable(facts):
        return result.but(
            "the reload of the driver drops settings of the GPUs (power limits, compute mode, clocks), which cannot "
            f"be read now: {facts.get('nvidia_gpu_state_reason')}"
        )
    return result.but("the reload of the driver drops locked clocks, which NVML cannot read")


def _is_readable(facts: Mapping[str, Any] | None) -> bool:
    return bool(facts) and facts.get("nvidia_gpu_state") == "ready"


def _mig_devices(host: Host, facts: Mapping[str, Any] | None) -> list[str]:
    """Describe the MIG devices. The kernel module shows them even if NVML does not answer."""
    found = []
    for gpu in (facts or {}).get("nvidia_gpus", []) if _is_readable(facts) else []:
        profiles = [device.get("profile") or "unknown" for device in (gpu.get("mig") or {}).get("devices") or []]
        if profiles:
            found.append(f"MIG devices of {_name(gpu)}: {', '.join(profiles)}")
    instances = nvidia_group(host).get("mig_instances", [])
    return found or ([f"{len(instances)} MIG instances ({', '.join(instances)})"] if instances else [])


def _settings(facts: Mapping[str, Any] | None) -> list[str]:
    """Describe the settings that differ from their defaults, by GPU."""
    found = []
    for gpu in (facts or {}).get("nvidia_gpus", []):
        mode, limits, clocks = gpu.get("compute_mode"), gpu.get("power") or {}, gpu.get("clocks") or {}
        texts = [
            "MIG mode" if (gpu.get("mig") or {}).get("enabled") else "",
            f"compute mode {mode}" if mode not in (None, "default") else "",
            "accounting mode" if gpu.get("accounting_mode") else "",
            _changed("power limit {} W", limits.get("limit_w"), limits.get("default_limit_w")),
            *(
                _changed(
                    f"application clock of {name} {{}} MHz",
                    clocks.get(f"application_{name}_mhz"),
                    clocks.get(f"default_application_{name}_mhz"),
                )
                for name in ("graphics", "memory")
            ),
        ]
        if any(texts):
            found.append(f"{', '.join(filter(None, texts))} of {_name(gpu)}")
    return found


def _changed(text: str, value: float | None, default: float | None) -> str:
    if value is None or default is None or value == default:
        return ""
    return f"{text.format(f'{value:g}')} (default {default:g})"


def _name(gpu: Mapping[str, Any]) -> str:
    return f"GPU {gpu.get('pci_bus_id') or gpu.get('index')}"
