"""The runtimes of NVIDIA and Gaudi in containerd and CRI-O. Docker's is in `toolkit/docker_runtime.py`."""
