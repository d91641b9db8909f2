/* Copyright: (c) 2026, gpufleet maintainers
 * GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 */
#define _GNU_SOURCE
#include "state.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define LIVE_STATE "/run/gpusim/state"
#define KEPT_STATE "/var/lib/gpusim/kept"
#define TRAILER "GPUSIM-PAYLOAD " /* the last 32 bytes of a grafted file: this, 16 hex digits of length, newline */
#define TRAILER_SIZE 32

struct entry {
    char *key;
    char *value;
};

static struct entry *table; /* open addressing; size is a power of two */
static size_t table_size, table_used;
static char *text; /* keys and values point into it */
static char live_path[PATH_MAX];

static size_t hash(const char *key)
{
    size_t h = 1469598103934665603u;
    for (; *key; key++)
        h = (h ^ (unsigned char)*key) * 1099511628211u;
    return h;
}

static struct entry *slot(const char *key)
{
    size_t i = hash(key) & (table_size - 1);
    while (table[i].key && strcmp(table[i].key, key))
        i = (i + 1) & (table_size - 1);
    return &table[i];
}

static void put(char *key, char *value)
{
    if (2 * (table_used + 1) > table_size) {
        struct entry *old = table;
        size_t old_size = table_size;
        table_size = old_size ? 2 * old_size : 1024;
        table = calloc(table_size, sizeof *table);
        for (size_t i = 0; i < old_size; i++)
            if (old[i].key)
                *slot(old[i].key) = old[i];
        free(old);
    }
    struct entry *e = slot(key);
    if (!e->key)
        table_used++;
    e->key = key;
    e->value = value;
}

/* Replace %XX with that byte. Descriptions use this for invalid UTF-8 and for line ends. */
static void unescape(char *s)
{
    char *out = s;
    unsigned byte;
    for (; *s; s++) {
        if (*s == '%' && sscanf(s + 1, "%2x", &byte) == 1 && s[1] && s[2]) {
            *out++ = (char)byte;
            s += 2;
        } else {
            *out++ = *s;
        }
    }
    *out = 0;
}

static char *read_range(int fd, off_t from, size_t size)
{
    char *buffer = malloc(size + 1);
    size_t have = 0;
    while (buffer && have < size) {
        ssize_t n = pread(fd, buffer + have, size - have, from + (off_t)have);
        if (n <= 0)
            break;
        have += (size_t)n;
    }
    if (buffer)
        buffer[have] = 0;
    return buffer;
}

static char *read_file(const char *path)
{
    struct stat st;
    char *buffer = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    flock(fd, LOCK_SH);
    if (!fstat(fd, &st))
        buffer = read_range(fd, 0, (size_t)st.st_size);
    close(fd);
    return buffer;
}

static int own_path(char *path)
{
    Dl_info info;
    return dladdr((void *)sim_load, &info) && info.dli_fname && realpath(info.dli_fname, path) ? 0 : -1;
}

static char *read_payload(void)
{
    char path[PATH_MAX], *trailer, *payload = NULL;
    struct stat st;
    unsigned long long size;
    int fd;
    if (own_path(path) || (fd = open(path, O_RDONLY | O_CLOEXEC)) < 0)
        return NULL;
    if (!fstat(fd, &st) && st.st_size > TRAILER_SIZE) {
        trailer = read_range(fd, st.st_size - TRAILER_SIZE, TRAILER_SIZE);
        if (trailer && !strncmp(trailer, TRAILER, strlen(TRAILER)) &&
            sscanf(trailer + strlen(TRAILER), "%16llx", &size) == 1 && (off_t)size <= st.st_size - TRAILER_SIZE)
            payload = read_range(fd, st.st_size - TRAILER_SIZE - (off_t)size, (size_t)size);
        free(trailer);
    }
    close(fd);
    return payload;
}

int sim_load(void)
{
    const char *named = secure_getenv("GPUSIM_STATE");
    free(table);
    free(text);
    table = NULL;
    text = NULL;
    table_size = table_used = 0;
    live_path[0] = 0;
    if (named && *named) {
        text = read_file(named);
        snprintf(live_path, sizeof live_path, "%s", named);
    } else if ((text = read_file(LIVE_STATE))) {
        snprintf(live_path, sizeof live_path, "%s", LIVE_STATE);
    } else {
        text = read_payload();
    }
    if (!text)
        return -1;
    for (char *line = text, *next; line && *line; line = next) {
        if ((next = strchr(line, '\n')))
            *next++ = 0;
        char *equals = strchr(line, '=');
        if (*line == '#' || !equals)
            continue;
        *equals = 0;
        unescape(equals + 1);
        put(line, equals + 1);
    }
    return 0;
}

const char *sim_get(const char *key)
{
    return table ? slot(key)->value : NULL;
}

const char *sim_gpu(int gpu, int mig, const char *key)
{
    char full[256];
    const char *value;
    if (mig >= 0) {
        snprintf(full, sizeof full, "gpu.%d.mig.%d.%s", gpu, mig, key);
        return sim_get(full);
    }
    snprintf(full, sizeof full, "gpu.%d.%s", gpu, key);
    if ((value = sim_get(full)))
        return *value == '-' && !value[1] ? NULL : value; /* `-`: this GPU has no value, even if gpu.* has one */
    snprintf(full, sizeof full, "gpu.*.%s", key);
    return sim_get(full);
}

static int append(const char *path, int flags, const char *key, const char *value)
{
    char line[512];
    int fd, error = 0, size = snprintf(line, sizeof line, "%s=%s\n", key, value);
    if ((fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC | flags, 0644)) < 0)
        return errno;
    flock(fd, LOCK_EX);
    if (write(fd, line, (size_t)size) != size)
        error = errno;
    close(fd);
    return error;
}

int sim_set(const char *key, const char *value)
{
    int error = live_path[0] ? append(live_path, 0, key, value) : 0;
    if (!error)
        put(strdup(key), strdup(value));
    return error;
}

int sim_set_gpu(int gpu, const char *key, const char *value)
{
    char full[256];
    snprintf(full, sizeof full, "gpu.%d.%s", gpu, key);
    return sim_set(full, value);
}

int sim_keep_gpu(int gpu, const char *key, const char *value)
{
    char full[256];
    snprintf(full, sizeof full, "gpu.%d.%s", gpu, key);
    return strcmp(live_path, LIVE_STATE) ? 0 : append(KEPT_STATE, O_CREAT, full, value);
}

const char *sim_own_version(void)
{
    static char path[PATH_MAX];
    const char *suffix, *stated;
    if (!own_path(path) && (suffix = strstr(path, ".so."))) {
        suffix += strlen(".so.");
        if (strchr(suffix, '.')) /* .so.1 is a copied SONAME link, not a version */
            return suffix;
    }
    stated = sim_get("library.version");
    return stated ? stated : "";
}

int sim_check_nodes(void)
{
    const char *value = sim_get("check_nodes");
    return !value || strcmp(value, "0");
}

int sim_node_error(const char *path, int flags)
{
    struct stat st;
    int fd;
    if (!sim_check_nodes())
        return 0;
    if (stat(path, &st))
        return errno;
    fd = open(path, flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return errno == ENXIO || errno == ENODEV ? 0 : errno;
    close(fd);
    return 0;
}

static int held_fd(const char *bus_id, int flags)
{
    char path[128];
    snprintf(path, sizeof path, SIM_HELD_DIR "/%s", bus_id);
    return open(path, flags | O_CLOEXEC, 0666);
}

int sim_is_held(const char *bus_id)
{
    int fd = held_fd(bus_id, O_RDONLY), held;
    if (fd < 0)
        return 0;
    held = flock(fd, LOCK_SH | LOCK_NB) && errno == EWOULDBLOCK;
    close(fd);
    return held;
}

int sim_hold(const char *bus_id)
{
    int fd = held_fd(bus_id, O_RDWR | O_CREAT);
    /* A reader with a short shared lock or another holder can prevent the lock. Another holder is equivalent. */
    for (int try = 0; fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) && try < 20; try++)
        usleep(1000);
    return fd;
}
