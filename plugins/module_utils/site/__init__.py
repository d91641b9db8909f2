"""What is true for all parts together: registry, plan, report, health, fleet.

What a single part plans is in its own package.
"""
