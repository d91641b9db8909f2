"""The container that exists before a run: its GPUs, labels and mounts, and whether it is recreated.

What it is assigned is in the package above.
"""
