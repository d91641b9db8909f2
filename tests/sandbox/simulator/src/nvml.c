/* Copyright: (c) 2026, gpufleet maintainers
 * GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * Simulate libnvidia-ml.so.1: the C ABI of NVML 11.5 to 13, with values from the state (state.h).
 *
 * Every call can fail, hang or return invalid data. For a function f, the state can contain these keys, without a
 * prefix for the whole library, or with the prefix gpu.<n>., gpu.*. or gpu.<n>.mig.<m>.:
 *     return.<f>=<code>    f returns this code and does nothing
 *     delay.<f>=<seconds>  f sleeps first
 *     garbage.<f>=<byte>   f succeeds and fills its result with this byte
 * <f> is the name of the function, its name without _v<n>, or `*`.
 */
#define _GNU_SOURCE
#include "state.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "nvml_abi.h"

#define API __attribute__((visibility("default"))) int

struct nvmlDevice_st {
    int gpu;   /* index in the state */
    int mig;   /* index of the MIG device in the state, -1 for the GPU */
    int index; /* index in this process */
    struct nvmlDevice_st *parent;
};
typedef struct nvmlDevice_st *dev_t_;

#define MAX_DEVICES 1024
#define MAX_GPUS 64
#define MAX_MIG 16

static pthread_mutex_t init_lock = PTHREAD_MUTEX_INITIALIZER;
static struct nvmlDevice_st devices[MAX_DEVICES];
static int device_count, gpu_count, init_count;

/* ---- reading the state ------------------------------------------------------------------------------------------ */

/* `!n` → n; missing → NOT_SUPPORTED; else SUCCESS with the text. */
static int text_of(dev_t_ d, const char *key, const char **value)
{
    *value = d ? sim_gpu(d->gpu, d->mig, key) : sim_get(key);
    if (!*value || !**value)
        return NVML_ERROR_NOT_SUPPORTED;
    if (**value == '!')
        return atoi(*value + 1);
    return NVML_SUCCESS;
}

static int number_of(dev_t_ d, const char *key, unsigned long long *number)
{
    const char *value;
    int rc = text_of(d, key, &value);
    if (!rc)
        *number = *value == '-' ? (unsigned long long)strtoll(value, NULL, 0) : strtoull(value, NULL, 0);
    return rc;
}

static int uint_of(dev_t_ d, const char *key, unsigned *out)
{
    unsigned long long number;
    int rc = number_of(d, key, &number);
    if (!rc)
        *out = (unsigned)number;
    return rc;
}

static int u64_of(dev_t_ d, const char *key, unsigned long long *out)
{
    return number_of(d, key, out);
}

static unsigned long long number_or(dev_t_ d, const char *key, unsigned long long otherwise)
{
    unsigned long long number;
    return number_of(d, key, &number) ? otherwise : number;
}

static int copy_text(const char *value, char *buffer, unsigned size)
{
    if (strlen(value) >= size)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(buffer, value);
    return NVML_SUCCESS;
}

static int string_of(dev_t_ d, const char *key, char *buffer, unsigned size)
{
    const char *value;
    int rc = text_of(d, key, &value);
    return rc ? rc : copy_text(value, buffer, size);
}

static const char *key_of(char *buffer, size_t size, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(buffer, size, format, args);
    va_end(args);
    return buffer;
}
#define KEY(...) key_of((char[96]){0}, 96, __VA_ARGS__)

/* ---- start of every call ---------------------------------------------------------------------------------------- */

static const char *injected(dev_t_ d, const char *kind, const char *name)
{
    const char *value;
    if (!d)
        return sim_get(KEY("%s.%s", kind, name));
    if (d->mig >= 0 && (value = sim_gpu(d->gpu, d->mig, KEY("%s.%s", kind, name))))
        return value;
    return sim_gpu(d->gpu, -1, KEY("%s.%s", kind, name));
}

static const char *injection(dev_t_ d, const char *kind, const char *function)
{
    char base[80], *version;
    const char *value;
    snprintf(base, sizeof base, "%s", function);
    version = strrchr(base, '_');
    if (version && version[1] == 'v' && version[2] >= '0' && version[2] <= '9')
        *version = 0;
    for (int scoped = d != NULL; scoped >= 0; scoped--) {
        dev_t_ scope = scoped ? d : NULL;
        if ((value = injected(scope, kind, function)) || (value = injected(scope, kind, base)))
            return value;
        /* `*` applies to devices and to init, but never to shutdown. */
        if (strcmp(base, "nvmlShutdown") && (value = injected(scope, kind, "*")))
            return value;
    }
    return NULL;
}

static void pause_for(double seconds)
{
    struct timespec left = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    while (nanosleep(&left, &left) && errno == EINTR)
        ;
}

#define GO_ON (-1)
#define LAST ((void *)-1)

static int faults(const char *function, dev_t_ d, va_list outputs)
{
    const char *value = injection(d, "delay", function);
    if (value)
        pause_for(atof(value));
    if ((value = injection(d, "return", function)))
        return atoi(value);
    if (!(value = injection(d, "garbage", function)))
        return GO_ON;
    for (void *p; (p = va_arg(outputs, void *)) != LAST;) {
        size_t size = va_arg(outputs, size_t);
        memset(p, (int)strtol(value, NULL, 0), size);
    }
    return NVML_SUCCESS;
}

static int is_device(dev_t_ d)
{
    return d >= devices && d < devices + device_count;
}

static int enter(const char *function, int wants_device, dev_t_ d, ...)
{
    va_list outputs;
    int rc = GO_ON;
    if (!init_count)
        return NVML_ERROR_UNINITIALIZED;
    if (wants_device && !is_device(d))
        return NVML_ERROR_INVALID_ARGUMENT;
    va_start(outputs, d);
    for (void *p; (p = va_arg(outputs, void *)) != LAST;) {
        (void)va_arg(outputs, size_t);
        if (!p)
            rc = NVML_ERROR_INVALID_ARGUMENT;
    }
    va_end(outputs);
    if (rc != GO_ON)
        return rc;
    va_start(outputs, d);
    rc = faults(function, wants_device ? d : NULL, outputs);
    va_end(outputs);
    return rc;
}

/* O: an output argument. S: a string buffer. V: a structure whose first field, its version, the caller sets. */
#define O(p) (void *)(p), sizeof(*(p))
#define S(p, size) (void *)(p), (size_t)((size) ? (size)-1 : 0)
#define V(p) (void *)((p) ? (char *)(p) + 4 : NULL), sizeof(*(p)) - 4
#define ENTER(d, ...)                                                     \
    do {                                                                  \
        int rc_ = enter(__func__, 1, d, __VA_ARGS__, LAST);               \
        if (rc_ != GO_ON)                                                 \
            return rc_;                                                   \
    } while (0)
#define ENTER_SYSTEM(...)                                                 \
    do {                                                                  \
        int rc_ = enter(__func__, 0, NULL, __VA_ARGS__, LAST);            \
        if (rc_ != GO_ON)                                                 \
            return rc_;                                                   \
    } while (0)
#define ENTER_PLAIN(d)                                                    \
    do {                                                                  \
        int rc_ = enter(__func__, 1, d, LAST);                            \
        if (rc_ != GO_ON)                                                 \
            return rc_;                                                   \
    } while (0)
/* This call does not know the version of the structure. */
#define NEED_VERSION(p, wanted)                                           \
    do {                                                                  \
        if (p && (p)->version != (wanted))                                \
            return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;                  \
    } while (0)

static int driver_major(void)
{
    const char *version = sim_get("module.version");
    return version ? atoi(version) : 0;
}

/* ---- init, shutdown, visible GPUs ------------------------------------------------------------------------------- */

static int gpu_visible(int gpu)
{
    const char *minor = sim_gpu(gpu, -1, "minor");
    return !sim_node_error(KEY("/dev/nvidia%s", minor ? minor : KEY("%d", gpu)), O_RDWR);
}

static int mig_visible(int gpu, int mig)
{
    const char *gi = sim_gpu(gpu, mig, "gi_cap"), *ci = sim_gpu(gpu, mig, "ci_cap");
    return (!gi || !sim_node_error(KEY("/dev/nvidia-caps/nvidia-cap%s", gi), O_RDONLY)) &&
           (!ci || !sim_node_error(KEY("/dev/nvidia-caps/nvidia-cap%s", ci), O_RDONLY));
}

static void find_migs(dev_t_ parent)
{
    for (int mig = 0; mig < MAX_MIG && device_count < MAX_DEVICES; mig++)
        if (sim_gpu(parent->gpu, mig, "uuid") && mig_visible(parent->gpu, mig))
            devices[device_count++] = (struct nvmlDevice_st){parent->gpu, mig, mig, parent};
}

static void find_devices(void)
{
    const char *count = sim_get("gpu.count");
    int all = count ? atoi(count) : 0;
    device_count = gpu_count = 0;
    for (int gpu = 0; gpu < all && gpu < MAX_GPUS; gpu++)
        if (gpu_visible(gpu)) {
            devices[gpu_count] = (struct nvmlDevice_st){gpu, -1, gpu_count, NULL};
            gpu_count++;
        }
    device_count = gpu_count;
    for (int i = 0; i < gpu_count; i++)
        if (number_or(&devices[i], "mig.current", 0) == 1)
            find_migs(&devices[i]);
}

static int no_outputs(const char *function, ...)
{
    va_list outputs;
    int rc;
    va_start(outputs, function);
    rc = faults(function, NULL, outputs);
    va_end(outputs);
    return rc;
}

static int start(const char *function)
{
    const char *loaded;
    int rc, error;
    if (sim_load())
        return NVML_ERROR_DRIVER_NOT_LOADED;
    if ((rc = no_outputs(function, LAST)) != GO_ON && rc != NVML_SUCCESS)
        return rc;
    if (strcmp(function, "nvmlInit") && (rc = no_outputs("nvmlInit", LAST)) != GO_ON && rc != NVML_SUCCESS)
        return rc;
    loaded = sim_get("module.version");
    if (!loaded || !*loaded)
        return NVML_ERROR_DRIVER_NOT_LOADED;
    if (strcmp(loaded, sim_own_version()))
        return NVML_ERROR_LIB_RM_VERSION_MISMATCH;
    if ((error = sim_node_error("/dev/nvidiactl", O_RDWR)))
        return error == EPERM || error == EACCES ? NVML_ERROR_UNKNOWN : NVML_ERROR_DRIVER_NOT_LOADED;
    find_devices();
    return NVML_SUCCESS;
}

static int init(const char *function)
{
    int rc = NVML_SUCCESS;
    pthread_mutex_lock(&init_lock);
    if (!init_count)
        rc = start(function);
    if (!rc)
        init_count++;
    pthread_mutex_unlock(&init_lock);
    return rc;
}

API nvmlInit(void) { return init("nvmlInit"); }
API nvmlInit_v2(void) { return init("nvmlInit_v2"); }
API nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    return init("nvmlInitWithFlags");
}

API nvmlShutdown(void)
{
    if (!init_count)
        return NVML_ERROR_UNINITIALIZED;
    init_count--;
    return NVML_SUCCESS;
}

__attribute__((visibility("default"))) const char *nvmlErrorString(int code)
{
    static const char *const texts[] = {
        "Success", "Uninitialized", "Invalid Argument", "Not Supported", "Insufficient Permissions",
        "Already Initialized", "Not Found", "Insufficient Size", "Insufficient External Power", "Driver Not Loaded",
        "Timeout", "Interrupt Request Issue", "NVML Shared Library Not Found", "Function Not Found",
        "Corrupted infoROM", "GPU is lost", "GPU requires reset", "GPU access blocked by the operating system",
        "Driver/library version mismatch", "GPU is currently in use by another process", "Insufficient memory",
        "No data", "Not supported due to vGPU ECC state", "Insufficient resources", "Clock frequency not supported",
        "Argument version mismatch", "Deprecated function", "Not Ready", "GPU not found", "Invalid state",
        "Reset type not supported"};
    return code >= 0 && code < (int)(sizeof texts / sizeof *texts) ? texts[code] : "Unknown Error";
}

/* ---- the system ------------------------------------------------------------------------------------------------- */

/* The newest CUDA version that a driver branch supports. */
static int cuda_version(void)
{
    static const struct {
        int branch, cuda;
    } known[] = {{615, 13030}, {610, 13030}, {595, 13020}, {590, 13010}, {580, 13000}, {575, 12090}, {570, 12080},
                 {565, 12070}, {560, 12060}, {555, 12050}, {550, 12040}, {545, 12030}, {535, 12020}, {530, 12010},
                 {525, 12000}, {520, 11080}, {515, 11070}, {510, 11060}, {495, 11050}, {470, 11040}, {465, 11030},
                 {460, 11020}, {455, 11010}, {450, 11000}, {440, 10020}, {418, 10010}, {410, 10000}, {396, 9020},
                 {390, 9010},  {384, 9000},  {375, 8000}};
    const char *stated = sim_get("cuda.version");
    int major, minor;
    if (stated && sscanf(stated, "%d.%d", &major, &minor) == 2)
        return 1000 * major + 10 * minor;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (driver_major() >= known[i].branch)
            return known[i].cuda;
    return 7050;
}

API nvmlSystemGetDriverVersion(char *version, unsigned length)
{
    ENTER_SYSTEM(S(version, length));
    return string_of(NULL, "module.version", version, length);
}

API nvmlSystemGetNVMLVersion(char *version, unsigned length)
{
    ENTER_SYSTEM(S(version, length));
    return copy_text(KEY("%d.%s", cuda_version() / 1000, sim_own_version()), version, length);
}

API nvmlSystemGetCudaDriverVersion(int *version)
{
    ENTER_SYSTEM(O(version));
    *version = cuda_version();
    return NVML_SUCCESS;
}

API nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    ENTER_SYSTEM(O(version));
    *version = cuda_version();
    return NVML_SUCCESS;
}

API nvmlSystemGetDriverBranch(nvmlSystemDriverBranchInfo_t *info, unsigned length)
{
    ENTER_SYSTEM(V(info));
    NEED_VERSION(info, VERSION_OF(nvmlSystemDriverBranchInfo_t, 1));
    if (driver_major() < 560)
        return NVML_ERROR_FUNCTION_NOT_FOUND;
    return copy_text(KEY("r%d_00", driver_major()), info->branch, length < 80 ? length : 80);
}

API nvmlSystemGetProcessName(unsigned pid, char *name, unsigned length)
{
    char path[64], command[256];
    ENTER_SYSTEM(S(name, length));
    if (sim_get(KEY("process.%u", pid)))
        return string_of(NULL, KEY("process.%u", pid), name, length);
    snprintf(path, sizeof path, "/proc/%u/exe", pid);
    ssize_t size = readlink(path, command, sizeof command - 1);
    if (size <= 0)
        return NVML_ERROR_NOT_FOUND;
    command[size] = 0;
    return copy_text(command, name, length);
}

API nvmlSystemGetTopologyGpuSet(unsigned cpu, unsigned *count, dev_t_ *set)
{
    unsigned found = 0;
    ENTER_SYSTEM(O(count));
    for (int i = 0; i < gpu_count; i++) {
        const char *list = sim_gpu(devices[i].gpu, -1, "cpu_affinity");
        while (list && *list) {
            unsigned from, to;
            int fields = sscanf(list, "%u-%u", &from, &to);
            if (fields >= 1 && cpu >= from && cpu <= (fields == 2 ? to : from)) {
                if (set && found < *count)
                    set[found] = &devices[i];
                found++;
                break;
            }
            list = strchr(list, ',');
            list = list ? list + 1 : NULL;
        }
    }
    *count = found;
    return NVML_SUCCESS;
}

API nvmlSystemGetConfComputeState(nvmlConfComputeSystemState_t *state)
{
    ENTER_SYSTEM(O(state));
    memset(state, 0, sizeof *state);
    state->ccFeature = (unsigned)number_or(NULL, "cc.feature", 0);
    return NVML_SUCCESS;
}

API nvmlUnitGetCount(unsigned *count)
{
    ENTER_SYSTEM(O(count));
    *count = 0;
    return NVML_SUCCESS;
}

API nvmlGetExcludedDeviceCount(unsigned *count)
{
    ENTER_SYSTEM(O(count));
    *count = 0;
    return NVML_SUCCESS;
}

/* ---- finding a device ------------------------------------------------------------------------------------------- */

static int count_devices(const char *function, unsigned *count)
{
    int rc = enter(function, 0, NULL, O(count), LAST);
    if (rc != GO_ON)
        return rc;
    *count = (unsigned)gpu_count;
    return NVML_SUCCESS;
}

API nvmlDeviceGetCount(unsigned *count) { return count_devices(__func__, count); }
API nvmlDeviceGetCount_v2(unsigned *count) { return count_devices(__func__, count); }

/* Return a handle, unless a fault affects this call for this GPU. */
static int hand_out(const char *function, dev_t_ found, dev_t_ *device)
{
    int rc = enter(function, 1, found, O(device), LAST);
    if (rc != GO_ON)
        return rc;
    *device = found;
    return NVML_SUCCESS;
}

static int by_index(const char *function, unsigned index, dev_t_ *device)
{
    if (!init_count)
        return NVML_ERROR_UNINITIALIZED;
    if (!device || index >= (unsigned)gpu_count)
        return NVML_ERROR_INVALID_ARGUMENT;
    return hand_out(function, &devices[index], device);
}

API nvmlDeviceGetHandleByIndex(unsigned index, dev_t_ *device) { return by_index(__func__, index, device); }
API nvmlDeviceGetHandleByIndex_v2(unsigned index, dev_t_ *device) { return by_index(__func__, index, device); }

static int by_key(const char *function, const char *key, const char *wanted, dev_t_ *device)
{
    if (!init_count)
        return NVML_ERROR_UNINITIALIZED;
    if (!device || !wanted)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (int i = 0; i < device_count; i++) {
        const char *value = sim_gpu(devices[i].gpu, devices[i].mig, key);
        if (value && !strcmp(value, wanted))
            return hand_out(function, &devices[i], device);
    }
    return NVML_ERROR_NOT_FOUND;
}

API nvmlDeviceGetHandleByUUID(const char *uuid, dev_t_ *device) { return by_key(__func__, "uuid", uuid, device); }
API nvmlDeviceGetHandleBySerial(const char *serial, dev_t_ *device)
{
    return by_key(__func__, "serial", serial, device);
}

API nvmlDeviceGetHandleByUUIDV(const nvmlUUID_t *uuid, dev_t_ *device)
{
    char text[41];
    if (!uuid || uuid->version != VERSION_OF(nvmlUUID_t, 1))
        return uuid ? NVML_ERROR_ARGUMENT_VERSION_MISMATCH : NVML_ERROR_INVALID_ARGUMENT;
    if (uuid->type != 1)
        return NVML_ERROR_INVALID_ARGUMENT;
    snprintf(text, sizeof text, "%.40s", uuid->value.str);
    return by_key(__func__, "uuid", text, device);
}

struct address {
    unsigned domain, bus, device, function;
};

static int parse_address(const char *text, struct address *a)
{
    a->function = 0;
    if (text && sscanf(text, "%x:%x:%x.%x", &a->domain, &a->bus, &a->device, &a->function) >= 3)
        return 1;
    a->domain = 0;
    return text && sscanf(text, "%x:%x.%x", &a->bus, &a->device, &a->function) >= 2;
}

static int by_bus(const char *function, const char *bus_id, dev_t_ *device)
{
    struct address wanted, have;
    if (!init_count)
        return NVML_ERROR_UNINITIALIZED;
    if (!device || !bus_id || !parse_address(bus_id, &wanted))
        return NVML_ERROR_INVALID_ARGUMENT;
    for (int i = 0; i < gpu_count; i++)
        if (parse_address(sim_gpu(devices[i].gpu, -1, "pci.bus_id"), &have) && !memcmp(&have, &wanted, sizeof have))
            return hand_out(function, &devices[i], device);
    return NVML_ERROR_NOT_FOUND;
}

API nvmlDeviceGetHandleByPciBusId(const char *bus_id, dev_t_ *device) { return by_bus(__func__, bus_id, device); }
API nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, dev_t_ *device) { return by_bus(__func__, bus_id, device); }

API nvmlDeviceGetIndex(dev_t_ d, unsigned *index)
{
    ENTER(d, O(index));
    *index = (unsigned)d->index;
    return NVML_SUCCESS;
}

/* ---- identity --------------------------------------------------------------------------------------------------- */

#define STRING_CALL(function, key)                          \
    API function(dev_t_ d, char *buffer, unsigned length)   \
    {                                                       \
        ENTER(d, S(buffer, length));                        \
        return string_of(d, key, buffer, length);           \
    }
#define UINT_CALL(function, key)                            \
    API function(dev_t_ d, unsigned *value)                 \
    {                                                       \
        ENTER(d, O(value));                                 \
        return uint_of(d, key, value);                      \
    }
#define UINT_PAIR_CALL(function, first_key, second_key)                 \
    API function(dev_t_ d, unsigned *first, unsigned *second)           \
    {                                                                   \
        ENTER(d, O(first), O(second));                                  \
        int rc = uint_of(d, first_key, first);                          \
        return rc ? rc : uint_of(d, second_key, second);                \
    }

STRING_CALL(nvmlDeviceGetName, "name")
STRING_CALL(nvmlDeviceGetUUID, "uuid")
STRING_CALL(nvmlDeviceGetSerial, "serial")
STRING_CALL(nvmlDeviceGetBoardPartNumber, "board_part_number")
STRING_CALL(nvmlDeviceGetVbiosVersion, "vbios")
STRING_CALL(nvmlDeviceGetInforomImageVersion, "inforom.image")
UINT_CALL(nvmlDeviceGetMinorNumber, "minor")
UINT_CALL(nvmlDeviceGetBrand, "brand")
UINT_CALL(nvmlDeviceGetArchitecture, "architecture")
UINT_CALL(nvmlDeviceGetBoardId, "board_id")
UINT_CALL(nvmlDeviceGetMultiGpuBoard, "multi_gpu_board")
UINT_CALL(nvmlDeviceGetModuleId, "module_id")
UINT_CALL(nvmlDeviceGetNumGpuCores, "cores")
UINT_CALL(nvmlDeviceGetMemoryBusWidth, "memory_bus_width")
UINT_CALL(nvmlDeviceGetIrqNum, "irq")
UINT_CALL(nvmlDeviceGetBusType, "bus_type")
UINT_CALL(nvmlDeviceGetPowerSource, "power_source")
UINT_CALL(nvmlDeviceGetInforomConfigurationChecksum, "inforom.checksum")

API nvmlDeviceGetInforomVersion(dev_t_ d, int object, char *version, unsigned length)
{
    static const char *const keys[] = {"inforom.oem", "inforom.ecc", "inforom.power"};
    ENTER(d, S(version, length));
    if (object < 0 || object > 2)
        return NVML_ERROR_INVALID_ARGUMENT;
    return string_of(d, keys[object], version, length);
}

API nvmlDeviceValidateInforom(dev_t_ d)
{
    ENTER_PLAIN(d);
    return sim_gpu(d->gpu, d->mig, "inforom.image") ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

API nvmlDeviceGetCudaComputeCapability(dev_t_ d, int *major, int *minor)
{
    const char *value;
    ENTER(d, O(major), O(minor));
    int rc = text_of(d, "compute_capability", &value);
    if (rc)
        return rc;
    return sscanf(value, "%d.%d", major, minor) == 2 ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}

static int fill_pci(const char *bus_id, unsigned device_id, unsigned subsystem, nvmlPciInfo_t *pci)
{
    struct address a;
    memset(pci, 0, sizeof *pci);
    if (!parse_address(bus_id, &a))
        return NVML_ERROR_UNKNOWN;
    pci->domain = a.domain;
    pci->bus = a.bus;
    pci->device = a.device;
    pci->pciDeviceId = device_id << 16 | 0x10de;
    pci->pciSubSystemId = subsystem;
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%04X:%02X:%02X.0", a.domain, a.bus, a.device);
    snprintf(pci->busId, sizeof pci->busId, "%08X:%02X:%02X.0", a.domain, a.bus, a.device);
    return NVML_SUCCESS;
}

static int pci_of(dev_t_ d, nvmlPciInfo_t *pci)
{
    const char *bus_id;
    int rc = text_of(d, "pci.bus_id", &bus_id);
    if (rc)
        return rc;
    return fill_pci(bus_id, (unsigned)number_or(d, "pci.device_id", 0),
                    (unsigned)(number_or(d, "pci.subsystem_device", 0) << 16 |
                               number_or(d, "pci.subsystem_vendor", 0x10de)), pci);
}

API nvmlDeviceGetPciInfo_v3(dev_t_ d, nvmlPciInfo_t *pci)
{
    ENTER(d, O(pci));
    return pci_of(d, pci);
}

static int old_pci(dev_t_ d, nvmlPciInfo_v2_t *pci)
{
    nvmlPciInfo_t full;
    int rc = pci_of(d, &full);
    memset(pci, 0, sizeof *pci);
    memcpy(pci->busId, full.busIdLegacy, sizeof pci->busId);
    pci->domain = full.domain;
    pci->bus = full.bus;
    pci->device = full.device;
    pci->pciDeviceId = full.pciDeviceId;
    pci->pciSubSystemId = full.pciSubSystemId;
    return rc;
}

API nvmlDeviceGetPciInfo(dev_t_ d, nvmlPciInfo_v2_t *pci)
{
    ENTER(d, O(pci));
    return old_pci(d, pci);
}

API nvmlDeviceGetPciInfo_v2(dev_t_ d, nvmlPciInfo_v2_t *pci)
{
    ENTER(d, O(pci));
    return old_pci(d, pci);
}

API nvmlDeviceGetPciInfoExt(dev_t_ d, nvmlPciInfoExt_t *ext)
{
    nvmlPciInfo_t pci;
    ENTER(d, V(ext));
    NEED_VERSION(ext, VERSION_OF(nvmlPciInfoExt_t, 1));
    int rc = pci_of(d, &pci);
    if (rc)
        return rc;
    unsigned class = (unsigned)number_or(d, "pci.class", 0x030200);
    ext->domain = pci.domain;
    ext->bus = pci.bus;
    ext->device = pci.device;
    ext->pciDeviceId = pci.pciDeviceId;
    ext->pciSubSystemId = pci.pciSubSystemId;
    ext->baseClass = class >> 16;
    ext->subClass = class >> 8 & 0xff;
    memcpy(ext->busId, pci.busId, sizeof ext->busId);
    return NVML_SUCCESS;
}

API nvmlDeviceOnSameBoard(dev_t_ d, dev_t_ other, int *same)
{
    ENTER(d, O(same));
    if (!is_device(other))
        return NVML_ERROR_INVALID_ARGUMENT;
    *same = d->gpu == other->gpu;
    return NVML_SUCCESS;
}

/* ---- memory ----------------------------------------------------------------------------------------------------- */

struct memory {
    unsigned long long total, reserved, free, used;
};

static int memory_of(dev_t_ d, struct memory *m)
{
    int rc = u64_of(d, "memory.total", &m->total);
    if (rc)
        return rc;
    if ((rc = number_of(d, "memory.used", &m->used)) && rc != NVML_ERROR_NOT_SUPPORTED)
        return rc;
    if (rc)
        m->used = 0;
    m->reserved = number_or(d, "memory.reserved", 0);
    m->free = number_or(d, "memory.free", m->total - m->reserved - m->used);
    return NVML_SUCCESS;
}

API nvmlDeviceGetMemoryInfo(dev_t_ d, nvmlMemory_t *memory)
{
    struct memory m;
    ENTER(d, O(memory));
    int rc = memory_of(d, &m);
    if (!rc)
        *memory = (nvmlMemory_t){m.total, m.free, m.used + m.reserved};
    return rc;
}

API nvmlDeviceGetMemoryInfo_v2(dev_t_ d, nvmlMemory_v2_t *memory)
{
    struct memory m;
    ENTER(d, V(memory));
    NEED_VERSION(memory, VERSION_OF(nvmlMemory_v2_t, 2));
    int rc = memory_of(d, &m);
    if (!rc)
        *memory = (nvmlMemory_v2_t){memory->version, m.total, m.reserved, m.free, m.used};
    return rc;
}

API nvmlDeviceGetBAR1MemoryInfo(dev_t_ d, nvmlBAR1Memory_t *bar1)
{
    unsigned long long total;
    ENTER(d, O(bar1));
    int rc = u64_of(d, "bar1.total", &total);
    if (rc)
        return rc;
    unsigned long long used = number_or(d, "bar1.used", 0);
    *bar1 = (nvmlBAR1Memory_t){total, total - used, used};
    return NVML_SUCCESS;
}

/* ---- errors of memory ------------------------------------------------------------------------------------------- */

UINT_PAIR_CALL(nvmlDeviceGetEccMode, "ecc.current", "ecc.pending")
UINT_CALL(nvmlDeviceGetDefaultEccMode, "ecc.default")

static int ecc_count(dev_t_ d, int error, int counter, unsigned long long *count)
{
    if (error < 0 || error > 1 || counter < 0 || counter > 1)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (number_or(d, "ecc.current", 0) != 1)
        return NVML_ERROR_NOT_SUPPORTED;
    const char *key = KEY("ecc.%s.%s", counter ? "aggregate" : "volatile", error ? "uncorrected" : "corrected");
    int rc = u64_of(d, key, count);
    if (rc == NVML_ERROR_NOT_SUPPORTED) {
        *count = 0;
        rc = NVML_SUCCESS;
    }
    return rc;
}

API nvmlDeviceGetTotalEccErrors(dev_t_ d, int error, int counter, unsigned long long *count)
{
    ENTER(d, O(count));
    return ecc_count(d, error, counter, count);
}

API nvmlDeviceGetMemoryErrorCounter(dev_t_ d, int error, int counter, int location, unsigned long long *count)
{
    ENTER(d, O(count));
    if (location < 0 || location > 7)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (location != 2 && location != 7) /* current products count only device memory and SRAM */
        return NVML_ERROR_NOT_SUPPORTED;
    if (location == 7) {
        *count = number_or(d, KEY("ecc.sram.%s.%s", counter ? "aggregate" : "volatile",
                                  error ? "uncorrected" : "corrected"), 0);
        return number_or(d, "ecc.current", 0) == 1 ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
    }
    return ecc_count(d, error, counter, count);
}

API nvmlDeviceGetDetailedEccErrors(dev_t_ d, int error, int counter, nvmlEccErrorCounts_t *counts)
{
    ENTER(d, O(counts));
    memset(counts, 0, sizeof *counts);
    return ecc_count(d, error, counter, &counts->deviceMemory);
}

API nvmlDeviceGetSramEccErrorStatus(dev_t_ d, nvmlEccSramErrorStatus_t *status)
{
    unsigned version;
    ENTER(d, V(status));
    NEED_VERSION(status, VERSION_OF(nvmlEccSramErrorStatus_t, 1));
    if (number_or(d, "architecture", 0) < 7 || number_or(d, "ecc.current", 0) != 1)
        return NVML_ERROR_NOT_SUPPORTED;
    version = status->version;
    memset(status, 0, sizeof *status);
    status->version = version;
    status->aggregateUncParity = number_or(d, "ecc.sram.aggregate.uncorrected", 0);
    status->aggregateUncSecDed = number_or(d, "ecc.sram.aggregate.uncorrected_secded", 0);
    status->aggregateCor = number_or(d, "ecc.sram.aggregate.corrected", 0);
    status->volatileUncParity = number_or(d, "ecc.sram.volatile.uncorrected", 0);
    status->volatileUncSecDed = number_or(d, "ecc.sram.volatile.uncorrected_secded", 0);
    status->volatileCor = number_or(d, "ecc.sram.volatile.corrected", 0);
    status->bThresholdExceeded = (unsigned)number_or(d, "ecc.sram.threshold_exceeded", 0);
    return NVML_SUCCESS;
}

static int retired_pages(dev_t_ d, int cause, unsigned *count, unsigned long long *addresses, unsigned long long *times)
{
    const char *list;
    unsigned found = 0, room = *count;
    if (cause < 0 || cause > 1)
        return NVML_ERROR_INVALID_ARGUMENT;
    list = sim_gpu(d->gpu, d->mig, cause ? "retired.dbe" : "retired.sbe");
    if (!list)
        return NVML_ERROR_NOT_SUPPORTED;
    if (*list == '!')
        return atoi(list + 1);
    for (char *end; *list; list = *end ? end + 1 : end) {
        unsigned long long address = strtoull(list, &end, 0);
        if (end == list)
            break;
        if (addresses && found < room) {
            addresses[found] = address;
            if (times)
                times[found] = 1700000000000000ull;
        }
        found++;
    }
    *count = found;
    return found > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

API nvmlDeviceGetRetiredPages(dev_t_ d, int cause, unsigned *count, unsigned long long *addresses)
{
    ENTER(d, O(count));
    return retired_pages(d, cause, count, addresses, NULL);
}

API nvmlDeviceGetRetiredPages_v2(dev_t_ d, int cause, unsigned *count, unsigned long long *addresses,
                                 unsigned long long *times)
{
    ENTER(d, O(count));
    return retired_pages(d, cause, count, addresses, times);
}

UINT_CALL(nvmlDeviceGetRetiredPagesPendingStatus, "retired.pending")

static int mig_is_used(dev_t_ d)
{
    if (number_or(d, "mig.current", 0) != 1)
        return 0;
    for (int mig = 0; mig < MAX_MIG; mig++)
        if (sim_gpu(d->gpu, mig, "uuid"))
            return 1;
    return 0;
}

API nvmlDeviceGetRemappedRows(dev_t_ d, unsigned *correctable, unsigned *uncorrectable, unsigned *pending,
                              unsigned *failed)
{
    ENTER(d, O(correctable), O(uncorrectable), O(pending), O(failed));
    if (mig_is_used(d))
        return NVML_ERROR_NOT_SUPPORTED;
    int rc = uint_of(d, "remapped.correctable", correctable);
    if (!rc)
        rc = uint_of(d, "remapped.uncorrectable", uncorrectable);
    if (!rc)
        rc = uint_of(d, "remapped.pending", pending);
    return rc ? rc : uint_of(d, "remapped.failed", failed);
}

API nvmlDeviceGetRowRemapperHistogram(dev_t_ d, nvmlRowRemapperHistogramValues_t *values)
{
    const char *value;
    ENTER(d, O(values));
    if (mig_is_used(d))
        return NVML_ERROR_NOT_SUPPORTED;
    int rc = text_of(d, "remapped.histogram", &value);
    if (rc)
        return rc;
    return sscanf(value, "%u,%u,%u,%u,%u", &values->max, &values->high, &values->partial, &values->low,
                  &values->none) == 5 ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}

API nvmlDeviceGetRepairStatus(dev_t_ d, nvmlRepairStatus_t *status)
{
    ENTER(d, V(status));
    NEED_VERSION(status, VERSION_OF(nvmlRepairStatus_t, 1));
    int rc = uint_of(d, "repair.channel_pending", &status->bChannelRepairPending);
    return rc ? rc : uint_of(d, "repair.tpc_pending", &status->bTpcRepairPending);
}

/* ---- modes ------------------------------------------------------------------------------------------------------ */

UINT_CALL(nvmlDeviceGetDisplayMode, "display_mode")
UINT_CALL(nvmlDeviceGetDisplayActive, "display_active")
UINT_CALL(nvmlDeviceGetVirtualizationMode, "virtualization_mode")
UINT_CALL(nvmlDeviceGetHostVgpuMode, "host_vgpu_mode")
UINT_CALL(nvmlDeviceGetAccountingMode, "accounting_mode")
UINT_CALL(nvmlDeviceGetPerformanceState, "pstate")
UINT_CALL(nvmlDeviceGetPowerState, "pstate")
UINT_PAIR_CALL(nvmlDeviceGetMigMode, "mig.current", "mig.pending")
UINT_PAIR_CALL(nvmlDeviceGetDriverModel, "driver_model", "driver_model")
UINT_PAIR_CALL(nvmlDeviceGetGpuOperationMode, "gom.current", "gom.pending")
UINT_PAIR_CALL(nvmlDeviceGetAutoBoostedClocksEnabled, "auto_boost", "auto_boost")

API nvmlDeviceGetPersistenceMode(dev_t_ d, unsigned *mode)
{
    ENTER(d, O(mode));
    const char *bus_id = sim_gpu(d->gpu, -1, "pci.bus_id");
    int rc = uint_of(d, "persistence_mode", mode);
    if (!rc && bus_id && sim_check_nodes() && sim_is_held(bus_id))
        *mode = 1;
    return rc;
}

API nvmlDeviceGetComputeMode(dev_t_ d, unsigned *mode)
{
    ENTER(d, O(mode));
    if (d->mig < 0 && number_or(d, "mig.current", 0) == 1)
        return NVML_ERROR_NOT_SUPPORTED;
    return uint_of(d, "compute_mode", mode);
}

API nvmlDeviceGetGspFirmwareVersion(dev_t_ d, char *version)
{
    const char *value;
    ENTER(d, S(version, 64));
    if (number_or(d, "gsp.enabled", 0) != 1)
        return NVML_ERROR_NOT_SUPPORTED;
    int rc = text_of(d, "gsp.version", &value);
    if (rc == NVML_ERROR_NOT_SUPPORTED) /* the firmware has the version of the driver */
        rc = text_of(NULL, "module.version", &value);
    return rc ? rc : copy_text(value, version, 64);
}

UINT_PAIR_CALL(nvmlDeviceGetGspFirmwareMode, "gsp.enabled", "gsp.default")

/* A vGPU has the feature that its type needs, and another one that is off. license.expiry: a time, or `permanent`. */
API nvmlDeviceGetGridLicensableFeatures_v4(dev_t_ d, nvmlGridLicensableFeatures_t *features)
{
    ENTER(d, O(features));
    if (number_or(d, "virtualization_mode", 0) != 2)
        return NVML_ERROR_NOT_SUPPORTED;
    memset(features, 0, sizeof *features);
    features->isGridLicenseSupported = (int)number_or(d, "license.supported", 1);
    features->licensableFeaturesCount = (unsigned)number_or(d, "license.features", 2);
    nvmlGridLicensableFeature_t *feature = &features->gridLicensableFeatures[1];
    features->gridLicensableFeatures[0].featureCode = 4;
    strcpy(features->gridLicensableFeatures[0].productName, "NVIDIA Virtual Compute Server");
    feature->featureCode = 2;
    strcpy(feature->productName, "NVIDIA RTX Virtual Workstation");
    feature->featureEnabled = 1;
    feature->featureState = (unsigned)number_or(d, "license.licensed", 0);
    nvmlGridLicenseExpiry_t *expiry = &feature->licenseExpiry;
    const char *when;
    if (text_of(d, "license.expiry", &when))
        expiry->status = 0;
    else if (sscanf(when, "%u-%hu-%hu %hu:%hu:%hu", &expiry->year, &expiry->month, &expiry->day, &expiry->hour,
                    &expiry->min, &expiry->sec) == 6)
        expiry->status = 2;
    else
        expiry->status = 4;
    return NVML_SUCCESS;
}

API nvmlDeviceGetAddressingMode(dev_t_ d, nvmlDeviceAddressingMode_t *mode)
{
    ENTER(d, V(mode));
    NEED_VERSION(mode, VERSION_OF(nvmlDeviceAddressingMode_t, 1));
    if (driver_major() < 570)
        return NVML_ERROR_FUNCTION_NOT_FOUND;
    return uint_of(d, "addressing_mode", &mode->value);
}

API nvmlDeviceGetC2cModeInfoV(dev_t_ d, unsigned *enabled)
{
    ENTER(d, O(enabled));
    return uint_of(d, "c2c.enabled", enabled);
}

/* ---- power, clocks, temperature, utilization -------------------------------------------------------------------- */

UINT_CALL(nvmlDeviceGetPowerUsage, "power.draw")
UINT_CALL(nvmlDeviceGetPowerManagementMode, "power.management")
UINT_CALL(nvmlDeviceGetPowerManagementLimit, "power.limit")
UINT_CALL(nvmlDeviceGetPowerManagementDefaultLimit, "power.default")
UINT_PAIR_CALL(nvmlDeviceGetPowerManagementLimitConstraints, "power.min", "power.max")

API nvmlDeviceGetEnforcedPowerLimit(dev_t_ d, unsigned *limit)
{
    ENTER(d, O(limit));
    return uint_of(d, sim_gpu(d->gpu, d->mig, "power.enforced") ? "power.enforced" : "power.limit", limit);
}

API nvmlDeviceGetTotalEnergyConsumption(dev_t_ d, unsigned long long *energy)
{
    ENTER(d, O(energy));
    return u64_of(d, "energy", energy);
}

static const char *const clock_names[] = {"graphics", "sm", "memory", "video"};

static int clock_of(dev_t_ d, const char *kind, int type, unsigned *clock)
{
    if (type < 0 || type > 3)
        return NVML_ERROR_INVALID_ARGUMENT;
    return uint_of(d, KEY("clock.%s.%s", kind, clock_names[type]), clock);
}

#define CLOCK_CALL(function, kind)                          \
    API function(dev_t_ d, int type, unsigned *clock)       \
    {                                                       \
        ENTER(d, O(clock));                                 \
        return clock_of(d, kind, type, clock);              \
    }

CLOCK_CALL(nvmlDeviceGetClockInfo, "now")
CLOCK_CALL(nvmlDeviceGetMaxClockInfo, "max")
CLOCK_CALL(nvmlDeviceGetApplicationsClock, "application")
CLOCK_CALL(nvmlDeviceGetDefaultApplicationsClock, "default")
CLOCK_CALL(nvmlDeviceGetMaxCustomerBoostClock, "max")

API nvmlDeviceGetClock(dev_t_ d, int type, int id, unsigned *clock)
{
    static const char *const kinds[] = {"now", "application", "default", "max"};
    ENTER(d, O(clock));
    return id < 0 || id > 3 ? NVML_ERROR_INVALID_ARGUMENT : clock_of(d, kinds[id], type, clock);
}

/* Write a comma-separated list of numbers to an array whose size the caller passes. */
static int list_of(dev_t_ d, const char *key, unsigned *count, unsigned *out)
{
    const char *list;
    unsigned found = 0, room = *count;
    int rc = text_of(d, key, &list);
    if (rc)
        return rc;
    for (char *end; *list; list = *end ? end + 1 : end) {
        unsigned number = (unsigned)strtoul(list, &end, 0);
        if (end == list)
            break;
        if (out && found < room)
            out[found] = number;
        found++;
    }
    *count = found;
    return found > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

API nvmlDeviceGetSupportedMemoryClocks(dev_t_ d, unsigned *count, unsigned *clocks)
{
    ENTER(d, O(count));
    return list_of(d, "clock.supported.memory", count, clocks);
}

API nvmlDeviceGetSupportedGraphicsClocks(dev_t_ d, unsigned memory_clock, unsigned *count, unsigned *clocks)
{
    (void)memory_clock;
    ENTER(d, O(count));
    return list_of(d, "clock.supported.graphics", count, clocks);
}

static int throttle_reasons(const char *function, dev_t_ d, const char *key, unsigned long long *reasons)
{
    int rc = enter(function, 1, d, O(reasons), LAST);
    return rc != GO_ON ? rc : u64_of(d, key, reasons);
}

API nvmlDeviceGetCurrentClocksThrottleReasons(dev_t_ d, unsigned long long *reasons)
{
    return throttle_reasons(__func__, d, "throttle", reasons);
}

API nvmlDeviceGetCurrentClocksEventReasons(dev_t_ d, unsigned long long *reasons)
{
    if (init_count && driver_major() < 535)
        return NVML_ERROR_FUNCTION_NOT_FOUND;
    return throttle_reasons(__func__, d, "throttle", reasons);
}

API nvmlDeviceGetSupportedClocksThrottleReasons(dev_t_ d, unsigned long long *reasons)
{
    return throttle_reasons(__func__, d, "throttle.supported", reasons);
}

API nvmlDeviceGetSupportedClocksEventReasons(dev_t_ d, unsigned long long *reasons)
{
    return throttle_reasons(__func__, d, "throttle.supported", reasons);
}

API nvmlDeviceGetTemperature(dev_t_ d, int sensor, unsigned *temperature)
{
    ENTER(d, O(temperature));
    return sensor ? NVML_ERROR_INVALID_ARGUMENT : uint_of(d, "temperature", temperature);
}

API nvmlDeviceGetTemperatureV(dev_t_ d, nvmlTemperature_t *temperature)
{
    unsigned value;
    ENTER(d, (void *)(temperature ? &temperature->temperature : NULL), sizeof(int));
    if (driver_major() < 560)
        return NVML_ERROR_FUNCTION_NOT_FOUND;
    NEED_VERSION(temperature, VERSION_OF(nvmlTemperature_t, 1));
    if (temperature->sensorType)
        return NVML_ERROR_INVALID_ARGUMENT;
    int rc = uint_of(d, "temperature", &value);
    if (!rc)
        temperature->temperature = (int)value;
    return rc;
}

API nvmlDeviceGetMarginTemperature(dev_t_ d, nvmlMarginTemperature_t *margin)
{
    unsigned value;
    ENTER(d, V(margin));
    NEED_VERSION(margin, VERSION_OF(nvmlMarginTemperature_t, 1));
    int rc = uint_of(d, "temperature.margin", &value);
    if (!rc)
        margin->marginTemperature = (int)value;
    return rc;
}

API nvmlDeviceGetTemperatureThreshold(dev_t_ d, int threshold, unsigned *temperature)
{
    static const char *const names[] = {"shutdown", "slowdown", "memory_max", "gpu_max", "acoustic_min",
                                        "acoustic_current", "acoustic_max", "gps_current"};
    ENTER(d, O(temperature));
    if (threshold < 0 || threshold > 7)
        return NVML_ERROR_INVALID_ARGUMENT;
    return uint_of(d, KEY("threshold.%s", names[threshold]), temperature);
}

UINT_CALL(nvmlDeviceGetNumFans, "fans")
UINT_PAIR_CALL(nvmlDeviceGetMinMaxFanSpeed, "fan.min", "fan.max")
UINT_CALL(nvmlDeviceGetFanSpeed, "fan.speed")

API nvmlDeviceGetFanSpeed_v2(dev_t_ d, unsigned fan, unsigned *speed)
{
    ENTER(d, O(speed));
    unsigned long long fans = number_or(d, "fans", 0);
    if (!fans)
        return NVML_ERROR_NOT_SUPPORTED;
    if (fan >= fans)
        return NVML_ERROR_INVALID_ARGUMENT;
    return uint_of(d, sim_gpu(d->gpu, d->mig, KEY("fan.%u.speed", fan)) ? KEY("fan.%u.speed", fan) : "fan.speed",
                   speed);
}

/* In MIG mode, the GPU itself has no value. */
static int load_of(dev_t_ d, const char *key, unsigned *load)
{
    return number_or(d, "mig.current", 0) == 1 ? NVML_ERROR_NOT_SUPPORTED : uint_of(d, key, load);
}

API nvmlDeviceGetUtilizationRates(dev_t_ d, nvmlUtilization_t *utilization)
{
    ENTER(d, O(utilization));
    int rc = load_of(d, "utilization.gpu", &utilization->gpu);
    return rc ? rc : load_of(d, "utilization.memory", &utilization->memory);
}

#define ENGINE_CALL(function, key)                                          \
    API function(dev_t_ d, unsigned *utilization, unsigned *period)         \
    {                                                                       \
        ENTER(d, O(utilization), O(period));                                \
        *period = 167000;                                                   \
        return load_of(d, key, utilization);                                \
    }

ENGINE_CALL(nvmlDeviceGetEncoderUtilization, "utilization.encoder")
ENGINE_CALL(nvmlDeviceGetDecoderUtilization, "utilization.decoder")
ENGINE_CALL(nvmlDeviceGetJpgUtilization, "utilization.jpeg")
ENGINE_CALL(nvmlDeviceGetOfaUtilization, "utilization.ofa")

/* ---- PCIe, topology, NVLink ------------------------------------------------------------------------------------- */

UINT_CALL(nvmlDeviceGetMaxPcieLinkGeneration, "pcie.generation.max")
UINT_CALL(nvmlDeviceGetCurrPcieLinkGeneration, "pcie.generation.now")
UINT_CALL(nvmlDeviceGetMaxPcieLinkWidth, "pcie.width.max")
UINT_CALL(nvmlDeviceGetCurrPcieLinkWidth, "pcie.width.now")
UINT_CALL(nvmlDeviceGetPcieReplayCounter, "pcie.replay")
UINT_CALL(nvmlDeviceGetPcieSpeed, "pcie.speed")
UINT_CALL(nvmlDeviceGetPcieLinkMaxSpeed, "pcie.speed_max")
UINT_CALL(nvmlDeviceGetNumaNodeId, "numa_node")

API nvmlDeviceGetGpuMaxPcieLinkGeneration(dev_t_ d, unsigned *generation)
{
    ENTER(d, O(generation));
    return uint_of(d, sim_gpu(d->gpu, d->mig, "pcie.generation.gpu_max") ? "pcie.generation.gpu_max"
                                                                        : "pcie.generation.max", generation);
}

API nvmlDeviceGetPcieThroughput(dev_t_ d, int counter, unsigned *value)
{
    ENTER(d, O(value));
    if (counter < 0 || counter > 1)
        return NVML_ERROR_INVALID_ARGUMENT;
    return uint_of(d, counter ? "pcie.rx" : "pcie.tx", value);
}

API nvmlDeviceGetTopologyCommonAncestor(dev_t_ d, dev_t_ other, unsigned *level)
{
    ENTER(d, O(level));
    if (!is_device(other))
        return NVML_ERROR_INVALID_ARGUMENT;
    if (d->gpu == other->gpu) {
        *level = 0;
        return NVML_SUCCESS;
    }
    return uint_of(d, KEY("topology.%d", other->gpu), level);
}

API nvmlDeviceGetTopologyNearestGpus(dev_t_ d, unsigned level, unsigned *count, dev_t_ *near)
{
    unsigned found = 0;
    ENTER(d, O(count));
    for (int i = 0; i < gpu_count; i++)
        if (devices[i].gpu != d->gpu && number_or(d, KEY("topology.%d", devices[i].gpu), 99) == level) {
            if (near && found < *count)
                near[found] = &devices[i];
            found++;
        }
    *count = found;
    return NVML_SUCCESS;
}

static int link_text(dev_t_ d, unsigned link, const char *key, const char **value)
{
    unsigned long long count;
    int rc = number_of(d, "nvlink.count", &count);
    if (rc)
        return rc;
    if (link >= count)
        return NVML_ERROR_INVALID_ARGUMENT;
    rc = text_of(d, KEY("nvlink.%u.%s", link, key), value);
    return rc == NVML_ERROR_NOT_SUPPORTED ? text_of(d, KEY("nvlink.%s", key), value) : rc;
}

static int link_uint(dev_t_ d, unsigned link, const char *key, unsigned *out)
{
    const char *value;
    int rc = link_text(d, link, key, &value);
    if (!rc)
        *out = (unsigned)strtoul(value, NULL, 0);
    return rc;
}

#define LINK_CALL(function, key)                                \
    API function(dev_t_ d, unsigned link, unsigned *value)      \
    {                                                           \
        ENTER(d, O(value));                                     \
        return link_uint(d, link, key, value);                  \
    }

LINK_CALL(nvmlDeviceGetNvLinkState, "state")
LINK_CALL(nvmlDeviceGetNvLinkVersion, "version")
LINK_CALL(nvmlDeviceGetNvLinkRemoteDeviceType, "remote_type")

API nvmlDeviceGetNvLinkCapability(dev_t_ d, unsigned link, unsigned capability, unsigned *result)
{
    ENTER(d, O(result));
    if (capability > 5)
        return NVML_ERROR_INVALID_ARGUMENT;
    int rc = link_uint(d, link, KEY("capability.%u", capability), result);
    if (rc == NVML_ERROR_NOT_SUPPORTED && sim_gpu(d->gpu, d->mig, "nvlink.count")) {
        *result = 1;
        rc = NVML_SUCCESS;
    }
    return rc;
}

API nvmlDeviceGetNvLinkErrorCounter(dev_t_ d, unsigned link, int counter, unsigned long long *value)
{
    unsigned count = 0;
    ENTER(d, O(value));
    if (counter < 0 || counter > 4)
        return NVML_ERROR_INVALID_ARGUMENT;
    int rc = link_uint(d, link, KEY("errors.%d", counter), &count);
    if (rc == NVML_ERROR_NOT_SUPPORTED && sim_gpu(d->gpu, d->mig, "nvlink.count"))
        rc = NVML_SUCCESS;
    *value = count;
    return rc;
}

static int remote_pci(dev_t_ d, unsigned link, nvmlPciInfo_t *pci)
{
    const char *bus_id;
    unsigned device_id = 0, state = 0;
    int rc = link_text(d, link, "remote", &bus_id);
    if (!rc && !link_uint(d, link, "state", &state) && state != 1)
        rc = NVML_ERROR_NOT_SUPPORTED; /* the other end does not respond */
    if (rc)
        return rc;
    for (int i = 0; i < MAX_GPUS; i++) {
        const char *other = sim_gpu(i, -1, "pci.bus_id"), *id;
        if (other && !strcmp(other, bus_id) && (id = sim_gpu(i, -1, "pci.device_id")))
            device_id = (unsigned)strtoul(id, NULL, 0);
    }
    if (!device_id)
        device_id = (unsigned)number_or(NULL, "nvswitch.device_id", 0);
    return fill_pci(bus_id, device_id, 0, pci);
}

API nvmlDeviceGetNvLinkRemotePciInfo(dev_t_ d, unsigned link, nvmlPciInfo_t *pci)
{
    ENTER(d, O(pci));
    return remote_pci(d, link, pci);
}

API nvmlDeviceGetNvLinkRemotePciInfo_v2(dev_t_ d, unsigned link, nvmlPciInfo_t *pci)
{
    ENTER(d, O(pci));
    return remote_pci(d, link, pci);
}

/* P2P: 0 read, 1 write, 2 NVLink, 3 atomics, 4 PCI. Status 0 is OK, 1 chipset not supported, 6 unknown… */
API nvmlDeviceGetP2PStatus(dev_t_ d, dev_t_ other, int index, unsigned *status)
{
    ENTER(d, O(status));
    if (!is_device(other) || index < 0 || index > 4)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (!uint_of(d, KEY("p2p.%d.%d", other->gpu, index), status))
        return NVML_SUCCESS;
    int linked = sim_gpu(d->gpu, -1, "nvlink.count") && sim_gpu(other->gpu, -1, "nvlink.count");
    *status = index == 2 || index == 3 ? (linked ? 0 : 2) : 0;
    return NVML_SUCCESS;
}

static int set_bits(const char *list, unsigned words, unsigned long *set)
{
    memset(set, 0, words * sizeof *set);
    while (*list) {
        unsigned from, to;
        int used = 0, fields = sscanf(list, "%u%n-%u%n", &from, &used, &to, &used);
        if (fields < 1)
            return NVML_ERROR_UNKNOWN;
        for (unsigned bit = from; bit <= (fields == 2 ? to : from); bit++)
            if (bit / (8 * sizeof *set) < words)
                set[bit / (8 * sizeof *set)] |= 1ul << bit % (8 * sizeof *set);
        list += used;
        list += *list == ',';
    }
    return NVML_SUCCESS;
}

static int cpu_affinity(dev_t_ d, unsigned words, unsigned long *set)
{
    const char *list;
    int rc = text_of(d, "cpu_affinity", &list);
    return rc ? rc : set_bits(list, words, set);
}

API nvmlDeviceGetCpuAffinity(dev_t_ d, unsigned words, unsigned long *set)
{
    ENTER(d, (void *)set, words * sizeof *set);
    return cpu_affinity(d, words, set);
}

API nvmlDeviceGetCpuAffinityWithinScope(dev_t_ d, unsigned words, unsigned long *set, int scope)
{
    (void)scope;
    ENTER(d, (void *)set, words * sizeof *set);
    return cpu_affinity(d, words, set);
}

API nvmlDeviceGetMemoryAffinity(dev_t_ d, unsigned words, unsigned long *set, int scope)
{
    const char *node;
    (void)scope;
    ENTER(d, (void *)set, words * sizeof *set);
    int rc = text_of(d, "numa_node", &node);
    if (!rc && *node == '-')
        rc = NVML_ERROR_NOT_SUPPORTED;
    return rc ? rc : set_bits(node, words, set);
}

/* ---- fabric ----------------------------------------------------------------------------------------------------- */

struct fabric {
    unsigned char cluster[16];
    unsigned status, clique, state, mask, summary;
};

static int fabric_of(dev_t_ d, struct fabric *f)
{
    const char *cluster = sim_gpu(d->gpu, d->mig, "fabric.cluster");
    memset(f, 0, sizeof *f);
    int rc = uint_of(d, "fabric.state", &f->state);
    for (int i = 0; cluster && i < 16; cluster++) {
        unsigned byte;
        if (*cluster != '-' && sscanf(cluster, "%2x", &byte) == 1) {
            f->cluster[i++] = (unsigned char)byte;
            cluster++;
        } else if (!*cluster) {
            break;
        }
    }
    f->status = (unsigned)number_or(d, "fabric.status", 0);
    f->clique = (unsigned)number_or(d, "fabric.clique", 0);
    f->mask = (unsigned)number_or(d, "fabric.health_mask", 0);
    f->summary = (unsigned)number_or(d, "fabric.health_summary", f->state == 3 ? 1 : 0);
    return rc;
}

API nvmlDeviceGetGpuFabricInfo(dev_t_ d, nvmlGpuFabricInfo_t *info)
{
    struct fabric f;
    ENTER(d, O(info));
    int rc = fabric_of(d, &f);
    if (rc)
        return rc;
    memcpy(info->clusterUuid, f.cluster, 16);
    info->status = f.status;
    info->cliqueId = f.clique;
    info->state = f.state;
    return NVML_SUCCESS;
}

API nvmlDeviceGetGpuFabricInfoV(dev_t_ d, nvmlGpuFabricInfo_v3_t *info)
{
    struct fabric f;
    size_t size = info && info->version == VERSION_OF(nvmlGpuFabricInfo_v3_t, 3) ? sizeof *info
                                                                                 : sizeof(nvmlGpuFabricInfo_v2_t);
    ENTER(d, (void *)(info ? (char *)info + 4 : NULL), size - 4);
    if (info->version != VERSION_OF(nvmlGpuFabricInfo_v2_t, 2) &&
        (info->version != VERSION_OF(nvmlGpuFabricInfo_v3_t, 3) || driver_major() < 570))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    int rc = fabric_of(d, &f);
    if (rc)
        return rc;
    memcpy(info->clusterUuid, f.cluster, 16);
    info->status = f.status;
    info->cliqueId = f.clique;
    info->state = f.state;
    info->healthMask = f.mask;
    if (size == sizeof *info)
        info->healthSummary = (unsigned char)f.summary;
    return NVML_SUCCESS;
}

/* ---- MIG -------------------------------------------------------------------------------------------------------- */

API nvmlDeviceGetMaxMigDeviceCount(dev_t_ d, unsigned *count)
{
    ENTER(d, O(count));
    *count = number_or(d, "mig.current", 0) == 1 ? (unsigned)number_or(d, "mig.max", 7) : 0;
    return NVML_SUCCESS;
}

API nvmlDeviceIsMigDeviceHandle(dev_t_ d, unsigned *is_mig)
{
    ENTER(d, O(is_mig));
    *is_mig = d->mig >= 0;
    return NVML_SUCCESS;
}

API nvmlDeviceGetMigDeviceHandleByIndex(dev_t_ d, unsigned index, dev_t_ *device)
{
    ENTER(d, O(device));
    if (!sim_gpu(d->gpu, d->mig, "mig.current"))
        return NVML_ERROR_NOT_SUPPORTED;
    if (index >= number_or(d, "mig.max", 7))
        return NVML_ERROR_INVALID_ARGUMENT;
    for (int i = gpu_count; i < device_count; i++)
        if (devices[i].parent == d && devices[i].mig == (int)index)
            return hand_out(__func__, &devices[i], device);
    return NVML_ERROR_NOT_FOUND;
}

API nvmlDeviceGetDeviceHandleFromMigDeviceHandle(dev_t_ d, dev_t_ *device)
{
    ENTER(d, O(device));
    if (d->mig < 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    *device = d->parent;
    return NVML_SUCCESS;
}

static int mig_uint(dev_t_ d, const char *key, unsigned *value)
{
    return d->mig < 0 ? NVML_ERROR_INVALID_ARGUMENT : uint_of(d, key, value);
}

API nvmlDeviceGetGpuInstanceId(dev_t_ d, unsigned *id)
{
    ENTER(d, O(id));
    return mig_uint(d, "gi", id);
}

API nvmlDeviceGetComputeInstanceId(dev_t_ d, unsigned *id)
{
    ENTER(d, O(id));
    return mig_uint(d, "ci", id);
}

static int attributes_of(dev_t_ d, nvmlDeviceAttributes_t *a)
{
    unsigned long long total;
    memset(a, 0, sizeof *a);
    int rc = mig_uint(d, "multiprocessors", &a->multiprocessorCount);
    if (rc)
        return rc;
    a->sharedCopyEngineCount = (unsigned)number_or(d, "copy_engines", 0);
    a->sharedDecoderCount = (unsigned)number_or(d, "decoders", 0);
    a->sharedEncoderCount = (unsigned)number_or(d, "encoders", 0);
    a->sharedJpegCount = (unsigned)number_or(d, "jpegs", 0);
    a->sharedOfaCount = (unsigned)number_or(d, "ofas", 0);
    a->gpuInstanceSliceCount = (unsigned)number_or(d, "gi_slices", 0);
    a->computeInstanceSliceCount = (unsigned)number_or(d, "ci_slices", 0);
    rc = u64_of(d, "memory.total", &total);
    a->memorySizeMB = rc ? 0 : total >> 20;
    return rc;
}

API nvmlDeviceGetAttributes(dev_t_ d, nvmlDeviceAttributes_t *attributes)
{
    ENTER(d, O(attributes));
    return attributes_of(d, attributes);
}

API nvmlDeviceGetAttributes_v2(dev_t_ d, nvmlDeviceAttributes_t *attributes)
{
    ENTER(d, O(attributes));
    return attributes_of(d, attributes);
}

/* ---- processes -------------------------------------------------------------------------------------------------- */

/* processes.<kind>=<pid>:<bytes or ->[:<gi>:<ci>],… */
static int processes(const char *function, dev_t_ d, const char *kind, unsigned *count, void *out, int version)
{
    const char *list;
    unsigned found = 0, room;
    int rc = enter(function, 1, d, O(count), LAST);
    if (rc != GO_ON)
        return rc;
    room = *count;
    rc = text_of(d, KEY("processes.%s", kind), &list);
    if (rc == NVML_ERROR_NOT_SUPPORTED) {
        *count = 0;
        return NVML_SUCCESS;
    }
    if (rc)
        return rc;
    while (*list) {
        unsigned pid = 0, gi = ~0u, ci = ~0u;
        unsigned long long bytes = ~0ull;
        if (sscanf(list, "%u:%llu:%u:%u", &pid, &bytes, &gi, &ci) < 1)
            break;
        if (out && found < room) {
            if (version == 1)
                ((nvmlProcessInfo_v1_t *)out)[found] = (nvmlProcessInfo_v1_t){pid, bytes};
            else
                ((nvmlProcessInfo_t *)out)[found] = (nvmlProcessInfo_t){pid, bytes, gi, ci};
        }
        found++;
        list = strchr(list, ',');
        list = list ? list + 1 : "";
    }
    *count = found;
    return found > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

#define PROCESS_CALL(function, kind, version)                               \
    API function(dev_t_ d, unsigned *count, void *infos)                    \
    {                                                                       \
        return processes(__func__, d, kind, count, infos, version);         \
    }

PROCESS_CALL(nvmlDeviceGetComputeRunningProcesses, "compute", 1)
PROCESS_CALL(nvmlDeviceGetComputeRunningProcesses_v2, "compute", 2)
PROCESS_CALL(nvmlDeviceGetComputeRunningProcesses_v3, "compute", 3)
PROCESS_CALL(nvmlDeviceGetGraphicsRunningProcesses, "graphics", 1)
PROCESS_CALL(nvmlDeviceGetGraphicsRunningProcesses_v2, "graphics", 2)
PROCESS_CALL(nvmlDeviceGetGraphicsRunningProcesses_v3, "graphics", 3)
PROCESS_CALL(nvmlDeviceGetMPSComputeRunningProcesses, "mps", 1)
PROCESS_CALL(nvmlDeviceGetMPSComputeRunningProcesses_v2, "mps", 2)
PROCESS_CALL(nvmlDeviceGetMPSComputeRunningProcesses_v3, "mps", 3)

/* ---- field values ----------------------------------------------------------------------------------------------- */

enum { AS_UINT = 1, AS_U64 = 3, AS_S64 = 4, AS_INT = 5 };

static const struct {
    unsigned id;
    int type;
    const char *key;
    int since; /* first driver branch with the field; 0: all branches */
} fields[] = {
    {1, AS_UINT, "ecc.current", 0}, {2, AS_UINT, "ecc.pending", 0},
    {3, AS_U64, "ecc.volatile.corrected", 0}, {4, AS_U64, "ecc.volatile.uncorrected", 0},
    {5, AS_U64, "ecc.aggregate.corrected", 0}, {6, AS_U64, "ecc.aggregate.uncorrected", 0},
    {29, AS_UINT, "retired.sbe", 0}, {30, AS_UINT, "retired.dbe", 0}, {31, AS_UINT, "retired.pending", 0},
    {82, AS_UINT, "temperature.memory", 0}, {83, AS_U64, "energy", 0}, {90, AS_UINT, "nvlink.speed", 0},
    {91, AS_UINT, "nvlink.count", 0}, {92, AS_UINT, "retired.pending_sbe", 0}, {93, AS_UINT, "retired.pending_dbe", 0},
    {94, AS_UINT, "pcie.replay", 0}, {142, AS_UINT, "remapped.correctable", 0},
    {143, AS_UINT, "remapped.uncorrectable", 0}, {144, AS_UINT, "remapped.pending", 0},
    {145, AS_UINT, "remapped.failed", 0}, {170, AS_UINT, "c2c.links", 0}, {171, AS_UINT, "c2c.status", 0},
    {172, AS_UINT, "c2c.bandwidth", 0}, {184, AS_UINT, "mig.resetless", 0}, {185, AS_UINT, "power.draw", 0},
    {186, AS_UINT, "power.draw", 0}, {187, AS_UINT, "power.min", 0}, {188, AS_UINT, "power.max", 0},
    {189, AS_UINT, "power.default", 0}, {190, AS_UINT, "power.limit", 0}, {191, AS_U64, "energy", 0},
    {192, AS_UINT, "power.limit", 0}, {193, AS_INT, "tlimit.shutdown", 545}, {194, AS_INT, "tlimit.slowdown", 545},
    {195, AS_INT, "tlimit.memory_max", 545}, {196, AS_INT, "tlimit.gpu_max", 545},
    {226, AS_UINT, "reset.required", 550}, {227, AS_UINT, "reset.drain", 550},
    {228, AS_UINT, "pcie.atomics.outbound", 550}, {229, AS_UINT, "pcie.atomics.inbound", 550},
    {230, AS_UINT, "recovery_action", 570},
};

static int list_length(const char *list)
{
    int length = *list != 0;
    for (; *list; list++)
        length += *list == ',';
    return length;
}

static int field_of(dev_t_ d, nvmlFieldValue_t *field)
{
    unsigned long long number = 0;
    const char *value = NULL;
    int type = AS_U64, rc = text_of(d, KEY("field.%u.%u", field->fieldId, field->scopeId), &value);
    if (rc == NVML_ERROR_NOT_SUPPORTED)
        rc = text_of(d, KEY("field.%u", field->fieldId), &value);
    if (!rc) {
        number = *value == '-' ? (unsigned long long)strtoll(value, NULL, 0) : strtoull(value, NULL, 0);
    } else if (rc == NVML_ERROR_NOT_SUPPORTED && field->fieldId >= 164 && field->fieldId <= 166) {
        static const char *const keys[] = {"speed", "state", "version"};
        type = AS_UINT;
        rc = link_text(d, field->scopeId, keys[field->fieldId - 164], &value);
        number = rc ? 0 : strtoull(value, NULL, 0);
    } else if (rc == NVML_ERROR_NOT_SUPPORTED) {
        for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
            if (fields[i].id != field->fieldId)
                continue;
            type = fields[i].type;
            if (driver_major() < fields[i].since)
                return NVML_ERROR_INVALID_ARGUMENT;
            if (field->fieldId >= 142 && field->fieldId <= 145 && mig_is_used(d))
                return NVML_ERROR_NOT_SUPPORTED;
            if (field->fieldId == 29 || field->fieldId == 30) {
                if (!(value = sim_gpu(d->gpu, d->mig, fields[i].key)))
                    return NVML_ERROR_NOT_SUPPORTED;
                rc = *value == '!' ? atoi(value + 1) : NVML_SUCCESS;
                number = (unsigned long long)list_length(value);
            } else {
                rc = number_of(d, fields[i].key, &number);
            }
        }
    }
    field->valueType = type;
    field->value.ullVal = 0;
    if (type == AS_UINT || type == AS_INT)
        field->value.uiVal = (unsigned)number;
    else
        field->value.ullVal = number;
    return rc;
}

API nvmlDeviceGetFieldValues(dev_t_ d, int count, nvmlFieldValue_t *values)
{
    struct timespec now;
    ENTER(d, (void *)values, (size_t)0);
    if (count <= 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    clock_gettime(CLOCK_REALTIME, &now);
    for (int i = 0; i < count; i++) {
        values[i].timestamp = now.tv_sec * 1000000ll + now.tv_nsec / 1000;
        values[i].latencyUsec = 1;
        values[i].nvmlReturn = field_of(d, &values[i]);
    }
    return NVML_SUCCESS;
}

/* ---- events ----------------------------------------------------------------------------------------------------- */

static int event_set; /* its address is the handle; no events occur, but waiting for them must work */

API nvmlEventSetCreate(void **set)
{
    ENTER_SYSTEM(O(set));
    *set = &event_set;
    return NVML_SUCCESS;
}

API nvmlEventSetFree(void *set)
{
    (void)set;
    return NVML_SUCCESS;
}

API nvmlDeviceGetSupportedEventTypes(dev_t_ d, unsigned long long *types)
{
    ENTER(d, O(types));
    *types = 0x1f;
    return NVML_SUCCESS;
}

API nvmlDeviceRegisterEvents(dev_t_ d, unsigned long long types, void *set)
{
    (void)types;
    (void)set;
    ENTER_PLAIN(d);
    return NVML_SUCCESS;
}

API nvmlEventSetWait(void *set, void *data, unsigned milliseconds)
{
    (void)set;
    ENTER_SYSTEM(data, (size_t)0);
    pause_for(milliseconds / 1000.0);
    return NVML_ERROR_TIMEOUT;
}

API nvmlEventSetWait_v2(void *set, void *data, unsigned milliseconds)
{
    return nvmlEventSetWait(set, data, milliseconds);
}

/* ---- settings --------------------------------------------------------------------------------------------------- */

static int change(dev_t_ d, const char *key, unsigned long long value)
{
    if (geteuid())
        return NVML_ERROR_NO_PERMISSION;
    if (!sim_gpu(d->gpu, d->mig, key))
        return NVML_ERROR_NOT_SUPPORTED;
    if (d->mig >= 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    return sim_set_gpu(d->gpu, key, KEY("%llu", value)) ? NVML_ERROR_UNKNOWN : NVML_SUCCESS;
}

API nvmlDeviceSetPersistenceMode(dev_t_ d, unsigned mode)
{
    ENTER_PLAIN(d);
    return mode > 1 ? NVML_ERROR_INVALID_ARGUMENT : change(d, "persistence_mode", mode);
}

API nvmlDeviceSetComputeMode(dev_t_ d, unsigned mode)
{
    ENTER_PLAIN(d);
    return mode > 3 || mode == 1 ? NVML_ERROR_NOT_SUPPORTED : change(d, "compute_mode", mode);
}

API nvmlDeviceSetEccMode(dev_t_ d, unsigned mode)
{
    ENTER_PLAIN(d);
    int rc = mode > 1 ? NVML_ERROR_INVALID_ARGUMENT : change(d, "ecc.pending", mode);
    if (!rc)
        sim_keep_gpu(d->gpu, "ecc.pending", KEY("%u", mode));
    return rc;
}

API nvmlDeviceClearEccErrorCounts(dev_t_ d, int counter)
{
    ENTER_PLAIN(d);
    const char *kind = counter ? "aggregate" : "volatile";
    int rc = change(d, KEY("ecc.%s.corrected", kind), 0);
    return rc ? rc : change(d, KEY("ecc.%s.uncorrected", kind), 0);
}

API nvmlDeviceSetPowerManagementLimit(dev_t_ d, unsigned limit)
{
    ENTER_PLAIN(d);
    if (limit < number_or(d, "power.min", 0) || limit > number_or(d, "power.max", ~0u))
        return sim_gpu(d->gpu, d->mig, "power.limit") ? NVML_ERROR_INVALID_ARGUMENT : NVML_ERROR_NOT_SUPPORTED;
    return change(d, "power.limit", limit);
}

API nvmlDeviceSetApplicationsClocks(dev_t_ d, unsigned memory, unsigned graphics)
{
    ENTER_PLAIN(d);
    int rc = change(d, "clock.application.memory", memory);
    return rc ? rc : change(d, "clock.application.graphics", graphics);
}

API nvmlDeviceResetApplicationsClocks(dev_t_ d)
{
    ENTER_PLAIN(d);
    int rc = change(d, "clock.application.memory", number_or(d, "clock.default.memory", 0));
    return rc ? rc : change(d, "clock.application.graphics", number_or(d, "clock.default.graphics", 0));
}

static int locked(dev_t_ d, const char *what, unsigned low, unsigned high)
{
    if (number_or(d, "architecture", 0) < 5)
        return NVML_ERROR_NOT_SUPPORTED;
    if (geteuid())
        return NVML_ERROR_NO_PERMISSION;
    return sim_set_gpu(d->gpu, KEY("clock.locked.%s", what), high ? KEY("%u,%u", low, high) : "-")
               ? NVML_ERROR_UNKNOWN : NVML_SUCCESS;
}

API nvmlDeviceSetGpuLockedClocks(dev_t_ d, unsigned low, unsigned high)
{
    ENTER_PLAIN(d);
    return low > high ? NVML_ERROR_INVALID_ARGUMENT : locked(d, "graphics", low, high);
}

API nvmlDeviceResetGpuLockedClocks(dev_t_ d)
{
    ENTER_PLAIN(d);
    return locked(d, "graphics", 0, 0);
}

API nvmlDeviceSetMemoryLockedClocks(dev_t_ d, unsigned low, unsigned high)
{
    ENTER_PLAIN(d);
    return low > high ? NVML_ERROR_INVALID_ARGUMENT : locked(d, "memory", low, high);
}

API nvmlDeviceResetMemoryLockedClocks(dev_t_ d)
{
    ENTER_PLAIN(d);
    return locked(d, "memory", 0, 0);
}

/* MIG mode is pending until a reset if the state requires one (Ampere with clients). Otherwise it changes at once. */
API nvmlDeviceSetMigMode(dev_t_ d, unsigned mode, int *activation)
{
    ENTER(d, O(activation));
    if (mode > 1)
        return NVML_ERROR_INVALID_ARGUMENT;
    const char *bus_id = sim_gpu(d->gpu, -1, "pci.bus_id");
    int rc = change(d, "mig.pending", mode);
    if (rc)
        return rc;
    if (number_or(d, "mig.resetless", 0) != 1) /* Ampere stores the mode, later products do not */
        sim_keep_gpu(d->gpu, "mig.pending", KEY("%u", mode));
    *activation = NVML_SUCCESS;
    if (number_or(d, "mig.current", 0) == mode)
        return NVML_SUCCESS;
    if (number_or(d, "mig.resetless", 0) != 1 &&
        (sim_gpu(d->gpu, -1, "processes.compute") || (bus_id && sim_check_nodes() && sim_is_held(bus_id)))) {
        *activation = NVML_ERROR_IN_USE;
        return NVML_SUCCESS;
    }
    return change(d, "mig.current", mode);
}

/* ---- calls that no simulated product supports ------------------------------------------------------------------- */

#define STUB(function)                                                              \
    API function(void *first)                                                       \
    {                                                                               \
        int rc = enter(__func__, is_device((dev_t_)first), (dev_t_)first, LAST);    \
        return rc == GO_ON ? NVML_ERROR_NOT_SUPPORTED : rc;                         \
    }
#include "nvml_stubs.h"
