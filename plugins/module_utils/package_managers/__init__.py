"""apt, dnf and zypper: what is installed and offered, and how a transaction runs.

What a transaction may change is in `packages`.
"""
