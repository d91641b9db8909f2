"""What the PCI bus and the device nodes show, and tables of devices. It asks no driver and no library of a vendor."""
