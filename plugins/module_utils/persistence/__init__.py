"""Role nvidia_persistenced: the persistence daemon. Reading the mode of a GPU is in `nvml`."""
