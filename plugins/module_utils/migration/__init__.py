"""The migration from nvidia-docker: what it left, and what must not be lost.

The toolkit that replaces it is in `toolkit`.
"""
