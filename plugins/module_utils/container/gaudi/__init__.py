"""What gpu_container does for Gaudi's accelerators. What is true for every vendor is in the package above."""
