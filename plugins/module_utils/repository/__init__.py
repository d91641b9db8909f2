"""Repositories of packages: files, keys, logins, downloads. Installing from them is in `packages`."""
