"""Role cuda_toolkit and the CUDA probe. The driver, which brings libcuda, is in `driver`."""
