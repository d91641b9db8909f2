"""The observation of a host in one call, on which all plans are based.

It decides nothing, and gets what parts own as options.
"""
