# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The checks of the acceptance test with NVIDIA's container toolkit: what they compare, and which errors they find."""

from __future__ import annotations

import json
import subprocess
import sys
import types
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(REPOSITORY / "tests/gpu"))

from acceptance import checks, command, report, toolkit, toolkit_checks

UUID = "GPU-5a6f3c1e-2d7b-4c9a-8f10-3b2e9d4c7a61"
OTHER = "GPU-00000000-0000-4000-8000-000000000001"
VERSION = "580.159.04"
LIB64 = "/usr/lib/x86_64-linux-gnu"


def program(
    path, text="#!/bin/sh\necho 'NVIDIA Container Toolkit CLI version 1.20.0'\necho 'commit: 5505e2f'\n", mode=0o755
):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)


@pytest.fixture(name="directory")
def fixture_directory(tmp_path):
    """Return a directory with programs as they are built: not in usr/bin, without libnvidia-container."""
    for name in ("nvidia-container-runtime", "nvidia-ctk", "nvidia-cdi-hook"):
        program(tmp_path / "toolkit" / name)
    return tmp_path / "toolkit"


# --- the directory ------------------------------------------------------------------------------------------------


def test_built_programs_are_found_without_those_of_mode_legacy(directory):
    kit = toolkit.Toolkit(directory)
    assert kit.version == "1.20.0"
    assert kit.missing_for_legacy() == ["nvidia-container-runtime-hook", "nvidia-container-cli"]


def test_unpacked_packages_are_installed_with_their_libraries(tmp_path):
    source, root = tmp_path / "unpacked", tmp_path / "root"
    for name in (*toolkit.REQUIRED, *toolkit.LEGACY):
        program(source / "usr/bin" / name)
    for name in ("libnvidia-container.so.1", "libnvidia-container-go.so.1"):
        program(source / "usr/lib/x86_64-linux-gnu" / name)
    (root / "usr/bin").mkdir(parents=True)
    kit = toolkit.Toolkit(source)
    kit.install(root, "/usr/lib/kit")
    assert kit.missing_for_legacy() == []
    assert sorted(path.name for path in (root / "usr/bin").iterdir()) == sorted((*toolkit.REQUIRED, *toolkit.LEGACY))
    assert sorted(path.name for path in (root / "usr/lib/kit").iterdir()) == [
        "libnvidia-container-go.so.1",
        "libnvidia-container.so.1",
    ]


def without_the_directory(directory):
    for path in directory.iterdir():
        path.unlink()
    directory.rmdir()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (without_the_directory, "is not a directory"),
        (
            lambda place: (place / "nvidia-cdi-hook").unlink(),
            "contains no nvidia-cdi-hook, neither directly nor in usr/bin",
        ),
        (
            lambda place: (place / "nvidia-ctk").chmod(0o644),
            "nvidia-ctk does not run on this machine: Permission denied",
        ),
        (lambda place: program(place / "nvidia-ctk", "\x7fELF of another machine"), "does not run on this machine"),
        (lambda place: program(place / "nvidia-ctk", "#!/bin/sh\necho no >&2\nexit 3\n"), "--version exited 3: no"),
    ],
)
def test_a_wrong_directory_is_refused_before_the_acceptance_starts(directory, damage, message, monkeypatch, capsys):
    monkeypatch.setattr(command, "has_gpus", lambda: True)
    damage(directory)
    assert command.main(["--toolkit", str(directory)]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""


def test_the_engine_of_the_host_is_refused(directory, monkeypatch, capsys):
    monkeypatch.setattr(command, "has_gpus", lambda: True)
    assert command.main(["--toolkit", str(directory), "--engine", "host"]) == 2
    assert "--toolkit needs the bundle's podman. Omit --engine host." in capsys.readouterr().err


# --- config.toml --------------------------------------------------------------------------------------------------

CONFIG = """\
#accept-nvidia-visible-devices-envvar-when-unprivileged = true
disable-require = false

[nvidia-container-cli]
load-kmods = true

[nvidia-container-runtime]
#debug = "/var/log/nvidia-container-runtime.log"
log-level = "info"
mode = "auto"
runtimes = ["runc", "crun"]

[nvidia-container-runtime.modes.cdi]
default-kind = "nvidia.com/gpu"
"""


@pytest.fixture(name="collections")
def fixture_collections(tmp_path):
    (tmp_path / "ansible_collections/gpufleet").mkdir(parents=True)
    (tmp_path / "ansible_collections/gpufleet/hosts").symlink_to(REPOSITORY)
    return tmp_path


def test_the_keys_of_every_mode_are_merged_and_removed_again(collections):
    configuration = toolkit.Configuration(CONFIG, collections, sys.executable)
    for mode in (*toolkit_checks.MODES, toolkit_checks.LEGACY):
        keys = {**toolkit_checks.KEYS, **mode.keys}
        configuration.change(keys)
        assert configuration.change(keys) == []
        name = mode.keys["nvidia-container-runtime.mode"]
        assert f'mode = "{name}"\nruntimes = ["crun", "runc"]\n' in configuration.text
        assert '\ndebug = "/var/log/nvidia-container-runtime.log"\n' in configuration.text
    assert "load-kmods = false" in configuration.text
    configuration.change({})
    assert configuration.text == CONFIG


def test_a_key_that_the_role_does_not_know_is_an_error(collections):
    configuration = toolkit.Configuration(CONFIG, collections, sys.executable)
    with pytest.raises(ValueError, match=r"nvidia-container-runtime.modus is not a key"):
        configuration.change({"nvidia-container-runtime": {"modus": "cdi"}})


# --- the specifications -------------------------------------------------------------------------------------------


def spec(gpus, mounts=(), common=("/dev/nvidiactl", "/dev/nvidia-uvm"), hooks=()):
    """Return a specification. `gpus` are nodes by device name, with or without numbers."""

    def listed(nodes):
        pairs = nodes.items() if isinstance(nodes, dict) else ((path, None) for path in nodes)
        numbers = {path: {"major": 195, "minor": minor} if minor is not None else {} for path, minor in pairs}
        return [{"path": path, **number} for path, number in numbers.items()]

    return {
        "cdiVersion": "0.5.0",
        "kind": "nvidia.com/gpu",
        "devices": [{"name": name, "containerEdits": {"deviceNodes": listed(nodes)}} for name, nodes in gpus.items()],
        "containerEdits": {
            "deviceNodes": listed(common),
            "mounts": [{"hostPath": path, "containerPath": path} for path in mounts],
            "hooks": [{"path": "/usr/bin/nvidia-cdi-hook", "args": ["nvidia-cdi-hook", *words]} for words in hooks],
        },
    }


GPUS = {"0": {"/dev/nvidia0": 0}, UUID: {"/dev/nvidia0": 0}, "all": {"/dev/nvidia0": 0}}


def test_equal_nodes_have_no_difference_with_and_without_numbers():
    vendors = spec({name: list(nodes) for name, nodes in GPUS.items()})
    assert toolkit.compare_nodes(spec(GPUS), vendors) == (9, [], [])
    assert toolkit.compare_nodes(spec(GPUS), spec(GPUS)) == (9, [], [])


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"gpus": {**GPUS, "1": {"/dev/nvidia1": 1}}}, "device 1: only in the vendor's specification"),
        ({"gpus": {"0": GPUS["0"], "all": GPUS["all"]}}, f"device {UUID}: only in our specification"),
        ({"gpus": {**GPUS, "0": {"/dev/nvidia1": 1}}}, "device 0: /dev/nvidia0 is only in our specification"),
        ({"gpus": {**GPUS, "0": {"/dev/nvidia1": 1}}}, "device 0: /dev/nvidia1 is only in the vendor's specification"),
        (
            {"gpus": {**GPUS, "0": {"/dev/nvidia0": 7}}},
            "device 0: /dev/nvidia0 has numbers (195, 0), in the vendor's (195, 7)",
        ),
        ({"common": ("/dev/nvidiactl",)}, "device all: /dev/nvidia-uvm is only in our specification"),
    ],
)
def test_different_nodes_are_problems(change, problem):
    vendors = spec(**{"gpus": GPUS, **change})
    assert problem in toolkit.compare_nodes(spec(GPUS), vendors).problems


def compared(ours, vendors, links=(), narrow=()):
    real = dict(links)
    return toolkit.compare_files(
        spec(GPUS, ours), spec(GPUS, vendors), lambda path: real.get(path, path), lambda path: path in narrow
    )


CUDA = f"{LIB64}/libcuda.so.{VERSION}"
NARROW = f"/usr/lib/libcuda.so.{VERSION}"


@pytest.mark.parametrize(
    ("ours", "vendors", "links"),
    [
        ([CUDA], [CUDA], {}),
        # One mount for each name of the library.
        ([CUDA, CUDA], [CUDA], {}),
        # The vendor's program finds a link to the library.
        (
            ["/usr/local/nvidia/lib64/libcuda.so.1"],
            ["/lib/libcuda.so.1"],
            {"/lib/libcuda.so.1": "/usr/local/nvidia/lib64/libcuda.so.1"},
        ),
        ([f"{LIB64}/libnvidia-egl-gbm.so.1.1.2"], [f"{LIB64}/libnvidia-egl-gbm.so.1.1.2"], {}),
        (["/usr/bin/nvidia-smi"], ["/bin/nvidia-smi"], {"/bin/nvidia-smi": "/usr/bin/nvidia-smi"}),
    ],
)
def test_equal_files_have_no_difference(ours, vendors, links):
    assert compared(ours, vendors, links) == (1, [], [])


@pytest.mark.parametrize(
    ("ours", "vendors", "note"),
    [
        (
            [],
            ["/run/nvidia-persistenced/socket"],
            "/run/nvidia-persistenced/socket: only in the vendor's specification. It does not exist while its daemon",
        ),
        (["/dev/dri/by-path"], [], "has the links that nvidia-ctk creates by a hook"),
        ([], [f"{LIB64}/nvidia/xorg/nvidia_drv.so"], "belongs to the X server"),
        ([], ["/usr/share/X11/xorg.conf.d/10-nvidia.conf"], "belongs to the X server"),
        (
            [],
            ["/usr/bin/nvidia-imex-ctl"],
            "nvidia-imex-ctl: only in the vendor's specification. It belongs to the IMEX daemon",
        ),
        (["/usr/bin/nv-fabricmanager"], [], "nv-fabricmanager: only in our specification. It is"),
        (
            [NARROW, CUDA],
            [CUDA],
            f"{NARROW}: only in our specification. It is a 32-bit",
        ),
        ([NARROW], [], "is a 32-bit library"),
        (["/opt/driver/bin/nvidia-debugdump"], [], "is in a directory that is not on PATH"),
    ],
)
def test_a_known_difference_is_listed_with_its_reason(ours, vendors, note):
    found = compared(ours, vendors, narrow=[NARROW])
    assert found.problems == []
    (listed,) = found.notes
    assert note in listed


@pytest.mark.parametrize(
    ("ours", "vendors", "problem"),
    [
        ([], [CUDA], f"libcuda.so.{VERSION}: only in the vendor's specification. No reason is known."),
        ([CUDA], [], f"libcuda.so.{VERSION}: only in our specification. No reason is known."),
        ([], [f"{LIB64}/libnvidia-new.so.{VERSION}"], "libnvidia-new"),
        (
            [],
            ["/lib/firmware/nvidia/580.159.04/gsp_ga10x.bin"],
            "/lib/firmware/nvidia/580.159.04/gsp_ga10x.bin: only in the vendor's",
        ),
        (["/usr/bin/nvidia-debugdump"], [], "nvidia-debugdump: only in our specification. No reason is known."),
        # Two copies of the driver.
        (
            [CUDA],
            [f"/opt/lib/libcuda.so.{VERSION}"],
            f"our specification mounts {CUDA}, the vendor's /opt/lib/libcuda.so.{VERSION}",
        ),
        ([], [f"{LIB64}/libnvidia-egl-gbm.so.1.1.2"], "libnvidia-egl-gbm.so.1.1.2: only in the vendor's"),
        # Files without a suffix are compared by path.
        (["/run/a/socket"], ["/run/b/socket"], "/run/b/socket: only in"),
    ],
)
def test_a_difference_without_a_reason_is_a_problem(ours, vendors, problem):
    found = compared(ours, vendors)
    assert any(problem in text for text in found.problems), found


def test_the_vendors_hooks_are_listed_and_ours_are_a_problem():
    hooks = [["update-ldcache", "--folder", LIB64], ["hook", "create-symlinks", "--link", "a::b"], ["update-ldcache"]]
    found = toolkit.compare_files(spec(GPUS), spec(GPUS, hooks=hooks))
    assert [note.partition(":")[0] for note in found.notes] == ["create-symlinks", "update-ldcache"]
    assert toolkit.compare_files(spec(GPUS, hooks=hooks[:1]), spec(GPUS)).problems == [
        "update-ldcache: our specification has a hook"
    ]


def test_32_bit_libraries_are_recognized(tmp_path):
    for name, start in (("narrow", b"\x7fELF\x01"), ("wide", b"\x7fELF\x02"), ("text", b"hello"), ("empty", b"")):
        (tmp_path / name).write_bytes(start)
    assert [
        name for name in ("narrow", "wide", "text", "empty", "absent") if toolkit.elf_is_32_bit(str(tmp_path / name))
    ] == ["narrow"]


# --- the runtime --------------------------------------------------------------------------------------------------


# The log of nvidia-container-runtime 1.20.0, as text and as JSON.
AUTO_LOG = """\
time="2026-11-24T00:06:34Z" level=info msg="Using OCI specification file path: /run/bundle/config.json"
time="2026-11-24T00:06:34Z" level=info msg="Auto-detected mode as 'jit-cdi'"
time="2026-11-24T00:06:34Z" level=info msg="Using requested mode 'jit-cdi'"
time="2026-11-24T00:06:34Z" level=info msg="Auto-detected mode as 'nvml'"
"""
CDI_LOG = """{"level":"info","msg":"Using requested mode 'cdi'","time":"2026-11-24T00:06:36Z"}"""


@pytest.mark.parametrize(("log", "mode"), [(AUTO_LOG, "jit-cdi"), (CDI_LOG, "cdi"), ("", None)])
def test_the_mode_is_read_from_the_log(log, mode):
    assert toolkit.logged_mode(log) == mode


def test_requests_ask_by_index_by_uuid_and_for_no_gpu():
    one = {request.value: request.uuids for request in toolkit_checks.requests([UUID])}
    assert one == {"0": [UUID], UUID: [UUID], "void": [], None: []}
    two = {request.value: request.uuids for request in toolkit_checks.requests([UUID, OTHER])}
    assert two == {"0": [UUID], OTHER: [OTHER], "0,1": [UUID, OTHER], "all": [UUID, OTHER], "void": [], None: []}
    assert [request.uuids for request in toolkit_checks.requests([UUID], ignored=True)] == [[]]


class Engine:
    """Podman with a runtime that gives the GPUs `given` to every container, and logs `mode`."""

    def __init__(self, root, given, mode, code=0):
        self.root, self.given, self.mode, self.code = root, given, mode, code
        self.calls, self.inside_calls = [], []

    def __call__(self, *arguments):
        self.calls.append(arguments)
        if self.mode:
            log = self.root / "var/log/nvidia-container-runtime.log"
            log.parent.mkdir(parents=True, exist_ok=True)
            log.write_text(f"msg=\"Using requested mode '{self.mode}'\"\n", encoding="utf-8")
        return subprocess.CompletedProcess(arguments, self.code, "", "error: no such device" if self.code else "")

    def inside(self, _name, *argv):
        self.inside_calls.append(argv)
        own = {"0": "opens" if self.given else "EPERM"}
        shown = {"uuids": list(self.given), "error": None}
        return {
            "given": {"0": "opens" if self.given else "ENOENT"},
            **dict.fromkeys(("nvml", "nvml_without_environment", "smi", "nvml_afterwards"), shown),
            "own": own,
            "own_elsewhere": own,
            "cuda": {"gpus": [{"uuid": uuid, "passed": True, "result": "PASS"} for uuid in self.given]},
        }


def bench_with(engine):
    machine = types.SimpleNamespace(engine=engine, engine_root=engine.root, shared=Path("/shared"))
    return types.SimpleNamespace(machine=machine, uuids=[UUID], minors={UUID: 0})


CDI = toolkit_checks.MODES[2]


@pytest.mark.parametrize(
    ("value", "wanted", "runtime", "problem"),
    [
        ("0", [UUID], ([UUID], "cdi", 0), None),
        ("void", [], ([], "cdi", 0), None),
        (None, [], ([], "cdi", 0), None),
        ("0", [UUID], ([], "cdi", 0), "nvml shows [], expected"),
        ("void", [], ([UUID], "cdi", 0), "/dev/nvidia0 was not given and is there"),
        ("0", [UUID], ([UUID], "jit-cdi", 0), "the runtime logged mode jit-cdi, expected cdi"),
        # Podman started the container with another runtime.
        ("void", [], ([], None, 0), "the runtime logged mode None, expected cdi"),
        ("0", [UUID], ([UUID], "cdi", 126), "podman run exited 126: error: no such device"),
    ],
)
def test_a_container_of_the_runtime_is_judged(tmp_path, value, wanted, runtime, problem):
    engine = Engine(tmp_path, *runtime)
    request = toolkit_checks.Request("a request", value, wanted)
    _evidence, problems = toolkit_checks.run_container(bench_with(engine), CDI, request, "name")
    assert bool(problems) is (problem is not None)
    assert problem is None or any(problem in text for text in problems), problems
    (words,) = engine.calls
    assert words[:2] == ("--runtime", "nvidia")
    assert [word for word in words if word.startswith("NVIDIA_VISIBLE_DEVICES")] == (
        [] if value is None else [f"NVIDIA_VISIBLE_DEVICES={value}"]
    )


def test_an_old_log_does_not_prove_the_mode(tmp_path):
    engine = Engine(tmp_path, [], "cdi")
    bench, request = bench_with(engine), toolkit_checks.Request("void", "void", [])
    assert toolkit_checks.run_container(bench, CDI, request, "name")[1] == []
    engine.mode = None
    assert toolkit_checks.run_container(bench, CDI, request, "name")[1] != []


def test_the_driver_is_shown_to_the_runtime_with_its_links(tmp_path):
    host, root = tmp_path / "host", tmp_path / "root"
    host.mkdir()
    (root / "etc/ld.so.conf.d").mkdir(parents=True)
    library = host / f"libcuda.so.{VERSION}"
    library.touch()
    (host / "libcuda.so.1").symlink_to(library.name)
    (host / "libother.so.1").symlink_to("libother.so.1.2")
    called, shown = [], []

    def in_engine_root(*argv):
        called.append(argv)
        return subprocess.CompletedProcess(argv, 0, "", "")

    machine = types.SimpleNamespace(engine_root=root, show_to_the_engine=shown.extend, in_engine_root=in_engine_root)
    toolkit_checks.share(machine, [str(library), "/usr/share/nvidia/nvoptix.bin"])
    copy_of_host = root / str(host).lstrip("/")
    assert [path.name for path in copy_of_host.iterdir()] == ["libcuda.so.1"]
    assert (copy_of_host / "libcuda.so.1").readlink() == Path(library.name)
    assert str(host) in (root / "etc/ld.so.conf.d/00-acceptance.conf").read_text(encoding="utf-8").splitlines()
    assert shown == [str(library), "/usr/share/nvidia/nvoptix.bin"]
    assert called == [("/sbin/ldconfig", "-X")]


class Podman(Engine):
    """Podman whose runtime obeys config.toml, and reads CDI specifications in mode cdi."""

    def __init__(self, root, specifications):
        super().__init__(root, [], None)
        self.specifications, self.used = specifications, set()

    def __call__(self, *arguments):
        import tomllib  # noqa: PLC0415 - Python 3.11

        text = (self.root / "etc/nvidia-container-runtime/config.toml").read_text(encoding="utf-8")
        config = tomllib.loads(text)
        words = dict(word.split("=", 1) for word in arguments if word.startswith("NVIDIA_VISIBLE_DEVICES="))
        value = words.get("NVIDIA_VISIBLE_DEVICES", "void")
        accepted = config.get("accept-nvidia-visible-devices-envvar-when-unprivileged", True)
        mode = config["nvidia-container-runtime"]["mode"]
        self.mode = "jit-cdi" if mode == "auto" else mode
        self.given = [UUID] if accepted and value in ("0", UUID) else []
        if mode == "cdi" and self.given:
            (specification,) = self.specifications.iterdir()
            self.used.add(specification.name)
        assert "nvidia" in (self.root / "etc/containers/containers.conf").read_text(encoding="utf-8")
        return super().__call__(*arguments)


@pytest.fixture(name="machine")
def fixture_machine(collections, directory, tmp_path, monkeypatch):
    """Return a machine whose nvidia-ctk is a script, with a podman that obeys config.toml."""
    root, specifications = tmp_path / "root", tmp_path / "cdi"
    for name in ("usr/bin", "etc/containers", "etc/ld.so.conf.d"):
        (root / name).mkdir(parents=True)
    specifications.mkdir()
    monkeypatch.setattr(toolkit_checks, "OUR_FILE", specifications / "gpufleet-nvidia.json")
    monkeypatch.setattr(toolkit_checks, "VENDORS_FILE", specifications / "nvidia.json")
    (tmp_path / "vendors.json").write_text(json.dumps(spec(GPUS, [], hooks=[["update-ldcache"]])), encoding="utf-8")
    program(
        directory / "nvidia-ctk",
        f'#!/bin/sh\n[ "$1" = --version ] && echo "version 1.20.0" && exit\ncat {tmp_path}/vendors.json\n',
    )

    def play(_name, state):
        if state == "present":
            toolkit_checks.OUR_FILE.write_text(json.dumps(spec(GPUS)), encoding="utf-8")
        else:
            toolkit_checks.OUR_FILE.unlink()
        return [event_of_play(state)]

    def in_engine_root(*argv):
        if argv[0].endswith("nvidia-ctk"):
            (root / "etc/nvidia-container-runtime/config.toml").write_text(CONFIG, encoding="utf-8")
        return subprocess.CompletedProcess(argv, 0, "", "")

    return types.SimpleNamespace(
        toolkit=toolkit.Toolkit(directory),
        engine=Podman(root, specifications),
        engine_root=root,
        shared=Path("/shared"),
        ansible=types.SimpleNamespace(play=play, collections=collections),
        show_to_the_engine=lambda _paths: None,
        in_engine_root=in_engine_root,
        remove_containers=lambda: None,
    )


def event_of_play(state):
    return {
        "task": "Manage the specification",
        "item": None,
        "status": "ok",
        "result": {"changed": True, "state": state},
    }


def test_every_mode_has_its_own_configuration_and_specification(machine):
    bench = types.SimpleNamespace(machine=machine, uuids=[UUID], minors={UUID: 0})
    results = {result.check: result for result in toolkit_checks.check(bench)}
    assert [result for result in results.values() if not result.passed] == []
    assert [name for name, result in results.items() if result.skipped] == ["nvidia-container-runtime: legacy"]
    assert results["nvidia_cdi_spec against nvidia-ctk cdi generate"].notes != ()
    ignored = "nvidia-container-runtime, auto without requests of unprivileged containers: 0, which is ignored"
    assert "NVML: none" in results[ignored].evidence
    assert "NVML: GPU-5a6f3c1e" in results["nvidia-container-runtime, auto: 0"].evidence
    assert machine.engine.used == {"gpufleet-nvidia.json", "nvidia.json"}
    assert list(machine.engine.specifications.iterdir()) == []


# --- the report ---------------------------------------------------------------------------------------------------


def test_without_the_option_the_report_tells_what_was_not_checked():
    bench = types.SimpleNamespace(machine=types.SimpleNamespace(toolkit=None))
    results = list(checks.CHECKS["toolkit"](bench))
    assert {result.evidence for result in results} == {"not checked: no --toolkit"}
    for result in results:
        assert report.line(result).startswith("skip  ")
        assert report.line(result).endswith("not checked: no --toolkit")
    passed = checks.Result("facts", True, "fine")
    assert report.summary([passed, *results]) == "all 1 checks passed, 2 not run"


def test_the_page_lists_known_differences():
    about = dict.fromkeys(("date", "count", "gpu", "commit", "gpus", "driver", "cuda", "engine", "host"), "1")
    about |= dict.fromkeys(("ansible", "toolkit", "duration"), "1")
    result = checks.Result(
        "specification", True, "1 known difference", notes=("libx.so: only there. It has a reason.",)
    )
    skipped = checks.Result("runtime", True, "not checked", skipped=True)
    text = report.page(about, [result, skipped], {})
    assert "## Known differences: specification\n\n- libx.so: only there. It has a reason.\n" in text
    assert "| runtime | not run | not checked | 0.0 |" in text
    assert "libx.so: only there. It has a reason." in report.line(result)
    document = report.document(about, [result], {})
    assert list(document["checks"][0]["notes"]) == ["libx.so: only there. It has a reason."]
