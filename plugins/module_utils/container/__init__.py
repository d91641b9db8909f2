"""Module gpu_container: which devices a container gets, and how.

It knows a vendor only through the protocol in `vendor_protocol.py`.
"""
