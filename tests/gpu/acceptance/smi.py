# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parse `nvidia-smi -q -x`, and compare it with the facts of nvidia_gpu_facts. Functions have no side effects.

One report is from before the facts and one from after them. Values that vary by themselves, such as clocks and
temperatures, must be between the two reports, within a tolerance. All other values must be equal.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from xml.etree import ElementTree

# The texts that nvidia-smi prints for a missing value.
NOTHING = ("", "N/A", "[N/A]", "Not Supported", "[Not Supported]", "Unknown Error", "[Unknown Error]")
DEPRECATED = "Requested functionality has been deprecated"

EVENT_REASONS = {
    "gpu_idle": "idle",
    "applications_clocks_setting": "application_clocks",
    "sw_power_cap": "software_power_cap",
    "hw_slowdown": "hardware_slowdown",
    "hw_thermal_slowdown": "hardware_thermal",
    "hw_power_brake_slowdown": "hardware_power_brake",
    "sync_boost": "sync_boost",
    "sw_thermal_slowdown": "software_thermal",
    "display_clocks_setting": "display_clocks",
}
RECOVERY_ACTIONS = {
    "None": "none",
    "Reset": "gpu_reset",
    "Reboot": "node_reboot",
    "Drain P2P": "drain_p2p",
    "Drain and Reset": "drain_and_reset",
}


class NotPrinted(Exception):
    """This nvidia-smi does not print the value."""


class Gpu:
    """One <gpu> of a report."""

    def __init__(self, element: ElementTree.Element) -> None:
        self.element = element

    def text(self, path: str) -> str | None:
        """Return the printed text, or None for a missing value such as "N/A"."""
        found = self.element.find(path)
        text = None if found is None else (found.text or "").strip()
        if text is None or DEPRECATED in text:
            raise NotPrinted(path)
        return None if text in NOTHING else text

    @property
    def uuid(self) -> str:
        return self.text("uuid") or ""


class Report:
    """One output of `nvidia-smi -q -x`."""

    def __init__(self, xml: str) -> None:
        self.root = ElementTree.fromstring(xml)
        self.gpus = [Gpu(element) for element in self.root.iter("gpu")]

    def top(self, path: str) -> str:
        return (self.root.findtext(path) or "").strip()

    def gpu(self, uuid: str) -> Gpu | None:
        return next((gpu for gpu in self.gpus if gpu.uuid == uuid), None)


Reader = Callable[[Gpu], Any]


def words(path: str) -> Reader:
    """Return a reader of an unchanged text."""
    return lambda gpu: gpu.text(path)


def number(path: str, unit: str = "", base: int = 10) -> Reader:
    """Return a reader of a number with this unit."""

    def read(gpu: Gpu) -> float | int | None:
        text = gpu.text(path)
        if text is None:
            return None
        match = re.fullmatch(r"(0x[0-9A-Fa-f]+|-?[0-9.]+)\s*(.*)", text)
        if match is None or match.group(2) != unit:
            raise ValueError(f"nvidia-smi prints {path} as '{text}', not as a number of {unit or 'no unit'}")
        return float(match.group(1)) if "." in match.group(1) else int(match.group(1), base)

    return read


def switch(path: str) -> Reader:
    """Return a reader of a boolean in any of nvidia-smi's words."""

    def read(gpu: Gpu) -> bool | None:
        text = gpu.text(path)
        if text is None:
            return None
        if text not in ("Enabled", "Yes", "Active", "Disabled", "No", "Not Active"):
            raise ValueError(f"nvidia-smi prints {path} as '{text}', neither on nor off")
        return text in ("Enabled", "Yes", "Active")

    return read


def name(path: str, also: Mapping[str, str] | None = None) -> Reader:
    """Return a reader of a name in the format of the facts: lower case with underscores."""

    def read(gpu: Gpu) -> str | None:
        text = gpu.text(path)
        return None if text is None else (also or {}).get(text) or re.sub(r"[\s-]+", "_", text).lower()

    return read


def total(*readers: Reader) -> Reader:
    """Return a reader of the sum of several values."""

    def read(gpu: Gpu) -> int | None:
        parts = [reader(gpu) for reader in readers]
        return None if None in parts else sum(parts)

    return read


def part(path: str, pattern: str, form: str = "{}") -> Reader:
    """Return a reader of a part of a text."""

    def read(gpu: Gpu) -> str | None:
        text = gpu.text(path)
        if text is None:
            return None
        match = re.fullmatch(pattern, text)
        if match is None:
            raise ValueError(f"nvidia-smi prints {path} as '{text}'")
        return form.format(*match.groups()).lower()

    return read


def address(gpu: Gpu) -> str | None:
    """Read the PCI address in the kernel's format."""
    text = gpu.text("pci/pci_bus_id")
    if text is None:
        return None
    domain, _colon, rest = text.lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}"


def reasons(gpu: Gpu) -> list[str]:
    """Read the clock event reasons. Before driver 535, their name was throttle reasons."""
    for group, prefix in (
        ("clocks_event_reasons", "clocks_event_reason_"),
        ("clocks_throttle_reasons", "clocks_throttle_reason_"),
    ):
        found = gpu.element.find(group)
        if found is not None:
            active = [child.tag[len(prefix) :] for child in found if (child.text or "").strip() == "Active"]
            return [EVENT_REASONS.get(reason, reason) for reason in active]
    raise NotPrinted("clocks_event_reasons")


def mig_devices(gpu: Gpu) -> list[tuple[int, int]]:
    """Read the GPU instance and the compute instance of each MIG device."""
    return [
        (int(device.findtext("gpu_instance_id") or -1), int(device.findtext("compute_instance_id") or -1))
        for device in gpu.element.iterfind("mig_devices/mig_device")
    ]


class Field(NamedTuple):
    """A fact, the reader of its value in nvidia-smi, the tolerance, and whether the value varies."""

    key: str
    read: Reader
    give: float = 0
    moves: bool = False


def ecc(counter: str) -> Iterator[Field]:
    place = f"ecc_errors/{counter}"
    sram = total(number(f"{place}/sram_uncorrectable_parity"), number(f"{place}/sram_uncorrectable_secded"))
    yield Field(f"ecc.{counter}.sram_corrected", number(f"{place}/sram_correctable"))
    yield Field(f"ecc.{counter}.dram_corrected", number(f"{place}/dram_correctable"))
    yield Field(f"ecc.{counter}.sram_uncorrected", sram)
    yield Field(f"ecc.{counter}.dram_uncorrected", number(f"{place}/dram_uncorrectable"))
    yield Field(
        f"ecc.{counter}.corrected", total(number(f"{place}/sram_correctable"), number(f"{place}/dram_correctable"))
    )
    yield Field(f"ecc.{counter}.uncorrected", total(sram, number(f"{place}/dram_uncorrectable")))


LINK = "pci/pci_gpu_link_info"
POWER = "gpu_power_readings"
# nvidia-smi rounds to the nearest MiB, but the facts round down.
MIB = 1

FIELDS = (
    Field("uuid", words("uuid")),
    Field("name", words("product_name")),
    Field("minor", number("minor_number")),
    Field("pci_bus_id", address),
    Field("pci_device_id", part("pci/pci_device_id", r"([0-9A-Fa-f]{4})10DE", "0x{}")),
    Field("pci_subsystem_device_id", part("pci/pci_sub_system_id", r"([0-9A-Fa-f]{4})([0-9A-Fa-f]{4})", "0x{0}")),
    Field("pci_subsystem_vendor_id", part("pci/pci_sub_system_id", r"([0-9A-Fa-f]{4})([0-9A-Fa-f]{4})", "0x{1}")),
    Field("architecture", name("product_architecture", {"Ada Lovelace": "ada"})),
    Field("brand", name("product_brand")),
    Field("serial", words("serial")),
    Field("part_number", words("board_part_number")),
    Field("board_id", number("board_id", base=16)),
    Field("multi_gpu_board", switch("multigpu_board")),
    Field("vbios_version", words("vbios_version")),
    Field("inforom_image_version", words("inforom_version/img_version")),
    Field("inforom_oem_version", words("inforom_version/oem_object")),
    Field("inforom_ecc_version", words("inforom_version/ecc_object")),
    Field("inforom_power_version", words("inforom_version/pwr_object")),
    Field("gsp_firmware_version", words("gsp_firmware_version")),
    Field(
        "virtualization_mode",
        name("gpu_virtualization_mode/virtualization_mode", {"Pass-Through": "passthrough", "None": "none"}),
    ),
    Field("display_attached", switch("display_attached")),
    Field("display_active", switch("display_active")),
    Field("recovery_action", name("gpu_recovery_action", RECOVERY_ACTIONS)),
    Field("persistence_mode", switch("persistence_mode")),
    Field("compute_mode", name("compute_mode")),
    Field("accounting_mode", switch("accounting_mode")),
    Field("mig.enabled", switch("mig_mode/current_mig")),
    Field("mig.pending", switch("mig_mode/pending_mig")),
    Field("mig.devices", mig_devices),
    Field("memory_total_mib", number("fb_memory_usage/total", "MiB"), MIB),
    Field("memory_reserved_mib", number("fb_memory_usage/reserved", "MiB"), MIB),
    Field("memory_used_mib", number("fb_memory_usage/used", "MiB"), MIB, moves=True),
    Field("memory_free_mib", number("fb_memory_usage/free", "MiB"), MIB, moves=True),
    Field("bar1_total_mib", number("bar1_memory_usage/total", "MiB"), MIB),
    Field("bar1_used_mib", number("bar1_memory_usage/used", "MiB"), MIB, moves=True),
    Field("bar1_free_mib", number("bar1_memory_usage/free", "MiB"), MIB, moves=True),
    Field("pcie.generation", number(f"{LINK}/pcie_gen/current_link_gen"), moves=True),
    Field("pcie.generation_max", number(f"{LINK}/pcie_gen/max_link_gen")),
    Field("pcie.generation_max_gpu", number(f"{LINK}/pcie_gen/max_device_link_gen")),
    Field("pcie.width", number(f"{LINK}/link_widths/current_link_width", "x"), moves=True),
    Field("pcie.width_max", number(f"{LINK}/link_widths/max_link_width", "x")),
    Field("pcie.replay_count", number("pci/replay_counter"), moves=True),
    Field("ecc.enabled", switch("ecc_mode/current_ecc")),
    Field("ecc.pending", switch("ecc_mode/pending_ecc")),
    *ecc("volatile"),
    *ecc("aggregate"),
    Field("ecc.sram_threshold_exceeded", switch("ecc_errors/aggregate/sram_threshold_exceeded")),
    Field("retired_pages.single_bit", number("retired_pages/multiple_single_bit_retirement/retired_count")),
    Field("retired_pages.double_bit", number("retired_pages/double_bit_retirement/retired_count")),
    Field("retired_pages.pending", switch("retired_pages/pending_retirement")),
    Field("remapped_rows.correctable", number("remapped_rows/remapped_row_corr")),
    Field("remapped_rows.uncorrectable", number("remapped_rows/remapped_row_unc")),
    Field("remapped_rows.pending", switch("remapped_rows/remapped_row_pending")),
    Field("remapped_rows.failed", switch("remapped_rows/remapped_row_failure")),
    *(
        Field(
            f"remapped_rows.banks.{level}",
            number(f"remapped_rows/row_remapper_histogram/row_remapper_histogram_{level}", "bank(s)"),
        )
        for level in ("max", "high", "partial", "low", "none")
    ),
    Field("power.draw_w", number(f"{POWER}/instant_power_draw", "W"), 30, moves=True),
    Field("power.limit_w", number(f"{POWER}/requested_power_limit", "W"), 0.01),
    Field("power.enforced_limit_w", number(f"{POWER}/current_power_limit", "W"), 0.01, moves=True),
    Field("power.default_limit_w", number(f"{POWER}/default_power_limit", "W"), 0.01),
    Field("power.min_limit_w", number(f"{POWER}/min_power_limit", "W"), 0.01),
    Field("power.max_limit_w", number(f"{POWER}/max_power_limit", "W"), 0.01),
    Field("clocks.graphics_mhz", number("clocks/graphics_clock", "MHz"), 60, moves=True),
    Field("clocks.sm_mhz", number("clocks/sm_clock", "MHz"), 60, moves=True),
    Field("clocks.memory_mhz", number("clocks/mem_clock", "MHz"), 60, moves=True),
    Field("clocks.video_mhz", number("clocks/video_clock", "MHz"), 60, moves=True),
    Field("clocks.max_graphics_mhz", number("max_clocks/graphics_clock", "MHz")),
    Field("clocks.max_sm_mhz", number("max_clocks/sm_clock", "MHz")),
    Field("clocks.max_memory_mhz", number("max_clocks/mem_clock", "MHz")),
    Field("clocks.max_video_mhz", number("max_clocks/video_clock", "MHz")),
    Field("clocks.application_graphics_mhz", number("applications_clocks/graphics_clock", "MHz")),
    Field("clocks.application_memory_mhz", number("applications_clocks/mem_clock", "MHz")),
    Field("clocks.default_application_graphics_mhz", number("default_applications_clocks/graphics_clock", "MHz")),
    Field("clocks.default_application_memory_mhz", number("default_applications_clocks/mem_clock", "MHz")),
    Field("performance_state", part("performance_state", r"P(\d+)"), moves=True),
    Field("throttle_reasons", reasons, moves=True),
    Field("temperature.gpu_c", number("temperature/gpu_temp", "C"), 2, moves=True),
    Field("temperature.memory_c", number("temperature/memory_temp", "C"), 2, moves=True),
    Field("temperature.margin_c", number("temperature/gpu_temp_tlimit", "C"), 2, moves=True),
    Field("temperature.shutdown_margin_c", number("temperature/gpu_temp_max_tlimit_threshold", "C")),
    Field("temperature.slowdown_margin_c", number("temperature/gpu_temp_slow_tlimit_threshold", "C")),
    Field("temperature.gpu_max_margin_c", number("temperature/gpu_temp_max_gpu_tlimit_threshold", "C")),
    Field("temperature.memory_max_margin_c", number("temperature/gpu_temp_max_mem_tlimit_threshold", "C")),
    # Up to Ampere, the thresholds are temperatures instead of distances.
    Field("temperature.shutdown_c", number("temperature/gpu_temp_max_threshold", "C")),
    Field("temperature.slowdown_c", number("temperature/gpu_temp_slow_threshold", "C")),
    Field("temperature.gpu_max_c", number("temperature/gpu_temp_max_gpu_threshold", "C")),
    Field("temperature.memory_max_c", number("temperature/gpu_temp_max_mem_threshold", "C")),
    Field("fan_speed_percent", number("fan_speed", "%"), 5, moves=True),
    Field("utilization.gpu_percent", number("utilization/gpu_util", "%"), 5, moves=True),
    Field("utilization.memory_percent", number("utilization/memory_util", "%"), 5, moves=True),
    Field("utilization.encoder_percent", number("utilization/encoder_util", "%"), 5, moves=True),
    Field("utilization.decoder_percent", number("utilization/decoder_util", "%"), 5, moves=True),
    Field("utilization.jpeg_percent", number("utilization/jpeg_util", "%"), 5, moves=True),
    Field("utilization.ofa_percent", number("utilization/ofa_util", "%"), 5, moves=True),
    Field("fabric.state", name("fabric/state")),
    Field("fabric.cluster_uuid", words("fabric/clusterUuid")),
    Field("fabric.clique_id", number("fabric/cliqueId")),
)

# Facts that `nvidia-smi -q -x` does not print. A unit test fails for facts that are in neither of the two lists.
UNPRINTED = (
    "index",  # the order of the elements
    "numa_node",
    "compute_capability",
    "gsp_firmware_enabled",
    "mig.devices_max",
    "mig.profiles",
    "ecc.default",
    "power.energy_j",
    "nvlink.version",
    "nvlink.link_count",
    "nvlink.active_count",
    "nvlink.links",
    "fabric.status",
    "fabric.bandwidth_degraded",
    "fabric.routes_unhealthy",
    "health.state",
    "health.reasons",
    "vgpu_license",  # only of a vGPU
)

# GPU settings that the acceptance must not change. Elements that a driver does not print are not compared.
SETTINGS = (
    "persistence_mode",
    "addressing_mode",
    "mig_mode",
    "accounting_mode",
    "driver_model",
    "gpu_operation_mode",
    "c2c_mode",
    "compute_mode",
    "dram_encryption_mode",
    "ecc_mode",
    "applications_clocks",
    "default_applications_clocks",
    "deferred_clocks",
    "max_clocks",
    "clock_policy",
    "power_smoothing",
    "power_profiles",
    "supported_gpu_target_temp",
    "temperature/gpu_target_temperature",
    f"{POWER}/requested_power_limit",
    f"{POWER}/default_power_limit",
    "gpu_virtualization_mode",
    "mig_devices",
)


def flattened(facts: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested facts to dotted names. Lists are not changed."""
    flat: dict[str, Any] = {}
    for key, value in facts.items():
        if isinstance(value, Mapping):
            flat.update(flattened(value, f"{prefix}{key}."))
        else:
            flat[f"{prefix}{key}"] = value
    return flat


class Difference(NamedTuple):
    """A fact that differs from nvidia-smi."""

    key: str
    fact: Any
    printed: Any

    def __str__(self) -> str:
        return f"{self.key}: the fact is {self.fact!r}, nvidia-smi prints {self.printed!r}"


class Comparison(NamedTuple):
    """The result of the comparison for one GPU."""

    equal: list[str]
    near: list[str]
    differences: list[Difference]


def compare(facts: Mapping[str, Any], before: Gpu, after: Gpu) -> Comparison:
    """Compare a GPU's facts with the reports from before and after they were gathered."""
    flat = flattened(facts)
    if "mig.devices" in flat:
        flat["mig.devices"] = [(one.get("gi"), one.get("ci")) for one in flat["mig.devices"]]
    result = Comparison([], [], [])
    for field in FIELDS:
        try:
            printed = [_like(flat.get(field.key), field.read(gpu)) for gpu in (before, after)]
        except NotPrinted:
            continue
        if field.key not in flat:
            result.differences.append(Difference(field.key, "missing", printed[0]))
        elif agrees(field, flat[field.key], printed):
            (result.near if field.moves or field.give else result.equal).append(field.key)
        else:
            shown = printed[0] if printed[0] == printed[1] else tuple(printed)
            result.differences.append(Difference(field.key, flat[field.key], shown))
    return result


def _like(fact: Any, printed: Any) -> Any:
    """Convert digits to a number if the fact is a number."""
    return int(printed) if isinstance(fact, int) and isinstance(printed, str) and printed.isdigit() else printed


def agrees(field: Field, fact: Any, printed: Sequence[Any]) -> bool:
    """Return whether a fact equals the printed values, or is between them."""
    if not field.moves and printed[0] != printed[1]:
        return False
    if isinstance(fact, list) and field.moves:
        first, second = (set(one or ()) for one in printed)
        return first & second <= set(fact) <= first | second
    if isinstance(fact, (int, float)) and not isinstance(fact, bool) and None not in printed:
        return min(printed) - field.give <= fact <= max(printed) + field.give
    return fact in printed


def settings(report: Report) -> dict[str, dict[str, str]]:
    """Return every setting of every GPU."""
    taken: dict[str, dict[str, str]] = {}
    for gpu in report.gpus:
        found = taken.setdefault(gpu.uuid, {})
        for path in SETTINGS:
            element = gpu.element.find(path)
            if element is None:
                continue
            for leaf in element.iter():
                if len(leaf) == 0:
                    key = path if leaf is element else f"{path}/{leaf.tag}"
                    found[key] = " ".join((leaf.text or "").split())
    return taken


def changed_settings(before: Mapping[str, Mapping[str, str]], after: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return the settings that changed."""
    changes = [f"{uuid} is gone" for uuid in before if uuid not in after]
    changes += [f"{uuid} is new" for uuid in after if uuid not in before]
    for uuid in (one for one in before if one in after):
        old, new = before[uuid], after[uuid]
        changes += [
            f"{uuid} {key}: was {old.get(key)!r}, is {new.get(key)!r}"
            for key in sorted(set(old) | set(new))
            if old.get(key) != new.get(key)
        ]
    return changes
