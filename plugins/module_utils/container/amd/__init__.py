"""What gpu_container does for AMD's GPUs. What is true for every vendor is in the package above."""
