"""Role neuron_driver: packages, repository, the OCI hook.

Containers are in `container/neuron`, facts in `accelerators`.
"""
