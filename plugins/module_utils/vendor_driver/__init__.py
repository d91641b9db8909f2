"""Drivers that are in the kernel, and what their vendors have in common: users, CDI units, checks.

Gaudi's own packages are in `gaudi`.
"""
