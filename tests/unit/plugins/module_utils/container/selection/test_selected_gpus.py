# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Parsing of requests and selection of GPUs."""

from __future__ import annotations

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.gpu_holders import Holder, merge_holders
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.image_requirements import (
    parse_visible_devices,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.inventory import (
    inventory_from_facts,
    topology_from_facts,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection.conditions_option import Conditions
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection.free_gpus import describe_unusable
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection.gpus_option import (
    SelectionError,
    parse_request,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.selection.selected_gpus import select_units
from ansible_collections.gpufleet.hosts.plugins.module_utils.nvml import gpu_health as nvml_health
from ansible_collections.gpufleet.hosts.tests.unit.plugins.gpu_hosts import (
    MIG_UUIDS,
    UUIDS,
    gpu,
    mig,
    pairs_topology,
    slice_,
)

FOUR = inventory_from_facts([gpu(index) for index in range(4)])
# GPU 0 is in MIG mode with two MIG devices, GPU 1 is in MIG mode without MIG devices.
MIXED = inventory_from_facts(
    [gpu(0, mig=mig(slice_(0), slice_(1, profile="3g.20gb", memory=19968))), gpu(1, mig=mig()), gpu(2), gpu(3)]
)
EIGHT = inventory_from_facts([gpu(index) for index in range(8)])


def chosen(gpus, inventory=FOUR, **options):
    conditions = Conditions(**options.pop("conditions", {}))
    return [unit.index for unit in select_units(parse_request(gpus), inventory, conditions, **options)]


def held(*indexes, name="other", inventory=FOUR, **options):
    uuids = frozenset(gpu.uuid for gpu in inventory.gpus if gpu.index in indexes)
    return Holder(name=name, engine="docker", uuids=uuids, **options)


@pytest.mark.parametrize(
    ("gpus", "kind", "detail"),
    [
        ("all", "all", ()),
        ("ALL", "all", ()),
        (["all"], "all", ()),
        ("none", "none", ()),
        ([], "none", ()),
        (0, "none", ()),
        (0.0, "none", ()),
        ("[]", "none", ()),
        (["none"], "none", ()),
        ("[0,1]", "list", ("0", "1")),
        (' ["GPU-aa", 1] ', "list", ("GPU-aa", "1")),
        ("['GPU-aa', '0:1']", "list", ("GPU-aa", "0:1")),
        ("[GPU-aa, 0:1]", "list", ("GPU-aa", "0:1")),
        ('["all"]', "all", ()),
        ([1], "list", ("1",)),
        (["1", 2], "list", ("1", "2")),
        ("0,1", "list", ("0", "1")),
        ("GPU-aa", "list", ("GPU-aa",)),
        (" 0000:3a:00.0 ", "list", ("0000:3a:00.0",)),
    ],
)
def test_requests_are_parsed(gpus, kind, detail):
    request = parse_request(gpus)
    assert (request.kind, request.selectors) == (kind, detail)


@pytest.mark.parametrize(("gpus", "count"), [(2, 2), ("2", 2), (" 3 ", 3), (2.0, 2), ("2.0", 2)])
def test_counts_are_parsed(gpus, count):
    assert (parse_request(gpus).kind, parse_request(gpus).count) == ("count", count)


@pytest.mark.parametrize(
    ("gpus", "words"),
    [
        (True, 'gpus=True is a boolean. Write gpus: "all"'),
        (False, 'gpus: "none"'),
        (-1, "gpus=-1: a count cannot be negative"),
        ("-2", "gpus=-2: a count cannot be negative"),
        ("", "gpus is empty"),
        (["all", 1], '"all" cannot be combined'),
        ([None], "None does not name a GPU"),
        # YAML reads an unquoted PCI address as a number of base 60.
        ([60.0], "or a PCI address. Quote a PCI address: YAML reads 0000:01:00.0 as a number."),
        ([{"index": 0}], "does not name a GPU. Use an index"),
        ([[0]], "[0] does not name a GPU"),
        (1.5, "gpus=1.5: a count must be a whole number"),
        (float("nan"), "gpus=nan: a count must be a whole number"),
        (-1.0, "gpus=-1: a count cannot be negative"),
        ("0", 'gpus="0" is ambiguous: it could mean no GPU or GPU 0. Write gpus: none, or gpus: [0].'),
        ("[0, 1", "gpus='[0, 1': the list has no closing bracket. Write [0, 1]."),
        ("[[0]]", "[0] does not name a GPU"),
        ({"index": 0}, "gpus={'index': 0} is not valid. Write"),
    ],
)
def test_invalid_requests_are_refused(gpus, words):
    with pytest.raises(SelectionError) as error:
        parse_request(gpus)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [
        ("all", ["0", "1", "2", "3"]),
        ("none", []),
        ([1], ["1"]),
        ([3, 1], ["1", "3"]),
        ([1, "1", UUIDS[1]], ["1"]),
        ([0, 0], ["0"]),
        ([], []),
        ("2", ["0", "1"]),
        ("ALL", ["0", "1", "2", "3"]),
        ([UUIDS[2]], ["2"]),
        ([UUIDS[2].upper()], ["2"]),
        (["GPU-b"], ["2"]),
        (["gpu-bbbb"], ["2"]),
        (["0000:3b:00.0"], ["1"]),
        (["00000000:3B:00.0"], ["1"]),
        (["3b:00.0"], ["1"]),
        (["3B:00.0"], ["1"]),
        (["0000:3c:00"], ["2"]),
        (["3b:00"], ["1"]),
        ("3c:00", ["2"]),
    ],
)
def test_all_notations_select_the_gpus(gpus, expected):
    assert chosen(gpus) == expected


@pytest.mark.parametrize(
    ("address", "short"), [("0000:03:00.0", "03:00"), ("0000:10:00.0", "10:00"), ("0000:01:11.0", "01:11")]
)
def test_short_pci_address_of_digits_is_not_a_mig_device(address, short):
    inventory = inventory_from_facts([gpu(0), gpu(1, pci_bus_id=address)])
    assert chosen([short], inventory) == ["1"]
    assert chosen(short, inventory) == ["1"]


@pytest.mark.parametrize(
    ("visible", "kind", "selectors"),
    [
        ("0", "list", ("0",)),
        ("2", "list", ("2",)),
        ("0,2", "list", ("0", "2")),
        ("all", "all", ()),
        ("0, all", "all", ()),
        ("nvidia.com/gpu=1,GPU-aa", "list", ("1", "GPU-aa")),
    ],
)
def test_visible_devices_are_names_and_not_a_count(visible, kind, selectors):
    request = parse_visible_devices(visible)
    assert (request.kind, request.selectors) == (kind, selectors)


def test_entries_for_one_container_are_merged():
    one = Holder("c", "docker", frozenset({"GPU-1"}), detail="paused")
    other = Holder("c", "docker", frozenset({"GPU-2"}), exclusive=True, detail="reserved")
    namesake = Holder("c", "podman", frozenset({"GPU-3"}))
    assert merge_holders([one, namesake, other]) == [
        Holder("c", "docker", frozenset({"GPU-1", "GPU-2"}), exclusive=True, detail="paused; reserved"),
        namesake,
    ]


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [
        ([MIG_UUIDS[0]], ["0:0"]),
        (["MIG-1111"], ["0:0"]),
        (["0:1"], ["0:1"]),
        ([f"MIG-{UUIDS[0]}/8/0"], ["0:1"]),
        ([2, "0:1"], ["0:1", "2"]),
        ("all", ["0:0", "0:1", "2", "3"]),
        (2, ["2", "3"]),
    ],
)
def test_mig_devices_can_be_selected(gpus, expected):
    assert chosen(gpus, MIXED) == expected


@pytest.mark.parametrize(
    ("gpus", "inventory", "words"),
    [
        ([9], FOUR, ["There is no GPU 9.", "This host has GPU 0 (GPU-aaaa0000", "GPU 3 (GPU-cccc3333"]),
        ([60], FOUR, ["There is no GPU 60.", "YAML reads an unquoted 1:0 as the number 60"]),
        (["GPU-ffff"], FOUR, ["There is no GPU with UUID GPU-ffff.", "GPU-bbbb2222"]),
        (["GPU-aaaa"], FOUR, ["UUID prefix GPU-aaaa is ambiguous", "GPU 0 (GPU-aaaa0000", "GPU 1 (GPU-aaaa1111"]),
        (["0000:99:00.0"], FOUR, ["There is no GPU at PCI address 0000:99:00.0.", "0000:3a:00.0 (GPU 0)"]),
        (["03:00"], FOUR, ["There is no GPU at PCI address 03:00.", "(For the MIG device, write 3:0.)"]),
        (["first"], FOUR, ["'first' does not name a GPU. Use an index, a UUID"]),
        (
            [0],
            MIXED,
            [
                "GPU 0 (GPU-aaaa0000",
                "cannot be assigned as a whole because MIG is enabled",
                f"0:0 {MIG_UUIDS[0]} 1g.5gb",
            ],
        ),
        ([1], MIXED, ["MIG is enabled. It has no MIG device: create MIG devices, or disable MIG."]),
        (["1:0"], MIXED, ["There is no MIG device 1:0 on GPU 1", "Its MIG devices: none."]),
        (["0:7"], MIXED, ["There is no MIG device 0:7", f"0:0 {MIG_UUIDS[0]} 1g.5gb"]),
        (["2:0"], MIXED, ["MIG device 2:0 is requested, but MIG is disabled on GPU 2", "Request GPU 2 as a whole"]),
        (["9:0"], MIXED, ["There is no MIG device 9:0, because there is no GPU 9."]),
        (["MIG-ffff"], MIXED, ["There is no MIG device MIG-ffff.", f"0:0 {MIG_UUIDS[0]} 1g.5gb"]),
        (["MIG-ffff"], FOUR, ["There is no MIG device MIG-ffff. No GPU on this host has MIG devices"]),
        (["MIG-"], MIXED, ["MIG UUID prefix MIG- is ambiguous", "MIG 0:0", "MIG 0:1"]),
        (
            5,
            FOUR,
            ["5 GPUs are requested, but only 4 can be assigned.", "GPU 3 (GPU-cccc3333", "Request fewer."],
        ),
        (
            3,
            MIXED,
            ["3 GPUs are requested, but only 2 can be assigned.", "MIG enabled: 0:0", "MIG enabled: no MIG device"],
        ),
        (1, inventory_from_facts([]), ["the driver reports no GPU on this host"]),
        (
            "all",
            inventory_from_facts([gpu(0, mig=mig())]),
            ["no GPU or MIG device that can be assigned", "MIG enabled: no MIG"],
        ),
    ],
)
def test_missing_gpus_are_refused_with_a_list_of_the_hosts_gpus(gpus, inventory, words):
    with pytest.raises(SelectionError) as error:
        chosen(gpus, inventory)
    for part in words:
        assert part in str(error.value)


@pytest.mark.parametrize(
    ("inventory", "options", "advice"),
    [
        (FOUR, {"conditions": {"memory_min_mib": 10**6}}, "Change conditions."),
        (inventory_from_facts([gpu(0, compute_mode="prohibited")]), {}, "Repair the unusable GPUs."),
        (
            inventory_from_facts([gpu(0, mig=mig(slice_(0)))]),
            {},
            "Set conditions.mig_profile to request a MIG device, or disable MIG.",
        ),
        (FOUR, {"holders": [held(0, 1, 2, 3, exclusive=True)]}, "Stop a container or process."),
        (FOUR, {"holders": [held(0, 1, 2, 3)], "exclusive": True}, "Stop a container or process, or remove exclusive."),
    ],
)
def test_error_about_one_gpu_does_not_advise_to_request_fewer(inventory, options, advice):
    with pytest.raises(SelectionError) as error:
        chosen(1, inventory, **options)
    assert str(error.value).endswith(f" {advice}")


@pytest.mark.parametrize("gpus", [[2], "all", ["0000:3c:00.0"], ["GPU-b"]])
def test_lost_gpu_is_refused(gpus):
    lost = inventory_from_facts(
        [gpu(0), gpu(1), gpu(2, health={"state": "lost", "reasons": ["it has fallen off the bus"]})]
    )
    with pytest.raises(SelectionError) as error:
        chosen(gpus, lost)
    assert "GPU 2 (GPU-bbbb2222" in str(error.value)
    assert "is lost: it has fallen off the bus. Remove it from gpus, or reset or replace the GPU" in str(error.value)


def test_count_skips_a_lost_gpu():
    lost = inventory_from_facts([gpu(0, health={"state": "lost", "reasons": []}), gpu(1), gpu(2)])
    assert chosen(2, lost) == ["1", "2"]
    with pytest.raises(SelectionError, match=r"3 GPUs are requested, but only 2 can be assigned.*lost"):
        chosen(3, lost)


RESET = nvml_health.RESET_REQUIRED_REASON
PAGES = nvml_health.RETIREMENT_PENDING_REASON


def sick(*reasons):
    return {"state": "degraded", "reasons": list(reasons)}


UNUSABLE = {
    "reset required": ({"health": sick(RESET)}, f"a reset is required; {RESET}"),
    "retirement": ({"health": sick(PAGES)}, f"a reset is required; {PAGES}"),
    "prohibited": (
        {"compute_mode": "prohibited"},
        "compute mode is prohibited (nvidia-smi --id=0 --compute-mode=DEFAULT",
    ),
    "lost": ({"health": {"state": "lost", "reasons": ["off the bus"]}}, "lost; off the bus"),
    **{
        action: (
            {"recovery_action": action, "health": sick("the driver asks")},
            f"recovery action {action} is pending; the driver asks",
        )
        for action in (
            "gpu_reset",
            "node_reboot",
            "drain_p2p",
            "drain_and_reset",
            "recover_imex_domain",
            "bus_reset",
            "system_reboot",
            "unknown_9",
        )
    },
}
unusable = pytest.mark.parametrize(("changes", "words"), UNUSABLE.values(), ids=UNUSABLE)


@unusable
def test_count_skips_an_unusable_gpu_and_names_it_in_the_error(changes, words):
    inventory = inventory_from_facts([gpu(0, **changes), gpu(1), gpu(2)])
    assert chosen(2, inventory) == ["1", "2"]
    assert describe_unusable(inventory).startswith(f"GPU 0 ({UUIDS[0]}): {words}")
    with pytest.raises(SelectionError) as error:
        chosen(3, inventory)
    message = str(error.value)
    assert message.startswith(
        f"3 GPUs are requested, but only 2 can be assigned. Unusable: GPU 0 ({UUIDS[0]}): {words}"
    )
    assert message.endswith("Repair the unusable GPUs, or request fewer.")


@unusable
def test_count_replaces_an_unusable_gpu_of_the_container(changes, words):
    inventory = inventory_from_facts([gpu(0, **changes), gpu(1)])
    assert chosen(1, inventory, current=[UUIDS[0]]) == ["1"]


@unusable
def test_count_skips_a_mig_device_of_an_unusable_gpu(changes, words):
    inventory = inventory_from_facts([gpu(0, mig=mig(slice_(0)), **changes), gpu(1, mig=mig(slice_(1)))])
    assert chosen(1, inventory, conditions={"mig_profile": "1g.5gb"}) == ["1:1"]


def test_error_names_unusable_and_held_gpus():
    inventory = inventory_from_facts([gpu(0, compute_mode="prohibited"), gpu(1), gpu(2)])
    with pytest.raises(SelectionError) as error:
        chosen(2, inventory, exclusive=True, holders=[held(1, inventory=inventory)])
    assert f"Unusable: GPU 0 ({UUIDS[0]}): compute mode is prohibited" in str(error.value)
    assert f"In use: GPU 1 ({UUIDS[1]}) by docker container other." in str(error.value)


@pytest.mark.parametrize("compute_mode", ["default", "exclusive_process", None])
@pytest.mark.parametrize("recovery_action", ["none", None])
def test_count_selects_a_gpu_without_problems(compute_mode, recovery_action):
    inventory = inventory_from_facts([gpu(0, compute_mode=compute_mode, recovery_action=recovery_action)])
    assert chosen(1, inventory) == ["0"]
    assert describe_unusable(inventory) == ""


@pytest.mark.parametrize(
    ("count", "options", "expected"),
    [
        (1, {}, ["1"]),
        (2, {}, ["1", "3"]),
        (3, {}, ["0", "1", "3"]),
        (4, {}, ["0", "1", "2", "3"]),
        # A shared healthy GPU is preferred to a degraded GPU.
        (2, {"holders": [held(1)]}, ["1", "3"]),
        # With exclusive, no healthy GPU is left.
        (2, {"holders": [held(1)], "exclusive": True}, ["2", "3"]),
        # Symptoms such as heat are temporary, so a container keeps its GPU.
        (1, {"current": [UUIDS[2]]}, ["2"]),
        (2, {"current": [UUIDS[2]]}, ["2", "3"]),
    ],
)
def test_count_selects_degraded_gpus_last(count, options, expected):
    hot = {"health": sick("hardware slows the clocks down for heat: check cooling")}
    inventory = inventory_from_facts([gpu(0, **hot), gpu(1), gpu(2, **hot), gpu(3)])
    assert chosen(count, inventory, topology=topology_from_facts(pairs_topology()), **options) == expected


def test_all_includes_unusable_gpus():
    inventory = inventory_from_facts([gpu(0, health=sick(RESET)), gpu(1, compute_mode="prohibited")])
    assert chosen("all", inventory) == ["0", "1"]


@pytest.mark.parametrize("selector", [1, UUIDS[1], "0000:3b:00.0"])
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"health": {"state": "degraded", "reasons": [RESET]}}, f"a reset is required; {RESET}"),
        ({"recovery_action": "drain_p2p"}, "recovery action drain_p2p is pending"),
        (
            {"compute_mode": "prohibited"},
            "compute mode is prohibited (nvidia-smi --id=1 --compute-mode=DEFAULT changes it)",
        ),
    ],
)
def test_a_named_unusable_gpu_is_refused_with_the_reason(selector, changes, reason):
    inventory = inventory_from_facts([gpu(0), gpu(1, **changes)])
    with pytest.raises(SelectionError) as error:
        chosen([0, selector], inventory)
    assert str(error.value) == (
        f"GPU 1 ({UUIDS[1]}) is requested but cannot be used: {reason}. Repair the GPU, or request another GPU."
    )


def test_a_named_mig_device_of_an_unusable_gpu_is_refused():
    inventory = inventory_from_facts([gpu(0, mig=mig(slice_(0)), recovery_action="gpu_reset")])
    with pytest.raises(SelectionError, match="is requested but cannot be used: recovery action gpu_reset is pending"):
        chosen(["0:0"], inventory)


HOT = {"health": {"state": "degraded", "reasons": ["the hardware reduces the clocks because of heat"]}}
BUSY = {"memory_free_mib": 512, "processes": [{"pid": 70, "name": "/usr/bin/python3"}]}
PRESENT = inventory_from_facts(
    [
        gpu(0, memory_free_mib=40000, **HOT),
        gpu(1, **BUSY),
        gpu(2, memory_free_mib=40000),
        gpu(3, memory_free_mib=None, processes=None),
    ]
)
USED = {UUIDS[1]: ("process 70 (python3)",)}


@pytest.mark.parametrize(
    ("conditions", "all_of_them", "one"),
    [
        ({"memory_free_min_mib": 20000}, ["0", "2"], ["2"]),
        ({"health": "ok"}, ["1", "2", "3"], ["1"]),
        ({"health": "degraded"}, ["0", "1", "2", "3"], ["1"]),
        ({"idle": True}, ["0", "2"], ["2"]),
        ({"idle": False}, ["0", "1", "2", "3"], ["1"]),
        ({"idle": True, "health": "ok", "memory_free_min_mib": 20000}, ["2"], ["2"]),
    ],
)
def test_conditions_on_the_present_state_restrict_the_selection(conditions, all_of_them, one):
    assert chosen("all", PRESENT, conditions=conditions, busy=USED) == all_of_them
    assert chosen(1, PRESENT, conditions=conditions, busy=USED) == one


@pytest.mark.parametrize(
    ("gpus", "conditions", "words"),
    [
        ([1], {"memory_free_min_mib": 20000}, "has 512 MiB of free memory, less than 20000"),
        ([3], {"memory_free_min_mib": 1}, "does not report its free memory"),
        ([0], {"health": "ok"}, "is degraded: the hardware reduces the clocks because of heat"),
        ([1], {"idle": True}, "is used by process 70 (python3)"),
        ([3], {"idle": True}, "may be in use: the driver does not list its processes"),
    ],
)
def test_a_named_gpu_with_another_present_state_is_refused(gpus, conditions, words):
    with pytest.raises(SelectionError) as error:
        chosen(gpus, PRESENT, conditions=conditions, busy=USED)
    subject = f"GPU {gpus[0]} ({UUIDS[gpus[0]]}) is requested but {words}."
    assert str(error.value) == f"{subject} Request another GPU, or change conditions."


def test_a_count_names_each_gpu_that_its_present_state_rejects():
    with pytest.raises(SelectionError) as error:
        chosen(3, PRESENT, conditions={"idle": True, "memory_min_mib": 1000}, busy=USED)
    assert str(error.value).startswith(
        "3 GPUs with at least 1000 MiB of memory, no process are requested, but only 2 can be assigned. Rejected: "
        f"GPU 1 ({UUIDS[1]}) is used by process 70 (python3); GPU 3 ({UUIDS[3]}) may be in use: the driver does not "
        "list its processes. This host has GPU 0"
    )
    with pytest.raises(SelectionError, match=r"conditions \(health ok, no process\)\. Rejected: GPU 0 .* is degraded"):
        chosen("all", inventory_from_facts([gpu(0, **HOT)]), conditions={"idle": True, "health": "ok"})


@pytest.mark.parametrize("conditions", [{"idle": True}, {"memory_free_min_mib": 20000}, {"health": "ok"}])
def test_a_running_container_keeps_its_gpu_in_spite_of_its_present_state(conditions):
    """Its own processes use the memory. A stopped container would start on a GPU that others use."""
    inventory = inventory_from_facts([gpu(0, memory_free_mib=40000), gpu(1, **BUSY, **HOT)])
    options = {"conditions": conditions, "busy": USED, "current": [UUIDS[1]]}
    assert chosen(1, inventory, running=True, **options) == ["1"]
    assert chosen([1], inventory, running=True, **options) == ["1"]
    assert chosen(1, inventory, **options) == ["0"]


def test_the_free_memory_of_a_mig_device_counts():
    devices = [{**slice_(0), "memory_free_mib": 100}, {**slice_(1), "memory_free_mib": 4000}]
    inventory = inventory_from_facts([gpu(0, memory_free_mib=1, mig=mig(*devices))])
    assert chosen(1, inventory, conditions={"mig_profile": "1g.5gb", "memory_free_min_mib": 2000}) == ["0:1"]


@pytest.mark.parametrize(
    ("gpus", "conditions", "inventory", "expected"),
    [
        ("all", {"numa_node": 1}, FOUR, ["2", "3"]),
        (1, {"numa_node": 1}, FOUR, ["2"]),
        ("all", {"memory_min_mib": 40960}, FOUR, ["0", "1", "2", "3"]),
        ("all", {"model": "a100"}, FOUR, ["0", "1", "2", "3"]),
        ("all", {"model": "NVIDIA A100*"}, FOUR, ["0", "1", "2", "3"]),
        (1, {"mig_profile": "3g.20gb"}, MIXED, ["0:1"]),
        ("all", {"mig_profile": "1G.5GB"}, MIXED, ["0:0"]),
        ("all", {"memory_min_mib": 10000}, MIXED, ["0:1", "2", "3"]),
    ],
)
def test_conditions_restrict_the_selection(gpus, conditions, inventory, expected):
    assert chosen(gpus, inventory, conditions=conditions) == expected


@pytest.mark.parametrize(
    ("gpus", "conditions", "words"),
    [
        (
            [1],
            {"memory_min_mib": 80000},
            "GPU 1 (GPU-aaaa1111-0000-4000-8000-000000000001) is requested but has 40960 MiB",
        ),
        ([1], {"model": "h100"}, "is model 'NVIDIA A100-SXM4-40GB', not 'h100'"),
        ([1], {"model": "A100*"}, "not 'A100*'"),
        ([0], {"numa_node": 1}, "is on NUMA node 0, not 1"),
        ([0], {"mig_profile": "1g.5gb"}, "is a whole GPU, not MIG profile 1g.5gb"),
        (
            1,
            {"memory_min_mib": 80000},
            "1 GPU with at least 80000 MiB of memory is requested, but none can be assigned",
        ),
        (1, {"mig_profile": "1g.5gb"}, "1 MIG device with MIG profile 1g.5gb is requested, but none can be assigned"),
        (
            "all",
            {"model": "h100", "numa_node": 0},
            "No GPU on this host meets the conditions (model h100, NUMA node 0)",
        ),
    ],
)
def test_unmet_conditions_are_named(gpus, conditions, words):
    with pytest.raises(SelectionError) as error:
        chosen(gpus, FOUR, conditions=conditions)
    assert words in str(error.value)


A100 = f"GPU 0 ({UUIDS[0]}, NVIDIA A100-SXM4-40GB, 40960 MiB"


@pytest.mark.parametrize(
    ("gpus", "conditions", "inventory", "description"),
    [
        ("all", {"memory_min_mib": 80000}, FOUR, f" This host has {A100}), GPU 1 ("),
        (1, {"memory_min_mib": 80000}, FOUR, f" This host has {A100}), GPU 1 ("),
        ("all", {"model": "h100"}, FOUR, f" This host has {A100}), GPU 1 ("),
        (1, {"numa_node": 4}, FOUR, f" This host has {A100}, NUMA node 0), GPU 1 ("),
        (
            1,
            {"mig_profile": "7g.40gb"},
            MIXED,
            f" This host has {A100}, MIG enabled: 0:0 {MIG_UUIDS[0]} 1g.5gb 4864 MiB, ",
        ),
        (
            1,
            {"memory_min_mib": 1},
            inventory_from_facts([gpu(0, memory_total_mib=None, mig=mig())]),
            "A100-SXM4-40GB, MIG",
        ),
    ],
)
def test_error_about_conditions_lists_the_properties_of_the_gpus(gpus, conditions, inventory, description):
    with pytest.raises(SelectionError) as error:
        chosen(gpus, inventory, conditions=conditions)
    assert description in str(error.value)
    assert str(error.value).endswith("hange conditions.")


@pytest.mark.parametrize(
    ("count", "options", "expected"),
    [
        (2, {}, ["0", "1"]),
        (2, {"current": [UUIDS[3]]}, ["2", "3"]),
        (2, {"current": [UUIDS[3], UUIDS[0]]}, ["0", "3"]),
        (1, {"current": [UUIDS[3], UUIDS[2]]}, ["2"]),
        (3, {"current": [UUIDS[2]]}, ["0", "1", "2"]),
        (1, {"current": ["GPU-gone"]}, ["0"]),
        # The linked partner of a GPU in use comes first, so that the other pair stays complete.
        (1, {"holders": [held(0)]}, ["1"]),
        (1, {"holders": [held(0), held(1)]}, ["2"]),
        (2, {"holders": [held(1)]}, ["2", "3"]),
        (2, {"exclusive": True, "holders": [held(1)]}, ["2", "3"]),
        (3, {"exclusive": True, "holders": [held(1)]}, ["0", "2", "3"]),
        # Without free GPUs, a count shares GPUs that are not exclusive.
        (4, {"holders": [held(1)]}, ["0", "1", "2", "3"]),
        (3, {"holders": [held(1, exclusive=True)]}, ["0", "2", "3"]),
    ],
)
def test_count_prefers_own_then_free_then_close_gpus(count, options, expected):
    assert chosen(count, topology=topology_from_facts(pairs_topology()), **options) == expected


def test_nvlink_outweighs_pcie_and_numa():
    topology = pairs_topology()
    topology["nvlinks"] = [[0, 0, 0, 4], [0, 0, 0, 0], [0, 0, 0, 0], [4, 0, 0, 0]]
    topology["pcie"][0][1] = topology["pcie"][1][0] = "pix"
    assert chosen(2, topology=topology_from_facts(topology)) == ["0", "3"]


def test_numa_node_decides_without_topology():
    assert chosen(2, holders=[held(0)]) == ["2", "3"]


def test_unknown_links_are_accepted():
    topology = {"gpus": UUIDS, "nvlinks": [[None] * 4] * 4, "pcie": [[None] * 4] * 4}
    assert chosen(2, topology=topology_from_facts(topology)) == ["0", "1"]


def test_large_set_is_found_quickly():
    many = inventory_from_facts([gpu(index) for index in range(24)])
    topology = topology_from_facts(
        {
            "gpus": [one.uuid for one in many.gpus],
            "nvlinks": [[4 if one // 12 == two // 12 and one != two else 0 for two in range(24)] for one in range(24)],
            "pcie": [],
        }
    )
    taken = held(0, 1, 2, inventory=many)
    assert chosen(12, many, exclusive=True, holders=[taken], topology=topology) == [
        str(index) for index in range(12, 24)
    ]


@pytest.mark.parametrize("gpus", [[1], "all", [UUIDS[1], 3]])
def test_exclusive_refuses_a_held_gpu(gpus):
    with pytest.raises(SelectionError) as error:
        chosen(gpus, exclusive=True, holders=[held(1, name="trainer")])
    assert "exclusive: GPU 1 (GPU-aaaa1111-" in str(error.value)
    assert "is held by docker container trainer. Stop the container" in str(error.value)


def test_error_about_exclusive_names_all_holders():
    holders = [held(0, 1, name="a"), held(1, name="b", detail="reserved by a run in progress"), held(3, name="c")]
    with pytest.raises(SelectionError) as error:
        chosen(2, exclusive=True, holders=holders)
    message = str(error.value)
    assert "exclusive: 2 GPUs are requested, but only 1 of 4 is free." in message
    assert f"GPU 0 ({UUIDS[0]}) by docker container a;" in message
    assert "by docker container a, docker container b (reserved by a run in progress);" in message
    assert f"Free: GPU 2 ({UUIDS[2]})." in message


def test_mig_devices_of_one_gpu_are_exclusive_independently():
    neighbor = Holder("n", "docker", frozenset({MIG_UUIDS[0]}))
    assert chosen(["0:1"], MIXED, exclusive=True, holders=[neighbor]) == ["0:1"]
    whole = Holder("w", "docker", frozenset({UUIDS[0]}))
    with pytest.raises(SelectionError, match=r"MIG 0:1 .* is held by docker container w"):
        chosen(["0:1"], MIXED, exclusive=True, holders=[whole])


def test_named_gpu_can_be_shared_without_exclusive():
    assert chosen([1], holders=[held(1, exclusive=True)]) == ["1"]
