# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure a matrix product and its sum, on the CPU and on GPUs. Runs in a container and on a host, without Ansible.

`python3 - REQUEST < measuring_program.py` prints one JSON document. REQUEST is a JSON object, see DEFAULTS. The program
uses the first framework that it can import. It imports the standard library only.

A child process measures. If a framework hangs or crashes, the document has everything that was measured before.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import json
import os
import select
import signal
import sys
import time

DEFAULTS = {
    "sizes": [1024],
    "dtypes": ["float32"],
    "warmup": 2,
    "repetitions": 5,
    "time_limit": 300,  # seconds
    "tf32": False,
    "gpus": [],  # UUIDs
    "framework": None,  # the only one to use, None for the first that can be imported
}
# The sum of the product may differ by this part, because half precision rounds.
TOLERANCE = 0.01
# Pure Python needs about a second for this size, and the third power of that for larger ones.
LARGEST_IN_PYTHON = 256


class BenchmarkNotMeasuredError(Exception):
    """A measurement is not possible, with the reason."""


def cpus() -> int:
    """Return how many CPUs this process may use."""
    return len(os.sched_getaffinity(0))


class _Torch:
    """PyTorch."""

    name = "torch"

    def __init__(self, settings):
        self.torch = importlib.import_module("torch")
        self.version, self.cuda = self.torch.__version__, self.torch.version.cuda
        self.torch.backends.cuda.matmul.allow_tf32 = settings["tf32"]

    def threads(self):
        return self.torch.get_num_threads()

    def gpus(self):
        return self.torch.cuda.device_count() if self.torch.cuda.is_available() else 0

    def prepare(self, gpu, size, dtype):
        torch = self.torch
        device = torch.device("cpu") if gpu is None else torch.device("cuda", gpu)
        kind, total = getattr(torch, dtype), torch.float64 if dtype == "float64" else torch.float32
        # Random numbers, because a GPU needs less power for equal ones and then clocks higher.
        left, right = (torch.rand(size, size, device=device).to(kind) for _matrix in range(2))
        expected = float(left.sum(0, dtype=torch.float64).cpu() @ right.sum(1, dtype=torch.float64).cpu())
        return (lambda: (left @ right).sum(dtype=total)), float, expected


class _TensorFlow:
    """TensorFlow."""

    name = "tensorflow"

    def __init__(self, settings):
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
        self.tf = importlib.import_module("tensorflow")
        self.version = self.tf.__version__
        self.cuda = self.tf.sysconfig.get_build_info().get("cuda_version")
        self.tf.config.experimental.enable_tensor_float_32_execution(settings["tf32"])
        for gpu in self.tf.config.list_physical_devices("GPU"):
            self.tf.config.experimental.set_memory_growth(gpu, True)

    def threads(self):
        return self.tf.config.threading.get_intra_op_parallelism_threads() or cpus()

    def gpus(self):
        return len(self.tf.config.list_physical_devices("GPU"))

    def prepare(self, gpu, size, dtype):
        tf = self.tf
        place = "/CPU:0" if gpu is None else f"/GPU:{gpu}"
        total = tf.float64 if dtype == "float64" else tf.float32
        with tf.device(place):
            left, right = (
                tf.cast(tf.random.stateless_uniform((size, size), seed=(1, seed)), dtype) for seed in range(2)
            )
            columns = tf.reduce_sum(tf.cast(left, tf.float64), 0).numpy()
            rows = tf.reduce_sum(tf.cast(right, tf.float64), 1).numpy()

        def start():
            with tf.device(place):
                return tf.reduce_sum(tf.cast(tf.linalg.matmul(left, right), total))

        return start, (lambda handle: float(handle.numpy())), float(columns @ rows)


class _NumPy:
    """NumPy, which has no GPUs."""

    name = "numpy"
    cuda = None

    def __init__(self, settings):
        self.numpy = importlib.import_module("numpy")
        self.version = self.numpy.__version__

    def threads(self):
        text = os.environ.get("OMP_NUM_THREADS", "")
        return int(text) if text.isdigit() else cpus()

    def gpus(self):
        return 0

    def prepare(self, gpu, size, dtype):
        if dtype not in ("float32", "float64"):
            raise BenchmarkNotMeasuredError(f"NumPy cannot multiply matrices of {dtype} with BLAS")
        return self._product(self.numpy, size, dtype)

    def _product(self, library, size, dtype):
        left, right = (library.random.rand(size, size).astype(dtype) for _matrix in range(2))
        expected = float(left.sum(0, dtype="float64") @ right.sum(1, dtype="float64"))
        total = "float64" if dtype == "float64" else "float32"
        return (lambda: (left @ right).sum(dtype=total)), float, expected


class _CuPy(_NumPy):
    """CuPy for GPUs, NumPy for the CPU."""

    name = "cupy"

    def __init__(self, settings):
        os.environ["CUPY_TF32"] = str(int(settings["tf32"]))
        self.cupy = importlib.import_module("cupy")
        super().__init__(settings)
        self.version = f"{self.cupy.__version__}, NumPy {self.version}"
        number = self.cupy.cuda.runtime.runtimeGetVersion()
        self.cuda = f"{number // 1000}.{number % 1000 // 10}"

    def gpus(self):
        return self.cupy.cuda.runtime.getDeviceCount()

    def prepare(self, gpu, size, dtype):
        if gpu is None:
            return super().prepare(gpu, size, dtype)
        if dtype == "bfloat16":
            raise BenchmarkNotMeasuredError("CuPy has no type bfloat16")
        with self.cupy.cuda.Device(gpu):
            start, finish, expected = self._product(self.cupy, size, dtype)

        def on_gpu(function):
            def call(*arguments):
                with self.cupy.cuda.Device(gpu):
                    return function(*arguments)

            return call

        return on_gpu(start), on_gpu(finish), expected


class _Python:
    """Python alone: slow, but it shows that the benchmark works."""

    name = "python"
    version = sys.version.split()[0]
    cuda = None

    def __init__(self, settings):
        del settings

    def threads(self):
        return 1

    def gpus(self):
        return 0

    def prepare(self, gpu, size, dtype):
        if dtype != "float64":
            raise BenchmarkNotMeasuredError(f"Python without NumPy has no type {dtype}, only float64")
        if size > LARGEST_IN_PYTHON:
            raise BenchmarkNotMeasuredError(f"Python without NumPy is too slow for sizes above {LARGEST_IN_PYTHON}")
        left = [[(row * 7 + column) % 11 / 8 for column in range(size)] for row in range(size)]
        right = [[(row * 5 + column) % 13 / 8 for column in range(size)] for row in range(size)]
        expected = sum(sum(row[k] for row in left) * sum(right[k]) for k in range(size))
        columns = list(zip(*right))

        def start():
            return sum(sum(x * y for x, y in zip(row, column)) for row in left for column in columns)

        return start, float, expected


FRAMEWORKS = (_Torch, _TensorFlow, _CuPy, _NumPy, _Python)


def find_framework(settings):
    """Return the first framework that can be imported, and why others cannot although they are installed."""
    problems = []
    for kind in FRAMEWORKS:
        if settings["framework"] not in (None, kind.name):
            continue
        try:
            return kind(settings), problems
        except ModuleNotFoundError as error:
            if error.name != kind.name:
                problems.append(f"{kind.name} cannot be imported: {error}")
        except Exception as error:  # whatever a broken installation raises
            problems.append(f"{kind.name} cannot be imported: {type(error).__name__}: {error}")
    return None, problems


def for_python_alone(settings):
    """Return settings that Python alone can measure, if it is the only framework."""
    names = [kind.name for kind in FRAMEWORKS if kind is not _Python]
    if settings["framework"] not in (None, "python"):
        return settings
    if settings["framework"] is None and any(importlib.util.find_spec(name) for name in names):
        return settings
    sizes = sorted({min(size, LARGEST_IN_PYTHON) for size in settings["sizes"]})
    return {**settings, "sizes": sizes, "dtypes": ["float64"]}


class _Nvml:
    """Values of GPUs while they compute, or nothing if the library is missing."""

    VALUES = (
        ("temperature_c", "nvmlDeviceGetTemperature", (ctypes.c_uint(0),), 1),
        ("sm_clock_mhz", "nvmlDeviceGetClockInfo", (ctypes.c_uint(1),), 1),
        ("power_w", "nvmlDeviceGetPowerUsage", (), 1000),
        ("power_limit_w", "nvmlDeviceGetEnforcedPowerLimit", (), 1000),
        ("pcie_width", "nvmlDeviceGetCurrPcieLinkWidth", (), 1),
    )

    def __init__(self):
        try:
            self.library = ctypes.CDLL("libnvidia-ml.so.1")
            if self.library.nvmlInit_v2():
                self.library = None
        except (OSError, AttributeError):
            self.library = None

    def read(self, uuid):
        handle, found = ctypes.c_void_p(), {}
        if self.library is None:
            return found
        if self.library.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(handle)):
            return found
        for name, function, arguments, unit in self.VALUES:
            value = ctypes.c_uint()
            if getattr(self.library, function)(handle, *arguments, ctypes.byref(value)) == 0:
                found[name] = value.value / unit if unit != 1 else value.value
        return found


def plan(settings):
    """Return what to measure. GPUs come first, because a slow CPU can use up the time."""
    every = list(range(len(settings["gpus"])))
    devices = [[gpu] for gpu in every] + ([every] if len(every) > 1 else []) + [[]]
    shapes = [(size, dtype) for size in sorted(settings["sizes"]) for dtype in settings["dtypes"]]
    return [{"gpus": gpus, "size": size, "dtype": dtype} for gpus in devices for size, dtype in shapes]


def measure(framework, settings, wanted, nvml):
    """Return the durations of one measurement in seconds. On several GPUs, all of them start at the same time."""
    places = wanted["gpus"] or [None]
    prepared = [framework.prepare(place, wanted["size"], wanted["dtype"]) for place in places]

    def once():
        return [finish(handle) for (_s, finish, _e), handle in zip(prepared, [start() for start, _f, _e in prepared])]

    for _count in range(settings["warmup"]):
        once()
    seconds, sums = [], []
    for _count in range(settings["repetitions"]):
        started = time.perf_counter()
        sums = once()
        seconds.append(time.perf_counter() - started)
    for (_start, _finish, expected), actual in zip(prepared, sums):
        if not abs(actual - expected) <= TOLERANCE * abs(expected):
            raise BenchmarkNotMeasuredError(f"the sum of the product is {actual:g} instead of {expected:g}")
    readings = []
    if wanted["gpus"]:
        handles = [start() for start, _finish, _expected in prepared]
        readings = [nvml.read(settings["gpus"][gpu]) for gpu in wanted["gpus"]]
        for (_start, finish, _expected), handle in zip(prepared, handles):
            finish(handle)
    return {"seconds": seconds, "readings": readings}


def about(framework, problems):
    """Return the versions, the threads and the CPU."""
    model = None
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as stream:
            model = next((line.partition(":")[2].strip() for line in stream if line.startswith("model name")), None)
    except OSError:
        pass
    return {
        "framework": framework and framework.name,
        "framework_version": framework and str(framework.version),
        "cuda": framework and framework.cuda,
        "python": sys.version.split()[0],
        "threads": framework and framework.threads(),
        "cpus": cpus(),
        "cpu": model,
        "problems": problems,
    }


def work(settings, todo, send):
    """Measure in the child process. `todo` has the numbers of the measurements in the plan."""
    framework, problems = find_framework(settings)
    send({"about": about(framework, problems)})
    if framework is None:
        return
    nvml, steps = _Nvml(), plan(settings)
    try:
        found = framework.gpus() if settings["gpus"] else 0
        reason = f"{framework.name} {framework.version} shows {found} GPUs, expected {len(settings['gpus'])}"
        if framework.name in ("numpy", "python"):
            reason = f"{framework.name} cannot use GPUs. Use PyTorch, TensorFlow or CuPy."
    except Exception as error:
        found, reason = 0, f"{framework.name} cannot use GPUs: {error}"
    if settings["gpus"] and found != len(settings["gpus"]):
        send({"gpu_reason": reason})
    for number in todo:
        if steps[number]["gpus"] and found != len(settings["gpus"]):
            continue
        send({"started": number})
        try:
            result = measure(framework, settings, steps[number], nvml)
        except Exception as error:  # Each framework has exceptions of its own, for example without memory.
            kind = "" if isinstance(error, BenchmarkNotMeasuredError) else f"{type(error).__name__}: "
            result = {"error": f"{kind}{error}".strip()[:500]}
        send({"done": number, "result": result})
    send({"end": True})


def wait(pid):
    """Return the status of a process that ends. A system call that hangs can delay even SIGKILL."""
    for _count in range(500):
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status
        time.sleep(0.01)
    return 0


def run_child(settings, todo, deadline):
    """Run `work` in a child process until the deadline. Return its messages, and why it did not end by itself."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(read_end)
            os.dup2(2, 1)  # Standard output is for the document only.
            with os.fdopen(write_end, "w", encoding="utf-8") as stream:
                work(settings, todo, lambda message: _send(message, stream))
            status = 0
        except BaseException as error:
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
        finally:
            os._exit(status)
    os.close(write_end)
    data, failure = b"", None
    while True:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([read_end], [], [], left)[0]:
            os.kill(pid, signal.SIGKILL)
            failure = f"the time limit of {settings['time_limit']} s"
            break
        block = os.read(read_end, 65536)
        if not block:
            break
        data += block
    os.close(read_end)
    status = wait(pid)
    if failure is None and os.WIFSIGNALED(status):
        failure = signal.Signals(os.WTERMSIG(status)).name
    elif failure is None and status:
        failure = f"exit status {os.WEXITSTATUS(status)}"
    return [json.loads(line) for line in data.decode().splitlines() if line.endswith("}")], failure


def benchmark(settings):
    """Measure everything, and return the document."""
    asked, settings = settings, for_python_alone(settings)
    started = time.monotonic()
    deadline = started + settings["time_limit"]
    steps = plan(settings)
    todo, results = list(range(len(steps))), {}
    document = {**about(None, []), "gpu_reason": None}
    while todo:
        messages, failure = run_child(settings, todo, deadline)
        for message in messages:
            document.update(message.get("about", {}))
            document["gpu_reason"] = message.get("gpu_reason", document["gpu_reason"])
            if "done" in message:
                results[message["done"]] = message["result"]
        running = [message["started"] for message in messages if "started" in message]
        if failure is None or not running or time.monotonic() >= deadline:
            break
        # The process died during this measurement. A new process continues with the next device.
        results.setdefault(running[-1], {"error": f"the process ended with {failure}"})
        todo = [
            number for number in todo if number not in results and steps[number]["gpus"] != steps[running[-1]]["gpus"]
        ]
    document["time_limit_reached"] = time.monotonic() >= deadline
    reason = f"not finished within {settings['time_limit']} s" if document["time_limit_reached"] else "not measured"
    if failure and not messages:
        document["problems"] = [f"the framework ended the process with {failure}"]
    document["measurements"] = [
        {
            "device": "gpu" if step["gpus"] else "cpu",
            "gpus": [settings["gpus"][gpu] for gpu in step["gpus"]],
            "size": step["size"],
            "dtype": step["dtype"],
            "tf32": settings["tf32"] if step["gpus"] and step["dtype"] == "float32" else None,
            **results.get(number, {"error": reason}),
        }
        for number, step in enumerate(steps)
        if document["framework"] and (number in results or not (step["gpus"] and document["gpu_reason"]))
    ]
    if settings is not asked and asked["framework"] is None:
        document["problems"].append(
            f"there is no framework, so Python alone measured float64 up to size {LARGEST_IN_PYTHON}. "
            "Set benchmark_image to an image with PyTorch, TensorFlow or CuPy."
        )
    document["elapsed_s"] = round(time.monotonic() - started, 1)
    return document


def _send(message, stream):
    """Write a document as a line of JSON."""
    stream.write(json.dumps(message) + "\n")
    stream.flush()


def main(arguments):
    """Measure as requested, and print the document."""
    settings = {**DEFAULTS, **json.loads(arguments[0] if arguments else "{}")}
    # Number the GPUs of CUDA like `gpus`, and leave no compiled kernels in the home directory.
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    os.environ["CUDA_CACHE_DISABLE"] = "1"
    os.environ["CUPY_CACHE_IN_MEMORY"] = "1"
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(settings["gpus"])
    _send(benchmark(settings), sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1:])
