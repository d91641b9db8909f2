"""Role gpu_kubernetes_node: the runtimes of a node. What is true without Kubernetes is in `toolkit/cri`."""
