/* Copyright: (c) 2026, gpufleet maintainers
 * GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * A libcuda for tests: GPUs in the host's memory, which do what the probe's kernel does, and fail on demand.
 *
 * FAKE_CUDA_GPUS   how many there are (default 2)
 * FAKE_CUDA_TROUBLE  a list of CALL=WHAT or CALL@GPU=WHAT, separated by commas. WHAT is a CUresult, or
 *                    `hang`, `crash`, `exit`, `corrupt` (the call succeeds and spoils one byte)
 * FAKE_CUDA_MUTE   if set, cuGetErrorName and cuGetErrorString know no error
 * FAKE_CUDA_WRONG_MATRIX  if set, every element of a matrix product is wrong
 * FAKE_CUDA_NAME   the name of every GPU
 */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int current = -1;
static int initialized;

static int gpus(void)
{
    const char *count = getenv("FAKE_CUDA_GPUS");
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (visible != NULL)
        return strstr(visible, "c0ffee") != NULL;
    return count == NULL ? 2 : atoi(count);
}

/* What was ordered for a call on a GPU: a CUresult, or -1 for `corrupt`. */
static int trouble(const char *call, int gpu)
{
    const char *orders = getenv("FAKE_CUDA_TROUBLE");
    char any[96], one[96];
    snprintf(any, sizeof any, "%s=", call);
    snprintf(one, sizeof one, "%s@%d=", call, gpu);
    while (orders != NULL && *orders != '\0') {
        const char *what = NULL;
        if (strncmp(orders, any, strlen(any)) == 0)
            what = orders + strlen(any);
        else if (strncmp(orders, one, strlen(one)) == 0)
            what = orders + strlen(one);
        if (what != NULL) {
            if (strncmp(what, "hang", 4) == 0)
                for (;;)
                    pause();
            if (strncmp(what, "crash", 5) == 0)
                raise(SIGSEGV);
            if (strncmp(what, "exit", 4) == 0)
                _exit(3);
            if (strncmp(what, "corrupt", 7) == 0)
                return -1;
            return atoi(what);
        }
        orders = strchr(orders, ',');
        if (orders != NULL)
            orders++;
    }
    return 0;
}

#define OBEY(call, gpu)                      \
    do {                                     \
        int order = trouble(#call, (gpu));   \
        if (order > 0)                       \
            return order;                    \
    } while (0)

int cuInit(unsigned flags) { OBEY(cuInit, -1); initialized = flags == 0; return 0; }
int cuDriverGetVersion(int *version) { OBEY(cuDriverGetVersion, -1); *version = 13010; return 0; }
int cuDeviceGetCount(int *count) { OBEY(cuDeviceGetCount, -1); *count = gpus(); return initialized ? 0 : 3; }
int cuDeviceGet(int *device, int index) { OBEY(cuDeviceGet, index); *device = index; return 0; }

int cuDeviceGetName(char *name, int length, int device)
{
    OBEY(cuDeviceGetName, device);
    const char *known = getenv("FAKE_CUDA_NAME");
    snprintf(name, length, "%s", known == NULL ? "Fake GPU" : known);
    return 0;
}

static int uuid(unsigned char *bytes, int device)
{
    memset(bytes, 0, 16);
    bytes[0] = getenv("CUDA_VISIBLE_DEVICES") ? 0xc0 : 0xaa;
    bytes[1] = getenv("CUDA_VISIBLE_DEVICES") ? 0xff : 0xbb;
    bytes[2] = 0xee;
    bytes[15] = device;
    return 0;
}
int cuDeviceGetUuid(unsigned char *bytes, int device) { OBEY(cuDeviceGetUuid, device); return uuid(bytes, device); }
#ifndef OLD
int cuDeviceGetUuid_v2(unsigned char *bytes, int device) { OBEY(cuDeviceGetUuid, device); return uuid(bytes, device); }
#endif

int cuDeviceGetPCIBusId(char *text, int length, int device)
{
    OBEY(cuDeviceGetPCIBusId, device);
    snprintf(text, length, "%s:3B:%02X.0", getenv("FAKE_CUDA_NAME") ? "00010000" : "0000", device);
    return 0;
}

int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    OBEY(cuDeviceGetAttribute, device);
    if (attribute == 116)
        return 1;
    *value = attribute == 75 ? 9 : attribute == 76 ? 0 : attribute == 20 ? 3 : attribute == 32 ? 1 : attribute * 10;
    return 0;
}

int cuDeviceTotalMem_v2(size_t *size, int device) { OBEY(cuDeviceTotalMem, device); *size = 24UL << 30; return 0; }
int cuDevicePrimaryCtxRetain(void **context, int device)
{
    OBEY(cuDevicePrimaryCtxRetain, device);
    *context = (void *)(intptr_t)(device + 1);
    return 0;
}
int cuDevicePrimaryCtxRelease_v2(int device) { OBEY(cuDevicePrimaryCtxRelease, device); return 0; }
int cuCtxSetCurrent(void *context)
{
    OBEY(cuCtxSetCurrent, (int)(intptr_t)context - 1);
    current = (int)(intptr_t)context - 1;
    return 0;
}
int cuMemAlloc_v2(uint64_t *memory, size_t size)
{
    OBEY(cuMemAlloc, current);
    *memory = (uint64_t)(uintptr_t)malloc(size);
    return *memory ? 0 : 2;
}
int cuMemFree_v2(uint64_t memory) { OBEY(cuMemFree, current); free((void *)(uintptr_t)memory); return 0; }

static int move(const char *call, void *target, const void *source, size_t size)
{
    int order = trouble(call, current);
    if (order > 0)
        return order;
    memcpy(target, source, size);
    if (order < 0)
        ((unsigned char *)target)[size / 2] ^= 1;
    return 0;
}
int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t n) { return move("cuMemcpyHtoD", (void *)(uintptr_t)to, from, n); }
int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t n) { return move("cuMemcpyDtoH", to, (void *)(uintptr_t)from, n); }
int cuMemcpyDtoD_v2(uint64_t to, uint64_t from, size_t n)
{
    return move("cuMemcpyDtoD", (void *)(uintptr_t)to, (void *)(uintptr_t)from, n);
}

int cuModuleLoadDataEx(void **module, const char *ptx, unsigned options, void **names, void **values)
{
    OBEY(cuModuleLoadDataEx, current);
    *module = (void *)ptx;
    return options == 0 && names == NULL && values == NULL && strstr(ptx, ".version") ? 0 : 218;
}
int cuModuleUnload(void *module) { OBEY(cuModuleUnload, current); return module == NULL; }
int cuModuleGetFunction(void **function, void *module, const char *name)
{
    OBEY(cuModuleGetFunction, current);
    *function = strstr(module, name);
    return *function == NULL ? 500 : 0;
}

/* What the kernel's text says, in C. */
int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **arguments, void **extra)
{
    int order = trouble("cuLaunchKernel", current);
    if (order > 0)
        return order;
    if (function == NULL || gy != 1 || gz != 1 || by != 1 || bz != 1 || shared != 0 || stream != NULL || extra != NULL)
        return 1;
    const uint32_t *a = *(void **)arguments[0], *b = *(void **)arguments[1];
    uint32_t *out = *(void **)arguments[2], n = *(uint32_t *)arguments[3];
    if (strncmp(function, "gpufleet_matrix", 15) == 0) {
        const float *fa = (const void *)a, *fb = (const void *)b;
        float *fout = (void *)out;
        if (bx != 256 || (uint64_t)gx * 4096 != (uint64_t)n * n)
            return 1;
        for (uint32_t row = 0; row < n; row++)
            for (uint32_t column = 0; column < n; column++) {
                float sum = 0;
                for (uint32_t k = 0; k < n; k++)
                    sum += fa[row * n + k] * fb[k * n + column];
                fout[row * n + column] = sum + (getenv("FAKE_CUDA_WRONG_MATRIX") != NULL);
            }
        return 0;
    }
    if ((uint64_t)gx * bx < n)
        return 1;
    for (uint32_t i = 0; i < n; i++) {
        float product = (float)(a[i] & 4095) * (float)(b[i] & 4095) + (float)(i & 255);
        out[i] = ((a[i] * 1664525u + b[i]) ^ i) + (uint32_t)product;
    }
    if (order < 0)
        out[n / 2]++;
    return 0;
}
#ifndef NO_SYNCHRONIZE
int cuCtxSynchronize(void) { OBEY(cuCtxSynchronize, current); return 0; }
#endif

int cuGetErrorName(int code, const char **text)
{
    static char name[40];
    if (getenv("FAKE_CUDA_MUTE"))
        return 1;
    snprintf(name, sizeof name, "CUDA_ERROR_%d", code);
    *text = name;
    return 0;
}
int cuGetErrorString(int code, const char **text)
{
    static char words[40];
    if (getenv("FAKE_CUDA_MUTE"))
        return 1;
    snprintf(words, sizeof words, "words of %d", code);
    *text = words;
    return 0;
}
