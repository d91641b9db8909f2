"""Role container_engine, and what all parts must know about Docker, Podman and containerd.

The runtimes of vendors are in `toolkit` and `gaudi`.
"""
