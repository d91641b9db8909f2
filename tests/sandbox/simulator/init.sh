#!/bin/sh
# Copyright: (c) 2026, gpufleet maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# The first process of a simulated host. Initializes the simulated hardware, then starts the distribution's init.
/usr/lib/gpusim/gpusim boot || { echo "\`gpusim boot\` failed. See the error above." >&2; exit 1; }
exec /sbin/init "$@"
