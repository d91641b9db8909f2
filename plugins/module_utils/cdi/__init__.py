"""CDI specifications: writing, reading, comparing.

Which units keep them current is in `toolkit` and `vendor_driver`.
"""
