/* Copyright: (c) 2026, gpufleet maintainers
 * GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * Simulate libnvidia-cfg.so.1, as far as nvidia-persistenced calls it. Opening a GPU holds it (state.h). While the GPU
 * is held, NVML reports persistence mode, and the driver cannot be unloaded. The hold ends with the daemon.
 */
#define _GNU_SOURCE
#include "state.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define API __attribute__((visibility("default"))) int

struct pci {
    int domain, bus, device, function;
};

struct handle {
    int fd;
    char bus_id[32];
};

static int ready(void)
{
    const char *loaded;
    return !sim_load() && (loaded = sim_get("module.version")) && !strcmp(loaded, sim_own_version()) &&
           !sim_node_error("/dev/nvidiactl", O_RDWR);
}

static int gpu_count(void)
{
    const char *count = sim_get("gpu.count");
    return count ? atoi(count) : 0;
}

static int address_of(int gpu, struct pci *pci)
{
    const char *bus_id = sim_gpu(gpu, -1, "pci.bus_id");
    return bus_id && sscanf(bus_id, "%x:%x:%x.%x", (unsigned *)&pci->domain, (unsigned *)&pci->bus,
                            (unsigned *)&pci->device, (unsigned *)&pci->function) == 4;
}

static int usable(int gpu)
{
    char path[64];
    const char *minor = sim_gpu(gpu, -1, "minor");
    snprintf(path, sizeof path, "/dev/nvidia%s", minor ? minor : "0");
    return !sim_node_error(path, O_RDWR) && !sim_gpu(gpu, -1, "return.*");
}

API nvCfgGetPciDevices(int *count, struct pci **devices)
{
    int found = 0;
    if (!ready() || !(*devices = calloc((size_t)gpu_count() + 1, sizeof **devices)))
        return 0;
    for (int gpu = 0; gpu < gpu_count(); gpu++)
        if (address_of(gpu, *devices + found))
            found++;
    *count = found;
    return 1;
}

static int open_device(int domain, int bus, int device, int function, void **handle)
{
    struct pci wanted = {domain, bus, device, function}, have;
    if (!ready())
        return 0;
    for (int gpu = 0; gpu < gpu_count(); gpu++) {
        struct handle *h;
        if (!address_of(gpu, &have) || memcmp(&have, &wanted, sizeof have) || !usable(gpu))
            continue;
        if (!(h = malloc(sizeof *h)))
            return 0;
        snprintf(h->bus_id, sizeof h->bus_id, "%s", sim_gpu(gpu, -1, "pci.bus_id"));
        h->fd = sim_hold(h->bus_id);
        *handle = h;
        return 1;
    }
    return 0;
}

API nvCfgOpenPciDevice(int domain, int bus, int device, int function, void **handle)
{
    return open_device(domain, bus, device, function, handle);
}

API nvCfgAttachPciDevice(int domain, int bus, int device, int function, void **handle)
{
    return open_device(domain, bus, device, function, handle);
}

API nvCfgCloseDevice(void *handle)
{
    struct handle *h = handle;
    if (h->fd >= 0)
        close(h->fd);
    free(h);
    return 1;
}

API nvCfgDetachDevice(void *handle)
{
    return nvCfgCloseDevice(handle);
}

API nvCfgEnableUVMPersistence(void *handle)
{
    (void)handle;
    return 0; /* only in confidential computing */
}

API nvCfgDisableUVMPersistence(void *handle)
{
    (void)handle;
    return 0;
}
