"""The plan of NVIDIA's driver: source, version, packages, modules, reboot.

Drivers of other vendors are in `vendor_driver` and `gaudi`.
"""
