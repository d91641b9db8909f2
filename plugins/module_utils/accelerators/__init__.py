"""The facts of accelerators of all vendors, from the kernel's files.

NVML's figures of NVIDIA's GPUs are in `nvml` and `facts`.
"""
