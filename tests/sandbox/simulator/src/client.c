/* Copyright: (c) 2026, gpufleet maintainers
 * GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * A small NVML client for containers on simulated and real hosts.
 *
 *   gpu-client               print the UUIDs of the visible GPUs, one per line; for a GPU in MIG mode, its MIG devices
 *   gpu-client --count       print the number of UUIDs
 *   gpu-client --dlopen NAME load the library: print ok, or print the error and exit with status 1
 *   gpu-client --open PATH   open the file for reading and writing: print ok or the name of the error
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef void *device;

static void *library;
static const char *(*error_string)(int);

static int fail(const char *call, int code)
{
    fprintf(stderr, "gpu-client: %s: %s (%d)\n", call, error_string ? error_string(code) : "error", code);
    return 1;
}

/* NVML functions are resolved by name on each call. */
#define CALL(name, ...)                                                                     \
    ({                                                                                      \
        int (*function)() = (int (*)())dlsym(library, name);                                \
        function ? function(__VA_ARGS__) : 13;                                              \
    })

static int show(device d, unsigned *count, int quiet)
{
    char uuid[96] = "";
    int rc = CALL("nvmlDeviceGetUUID", d, uuid, 96u);
    if (rc)
        return fail("nvmlDeviceGetUUID", rc);
    ++*count;
    if (!quiet)
        puts(uuid);
    return 0;
}

static int show_migs(device d, unsigned *count, int quiet)
{
    unsigned most = 0;
    CALL("nvmlDeviceGetMaxMigDeviceCount", d, &most);
    for (unsigned i = 0; i < most; i++) {
        device mig;
        if (!CALL("nvmlDeviceGetMigDeviceHandleByIndex", d, i, &mig) && show(mig, count, quiet))
            return 1;
    }
    return 0;
}

static int list(int quiet)
{
    unsigned gpus = 0, count = 0, current = 0, pending = 0;
    device d;
    int rc;
    if (!(library = dlopen("libnvidia-ml.so.1", RTLD_NOW))) {
        char why[512];
        snprintf(why, sizeof why, "%s", dlerror());
        if (!(library = dlopen("/usr/local/nvidia/lib64/libnvidia-ml.so.1", RTLD_NOW))) {
            fprintf(stderr, "gpu-client: %s\n", why);
            return 1;
        }
    }
    error_string = (const char *(*)(int))dlsym(library, "nvmlErrorString");
    if ((rc = CALL("nvmlInit_v2")))
        return fail("nvmlInit_v2", rc);
    if ((rc = CALL("nvmlDeviceGetCount_v2", &gpus)))
        return fail("nvmlDeviceGetCount_v2", rc);
    for (unsigned i = 0; i < gpus; i++) {
        if ((rc = CALL("nvmlDeviceGetHandleByIndex_v2", i, &d)))
            return fail("nvmlDeviceGetHandleByIndex_v2", rc);
        if (CALL("nvmlDeviceGetMigMode", d, &current, &pending))
            current = 0;
        if (current ? show_migs(d, &count, quiet) : show(d, &count, quiet))
            return 1;
    }
    CALL("nvmlShutdown");
    if (quiet)
        printf("%u\n", count);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 1)
        return list(0);
    if (argc == 2 && !strcmp(argv[1], "--count"))
        return list(1);
    if (argc == 3 && !strcmp(argv[1], "--dlopen")) {
        if (dlopen(argv[2], RTLD_NOW)) {
            puts("ok");
            return 0;
        }
        fprintf(stderr, "gpu-client: %s\n", dlerror());
        return 1;
    }
    if (argc == 3 && !strcmp(argv[1], "--open")) {
        int fd = open(argv[2], O_RDWR | O_NONBLOCK | O_NOCTTY);
        puts(fd >= 0 ? "ok" : strerrorname_np(errno));
        return fd < 0;
    }
    fprintf(stderr, "usage: gpu-client [--count | --dlopen NAME | --open PATH]\n");
    return 2;
}
