"""The commands and the Compose file that gpu_container prints for `state: rendered`.

The decisions are in `container`.
"""
