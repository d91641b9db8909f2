# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measure PyTorch on all visible GPUs, on the host and in a container. Prints JSON.

The program requires only PyTorch. The processes of the all-reduce are forks, because in a container the interpreter of
the host cannot be started by its usual path.
"""

import json
import multiprocessing
import os
import sys
import tempfile
import time

import torch
import torch.distributed

SIZE = 8192
CALLS = 30
ROUNDS = 5
ELEMENTS = 1 << 28
LIBRARIES = ("libcuda.so", "libnvidia-ml.so")


def gemm(index):
    """Return the TFLOP/s of a matrix product, the best of some rounds, and check one element."""
    device = torch.device("cuda", index)
    left = torch.full((SIZE, SIZE), 0.5, dtype=torch.float16, device=device)
    right = torch.full((SIZE, SIZE), 2.0, dtype=torch.float16, device=device)
    product = left @ right
    if float(product[1, 1]) != float(SIZE):
        raise RuntimeError(f"GPU {index}: the matrix product is wrong: {float(product[1, 1])}")
    best = 0.0
    for _round in range(ROUNDS):
        torch.cuda.synchronize(device)
        started = time.perf_counter()
        for _call in range(CALLS):
            torch.matmul(left, right, out=product)
        torch.cuda.synchronize(device)
        best = max(best, 2 * SIZE**3 * CALLS / (time.perf_counter() - started) / 1e12)
    return round(best, 1)


def reduce_on(rank, count, store, pipe):
    """Run one process of the all-reduce. The first process sends the bus bandwidth in GB/s."""
    torch.cuda.set_device(rank)
    torch.distributed.init_process_group("nccl", init_method=f"file://{store}", rank=rank, world_size=count)
    data = torch.ones(ELEMENTS, dtype=torch.float32, device=f"cuda:{rank}")
    torch.distributed.all_reduce(data)
    if float(data[7]) != float(count):
        raise RuntimeError(f"process {rank}: the sum is {float(data[7])}, expected {count}")
    best = 0.0
    for _round in range(ROUNDS):
        data.fill_(0)
        torch.distributed.barrier()
        torch.cuda.synchronize()
        started = time.perf_counter()
        for _call in range(5):
            torch.distributed.all_reduce(data)
        torch.cuda.synchronize()
        moved = 4 * ELEMENTS * 2 * (count - 1) / count * 5
        best = max(best, moved / (time.perf_counter() - started) / 1e9)
    if rank == 0:
        pipe.send(round(best, 1))
    torch.distributed.destroy_process_group()


def all_reduce(count):
    """Return the bus bandwidth of an all-reduce over `count` GPUs, with one process per GPU."""
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    # Multicast over NVLink needs a fabric manager that knows the container's GPUs.
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    with tempfile.TemporaryDirectory() as directory:
        store = os.path.join(directory, "store")
        processes = [context.Process(target=reduce_on, args=(rank, count, store, sender)) for rank in range(count)]
        for process in processes:
            process.start()
        sender.close()
        for process in processes:
            process.join(120)
        failed = [str(rank) for rank, process in enumerate(processes) if process.exitcode != 0]
        for process in processes:
            if process.is_alive():
                process.kill()
        if failed:
            raise RuntimeError(f"the all-reduce failed in the processes {', '.join(failed)}")
        return receiver.recv()


def loaded():
    """Return the paths of the driver's libraries that this process has loaded."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        paths = {line.split(maxsplit=5)[5].strip() for line in maps if len(line.split(maxsplit=5)) == 6}
    return sorted(path for path in paths if os.path.basename(path).startswith(LIBRARIES))


def main():
    count = int(sys.argv[1])
    # Before this process initializes CUDA, because a fork cannot use CUDA afterwards.
    bandwidth = all_reduce(count) if count > 1 and torch.distributed.is_nccl_available() else None
    found = torch.cuda.device_count()
    if found != count:
        raise RuntimeError(f"PyTorch shows {found} GPUs, expected {count}")
    tflops = [gemm(index) for index in range(count)]
    json.dump({"torch": torch.__version__, "tflops": tflops, "all_reduce": bandwidth, "loaded": loaded()}, sys.stdout)


if __name__ == "__main__":
    main()
