"""The program and the results of module nvidia_gpu_facts. The single values are in `nvml`."""
