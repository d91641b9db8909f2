"""The CDI specification of NVIDIA's driver. What is true for every vendor is in the package above."""
