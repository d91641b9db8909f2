"""Role amd_driver: the kernel's driver, firmware.

Containers are in `container/amd`, facts in `accelerators`.
"""
