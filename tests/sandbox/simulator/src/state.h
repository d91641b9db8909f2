/* Copyright: (c) 2026, gpufleet maintainers
 * GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * The state, from which the simulated user-space libraries read their values.
 *
 * The state is text with one `key=value` per line. The last line of a key wins. The first of these sources is used:
 *   1. the file that the environment variable GPUSIM_STATE names (tests on the controller),
 *   2. /run/gpusim/state (a simulated host: the live state, which gpusim updates),
 *   3. the text that `gpusim graft` appended to the file of the library (a container on a simulated host).
 * A value that starts with `!` is an NVML return code.
 */
#ifndef GPUSIM_STATE_H
#define GPUSIM_STATE_H

#include <stddef.h>

#define SIM_MISSING (-1) /* the state has no such key */

/* Read the state again. Return 0, or -1 if no state exists. */
int sim_load(void);

/* Return the value of a key, or NULL. `sim_gpu` looks for gpu.<gpu>.<key>, then for gpu.*.<key>.
 * With mig >= 0 it looks only for gpu.<gpu>.mig.<mig>.<key>. */
const char *sim_get(const char *key);
const char *sim_gpu(int gpu, int mig, const char *key);

/* Set a key in memory, and in the live state file if it exists. Return 0 or an errno. */
int sim_set(const char *key, const char *value);
int sim_set_gpu(int gpu, const char *key, const char *value);

/* Return the version in the file name of the library (libnvidia-ml.so.<version>), else that of the state, else "". */
const char *sim_own_version(void);

/* Like sim_set_gpu, for values that survive a power cycle: the ECC mode, and the MIG mode of some products. */
int sim_keep_gpu(int gpu, const char *key, const char *value);

/* Return 0 if permissions allow opening a device node with these flags, else ENOENT, EPERM, EACCES…
 * ENXIO and ENODEV count as success, because no node of a simulated host has a driver. */
int sim_node_error(const char *path, int flags);
int sim_check_nodes(void);

/* sim_is_held: return whether a process, such as the persistence daemon, holds the GPU. sim_hold: hold it. */
#define SIM_HELD_DIR "/run/gpusim/held"
int sim_is_held(const char *bus_id);
int sim_hold(const char *bus_id); /* returns a file descriptor to keep open, or -1 */

#endif
