"""Playbook `benchmark`, which measures GPUs. `make bench`, which measures this collection, is in tests/benchmark."""
