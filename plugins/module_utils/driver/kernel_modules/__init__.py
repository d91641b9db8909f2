"""The driver's kernel modules: which ones, from which packages or builds, and when they are loaded or reloaded.

What is true for the driver as a whole is in the package above.
"""
