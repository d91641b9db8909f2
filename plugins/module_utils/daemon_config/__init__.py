"""Docker's `daemon.json`: merging, records, validation, undo.

Which options a role sets is in `engine` and `toolkit`.
"""
