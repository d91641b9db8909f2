/* Copyright: (c) 2026, gpufleet maintainers
 * GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * What the simulated user-space libraries share: the state that they answer from.
 *
 * The state is text, one `key=value` a line, the last line of a key wins. It comes from, in this order,
 *   1. the file that the environment variable GPUSIM_STATE names (tests on the controller),
 *   2. /run/gpusim/state (a simulated host: the live state, kept by gpusim),
 *   3. the text that `gpusim graft` appended to the library's own file (a container on such a host).
 * A value that starts with `!` stands for the NVML return code after it.
 */
#ifndef GPUSIM_STATE_H
#define GPUSIM_STATE_H

#include <stddef.h>

#define SIM_MISSING (-1) /* the state has no such key */

/* Reads the state anew. Returns 0, or -1 where there is none. */
int sim_load(void);

/* The value of a key, or NULL. `sim_gpu` looks for gpu.<gpu>.<key>, then for gpu.*.<key>;
 * with mig >= 0 it looks for gpu.<gpu>.mig.<mig>.<key> alone. */
const char *sim_get(const char *key);
const char *sim_gpu(int gpu, int mig, const char *key);

/* Sets a key: in memory, and in the live state file where there is one. Returns 0 or an errno. */
int sim_set(const char *key, const char *value);
int sim_set_gpu(int gpu, const char *key, const char *value);

/* The version in the name of the library's own file (libnvidia-ml.so.<version>), else the state's, else "". */
const char *sim_own_version(void);

/* The same for what the hardware keeps when it is switched off (ECC mode, MIG mode of some). */
int sim_keep_gpu(int gpu, const char *key, const char *value);

/* Whether a device node can be opened (flags as of open) as far as permissions go. 0: yes; else ENOENT, EPERM, EACCES…
 * A node whose driver is not there (ENXIO, ENODEV) counts as openable: in a sandbox no node has a driver. */
int sim_node_error(const char *path, int flags);
int sim_check_nodes(void);

/* Whether the persistence daemon (or anybody) holds the GPU open, and how to be that. */
#define SIM_HELD_DIR "/run/gpusim/held"
int sim_is_held(const char *bus_id);
int sim_hold(const char *bus_id); /* a file descriptor to keep, or -1 */

#endif
