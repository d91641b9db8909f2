"""What the drivers of AMD, Gaudi and Neuron have in common: users, CDI units, checks.

What one of them has alone is in `amd_driver`, `gaudi_driver` or `neuron_driver`.
"""
