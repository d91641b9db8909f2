"""Nodes of Kubernetes: distributions, paths, eviction, labels. The runtime on a node is in `toolkit`."""
