"""What the observation reads of hosts with accelerators of AMD, Gaudi and Neuron. NVIDIA's are in the package above."""
