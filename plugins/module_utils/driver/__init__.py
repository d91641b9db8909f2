"""The plan of NVIDIA's driver: source, version, packages, modules, reboot.

Drivers of other vendors are in `amd_driver`, `gaudi_driver` and `neuron_driver`.
"""
