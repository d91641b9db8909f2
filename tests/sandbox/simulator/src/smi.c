/* Copyright: (c) 2026, gpufleet maintainers
 * GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * Replace nvidia-smi on a simulated host. The real program uses private calls of the driver, which does not exist
 * there. This program supports the common options through the public calls of NVML: the table, -L, --query-gpu, -q, and
 * the settings -pm, -c, -pl, -e, -mig. Its exit codes are those of the real program.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "nvml_abi.h"

typedef void *device;

static void *library;

#define CALL(name, ...)                                                                     \
    ({                                                                                      \
        int (*function)() = (int (*)())dlsym(library, name);                                \
        function ? function(__VA_ARGS__) : NVML_ERROR_FUNCTION_NOT_FOUND;                   \
    })

static const char *error_text(int code)
{
    const char *(*function)(int) = (const char *(*)(int))dlsym(library, "nvmlErrorString");
    return function ? function(code) : "Unknown Error";
}

/* ---- query fields of a GPU -------------------------------------------------------------------------------------- */

static const char *problem(int code)
{
    switch (code) {
    case NVML_ERROR_NOT_SUPPORTED:
    case NVML_ERROR_FUNCTION_NOT_FOUND:
        return "[N/A]";
    case NVML_ERROR_NO_PERMISSION:
        return "[Insufficient Permissions]";
    case 15:
        return "[GPU is lost]";
    case 16:
        return "[GPU requires reset]";
    default:
        return "[Unknown Error]";
    }
}

enum kind { TEXT, NUMBER, MILLIWATT, SWITCH, SECOND, MEMORY, PCI, DRIVER, INDEX, CAPABILITY, CLOCK, COMPUTE, PSTATE, LOAD,
            TOTAL_ECC, HEX };

static const struct field {
    const char *name, *call, *unit;
    enum kind kind;
    int argument;
} fields[] = {
    {"name", "nvmlDeviceGetName", "", TEXT, 0},
    {"gpu_name", "nvmlDeviceGetName", "", TEXT, 0},
    {"uuid", "nvmlDeviceGetUUID", "", TEXT, 0},
    {"gpu_uuid", "nvmlDeviceGetUUID", "", TEXT, 0},
    {"serial", "nvmlDeviceGetSerial", "", TEXT, 0},
    {"gpu_serial", "nvmlDeviceGetSerial", "", TEXT, 0},
    {"vbios_version", "nvmlDeviceGetVbiosVersion", "", TEXT, 0},
    {"inforom.img", "nvmlDeviceGetInforomImageVersion", "", TEXT, 0},
    {"index", "", "", INDEX, 0},
    {"driver_version", "", "", DRIVER, 0},
    {"count", "nvmlDeviceGetCount_v2", "", DRIVER, 1},
    {"minor_number", "nvmlDeviceGetMinorNumber", "", NUMBER, 0},
    {"pci.bus_id", "", "", PCI, 0},
    {"gpu_bus_id", "", "", PCI, 0},
    {"pci.domain", "", "", PCI, 1},
    {"pci.bus", "", "", PCI, 2},
    {"pci.device", "", "", PCI, 3},
    {"pci.device_id", "", "", PCI, 4},
    {"pci.sub_device_id", "", "", PCI, 5},
    {"compute_cap", "nvmlDeviceGetCudaComputeCapability", "", CAPABILITY, 0},
    {"persistence_mode", "nvmlDeviceGetPersistenceMode", "", SWITCH, 0},
    {"display_active", "nvmlDeviceGetDisplayActive", "", SWITCH, 0},
    {"display_mode", "nvmlDeviceGetDisplayMode", "", SWITCH, 0},
    {"accounting.mode", "nvmlDeviceGetAccountingMode", "", SWITCH, 0},
    {"ecc.mode.current", "nvmlDeviceGetEccMode", "", SWITCH, 0},
    {"ecc.mode.pending", "nvmlDeviceGetEccMode", "", SECOND, 0},
    {"mig.mode.current", "nvmlDeviceGetMigMode", "", SWITCH, 0},
    {"mig.mode.pending", "nvmlDeviceGetMigMode", "", SECOND, 0},
    {"compute_mode", "nvmlDeviceGetComputeMode", "", COMPUTE, 0},
    {"pstate", "nvmlDeviceGetPerformanceState", "", PSTATE, 0},
    {"memory.total", "", " MiB", MEMORY, 0},
    {"memory.reserved", "", " MiB", MEMORY, 1},
    {"memory.used", "", " MiB", MEMORY, 2},
    {"memory.free", "", " MiB", MEMORY, 3},
    {"utilization.gpu", "", " %", LOAD, 0},
    {"utilization.memory", "", " %", LOAD, 1},
    {"temperature.gpu", "nvmlDeviceGetTemperature", "", CLOCK, 0},
    {"fan.speed", "nvmlDeviceGetFanSpeed", " %", NUMBER, 0},
    {"power.draw", "nvmlDeviceGetPowerUsage", " W", MILLIWATT, 0},
    {"power.limit", "nvmlDeviceGetPowerManagementLimit", " W", MILLIWATT, 0},
    {"power.default_limit", "nvmlDeviceGetPowerManagementDefaultLimit", " W", MILLIWATT, 0},
    {"enforced.power.limit", "nvmlDeviceGetEnforcedPowerLimit", " W", MILLIWATT, 0},
    {"power.min_limit", "nvmlDeviceGetPowerManagementLimitConstraints", " W", MILLIWATT, 1},
    {"power.max_limit", "nvmlDeviceGetPowerManagementLimitConstraints", " W", MILLIWATT, 2},
    {"clocks.gr", "nvmlDeviceGetClockInfo", " MHz", CLOCK, 0},
    {"clocks.current.graphics", "nvmlDeviceGetClockInfo", " MHz", CLOCK, 0},
    {"clocks.sm", "nvmlDeviceGetClockInfo", " MHz", CLOCK, 1},
    {"clocks.mem", "nvmlDeviceGetClockInfo", " MHz", CLOCK, 2},
    {"clocks.video", "nvmlDeviceGetClockInfo", " MHz", CLOCK, 3},
    {"clocks.max.gr", "nvmlDeviceGetMaxClockInfo", " MHz", CLOCK, 0},
    {"clocks.max.sm", "nvmlDeviceGetMaxClockInfo", " MHz", CLOCK, 1},
    {"clocks.max.mem", "nvmlDeviceGetMaxClockInfo", " MHz", CLOCK, 2},
    {"clocks.applications.gr", "nvmlDeviceGetApplicationsClock", " MHz", CLOCK, 0},
    {"clocks.applications.mem", "nvmlDeviceGetApplicationsClock", " MHz", CLOCK, 2},
    {"pcie.link.gen.current", "nvmlDeviceGetCurrPcieLinkGeneration", "", NUMBER, 0},
    {"pcie.link.gen.max", "nvmlDeviceGetMaxPcieLinkGeneration", "", NUMBER, 0},
    {"pcie.link.width.current", "nvmlDeviceGetCurrPcieLinkWidth", "", NUMBER, 0},
    {"pcie.link.width.max", "nvmlDeviceGetMaxPcieLinkWidth", "", NUMBER, 0},
    {"ecc.errors.corrected.volatile.total", "", "", TOTAL_ECC, 0},
    {"ecc.errors.uncorrected.volatile.total", "", "", TOTAL_ECC, 1},
    {"ecc.errors.corrected.aggregate.total", "", "", TOTAL_ECC, 2},
    {"ecc.errors.uncorrected.aggregate.total", "", "", TOTAL_ECC, 3},
    {"clocks_throttle_reasons.active", "nvmlDeviceGetCurrentClocksThrottleReasons", "", HEX, 0},
    {"clocks_event_reasons.active", "nvmlDeviceGetCurrentClocksThrottleReasons", "", HEX, 0},
};

static const struct field *field_of(const char *name)
{
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (!strcmp(fields[i].name, name))
            return &fields[i];
    return NULL;
}

static int value_of(device d, unsigned index, const struct field *field, int units, char *out, size_t size)
{
    static const char *const compute_modes[] = {"Default", "Exclusive_Thread", "Prohibited", "Exclusive_Process"};
    unsigned a = 0, b = 0;
    u64 wide = 0;
    nvmlMemory_v2_t memory = {.version = VERSION_OF(nvmlMemory_v2_t, 2)};
    nvmlUtilization_t load;
    nvmlPciInfo_t pci;
    int rc = 0;
    const char *unit = units ? field->unit : "";
    switch (field->kind) {
    case TEXT:
        rc = CALL(field->call, d, out, (unsigned)size);
        break;
    case INDEX:
        snprintf(out, size, "%u", index);
        break;
    case DRIVER:
        if (field->argument) {
            rc = CALL(field->call, &a);
            snprintf(out, size, "%u", a);
        } else {
            rc = CALL("nvmlSystemGetDriverVersion", out, (unsigned)size);
        }
        break;
    case NUMBER:
        rc = CALL(field->call, d, &a);
        snprintf(out, size, "%u%s", a, unit);
        break;
    case PSTATE:
        rc = CALL(field->call, d, &a);
        snprintf(out, size, "P%u", a);
        break;
    case MILLIWATT:
        rc = field->argument ? CALL(field->call, d, &a, &b) : CALL(field->call, d, &a);
        snprintf(out, size, "%.2f%s", (field->argument == 2 ? b : a) / 1000.0, unit);
        break;
    case SWITCH:
    case SECOND:
        rc = CALL(field->call, d, &a, &b);
        snprintf(out, size, "%s", (field->kind == SWITCH ? a : b) ? "Enabled" : "Disabled");
        break;
    case COMPUTE:
        rc = CALL(field->call, d, &a);
        snprintf(out, size, "%s", a < 4 ? compute_modes[a] : "[Unknown Error]");
        break;
    case MEMORY:
        if ((rc = CALL("nvmlDeviceGetMemoryInfo_v2", d, &memory)))
            break;
        wide = field->argument == 0 ? memory.total
             : field->argument == 1 ? memory.reserved
             : field->argument == 2 ? memory.used : memory.free;
        snprintf(out, size, "%llu%s", wide >> 20, unit);
        break;
    case LOAD:
        if (!(rc = CALL("nvmlDeviceGetUtilizationRates", d, &load)))
            snprintf(out, size, "%u%s", field->argument ? load.memory : load.gpu, unit);
        break;
    case CLOCK:
        rc = CALL(field->call, d, field->argument, &a);
        snprintf(out, size, "%u%s", a, unit);
        break;
    case CAPABILITY:
        rc = CALL(field->call, d, &a, &b);
        snprintf(out, size, "%u.%u", a, b);
        break;
    case TOTAL_ECC:
        rc = CALL("nvmlDeviceGetTotalEccErrors", d, field->argument & 1, field->argument >> 1, &wide);
        snprintf(out, size, "%llu", wide);
        break;
    case HEX:
        rc = CALL(field->call, d, &wide);
        snprintf(out, size, "0x%016llx", wide);
        break;
    case PCI:
        if ((rc = CALL("nvmlDeviceGetPciInfo_v3", d, &pci)))
            break;
        if (field->argument == 0)
            snprintf(out, size, "%s", pci.busId);
        else
            snprintf(out, size, field->argument == 1 ? "0x%04X" : field->argument < 4 ? "0x%02X" : "0x%08X",
                     field->argument == 1 ? pci.domain : field->argument == 2 ? pci.bus
                     : field->argument == 3 ? pci.device : field->argument == 4 ? pci.pciDeviceId : pci.pciSubSystemId);
        break;
    }
    if (rc)
        snprintf(out, size, "%s", problem(rc));
    return rc;
}

static const char *ask(device d, unsigned index, const char *name, int units)
{
    static char texts[16][128];
    static int turn;
    char *text = texts[turn++ % 16];
    value_of(d, index, field_of(name), units, text, sizeof texts[0]);
    return text;
}

/* ---- selection -------------------------------------------------------------------------------------------------- */

static unsigned gpu_count(void)
{
    unsigned count = 0;
    CALL("nvmlDeviceGetCount_v2", &count);
    return count;
}

/* Return whether -i selects the GPU. Its value is an index, UUID or bus ID, or a list of these. */
static int chosen(const char *ids, unsigned index, device d)
{
    char list[512], *rest = list, *word, number[16];
    if (!ids)
        return 1;
    snprintf(list, sizeof list, "%s", ids);
    snprintf(number, sizeof number, "%u", index);
    while ((word = strsep(&rest, ",")))
        if (!strcmp(word, number) ||
            (d && (!strcmp(word, ask(d, index, "uuid", 0)) || !strcasecmp(word, ask(d, index, "pci.bus_id", 0)) ||
                   !strcasecmp(word, ask(d, index, "pci.bus_id", 0) + 4))))
            return 1;
    return 0;
}

static int none_chosen(const char *ids)
{
    printf("No devices were found\n");
    if (ids)
        fprintf(stderr, "Unable to find a GPU with the id %s\n", ids);
    return 6;
}

/* ---- commands --------------------------------------------------------------------------------------------------- */

static int list_gpus(const char *ids)
{
    unsigned shown = 0;
    for (unsigned i = 0; i < gpu_count(); i++) {
        unsigned most = 0, is_on = 0, pending = 0;
        device d = NULL, mig;
        int rc = CALL("nvmlDeviceGetHandleByIndex_v2", i, &d);
        if (!chosen(ids, i, rc ? NULL : d))
            continue;
        shown++;
        if (rc) {
            printf("Unable to determine the device handle for gpu %u: %s\n", i, error_text(rc));
            continue;
        }
        printf("GPU %u: %s (UUID: %s)\n", i, ask(d, i, "name", 0), ask(d, i, "uuid", 0));
        if (CALL("nvmlDeviceGetMigMode", d, &is_on, &pending) || !is_on)
            continue;
        CALL("nvmlDeviceGetMaxMigDeviceCount", d, &most);
        for (unsigned m = 0; m < most; m++)
            if (!CALL("nvmlDeviceGetMigDeviceHandleByIndex", d, m, &mig)) {
                const char *name = ask(mig, m, "name", 0), *profile = strstr(name, "MIG ");
                printf("  %-16s Device %2u: (UUID: %s)\n", profile ? profile : name, m, ask(mig, m, "uuid", 0));
            }
    }
    return shown ? 0 : none_chosen(ids);
}

static int query(const char *names, const char *format, const char *ids)
{
    char list[1024], *rest = list, *word;
    const struct field *wanted[64];
    int count = 0, shown = 0;
    int header = !strstr(format, "noheader"), units = !strstr(format, "nounits");
    if (strncmp(format, "csv", 3)) {
        printf("\"--format\" must be csv, with noheader and nounits as options\n");
        return 2;
    }
    snprintf(list, sizeof list, "%s", names);
    while ((word = strsep(&rest, ",")) && count < 64) {
        word += strspn(word, " ");
        if (!(wanted[count++] = field_of(word))) {
            printf("Field \"%s\" is not a valid field to query.\n\n", word);
            return 2;
        }
    }
    for (int f = 0; header && f < count; f++)
        printf("%s%s%s%s%s", f ? ", " : "", wanted[f]->name, units && *wanted[f]->unit ? " [" : "",
               units && *wanted[f]->unit ? wanted[f]->unit + 1 : "", units && *wanted[f]->unit ? "]" : "");
    if (header)
        printf("\n");
    for (unsigned i = 0; i < gpu_count(); i++) {
        char text[128];
        device d;
        int rc = CALL("nvmlDeviceGetHandleByIndex_v2", i, &d);
        if (!chosen(ids, i, rc ? NULL : d))
            continue;
        shown++;
        for (int f = 0; f < count; f++) {
            if (rc)
                snprintf(text, sizeof text, "%s", problem(rc));
            else
                value_of(d, i, wanted[f], units, text, sizeof text);
            printf("%s%s", f ? ", " : "", text);
        }
        printf("\n");
    }
    return shown ? 0 : none_chosen(ids);
}

static int table(void)
{
    static const char *const rule = "+-----------------------------------------------------------------------------+\n";
    char driver[80] = "?", now[40];
    int cuda = 0;
    time_t clock = time(NULL);
    CALL("nvmlSystemGetDriverVersion", driver, 80u);
    CALL("nvmlSystemGetCudaDriverVersion_v2", &cuda);
    strftime(now, sizeof now, "%a %b %e %H:%M:%S %Y", localtime(&clock));
    printf("%s\n%s", now, rule);
    printf("| NVIDIA-SMI %-13s Driver Version: %-13s CUDA Version: %2d.%-3d |\n%s", driver, driver, cuda / 1000,
           cuda % 1000 / 10, rule);
    for (unsigned i = 0; i < gpu_count(); i++) {
        char line[160];
        device d;
        int rc = CALL("nvmlDeviceGetHandleByIndex_v2", i, &d);
        if (rc) {
            snprintf(line, sizeof line, "%3u  %s", i, error_text(rc));
            printf("| %-75.75s |\n", line);
            continue;
        }
        snprintf(line, sizeof line, "%3u  %-32s %s  Persistence-M: %s", i, ask(d, i, "name", 0),
                 ask(d, i, "pci.bus_id", 0), strcmp(ask(d, i, "persistence_mode", 0), "Enabled") ? "Off" : "On");
        printf("| %-75.75s |\n", line);
        snprintf(line, sizeof line, "     %sC  %s  %sW / %sW  %sMiB / %sMiB  MIG: %s", ask(d, i, "temperature.gpu", 0),
                 ask(d, i, "pstate", 0), ask(d, i, "power.draw", 0), ask(d, i, "power.limit", 0),
                 ask(d, i, "memory.used", 0), ask(d, i, "memory.total", 0), ask(d, i, "mig.mode.current", 0));
        printf("| %-75.75s |\n%s", line, rule);
    }
    if (!gpu_count())
        return none_chosen(NULL);
    return 0;
}

static void tag(int depth, const char *name, const char *text)
{
    if (!strncmp(text, "[N/A]", 5))
        text = "N/A";
    printf("%*s<%s>", depth, "", name);
    for (; *text; text++)
        if (*text == '<' || *text == '&')
            printf("%s", *text == '<' ? "&lt;" : "&amp;");
        else
            putchar(*text);
    printf("</%s>\n", name);
}

/* Print the part of `-q` for one GPU: as text, or with -x as XML with the element names of the real program. */
static int report(int xml, const char *ids)
{
    static const struct {
        const char *group, *name, *label, *field;
    } lines[] = {
        {"", "product_name", "Product Name", "name"},
        {"", "persistence_mode", "Persistence Mode", "persistence_mode"},
        {"mig_mode", "current_mig", "MIG Mode Current", "mig.mode.current"},
        {"mig_mode", "pending_mig", "MIG Mode Pending", "mig.mode.pending"},
        {"", "serial", "Serial Number", "serial"},
        {"", "uuid", "GPU UUID", "uuid"},
        {"", "minor_number", "Minor Number", "minor_number"},
        {"", "vbios_version", "VBIOS Version", "vbios_version"},
        {"pci", "pci_bus_id", "Bus Id", "pci.bus_id"},
        {"pci", "pci_device_id", "Device Id", "pci.device_id"},
        {"", "performance_state", "Performance State", "pstate"},
        {"fb_memory_usage", "total", "FB Memory Total", "memory.total"},
        {"fb_memory_usage", "reserved", "FB Memory Reserved", "memory.reserved"},
        {"fb_memory_usage", "used", "FB Memory Used", "memory.used"},
        {"fb_memory_usage", "free", "FB Memory Free", "memory.free"},
        {"", "compute_mode", "Compute Mode", "compute_mode"},
        {"ecc_mode", "current_ecc", "ECC Mode Current", "ecc.mode.current"},
        {"ecc_mode", "pending_ecc", "ECC Mode Pending", "ecc.mode.pending"},
    };
    char driver[80] = "?";
    unsigned shown = 0;
    int cuda = 0;
    CALL("nvmlSystemGetDriverVersion", driver, 80u);
    CALL("nvmlSystemGetCudaDriverVersion_v2", &cuda);
    if (xml) {
        char version[32];
        snprintf(version, sizeof version, "%d.%d", cuda / 1000, cuda % 1000 / 10);
        printf("<?xml version=\"1.0\" ?>\n<nvidia_smi_log>\n");
        tag(1, "driver_version", driver);
        tag(1, "cuda_version", version);
        snprintf(version, sizeof version, "%u", gpu_count());
        tag(1, "attached_gpus", version);
    } else {
        printf("\n==============NVSMI LOG==============\n\nDriver Version : %s\nCUDA Version : %d.%d\n\nAttached GPUs : %u\n",
               driver, cuda / 1000, cuda % 1000 / 10, gpu_count());
    }
    for (unsigned i = 0; i < gpu_count(); i++) {
        const char *group = "";
        device d;
        if (CALL("nvmlDeviceGetHandleByIndex_v2", i, &d) || !chosen(ids, i, d))
            continue;
        shown++;
        printf(xml ? " <gpu id=\"%s\">\n" : "GPU %s\n", ask(d, i, "pci.bus_id", 0));
        for (size_t l = 0; l < sizeof lines / sizeof *lines; l++) {
            const char *value = ask(d, i, lines[l].field, 1);
            if (!xml) {
                printf("    %-37s : %s\n", lines[l].label, strcmp(value, "[N/A]") ? value : "N/A");
                continue;
            }
            if (strcmp(group, lines[l].group)) {
                if (*group)
                    printf("  </%s>\n", group);
                if (*lines[l].group)
                    printf("  <%s>\n", lines[l].group);
                group = lines[l].group;
            }
            tag(*group ? 3 : 2, lines[l].name, value);
        }
        if (xml)
            printf("%s%s%s </gpu>\n", *group ? "  </" : "", group, *group ? ">\n" : "");
    }
    if (xml)
        printf("</nvidia_smi_log>\n");
    return shown ? 0 : none_chosen(ids);
}

static int set(const char *option, const char *value, const char *ids)
{
    unsigned number = !strcmp(value, "EXCLUSIVE_PROCESS") ? 3 : !strcmp(value, "PROHIBITED") ? 2
                    : (unsigned)strtoul(value, NULL, 0);
    unsigned shown = 0;
    int worst = 0;
    for (unsigned i = 0; i < gpu_count(); i++) {
        int rc, activation = 0;
        device d;
        if (CALL("nvmlDeviceGetHandleByIndex_v2", i, &d) || !chosen(ids, i, d))
            continue;
        shown++;
        if (!strcmp(option, "-pm"))
            rc = CALL("nvmlDeviceSetPersistenceMode", d, number);
        else if (!strcmp(option, "-c"))
            rc = CALL("nvmlDeviceSetComputeMode", d, number);
        else if (!strcmp(option, "-pl"))
            rc = CALL("nvmlDeviceSetPowerManagementLimit", d, 1000 * number);
        else if (!strcmp(option, "-e"))
            rc = CALL("nvmlDeviceSetEccMode", d, number);
        else
            rc = CALL("nvmlDeviceSetMigMode", d, number, &activation);
        if (rc)
            printf("Unable to set %s for GPU %s: %s\n", option, ask(d, i, "pci.bus_id", 0), error_text(rc));
        else
            printf("Set %s to %s for GPU %s.%s\n", option, value, ask(d, i, "pci.bus_id", 0),
                   activation ? "\nWarning: MIG mode is in pending enable state: reset the GPU." : "");
        worst = rc ? rc : worst;
    }
    if (!shown)
        return none_chosen(ids);
    printf("All done.\n");
    return worst;
}

/* The real program does not use public calls of NVML for this either. gpusim simulates it. */
static int reset(const char *ids)
{
    for (unsigned i = 0; i < gpu_count(); i++) {
        char command[80];
        device d = NULL;
        int rc = CALL("nvmlDeviceGetHandleByIndex_v2", i, &d);
        if (!ids || !chosen(ids, i, rc ? NULL : d))
            continue;
        snprintf(command, sizeof command, "/usr/lib/gpusim/gpusim reset %u 2>/dev/null", i);
        if (system(command)) {
            printf("GPU %u could not be reset: it is used by a process, or this is not its host.\n", i);
            return 255;
        }
        printf("GPU %u was successfully reset.\nAll done.\n", i);
        return 0;
    }
    return none_chosen(ids);
}

static int start(void)
{
    int rc;
    if (!(library = dlopen("libnvidia-ml.so.1", RTLD_NOW))) {
        printf("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please make sure that the NVIDIA Display "
               "Driver is properly installed and present in your system.\n");
        return 12;
    }
    rc = CALL("nvmlInit_v2");
    if (rc == NVML_ERROR_DRIVER_NOT_LOADED)
        printf("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest "
               "NVIDIA driver is installed and running.\n\n");
    else if (rc)
        printf("Failed to initialize NVML: %s\n", error_text(rc));
    return rc > 255 ? 255 : rc;
}

static const char *after(const char *argument, const char *option)
{
    size_t length = strlen(option);
    return !strncmp(argument, option, length) && argument[length] == '=' ? argument + length + 1 : NULL;
}

int main(int argc, char **argv)
{
    const char *ids = NULL, *names = NULL, *format = "", *setting = NULL, *value = NULL, *found;
    int list = 0, full = 0, xml = 0, wants_reset = 0, loop = 0, rc;
    for (int i = 1; i < argc; i++) {
        if ((!strcmp(argv[i], "-i") || !strcmp(argv[i], "--id")) && i + 1 < argc)
            ids = argv[++i];
        else if ((found = after(argv[i], "--id")) || (found = after(argv[i], "-i")))
            ids = found;
        else if ((found = after(argv[i], "--query-gpu")))
            names = found;
        else if ((found = after(argv[i], "--format")))
            format = found;
        else if (!strcmp(argv[i], "-L") || !strcmp(argv[i], "--list-gpus"))
            list = 1;
        else if (!strcmp(argv[i], "-q") || !strcmp(argv[i], "--query"))
            full = 1;
        else if (!strcmp(argv[i], "-r") || !strcmp(argv[i], "--gpu-reset"))
            wants_reset = 1;
        else if (!strcmp(argv[i], "-x") || !strcmp(argv[i], "--xml-format"))
            xml = 1;
        else if ((!strcmp(argv[i], "-pm") || !strcmp(argv[i], "-c") || !strcmp(argv[i], "-pl") || !strcmp(argv[i], "-e") ||
                  !strcmp(argv[i], "-mig")) && i + 1 < argc)
            setting = argv[i], value = argv[++i];
        else if ((!strcmp(argv[i], "-l") || !strcmp(argv[i], "--loop")) && i + 1 < argc && atoi(argv[i + 1]) > 0)
            loop = atoi(argv[++i]);
        else if ((found = after(argv[i], "--loop")) && atoi(found) > 0)
            loop = atoi(found);
        else if ((found = after(argv[i], "--persistence-mode")))
            setting = "-pm", value = found;
        else {
            printf("Invalid combination of input arguments. This is the simulator's nvidia-smi: it knows -L, -q [-x], "
                   "--query-gpu, -pm, -c, -pl, -e, -mig, -r, -i and -l; not %s.\n", argv[i]);
            return 2;
        }
    }
    if ((rc = start()))
        return rc;
    do {
        if (list)
            rc = list_gpus(ids);
        else if (names)
            rc = query(names, format, ids);
        else if (setting)
            rc = set(setting, value, ids);
        else if (wants_reset)
            rc = reset(ids);
        else if (full)
            rc = report(xml, ids);
        else
            rc = table();
        fflush(stdout);
    } while (loop && !rc && !sleep((unsigned)loop));
    CALL("nvmlShutdown");
    return rc;
}
