"""Module gpu_container_info: who uses which GPU. Finding the holders is in `container` and `engine`."""
