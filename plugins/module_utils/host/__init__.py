"""The state of a host besides its packages: platform, kernels, boot, services.

All of it is read, nothing is changed.
"""
