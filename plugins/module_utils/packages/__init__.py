"""Package transactions: choice, order, records, undo, removal.

The commands of package managers are in `package_managers`.
"""
