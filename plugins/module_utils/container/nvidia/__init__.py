"""What gpu_container does for NVIDIA's GPUs. What is true for every vendor is in the package above."""
