# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The planner predicts every refusal that the stand-ins for NVIDIA's container toolkit know.

The list of refusals is read from the source of the stand-ins.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gpufleet.hosts.plugins.module_utils.container.isolation_choice import DEVICE_REQUESTS, RUNTIME
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia import toolkit_settings
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.driver_capabilities import (
    DEFAULT_CAPABILITIES,
)
from ansible_collections.gpufleet.hosts.plugins.module_utils.container.nvidia.isolation_obstacles import find_obstacle
from ansible_collections.gpufleet.hosts.tests.sandbox.vendor.container_toolkit import (
    cdi,
    cli,
    gpus,
    main,
    prestart,
    runtime,
    settings,
    specification,
)
from ansible_collections.gpufleet.hosts.tests.unit.plugins.container_tree import ONE, SLICES, Tree
from ansible_collections.gpufleet.hosts.tests.unit.plugins.gpu_hosts import (
    CDI_CONTROL,
    MIG_UUIDS,
    UUIDS,
    docker,
    podman,
)

HOOK, PROGRAM = "/usr/bin/nvidia-container-runtime-hook", "/usr/bin/nvidia-container-runtime"
UUID = UUIDS[1]
REQUEST: dict[str, Any] = {
    "process": {"env": [f"NVIDIA_VISIBLE_DEVICES={UUID}", "NVIDIA_DRIVER_CAPABILITIES=compute,utility"]},
    "root": {"path": "rootfs"},
}
MODE_CDI = '[nvidia-container-runtime]\nmode = "cdi"\n'
LEGACY = '[nvidia-container-runtime]\nmode = "legacy"\n'
JIT_UNIT = "/usr/lib/systemd/system/nvidia-cdi-refresh.service"
MIG = [SLICES[MIG_UUIDS[0]]]
NO_CGROUPS = "[nvidia-container-cli]\nno-cgroups = true"
SKIPS = "[nvidia-container-runtime-hook]\nskip-mode-detection = true"
IGNORES = "accept-nvidia-visible-devices-envvar-when-unprivileged = false"


def refusals() -> set[str]:
    """Return the refusals in the stand-ins: the file and the begin of the message."""
    found = set()
    for path in sorted(Path(main.__file__).parent.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            is_failure = isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)
            if is_failure and getattr(node.exc.func, "id", "") == "Failure":
                found.add(f"{path.stem}: {message(node.exc.args[0])}")
    return found


def message(node: ast.expr) -> str:
    """Return the constant begin of a message, or the source of an expression."""
    if isinstance(node, ast.JoinedStr) and isinstance(node.values[0], ast.Constant):
        node = node.values[0]
    return str(node.value).strip() if isinstance(node, ast.Constant) else ast.unparse(node)


def load(tree):
    return settings.Settings(settings.read(str(tree.directory / toolkit_settings.PATH.lstrip("/"))))


def hook(tree):
    return prestart.command_for(REQUEST, load(tree), 1)


def in_mode_cdi(tree):
    found = load(tree)
    directories = [str(tree.directory / path.lstrip("/")) for path in ("/etc/cdi", "/var/run/cdi")]
    name = f"{found.get('nvidia-container-runtime.modes.cdi.default-kind')}={UUID}"
    return cdi.inject({}, [name], cdi.registry(directories))


def spec_of(node="/dev/nvidia2", **changes):
    device = {"name": UUID, "containerEdits": {"deviceNodes": [{"path": node}, *CDI_CONTROL]}}
    return {"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [device], **changes}


@dataclass(frozen=True)
class Refused:
    """A host on which a program refuses, why the planner says so, and the code of the stand-in that refuses."""

    text: str = ""
    files: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    spec: dict[str, Any] | None = None
    units: tuple = tuple(ONE)
    says: str = ""
    runs: Callable[[Tree], Any] = hook
    # What the stand-in says, if its code does not contain the text.
    refuses: str = ""
    isolations: tuple[str, ...] = (RUNTIME, DEVICE_REQUESTS)


REFUSED = {
    "settings: error loading config: failed to load specified config file:": Refused(
        "mode =", says="cannot read /etc/nvidia-container-runtime/config.toml: ", runs=load
    ),
    "settings: invalid config value: nvidia-container-cli.ldconfig value": Refused(
        '[nvidia-container-cli]\nldconfig = "/sbin/ldconfig"\n', says='ldconfig = "/sbin/ldconfig". NVIDIA',
        runs=lambda tree: settings.load()
    ),
    "runtime: error constructing low-level runtime: error locating runtime: no runtime binary found from candidate "
    "list:": (
        Refused(
            '[nvidia-container-runtime]\nruntimes = ["gone"]\n',
            says="finds none of the OCI runtimes gone",
            runs=lambda tree: runtime.low_level(load(tree).get("nvidia-container-runtime.runtimes")),
            isolations=(RUNTIME,),
        )
    ),
    "runtime: failed to construct OCI spec modifier: invalid mode": Refused(
        '[nvidia-container-runtime]\nmode = "fast"\n',
        says='mode = "fast", which the runtime does not know',
        runs=lambda tree: runtime.mode_of(REQUEST, load(tree)),
        isolations=(RUNTIME,),
    ),
    "prestart: _REFUSAL": Refused(
        MODE_CDI,
        spec=spec_of(),
        says='mode = "cdi", in which NVIDIA\'s hook refuses --gpus',
        refuses="invoking the NVIDIA Container Runtime Hook directly",
        isolations=(DEVICE_REQUESTS,),
    ),
    "prestart: str(error)": Refused(
        'supported-driver-capabilities = "utility"\n' + LEGACY,
        says="supported-driver-capabilities .* does not contain compute",
        refuses="unsupported capabilities",
    ),
    "prestart: couldn't find binary nvidia-container-cli in PATH": Refused(
        LEGACY, without=("/usr/bin/nvidia-container-cli",), says="nvidia-container-cli, but it is not installed"
    ),
    "cdi: failed to inject CDI devices: unresolvable CDI devices": Refused(
        MODE_CDI, says=f"no CDI specification in .* defines the device nvidia.com/gpu={UUID}", runs=in_mode_cdi,
        isolations=(RUNTIME,),
    ),
    # The program skips such a file.
    "cdi: invalid CDI specification: the key kind is missing": Refused(
        MODE_CDI,
        spec={"devices": []},
        says="no CDI specification in",
        runs=in_mode_cdi,
        refuses="unresolvable CDI devices",
        isolations=(RUNTIME,),
    ),
    "cdi: failed to inject CDI devices: failed to stat CDI host device": Refused(
        MODE_CDI, spec=spec_of("/dev/nvidia7"), says="names /dev/nvidia7, which does not exist", runs=in_mode_cdi,
        isolations=(RUNTIME,),
    ),
    'specification: failed to determine driver version (""): failed to locate "libnvidia-ml.so."': Refused(
        '[nvidia-container-cli]\nroot = "/run/nvidia/driver"\n',
        says='root = "/run/nvidia/driver", where the programs',
        runs=lambda tree: specification.libraries(str(tree.directory / "run/nvidia/driver")),
    ),
    "specification: error getting MIG capability device paths:": Refused(
        units=tuple(MIG), files=(JIT_UNIT,), says="mig-minors does not list",
        runs=lambda tree: specification.mig_minors(str(tree.directory)),
    ),
    "specification: failed to get cap device path:": Refused(
        units=tuple(MIG),
        says="mig-minors does not list",
        files=(JIT_UNIT, "/proc/driver/nvidia-caps/mig-minors"),
        runs=lambda tree: specification.paths_of(
            gpus.Gpu(0, "GPU-0", 3, "0000:0a:00.0"), gpus.Mig(0, MIG_UUIDS[0], 7, 0), str(tree.directory)
        ),
    ),
    "cli: ldcache error: process": Refused(
        '[nvidia-container-cli]\nldconfig = "@/sbin/ldconfig.gone"\n' + LEGACY,
        says="/sbin/ldconfig.gone of the key ldconfig .* does not exist",
        runs=lambda tree: cli.run_ldconfig(f"{tree.directory}/sbin/ldconfig.gone", str(tree.directory), []),
        refuses="No such file",
    ),
}  # fmt: skip

NVML = "The planner gets its GPUs from the same library, and says so if it cannot."
FILES_OF_CONTAINER = "It depends on the files of the container."
KERNEL = "The kernel has no such interface, or it fails."
NOT_PLANNED = {
    "cdi: failed to inject CDI devices:": "A path that is no device is found by the comparison of CDI with the host.",
    "cdi_hooks: failed to determined container root": FILES_OF_CONTAINER,
    "cdi_hooks: invalid symlink specification": "The specification itself is broken.",
    "cgroups: container error: failed to find the device cgroup": KERNEL,
    "cgroups: container error: no": KERNEL,
    "cgroups: container error: failed to change the device cgroup:": KERNEL,
    "cli: initialization error: nvml error:": NVML,
    "cli: device error:": NVML,
    "cli: container error: could not enter the namespaces:": KERNEL,
    "cli: mount error: mount operation failed:": FILES_OF_CONTAINER,
    "cli: mount error: too many symbolic links in": FILES_OF_CONTAINER,
    "ctk: invalid output format:": "nvidia-ctk starts no container.",
    "ctk: invalid discovery mode:": "nvidia-ctk starts no container.",
    "ctk: failed to generate CDI spec:": "nvidia-ctk starts no container.",
    "ctk: failed to create NVIDIA control device nodes: no NVIDIA devices in /proc/devices": "It starts no container.",
    "ctk: failed to load NVIDIA kernel modules: failed to load module": "nvidia-ctk starts no container.",
    "gpus: f\"{('failed to initialize NVML' if name == 'nvmlInit_v2' else name)}: {text or code}\"": NVML,
    "gpus: failed to initialize NVML: ERROR_LIBRARY_NOT_FOUND": NVML,
    "gpus: failed to get device handle from": NVML,
    'gpus: identifier is not a valid UUID or index: "': "The module passes UUIDs.",
    "runtime: error getting bundle dir from args: bundle option requires an argument": "The engine passes it.",
    "runtime: requesting a CDI device with vendor 'runtime.nvidia.com' is not supported when requesting other CDI "
    "devices": ("The module passes UUIDs, and no names of CDI beside them."),
    "specification: failed to create device CDI specs: no devices found": "The planner requests at least one device.",
}


def test_every_refusal_of_the_stand_ins_is_predicted_or_has_a_reason():
    assert refusals() == {*REFUSED, *NOT_PLANNED}


@pytest.mark.parametrize("key", REFUSED)
def test_the_planner_predicts_what_the_stand_in_refuses(key, tmp_path, monkeypatch):
    case = REFUSED[key]
    tree = Tree(tmp_path)
    tree.files(HOOK, PROGRAM, *case.files).files(toolkit_settings.PATH, text=case.text)
    for path in case.without:
        tree.remove(path)
    if case.spec is not None:
        tree.files("/etc/cdi/nvidia.json", text=json.dumps(case.spec))
    # PATH of the machine that runs the tests has none of the programs of the described host.
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "etc"))
    with pytest.raises((main.Failure, OSError), match=case.refuses or re.escape(key.partition(": ")[2])):
        case.runs(tree)
    engine = docker("26.1.5", runtimes={"nvidia": PROGRAM})
    for isolation in case.isolations:
        obstacle = find_obstacle(isolation, engine, tree.host(), case.units, DEFAULT_CAPABILITIES)
        assert re.search(case.says, obstacle or ""), obstacle


@pytest.mark.parametrize(
    ("text", "engine", "isolation", "expected"),
    [
        ("", docker("26.1.5", runtimes={"nvidia": PROGRAM}), RUNTIME, None),
        (LEGACY, docker("26.1.5", runtimes={"nvidia": PROGRAM}), RUNTIME, None),
        ("", docker("26.1.5"), DEVICE_REQUESTS, None),
        (MODE_CDI + SKIPS, docker("26.1.5"), DEVICE_REQUESTS, None),
        ('[nvidia-container-runtime]\nmode = "csv"', docker("26.1.5", runtimes={"nvidia": PROGRAM}), RUNTIME, "Tegra"),
        (IGNORES, docker("26.1.5"), DEVICE_REQUESTS, "ignores"),
        (NO_CGROUPS, docker("26.1.5"), DEVICE_REQUESTS, "which is for rootless engines"),
        (NO_CGROUPS, docker("26.1.5", rootless=True), DEVICE_REQUESTS, None),
        ("", docker("26.1.5", rootless=True), DEVICE_REQUESTS, "Set no-cgroups = true in"),
        # The runtime needs no cgroups in mode jit-cdi.
        (NO_CGROUPS + '\n[nvidia-container-runtime]\nmode = "jit-cdi"',
         docker("26.1.5", runtimes={"nvidia": PROGRAM}), RUNTIME, None),
        (LEGACY, podman(rootless=True), RUNTIME, "Set no-cgroups = true in"),
        (LEGACY + NO_CGROUPS, podman(rootless=True), RUNTIME, None),
    ],
)  # fmt: skip
def test_keys_decide_by_engine_and_mode(tmp_path, text, engine, isolation, expected):
    tree = Tree(tmp_path).files(HOOK, PROGRAM).files(toolkit_settings.PATH, text=text)
    obstacle = find_obstacle(isolation, engine, tree.host(), ONE, DEFAULT_CAPABILITIES)
    assert (obstacle is None) if expected is None else (expected in (obstacle or "")), obstacle


def test_mode_cdi_uses_its_own_kind_and_directories(tmp_path):
    text = (
        f'{MODE_CDI}[nvidia-container-runtime.modes.cdi]\ndefault-kind = "example.com/gpu"\nspec-dirs = ["/srv/cdi"]\n'
    )
    tree = Tree(tmp_path).files(HOOK, PROGRAM).files(toolkit_settings.PATH, text=text)
    engine = docker("26.1.5", runtimes={"nvidia": PROGRAM})
    spec = json.dumps(spec_of(kind="example.com/gpu"))
    tree.files("/etc/cdi/example.json", text=spec)
    assert "in /srv/cdi" in (find_obstacle(RUNTIME, engine, tree.host(), ONE, DEFAULT_CAPABILITIES) or "")
    tree.files("/srv/cdi/example.json", text=spec)
    assert find_obstacle(RUNTIME, engine, tree.host(), ONE, DEFAULT_CAPABILITIES) is None
    # The nodes are compared although the engine itself has no CDI.
    tree.files("/srv/cdi/example.json", text=json.dumps(spec_of("/dev/nvidia0", kind="example.com/gpu")))
    obstacle = find_obstacle(RUNTIME, engine, tree.host(), ONE, DEFAULT_CAPABILITIES) or ""
    assert "/srv/cdi/example.json is stale" in obstacle and "it has /dev/nvidia0" in obstacle
