# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run docker as nvidia-docker did: `run` and `create` get GPUs, everything else is passed through.

Role nvidia_container_toolkit installs this file as /usr/local/bin/nvidia-docker, so it needs only Python 3.9. The first
part are pure functions, the second part reads the host and starts docker.
"""

from __future__ import annotations

import collections
import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

# The options of docker: docker/cli at v29.7.2, cli/flags/options.go and cli/command/container/{opts,run,create}.go,
# with those that older versions had. An option that is not in these tables may take a value or not.
GLOBAL_VALUES = frozenset(("config", "context", "host", "log-level", "tlscacert", "tlscert", "tlskey"))
GLOBAL_FLAGS = frozenset(("debug", "help", "tls", "tlsverify", "version"))
GLOBAL_LETTERS = {"c": "context", "D": "debug", "H": "host", "h": "help", "l": "log-level", "v": "version"}
_VALUES = """
    add-host annotation attach blkio-weight blkio-weight-device cap-add cap-drop cgroup-parent cgroupns cidfile
    cpu-count cpu-percent cpu-period cpu-quota cpu-rt-period cpu-rt-runtime cpu-shares cpus cpuset-cpus cpuset-mems
    detach-keys device device-cgroup-rule device-read-bps device-read-iops device-write-bps device-write-iops dns
    dns-opt dns-option dns-search domainname entrypoint env env-file expose gpus group-add health-cmd health-interval
    health-retries health-start-interval health-start-period health-timeout hostname init-path io-maxbandwidth
    io-maxiops ip ip6 ipc isolation kernel-memory label label-file link link-local-ip log-driver log-opt mac-address
    memory memory-reservation memory-swap memory-swappiness mount name net net-alias network network-alias
    oom-score-adj pid pids-limit platform publish pull restart runtime security-opt shm-size stop-signal stop-timeout
    storage-opt sysctl tmpfs ulimit user userns uts volume volume-driver volumes-from workdir
"""
_FLAGS = """
    detach disable-content-trust help init interactive no-healthcheck oom-kill-disable privileged publish-all quiet
    read-only rm sig-proxy tty use-api-socket
"""
VALUES, FLAGS = frozenset(_VALUES.split()), frozenset(_FLAGS.split())
LETTERS = {
    "a": "attach",
    "c": "cpu-shares",
    "d": "detach",
    "e": "env",
    "h": "hostname",
    "i": "interactive",
    "l": "label",
    "m": "memory",
    "P": "publish-all",
    "p": "publish",
    "q": "quiet",
    "t": "tty",
    "u": "user",
    "v": "volume",
    "w": "workdir",
}
KIND = "nvidia.com/gpu"
HOOK = "nvidia-container-runtime-hook"
# Where the engine can find the hook. Its own PATH is not known.
HOOK_DIRECTORIES = ("/usr/bin", "/usr/local/bin", "/usr/sbin", "/usr/local/sbin", "/run/current-system/sw/bin")
TOOLKIT_CONFIG = "/etc/nvidia-container-runtime/config.toml"
VOLUMES = "/var/lib/gpufleet/volumes/nvidia_driver"
MOUNT_POINT = "/usr/local/nvidia"
VARIABLE = "NVIDIA_VISIBLE_DEVICES"
NO_GPUS = ("", "none", "void")
NEEDED, CUDA = "com.nvidia.volumes.needed", "com.nvidia.cuda.version"
# The library is not in the directories of the loader on every host.
NVML = ("libnvidia-ml.so.1", "/usr/lib/x86_64-linux-gnu/nvidia/current/libnvidia-ml.so.1")
LARGEST_SPECIFICATION = 8 * 1024 * 1024
# Names of GPUs that can be given to an engine unchecked, because they have no special meaning for it.
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9:._/-]*")
_PCI = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{1,2}):([0-9a-f]{1,2})\.([0-7])", re.IGNORECASE)
# Keys of the toolkit's config.toml. Each has a unique name in it.
_MODE = re.compile(r"""^\s*mode\s*=\s*["'](cdi|jit-cdi|csv)["']""", re.MULTILINE)
_SKIPS_MODE = re.compile(r"^\s*skip-mode-detection\s*=\s*true\b", re.MULTILINE)
_NO_CGROUPS = re.compile(r"^\s*no-cgroups\s*=\s*true\b", re.MULTILINE)
_IGNORES_REQUESTS = re.compile(
    r"^\s*accept-nvidia-visible-devices-envvar-when-unprivileged\s*=\s*false\b", re.MULTILINE
)
_SPEC_KIND = re.compile(r"""^[\s{"']*kind["']?\s*:\s*["']?nvidia\.com/gpu["'\s,]*$""", re.MULTILINE)
_SPEC_NAME = re.compile(r"""(?:^|[-{,\s])["']?name["']?\s*:\s*["']?([A-Za-z0-9][A-Za-z0-9:._-]*)""", re.MULTILINE)

# `options`: pairs of a name and a value. `image`: the position of the image, None if it is not certain.
Parsed = collections.namedtuple("Parsed", "options image")
# `name`: the index, for a MIG device "gpu:mig". `parent`: the UUID of the GPU of a MIG device.
Gpu = collections.namedtuple("Gpu", "uuid name pci minor has_mig parent")
Inventory = collections.namedtuple("Inventory", "driver cuda gpus")
# What docker says about its engine. `cdi`: the names of the CDI devices of kind nvidia.com/gpu.
Engine = collections.namedtuple("Engine", "version cdi is_local is_rootless")
# What the host has. `inventory`: None if NVML does not answer.
Host = collections.namedtuple("Host", "engine inventory has_hook volume nodes")


class WrapperError(Exception):
    """The container cannot be started. The text says why, and what to do."""


# --- the arguments of docker ---


def scan(words, start, values, flags, letters):
    """Return the options from `start` on as pairs, the position of the first other word, and whether it is certain.

    After an option that is not known, nothing is certain: the next word may be its value.
    """
    found, position = [], start
    while position < len(words):
        word = words[position]
        if word == "--":
            return found, position + 1, True
        if not word.startswith("-") or word == "-":
            break
        position += 1
        name, has_value, value = word[2:].partition("=")
        if not word.startswith("--"):
            name, has_value, value = _cluster(word[1:], values, letters, found)
        if has_value or name in flags:
            found.append((name, value))
        elif name in values and position < len(words):
            found.append((name, words[position]))
            position += 1
        else:
            return found, position, False
    return found, position, True


def _cluster(text, values, letters, found):
    """Return the last option of a word such as -it or -p80:80. The flags before it are added to `found`."""
    for number, letter in enumerate(text, start=1):
        name, rest = letters.get(letter, letter), text[number:]
        is_known = letter in letters
        if rest.startswith("=") or (rest and is_known and name in values):
            return name, "=", rest[rest.startswith("=") :]
        if not rest or not is_known:
            break
        found.append((name, ""))
    return name, "", ""


def verb(words):
    """Return the options of docker itself, and the positions of its command and after `run` or `create`, or None."""
    options, position, is_certain = [], 0, False
    while not is_certain:
        # An option that is not known counts as one without a value.
        more, position, is_certain = scan(words, position, GLOBAL_VALUES, GLOBAL_FLAGS, GLOBAL_LETTERS)
        options += more
    last = position + (words[position : position + 1] == ["container"])
    is_verb = words[last : last + 1] in (["run"], ["create"])
    return options, position, last + 1 if is_verb else None


def parse(words, start):
    """Return the options after the verb, and the position of the image."""
    options, position, is_certain = scan(words, start, VALUES, FLAGS, LETTERS)
    if is_certain:
        return Parsed(options, position if position < len(words) else None)
    # The next word may be the value of the option that is not known, or the image. So all options count that may be
    # options: they can only restrict the GPUs.
    waiting, seen = [position, position + 1], set()
    while waiting:
        place = waiting.pop()
        if place not in seen:
            seen.add(place)
            more, position, is_certain = scan(words, place, VALUES, FLAGS, LETTERS)
            options += more
            waiting += [] if is_certain else [position, position + 1]
    return Parsed(options, None)


def names_gpus(options):
    """Return whether the user already gives GPUs to the container."""
    return any(name == "gpus" or (name == "device" and value.startswith(KIND)) for name, value in options)


def is_remote(host):
    """Return whether an address of docker, such as ssh://gpu1, is on another host."""
    scheme, separator, rest = host.partition("://")
    if not host or scheme in ("unix", "fd", "npipe") or host.startswith("/"):
        return False
    place = (rest if separator else host).rpartition("@")[2].split("/")[0].lower()
    name = place[1:].partition("]")[0] if place.startswith("[") else place.partition(":")[0]
    return name not in ("", "localhost", "::1") and not name.startswith("127.")


# --- the selection of GPUs ---


def selected(options, environment, image_environment, read_file):
    """Return the names of the GPUs that the user wants: ["all"], [] for none, or names.

    nvidia-docker 2 gave them with NVIDIA_VISIBLE_DEVICES, which options and images can also set.
    """
    wanted = None
    for path in (value for name, value in options if name == "env-file"):
        wanted = _assigned(read_file(path).splitlines(), environment, wanted)
    wanted = _assigned([value for name, value in options if name == "env"], environment, wanted)
    if wanted is None:
        wanted = environment.get("NV_GPU", "").strip(", \t\n") or image_environment.get(VARIABLE, "all")
    names = [name for name in re.split(r"[,\s]+", wanted) if name]
    if not names or (len(names) == 1 and names[0] in NO_GPUS):
        return []
    return ["all"] if "all" in names else list(dict.fromkeys(names))


def _assigned(lines, environment, before):
    for line in lines:
        name, has_value, value = line.strip().partition("=")
        if name == VARIABLE:
            before = value if has_value else environment.get(VARIABLE, before)
    return before


def resolve(names, inventory):
    """Return the GPUs and MIG devices with these names, in the order of the names. A GPU in MIG mode: its devices."""
    found = []
    for name in names:
        gpus = [gpu for gpu in inventory.gpus if name == "all" and not gpu.parent] or _named(name, inventory.gpus)
        if not gpus:
            raise WrapperError(f"invalid device: {shown(name)}. This host has {_listed(inventory.gpus)}.")
        if name != "all" and len(gpus) > 1:
            raise WrapperError(f"invalid device: {shown(name)}. It is the start of several names: {_listed(gpus)}.")
        for gpu in gpus:
            parts = [part for part in inventory.gpus if part.parent == gpu.uuid] if gpu.has_mig else [gpu]
            if not parts and name != "all":
                raise WrapperError(f"invalid device: {shown(name)}. It is in MIG mode and has no MIG devices.")
            found += parts
    return list(dict.fromkeys(found))


def shown(name):
    """Return a name without characters that control the terminal. It may come from an image."""
    return name if name.isprintable() else ascii(name)


def _named(name, gpus):
    lower, address = name.lower(), _pci(name)
    exact = [gpu for gpu in gpus if lower in (gpu.uuid.lower(), gpu.name) or (address and address == _pci(gpu.pci))]
    if exact or not lower.startswith(("gpu-", "mig-")):
        return exact
    return [gpu for gpu in gpus if gpu.uuid.lower().startswith(lower)]


def _pci(text):
    match = _PCI.fullmatch(text or "")
    return match and tuple(int(part or "0", 16) for part in match.groups())


def _listed(gpus):
    return ", ".join(f"{gpu.name} {gpu.uuid}{f' {gpu.pci}' if gpu.pci else ''}" for gpu in gpus) or "no usable GPU"


# --- the access to GPUs ---


def access(names, host, image_environment):
    """Return the options of docker that give these GPUs to a container.

    `names` comes from `selected`. `image_environment`: that of the image, None if the image is not known.
    """
    if host.inventory is None or not host.engine.is_local:
        unclear = [name for name in names if not _PLAIN_NAME.fullmatch(name)]
        if unclear:
            raise WrapperError(f"invalid device: {shown(unclear[0])}. Use an index, a UUID or a PCI address.")
        gpus = [Gpu(name, name, None, None, False, None) for name in names]
    else:
        gpus = resolve(names, host.inventory)
    by_cdi = _by_cdi(names, gpus, host.engine.cdi)
    if not host.engine.is_local or host.has_hook:
        return _by_request(names, gpus)
    return by_cdi or _by_volume(gpus, host, image_environment) or _by_request(names, gpus)


def _by_request(names, gpus):
    # Docker reads the value as CSV, so the quotes are part of it.
    return ["--gpus", "all"] if names == ["all"] else ["--gpus", f'"device={",".join(gpu.uuid for gpu in gpus)}"']


def _by_cdi(names, gpus, known):
    if names == ["all"] and "all" in known:
        wanted = ["all"]
    else:
        wanted = [next((name for name in (gpu.uuid, gpu.name) if name in known), None) for gpu in gpus]
    if not wanted or None in wanted:
        return []
    return [*(f"--device={KIND}={name}" for name in wanted), f"--env={VARIABLE}=void"]


def _by_volume(gpus, host, image_environment):
    if not host.volume or not gpus or any(gpu.minor is None or gpu.parent for gpu in gpus):
        return []
    variables = []
    if image_environment is not None:
        for name, parts in (("LD_LIBRARY_PATH", ("lib64", "lib")), ("PATH", ("bin",))):
            present = image_environment.get(name, "")
            if MOUNT_POINT not in present:
                ours = [f"{MOUNT_POINT}/{part}" for part in parts]
                default = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" if name == "PATH" else ""
                variables.append(f"--env={name}={':'.join([*ours, *filter(None, [present or default])])}")
    nodes = [*host.nodes, *(f"/dev/nvidia{gpu.minor}" for gpu in gpus)]
    return [
        *(f"--device={node}" for node in nodes),
        f"--volume={host.volume}:{MOUNT_POINT}:ro",
        *variables,
        f"--env={VARIABLE}=void",
    ]


# --- the labels of images ---


def cuda_problem(labels, driver):
    """Return why an image for nvidia-docker 1.0 cannot run with the CUDA version of the driver, or None."""
    required = re.match(r"(\d+)\.(\d+)", labels.get(CUDA) or "")
    if not labels.get(NEEDED) or not required or not driver:
        return None
    image = tuple(map(int, required.groups()))
    if image <= driver:
        return None
    return f"unsupported CUDA version: driver {driver[0]}.{driver[1]} < image {image[0]}.{image[1]}"


def no_remote(address):
    """Return the answer to NV_HOST."""
    match = re.fullmatch(r"(?:\w+://)?(?:([\w.-]+)@)?([\w.-]+|\[[\w:]+\])(?::\d+)*/?", address, re.ASCII)
    place = "HOST" if not match else f"{match[1] or ''}{'@' if match[1] else ''}{match[2]}"
    return (
        "NV_HOST is set, but this wrapper asks no plugin on another host for its GPUs. Unset NV_HOST. To start a "
        f"container on that host, run 'ssh {place} nvidia-docker run ...' or 'DOCKER_HOST=ssh://{place} nvidia-docker "
        "run ...', or use module gpufleet.hosts.gpu_container of Ansible."
    )


# --- the host and docker ---


def read_engine(info, hostname, address):
    """Return the engine that `docker info` describes. `address`: that of the engine, if the user gave one."""
    version = tuple(map(int, re.findall(r"\d+", str(info.get("ServerVersion") or ""))[:2]))
    is_local = not is_remote(address) and info.get("Name") in (None, hostname)
    is_rootless = "name=rootless" in [str(option) for option in info.get("SecurityOptions") or []]
    devices = [str(device.get("ID")) for device in info.get("DiscoveredDevices") or [] if isinstance(device, dict)]
    known = {name[len(KIND) + 1 :] for name in devices if name.startswith(f"{KIND}=")}
    for directory in info.get("CDISpecDirs") or [] if is_local else []:
        known |= read_specifications(str(directory))
    return Engine(version, frozenset(known), is_local, is_rootless)


def hook_accepts(config, *, is_rootless):
    """Return whether NVIDIA's hook with this config.toml gives GPUs to the containers of --gpus."""
    refuses = (_MODE.search(config) and not _SKIPS_MODE.search(config)) or _IGNORES_REQUESTS.search(config)
    # A rootless engine must not change device cgroups. Without that, containers of other engines cannot open a GPU.
    return not refuses and bool(_NO_CGROUPS.search(config)) == is_rootless


def read_specifications(directory):
    """Return the names of the CDI devices of kind nvidia.com/gpu in a directory. Python cannot read YAML."""
    found = set()
    try:
        names = os.listdir(directory)
    except OSError:
        return found
    for name in names:
        if name.endswith((".json", ".yaml", ".yml")):
            text = read_file(os.path.join(directory, name))
            found |= set(_SPEC_NAME.findall(text)) if _has_kind(text) else set()
    return found


def _has_kind(text):
    try:
        return json.loads(text).get("kind") == KIND
    except (ValueError, AttributeError):
        return bool(_SPEC_KIND.search(text))


def read_file(path):
    """Return the text of a file, without bytes that are no UTF-8. Empty: it cannot be read.

    A pipe, such as --env-file <(command) has, can be read only once, and docker reads it.
    """
    if not os.path.isfile(path):
        return ""
    try:
        with open(path, encoding="utf-8", errors="ignore") as file:
            return file.read(LARGEST_SPECIFICATION)
    except OSError:
        return ""


class WrapperNvml:
    """NVIDIA's library that knows the GPUs."""

    def __init__(self):
        self._library = None
        for name in NVML:
            try:
                self._library = ctypes.CDLL(name)
                break
            except OSError:
                continue

    def inventory(self):
        """Return the GPUs, or None if the library does not answer."""
        if self._library is None or not self._call("nvmlInit_v2"):
            return None
        version, cuda, count = ctypes.create_string_buffer(96), ctypes.c_int(), ctypes.c_uint()
        self._call("nvmlSystemGetDriverVersion", version, 96)
        for name in ("nvmlSystemGetCudaDriverVersion_v2", "nvmlSystemGetCudaDriverVersion"):
            if self._call(name, ctypes.byref(cuda)):
                break
        self._call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        # A GPU that has no UUID cannot be named.
        gpus = [gpu for index in range(count.value) for gpu in self._gpu(index) if gpu.uuid]
        self._call("nvmlShutdown")
        supported = (cuda.value // 1000, cuda.value % 1000 // 10) if cuda.value else None
        return Inventory(version.value.decode(errors="replace"), supported, gpus)

    def _call(self, name, *arguments):
        """Return whether a function exists in this version of the library and succeeds."""
        function = getattr(self._library, name, None)
        return function is not None and function(*arguments) == 0

    def _gpu(self, index):
        handle, minor, mode, most = ctypes.c_void_p(), ctypes.c_uint(), ctypes.c_uint(), ctypes.c_uint()
        if not self._call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle)):
            return
        uuid, has_minor = self._uuid(handle), self._call("nvmlDeviceGetMinorNumber", handle, ctypes.byref(minor))
        # nvmlPciInfo_t: the address is the last of its fields.
        pci = ctypes.create_string_buffer(68)
        address = pci.raw[36:68].split(b"\0")[0].decode() if self._call("nvmlDeviceGetPciInfo_v3", handle, pci) else ""
        pending = ctypes.c_uint()
        has_mig = self._call("nvmlDeviceGetMigMode", handle, ctypes.byref(mode), ctypes.byref(pending)) and mode.value
        yield Gpu(uuid, str(index), address, minor.value if has_minor else None, bool(has_mig), None)
        if has_mig and self._call("nvmlDeviceGetMaxMigDeviceCount", handle, ctypes.byref(most)):
            for number in range(most.value):
                part = ctypes.c_void_p()
                number_value = ctypes.c_uint(number)
                if self._call("nvmlDeviceGetMigDeviceHandleByIndex", handle, number_value, ctypes.byref(part)):
                    yield Gpu(self._uuid(part), f"{index}:{number}", None, None, False, uuid)

    def _uuid(self, handle):
        text = ctypes.create_string_buffer(96)
        return text.value.decode(errors="replace") if self._call("nvmlDeviceGetUUID", handle, text, 96) else ""


def ask(command, *, shows_progress=False):
    """Return the output of docker, or None if it fails. Its progress goes to standard error, as that of `run` does."""
    output = sys.stderr if shows_progress else subprocess.PIPE
    errors = None if shows_progress else subprocess.DEVNULL
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, check=False)
    except OSError:
        return None
    return None if done.returncode else (done.stdout or b"").decode(errors="replace")


def read_image(docker, options, image):
    """Return the configuration of an image, after it is pulled if docker would do so. Empty if docker fails."""
    inspect, given = [*docker, "image", "inspect", "--", image], dict(options)
    text = None if given.get("pull") == "always" else ask(inspect)
    if text is None and given.get("pull") != "never":
        more = [f"--platform={given['platform']}"] if given.get("platform") else []
        more += ["--quiet"] if "quiet" in given else []
        is_pulled = ask([*docker, "pull", *more, "--", image], shows_progress=True) is not None
        text = ask(inspect) if is_pulled else None
    try:
        return json.loads(text or "[]")[0].get("Config") or {}
    except (ValueError, LookupError, AttributeError):
        return {}


def observe(docker, options, environment):
    """Return what the host and the engine of docker have."""
    address = next((value for name, value in reversed(options) if name == "host"), environment.get("DOCKER_HOST", ""))
    # Ansible would take these braces in the text of this program for a template.
    braces = "{}" * 2
    text = ask([*docker, "info", "--format", f"{braces[::2]}json .{braces[1::2]}"])
    try:
        info = json.loads(text or "{}")
    except ValueError:
        info = {}
    engine = read_engine(info if isinstance(info, dict) else {}, os.uname().nodename, address)
    if not engine.is_local:
        return Host(engine, None, False, None, ())
    inventory, config = WrapperNvml().inventory(), read_file(TOOLKIT_CONFIG)
    has_hook = any(os.access(os.path.join(place, HOOK), os.X_OK) for place in HOOK_DIRECTORIES)
    has_hook = has_hook and hook_accepts(config, is_rootless=engine.is_rootless)
    path = os.path.join(VOLUMES, inventory.driver) if inventory and inventory.driver else ""
    nodes = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
    # Only root may have written what a container gets as its driver.
    is_own = os.path.isdir(path) and os.stat(path).st_uid == 0
    return Host(engine, inventory, has_hook, path if is_own else None, tuple(filter(os.path.exists, nodes)))


def with_gpus(docker, words, environment):
    """Return the arguments of docker, with the GPUs directly after the verb."""
    given, command, after = verb(words)
    if after is None:
        return words
    parsed = parse(words, after)
    if {("help", ""), ("version", "")} & {*given, *parsed.options} or names_gpus(parsed.options):
        return words
    if environment.get("NV_HOST"):
        raise WrapperError(no_remote(environment["NV_HOST"]))
    # The options of docker itself select the engine.
    base = [*docker, *words[:command]]
    host, image = observe(base, given, environment), {}
    if parsed.image is not None and host.engine.is_local and host.engine.version:
        image = read_image(base, parsed.options, words[parsed.image])
        problem = cuda_problem(image.get("Labels") or {}, host.inventory.cuda if host.inventory else None)
        if problem:
            raise WrapperError(f"{problem}. Upgrade the driver, or use an image for an older CUDA version.")
    variables = dict(item.partition("=")[::2] for item in image.get("Env") or [])
    names = selected(parsed.options, environment, variables, read_file)
    options = access(names, host, variables if image else None) if names else []
    return [*words[:after], *options, *words[after:]]


def inherited():
    """Return the variables of the user. In the C locale, Python changes LC_CTYPE for its own children."""
    with open("/proc/self/environ", "rb") as file:
        return dict(item.partition(b"=")[::2] for item in file.read().split(b"\0") if b"=" in item)


def main():
    """Replace this process with docker, so that signals and the exit status are docker's."""
    # Python ignores the first two, and docker would inherit that. NVML may hang, so the user must be able to end it.
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
        if number != signal.SIGINT or signal.getsignal(number) is signal.default_int_handler:
            signal.signal(number, signal.SIG_DFL)
    docker = os.environ.get("NV_DOCKER", "").split() or ["docker"]
    try:
        if os.path.realpath(shutil.which(docker[0]) or "") == os.path.realpath(__file__):
            raise WrapperError(f"{docker[0]} is this program itself. Set NV_DOCKER to the path of Docker's program.")
        words = with_gpus(docker, sys.argv[1:], os.environ)
    except WrapperError as error:
        # The format of nvidia-docker 1.0.
        moment = time.strftime("%Y/%m/%d %H:%M:%S")
        sys.stderr.write(f"{sys.argv[0]} | {moment} Error: {error}\n")
        raise SystemExit(1) from None
    try:
        os.execvpe(docker[0], [*docker, *words], inherited())
    except OSError as error:
        sys.stderr.write(f"{sys.argv[0]}: {docker[0]}: {error.strerror}. Install Docker, or set NV_DOCKER.\n")
        raise SystemExit(126 if isinstance(error, PermissionError) else 127) from None


if __name__ == "__main__":
    main()
