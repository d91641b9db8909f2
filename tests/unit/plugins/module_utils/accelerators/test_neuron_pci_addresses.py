# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which PCI function is the chip behind /dev/neuron<N>: the sources, their order, and contradictions."""

from __future__ import annotations

import json

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.accelerators import (
    neuron_pci_addresses,
    sysfs_refusals,
)

BOUND = ["0000:a0:00.0", "0000:a1:00.0", "0000:a2:00.0"]


def listing(*pairs: tuple[int, str]) -> str:
    return json.dumps([{"neuron_device": chip, "bdf": address, "numa_node": "1"} for chip, address in pairs])


def log(*pairs: tuple[int, str]) -> list[str]:
    return ["usb 1-1: new device", *(f"neuron: ** BDF: {bdf} => nd[{chip}] (routing id: 3)" for chip, bdf in pairs)]


class Asked:
    """Sources that record which of them were asked."""

    def __init__(self, listed=None, logged=(), driver=None) -> None:
        self.names: list[str] = []
        self.sources = neuron_pci_addresses.AcceleratorsNeuronSources(
            listing=lambda: self.names.append("listing") or listed,
            kernel_log=lambda: self.names.append("log") or logged,
            driver=None if driver is None else lambda chip: self.names.append(f"chip {chip}") or driver[chip],
        )


def address(text: str) -> neuron_pci_addresses.AcceleratorsNeuronAnswer:
    return neuron_pci_addresses.AcceleratorsNeuronAnswer(text)


ALL = [(2, "a0:00.0"), (0, "a1:00.0"), (1, "a2:00.0")]
EXPECTED = {2: BOUND[0], 0: BOUND[1], 1: BOUND[2]}


@pytest.mark.parametrize(
    ("asked", "expected", "names"),
    [
        (Asked(listing(*ALL)), EXPECTED, ["listing"]),
        (Asked(listing((2, "0000:a0:00.0"), *ALL[1:])), EXPECTED, ["listing"]),
        (Asked(None, log(*ALL)), EXPECTED, ["listing", "log"]),
        # Two of three are enough, because only one function is left.
        (Asked(listing(*ALL[:2])), EXPECTED, ["listing"]),
        (Asked(listing(ALL[0]), log(ALL[1])), EXPECTED, ["listing", "log"]),
        # The last lines of the log count.
        (Asked("no JSON", log((2, "a2:00.0"), *ALL)), EXPECTED, ["listing", "log"]),
        (
            Asked("[]", [], {chip: address(text) for chip, text in EXPECTED.items()}),
            EXPECTED,
            ["listing", "log", "chip 0", "chip 1", "chip 2"],
        ),
        # Only the chips that the other sources do not name.
        (
            Asked(listing(ALL[0]), [], {0: address(BOUND[1]), 1: address(BOUND[2])}),
            EXPECTED,
            ["listing", "log", "chip 0", "chip 1"],
        ),
    ],
)
def test_the_sources_in_order(asked, expected, names):
    found = neuron_pci_addresses.resolve([0, 1, 2], BOUND, asked.sources)
    assert (found.addresses, asked.names) == (expected, names)


def test_one_chip_needs_no_source():
    asked = Asked()
    found = neuron_pci_addresses.resolve([0], BOUND[:1], asked.sources)
    assert (found.addresses, asked.names) == ({0: BOUND[0]}, [])


def test_the_driver_is_not_asked_if_it_may_not_be():
    found = neuron_pci_addresses.resolve([0, 1, 2], BOUND, Asked().sources)
    assert (found.addresses, sorted(found.unknown)) == ({}, [0, 1, 2])


@pytest.mark.parametrize(
    ("pairs", "bound"),
    [
        # Two chips with one address, one chip with two addresses.
        ([(0, "a0:00.0"), (1, "a0:00.0")], BOUND),
        ([(0, "a0:00.0"), (0, "a1:00.0")], BOUND),
        # The same bus number in two domains.
        ([(0, "a0:00.0")], ["0000:a0:00.0", "0001:a0:00.0", "0001:a1:00.0"]),
        # A function of something else.
        ([(0, "17:00.0")], BOUND),
        ([(7, "a0:00.0")], BOUND),
    ],
)
def test_contradictions_are_not_believed(pairs, bound):
    assert neuron_pci_addresses.resolve([0, 1, 2], bound, Asked(listing(*pairs)).sources).addresses == {}


def test_what_the_driver_says_is_checked():
    answers = {
        0: address("0000:17:00.0"),
        1: neuron_pci_addresses.AcceleratorsNeuronAnswer(refusal="/dev/neuron1: EBUSY"),
        2: neuron_pci_addresses.AcceleratorsNeuronAnswer(refusal="EPERM", is_hidden=True),
    }
    found = neuron_pci_addresses.resolve([0, 1, 2], BOUND, Asked(driver=answers).sources)
    assert (found.addresses, sorted(found.unknown), found.hidden) == ({}, [0, 1], frozenset({2}))


def test_programs_cannot_write_kernel_messages(tmp_path):
    line = "** BDF: a0:00.0 => nd[0] (routing id: 1)"
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kmsg").write_text(f"14,1,5,-;{line}\n6,2,5,-;{line} kernel\n SUBSYSTEM=pci\nno prefix\n")
    assert list(neuron_pci_addresses.kernel_messages(sysfs_refusals.SysfsTree(str(tmp_path)))) == [f"{line} kernel"]
