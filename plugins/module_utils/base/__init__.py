"""What every other package can use: files, variables, versions, running programs, paths that the roles own.

It knows no vendor, package manager or engine.
"""
