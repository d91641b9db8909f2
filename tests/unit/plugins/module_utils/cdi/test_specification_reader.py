# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CDI specifications that NVIDIA's and other tools write."""

from __future__ import annotations

import json

import pytest
import yaml

from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi import specification_files as cdi_file
from ansible_collections.gpufleet.hosts.plugins.module_utils.cdi.specification_reader import (
    SpecError,
    load,
    load_plain_yaml,
    read,
    written_nodes,
)

# Output of nvidia-ctk.
VENDOR = """\
---
cdiVersion: 0.5.0
kind: nvidia.com/gpu
containerEdits:
  env:
  - NVIDIA_VISIBLE_DEVICES=void
  deviceNodes:
  - path: /dev/nvidiactl
  - path: /dev/nvidia-uvm # control node
  hooks:
  - args:
    - nvidia-cdi-hook
    - create-symlinks
    - --link
    - libcuda.so.1::/usr/lib/libcuda.so
    hookName: createContainer
    path: /usr/bin/nvidia-cdi-hook
  mounts:
  - containerPath: /usr/lib/libcuda.so.535.261.03
    hostPath: /usr/lib/libcuda.so.535.261.03
    options:
    - ro
    - nosuid
devices:
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
    - major: 226
      path: /dev/dri/card1
  name: "0"
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
  name: 'GPU-aaaa'
-
  name: all
  containerEdits:
    deviceNodes: []
"""


def host(tmp_path, *paths):
    for path in paths:
        file = tmp_path / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("", encoding="utf-8")
    return str(tmp_path)


def write(tmp_path, path, spec):
    file = tmp_path / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(spec if isinstance(spec, str) else json.dumps(spec), encoding="utf-8")


def spec(name="GPU-aaaa", node="/dev/nvidia0", kind="nvidia.com/gpu", version="0.5.0"):
    edits = {"deviceNodes": [{"path": node}]}
    return {"cdiVersion": version, "kind": kind, "devices": [{"name": name, "containerEdits": edits}]}


def test_plain_parser_matches_pyyaml():
    def as_text(value):
        if isinstance(value, dict):
            return {key: as_text(item) for key, item in value.items()}
        return [as_text(item) for item in value] if isinstance(value, list) else str(value)

    assert as_text(load_plain_yaml(VENDOR)) == as_text(yaml.safe_load(VENDOR))


def test_plain_parser_is_used_without_pyyaml(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "yaml", None)
    assert [device["name"] for device in load(VENDOR)["devices"]] == ["0", "GPU-aaaa", "all"]
    with pytest.raises(SpecError, match="cannot parse"):
        load("kind: a\n  strange\n")


@pytest.mark.parametrize("text", ["", "[1, 2]", "just text", "{}", "a: b", "kind: [unclosed"])
def test_text_that_is_not_a_specification_is_refused(text):
    with pytest.raises(SpecError):
        load(text)


def amd(**changes):
    return json.dumps({"kind": "amd.com/gpu", **changes})


def with_edits(**edits):
    return amd(devices=[{"name": "0", "containerEdits": edits}])


MALFORMED = {
    "kind": (amd(kind=5), "kind is 5, not a string"),
    "a map of devices": (amd(devices={"a": 1}), 'devices is {"a": 1}, not a list of mappings'),
    "a number for devices": (amd(devices=5), "devices is 5, not a list of mappings"),
    "a number for a device": (amd(devices=[5]), "devices is [5], not a list of mappings"),
    "no name": (amd(devices=[{}]), "devices[0].name is null, not a string"),
    "a list for a name": (amd(devices=[{"name": "0"}, {"name": []}]), "devices[1].name is [], not a string"),
    "edits": (amd(containerEdits=5), "containerEdits is 5, not a mapping"),
    "a device's edits": (
        amd(devices=[{"name": "0", "containerEdits": ["x"]}]),
        'devices[0].containerEdits is ["x"], not a mapping',
    ),
    "a number for nodes": (with_edits(deviceNodes=5), "containerEdits.deviceNodes is 5, not a list of mappings"),
    "a number for a node": (with_edits(deviceNodes=[5]), "containerEdits.deviceNodes is [5], not a list of mappings"),
    "a node without a path": (
        with_edits(deviceNodes=[{}]),
        "path of devices[0].containerEdits.deviceNodes[0] is null, not a path",
    ),
    "a number for a path": (with_edits(deviceNodes=[{"path": 5}]), "deviceNodes[0] is 5, not a path"),
    "no character": (with_edits(deviceNodes=[{"path": "/a\0b"}]), "not a path"),
    "half a character": (with_edits(deviceNodes=[{"path": "/a\ud800"}]), "not a path"),
    "a mount from nowhere": (
        amd(containerEdits={"mounts": [{"containerPath": "/a"}]}),
        "hostPath of containerEdits.mounts[0] is null, not a path",
    ),
    "a hook of nothing": (with_edits(hooks=[{}]), "path of devices[0].containerEdits.hooks[0] is null"),
    "depth": ("[" * 100000, "nested too deeply"),
    "depth of YAML": ("kind: amd.com/gpu\ndevices: " + "[" * 600, ""),
    "depth of lists": ("- " * 20000, ""),
    "no date": ("kind: amd.com/gpu\ndevices: 2026-99-99", ""),
    "no such escape": ('kind: "\\q"', ""),
    "a number of many digits": ("9" * 5000, ""),
}


@pytest.mark.parametrize("library", [True, False], ids=["yaml", "no-yaml"])
@pytest.mark.parametrize(("text", "words"), MALFORMED.values(), ids=MALFORMED)
def test_malformed_file_is_reported_and_hides_no_other(tmp_path, monkeypatch, text, words, library):
    if not library:
        monkeypatch.setitem(__import__("sys").modules, "yaml", None)
    root = host(tmp_path, "/dev/nvidia0")
    write(tmp_path, "/etc/cdi/bad.json", text)
    write(tmp_path, "/etc/cdi/good.json", spec())
    found = read(("/etc/cdi",), root)
    assert list(found.devices) == ["nvidia.com/gpu=GPU-aaaa"]
    assert len(found.broken) == 1
    assert found.broken[0].startswith("/etc/cdi/bad.json: ")
    assert words in found.broken[0]
    bad = str(tmp_path / "etc/cdi/bad.json")
    others, broken = cdi_file.other_specs([str(tmp_path / "etc/cdi")], "nvidia.com/gpu", "/own.json")
    assert [other.devices for other in others] == [("GPU-aaaa",)]
    assert [line.startswith(f"{bad} cannot be read as a CDI specification: ") for line in broken] == [True]
    assert [name for name in cdi_file.host_paths_in(bad) if "\0" in name or not name.startswith("/")] == []


def test_devices_include_the_nodes_of_the_whole_specification(tmp_path):
    root = host(
        tmp_path,
        "/dev/nvidia0",
        "/dev/nvidiactl",
        "/dev/nvidia-uvm",
        "/dev/dri/card1",
        "/usr/bin/nvidia-cdi-hook",
        "/usr/lib/libcuda.so.535.261.03",
    )
    write(tmp_path, "/var/run/cdi/nvidia.yaml", VENDOR)
    found = read(("/etc/cdi", "/var/run/cdi"), root)
    device = found.devices["nvidia.com/gpu=GPU-aaaa"]
    assert device.nodes == ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0")
    assert (device.path, device.version, device.missing) == ("/var/run/cdi/nvidia.yaml", "0.5.0", ())
    assert sorted(found.devices) == ["nvidia.com/gpu=0", "nvidia.com/gpu=GPU-aaaa", "nvidia.com/gpu=all"]


def test_nonexistent_files_are_missing(tmp_path):
    root = host(tmp_path, "/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm", "/usr/bin/nvidia-cdi-hook")
    write(tmp_path, "/etc/cdi/nvidia.yaml", VENDOR)
    devices = read(("/etc/cdi",), root).devices
    assert devices["nvidia.com/gpu=GPU-aaaa"].missing == ("/usr/lib/libcuda.so.535.261.03",)
    assert devices["nvidia.com/gpu=0"].missing == ("/dev/dri/card1", "/usr/lib/libcuda.so.535.261.03")


def test_host_path_of_a_node_takes_precedence(tmp_path):
    root = host(tmp_path, "/dev/nvidia1")
    one = spec()
    one["devices"][0]["containerEdits"]["deviceNodes"][0]["hostPath"] = "/dev/nvidia1"
    write(tmp_path, "/etc/cdi/a.json", one)
    device = read(("/etc/cdi",), root).devices["nvidia.com/gpu=GPU-aaaa"]
    assert (device.nodes, device.missing) == (("/dev/nvidia1",), ())


def test_later_directory_overrides_and_linked_directories_are_read_once(tmp_path):
    root = host(tmp_path, "/dev/nvidia0", "/dev/nvidia1")
    write(tmp_path, "/etc/cdi/a.json", spec(node="/dev/nvidia0"))
    write(tmp_path, "/run/cdi/a.json", spec(node="/dev/nvidia1"))
    (tmp_path / "var").mkdir()
    (tmp_path / "var" / "run").symlink_to("../run")
    found = read(("/etc/cdi", "/var/run/cdi", "/run/cdi"), root)
    assert found.devices["nvidia.com/gpu=GPU-aaaa"].nodes == ("/dev/nvidia1",)


def test_device_that_two_files_of_a_directory_define_is_a_conflict(tmp_path):
    root = host(tmp_path, "/dev/nvidia0")
    for path in ("/etc/cdi/a.json", "/etc/cdi/b.yaml", "/run/cdi/a.json"):
        write(tmp_path, path, spec())
    write(tmp_path, "/run/cdi/other.json", spec("GPU-bbbb"))
    for directory in ("/etc/cdi", "/etc/cdi/"):
        found = read((directory, "/run/cdi"), root)
        assert found.conflicts == {"nvidia.com/gpu=GPU-aaaa": ("/etc/cdi/a.json", "/etc/cdi/b.yaml")}
    assert read(("/run/cdi",), root).conflicts == {}


def test_other_files_are_ignored_and_malformed_ones_are_named(tmp_path):
    root = host(tmp_path, "/dev/nvidia0", "/etc/cdi/notes.txt", "/etc/cdi/nvidia.yml")
    write(tmp_path, "/etc/cdi/bad.json", "{")
    write(tmp_path, "/etc/cdi/good.json", spec())
    found = read(("/etc/cdi", "/nowhere"), root)
    assert list(found.devices) == ["nvidia.com/gpu=GPU-aaaa"]
    assert len(found.broken) == 1
    assert found.broken[0].startswith("/etc/cdi/bad.json: ")


@pytest.mark.parametrize("path", ["/dev//nvidia1", "//dev/nvidia1", "/dev/./nvidia1", "/dev/x/../nvidia1"])
def test_nodes_have_one_spelling(path):
    assert [node.path for node in written_nodes({"deviceNodes": [{"path": path}]})] == ["/dev/nvidia1"]


@pytest.mark.parametrize("major", ["\u00b2", "1" * 5000, "-1", "0xc3", ""])
def test_text_that_is_no_number_is_no_number_of_a_node(major):
    (node,) = written_nodes({"deviceNodes": [{"path": "/dev/x", "major": major, "minor": 1}]})
    assert node.numbers is None
