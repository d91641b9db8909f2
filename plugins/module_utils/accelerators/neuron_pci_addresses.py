# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which PCI function is the chip behind /dev/neuron<N>.

sysfs does not say so, and the numbers are not in the order of the bus: the driver numbers the chips by their routing
IDs (aws-neuron-driver, v2/neuron_dhal_v2.c, 2.24.7.0). Three sources are asked in turn: neuron-ls, the kernel log,
and the driver through the device node. The first two lack the PCI domain.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import re
import stat
import subprocess
from collections.abc import Iterable
from typing import Callable, NamedTuple

from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators import sysfs_refusals
from ansible_collections.gpufleet.hosts.plugins.module_utils.base import pinned_environment, untrusted_text
from ansible_collections.gpufleet.hosts.plugins.module_utils.hardware import pci_functions

NEURON_LS = "/opt/aws/neuron/bin/neuron-ls"
_KERNEL_LOG = "/dev/kmsg"
_MOST_RECORDS = 200_000
_SECONDS = 15
# _IOR('N', 106, a pointer): NEURON_IOCTL_DEVICE_BDF_EXT of share/neuron_driver_shared.h.
_DEVICE_BDF_EXT = 2 << 30 | ctypes.sizeof(ctypes.c_void_p) << 16 | ord("N") << 8 | 106
_LINE = re.compile(r"\*\* BDF: ([0-9a-fA-F]{1,2}:[0-9a-fA-F]{1,2}\.[0-7]) => nd\[([0-9]{1,2})\]", re.ASCII)


class AcceleratorsNeuronSources(NamedTuple):
    """What can be asked. Each is a function, so that a source is asked only if the previous ones do not suffice.

    `listing`: the output of neuron-ls. `kernel_log`: messages of the kernel. `driver`: the address of one chip, or why
    the driver does not tell it. None if the driver may not be asked.
    """

    listing: Callable[[], str | None]
    kernel_log: Callable[[], Iterable[str]]
    driver: Callable[[int], AcceleratorsNeuronAnswer] | None


class AcceleratorsNeuronAnswer(NamedTuple):
    """What the driver says about one chip. `is_hidden`: a device cgroup hides the chip from this process."""

    address: str | None = None
    refusal: str | None = None
    is_hidden: bool = False


# No source is asked.
NOTHING = AcceleratorsNeuronSources(lambda: None, lambda: (), None)


class AcceleratorsNeuronMap(NamedTuple):
    """The PCI addresses of chips by their numbers, why others have none, and the chips that are hidden."""

    addresses: dict[int, str]
    unknown: dict[int, str]
    hidden: frozenset[int]


def resolve(chips: list[int], bound: list[str], sources: AcceleratorsNeuronSources) -> AcceleratorsNeuronMap:
    """Return the address of each chip. `bound`: the PCI functions that the driver drives."""
    found: dict[int, str] = {}
    unknown: dict[int, str] = {}
    hidden: set[int] = set()
    _complete(chips, bound, found)
    for read in (lambda: _from_listing(sources.listing()), lambda: _from_log(sources.kernel_log())):
        if len(found) < len(chips):
            _add(read(), chips, bound, found)
            _complete(chips, bound, found)
    for chip in chips:
        if chip in found:
            continue
        if sources.driver is None:
            unknown[chip] = "neuron-ls and the kernel log do not name the PCI address"
            continue
        answer = sources.driver(chip)
        if answer.is_hidden:
            hidden.add(chip)
        elif answer.address in bound and answer.address not in found.values():
            found[chip] = str(answer.address)
        else:
            unknown[chip] = answer.refusal or f"the driver names {answer.address}, which is not a free Neuron function"
    return AcceleratorsNeuronMap(found, unknown, frozenset(hidden))


def real_sources(tree: sysfs_refusals.SysfsTree, ask_driver: bool = True) -> AcceleratorsNeuronSources:
    """Return the sources of a host. Programs and devices are only used below the root directory `/`."""
    is_host = tree.root == "/"
    return AcceleratorsNeuronSources(
        listing=_run_neuron_ls if is_host else lambda: None,
        kernel_log=lambda: kernel_messages(tree),
        driver=(lambda chip: _ask_driver(tree, chip)) if ask_driver and is_host else None,
    )


def kernel_messages(tree: sysfs_refusals.SysfsTree) -> Iterable[str]:
    """Return the messages of the kernel itself. Programs can write to the same log, but not with facility 0."""
    try:
        handle = os.open(tree.path(_KERNEL_LOG), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return
    try:
        for _record in range(_MOST_RECORDS):
            try:
                part = os.read(handle, 1 << 14)
            except OSError as error:
                if error.errno == errno.EPIPE:  # The kernel has overwritten the oldest records in the meantime.
                    continue
                return
            if not part:
                return
            # A device returns one record, a file in its place returns many.
            for line in part.decode("utf-8", "replace").splitlines():
                prefix, separator, message = line.partition(";")
                priority = prefix.partition(",")[0]
                if separator and priority.isdigit() and int(priority) < 8:
                    yield message
    finally:
        os.close(handle)


def _complete(chips: list[int], bound: list[str], found: dict[int, str]) -> None:
    """Map the last chip to the last function. It is the only one that is possible."""
    chips_left = [chip for chip in chips if chip not in found]
    left = [address for address in bound if address not in found.values()]
    if len(chips) == len(bound) and len(chips_left) == len(left) == 1:
        found[chips_left[0]] = left[0]


def _add(pairs: list[tuple[int, str]], chips: list[int], bound: list[str], found: dict[int, str]) -> None:
    """Add what a source says, unless it contradicts itself or names a function that is unknown or ambiguous."""
    claims: dict[str, set[int]] = {}
    for chip, text in pairs:
        matching = [address for address in bound if _short(address) == text or address == text]
        if len(matching) == 1 and chip in chips:
            claims.setdefault(matching[0], set()).add(chip)
    counts: dict[int, int] = {}
    for names in claims.values():
        for chip in names:
            counts[chip] = counts.get(chip, 0) + 1
    for address, names in claims.items():
        chip = next(iter(names))
        if len(names) == 1 and counts[chip] == 1 and chip not in found and address not in found.values():
            found[chip] = address


def _from_listing(text: str | None) -> list[tuple[int, str]]:
    try:
        listed = json.loads(text or "")
    except ValueError:
        return []
    pairs = []
    for one in listed if isinstance(listed, list) else []:
        chip, address = (one.get("neuron_device"), one.get("bdf")) if isinstance(one, dict) else (None, None)
        if isinstance(chip, int) and isinstance(address, str):
            pairs.append((chip, address.strip().lower()))
    return pairs


def _from_log(messages: Iterable[str]) -> list[tuple[int, str]]:
    """Return what the driver logged. After a second load of the driver, its last lines count."""
    last: dict[int, str] = {}
    for message in messages:
        match = _LINE.search(message)
        if match:
            bus, slot, function = re.split("[:.]", match[1])
            last[int(match[2])] = f"{int(bus, 16):02x}:{int(slot, 16):02x}.{function}"
    return list(last.items())


def _short(address: str) -> str:
    return address.partition(":")[2]


def _run_neuron_ls() -> str | None:
    try:
        made = subprocess.run(
            [NEURON_LS, "-j"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_SECONDS,
            env={**os.environ, **pinned_environment.VARIABLES},
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return made.stdout.decode("utf-8", "replace") if made.returncode == 0 else None


class _Bdf(ctypes.Structure):
    _fields_ = [
        ("nd_index", ctypes.c_uint32),
        ("domain", ctypes.c_uint32),
        ("bus", ctypes.c_uint32),
        ("slot", ctypes.c_uint8),
        ("func", ctypes.c_uint8),
    ]


def _ask_driver(tree: sysfs_refusals.SysfsTree, chip: int) -> AcceleratorsNeuronAnswer:
    """Ask the driver through the node of a chip.

    Opened for writing only, the driver does not attach this process to the chip and does not wait for a reset. Nothing
    is written. The index is relative to the opened chip, so it is always 0: another one can crash old drivers.
    """
    try:
        handle = os.open(tree.path(f"/dev/neuron{chip}"), os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        return AcceleratorsNeuronAnswer(
            refusal=f"/dev/neuron{chip}: {sysfs_refusals.cause(error)}",
            is_hidden=error.errno == errno.EPERM,
        )
    try:
        if not stat.S_ISCHR(os.fstat(handle).st_mode):
            return AcceleratorsNeuronAnswer(refusal=f"/dev/neuron{chip} is not a device")
        answer = _Bdf()
        fcntl.ioctl(handle, _DEVICE_BDF_EXT, answer)
    except OSError as error:
        return AcceleratorsNeuronAnswer(refusal=f"/dev/neuron{chip}: {sysfs_refusals.cause(error)}")
    finally:
        os.close(handle)
    text = f"{answer.domain:04x}:{answer.bus:02x}:{answer.slot:02x}.{answer.func:x}"
    address = pci_functions.kernel_address(text)
    return AcceleratorsNeuronAnswer(address, None if address else f"the driver answers {untrusted_text.shown(text)}")
