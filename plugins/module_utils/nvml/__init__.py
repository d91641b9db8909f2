"""Values that NVML reports, with its timeouts and crashes. Facts for the user are in `facts`."""
