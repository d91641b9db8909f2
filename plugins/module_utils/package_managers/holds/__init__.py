# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which packages are held on a host, and whether it can hold packages.

The processes that hold the lock of a package manager are in `lock_holders.py` above.
"""
