/* Copyright: (c) 2026, gpufleet maintainers
 * GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * Every program on a simulated host preloads this library. It gives the host its own kernel release and passes every
 * request to load or unload a kernel module to /usr/lib/gpusim/gpusim. No such request reaches the real kernel.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))
#ifndef HOME
#define HOME "/usr/lib/gpusim" /* unit tests override this */
#endif
#define GPUSIM HOME "/gpusim"
#define KERNEL_RELEASE HOME "/kernel-release" /* first line: release; optional second line: version */
#define PROC_MODULES "/proc/modules"
#define OUR_MODULES "/run/gpusim/modules"

/* ---- kernel release --------------------------------------------------------------------------------------------- */

static size_t kernel_release(char *text, size_t size)
{
    int fd = (int)syscall(SYS_openat, AT_FDCWD, KERNEL_RELEASE, O_RDONLY | O_CLOEXEC);
    ssize_t have = fd < 0 ? 0 : read(fd, text, size - 1);
    if (fd >= 0)
        close(fd);
    text[have > 0 ? have : 0] = 0;
    return have > 0 ? (size_t)have : 0;
}

static void copy_line(char *field, const char *line)
{
    size_t length = strcspn(line, "\n");
    if (length && length < sizeof((struct utsname *)0)->release) {
        memcpy(field, line, length);
        field[length] = 0;
    }
}

API int uname(struct utsname *name)
{
    char text[256];
    int saved = errno;
    if (syscall(SYS_uname, name))
        return -1;
    if (kernel_release(text, sizeof text)) {
        char *second = strchr(text, '\n');
        copy_line(name->release, text);
        if (second)
            copy_line(name->version, second + 1);
    }
    errno = saved;
    return 0;
}

/* ---- modules ---------------------------------------------------------------------------------------------------- */

/* Run gpusim. Its exit status is an errno. */
static int ask_gpusim(const char *verb, const char *what, const char *parameters)
{
    static char *const environment[] = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                                        "LC_ALL=C.UTF-8", "GPUSIM_AS_KERNEL=1", NULL};
    char *const arguments[] = {GPUSIM, (char *)verb, (char *)what, (char *)(parameters ? parameters : ""), NULL};
    struct sigaction wait_normally = {.sa_handler = SIG_DFL}, saved;
    int status = 0;
    pid_t child;
    sigaction(SIGCHLD, &wait_normally, &saved);
    child = fork();
    if (child == 0) {
        execve(GPUSIM, arguments, environment);
        _exit(ENOSYS);
    }
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    sigaction(SIGCHLD, &saved, NULL);
    if (child < 0)
        errno = ENOMEM;
    else
        errno = WIFEXITED(status) ? WEXITSTATUS(status) : EIO;
    return errno ? -1 : 0;
}

static int load_descriptor(int fd, const char *parameters)
{
    char path[64];
    if (fcntl(fd, F_GETFD) < 0)
        return -1;
    if (geteuid()) {
        errno = EPERM;
        return -1;
    }
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)getpid(), fd);
    return ask_gpusim("load", path, parameters);
}

API int finit_module(int fd, const char *parameters, int flags)
{
    (void)flags; /* gpusim detects compressed files by their first bytes */
    return load_descriptor(fd, parameters);
}

API int init_module(const void *image, unsigned long length, const char *parameters)
{
    int fd = memfd_create("module", MFD_CLOEXEC), rc = -1;
    const char *at = image;
    while (fd >= 0 && length) {
        ssize_t written = write(fd, at, length);
        if (written <= 0)
            break;
        at += written;
        length -= (unsigned long)written;
    }
    if (fd >= 0 && !length)
        rc = load_descriptor(fd, parameters);
    int error = errno;
    if (fd >= 0)
        close(fd);
    errno = error;
    return rc;
}

API int delete_module(const char *name, unsigned flags)
{
    (void)flags;
    if (geteuid()) {
        errno = EPERM;
        return -1;
    }
    return ask_gpusim("unload", name, NULL);
}

/* ---- syscall(), which libkmod uses ------------------------------------------------------------------------------ */

__attribute__((visibility("hidden"), used)) long gpusim_module_call(long number, long a, long b, long c)
{
    if (number == SYS_finit_module)
        return finit_module((int)a, (const char *)b, (int)c);
    if (number == SYS_init_module)
        return init_module((const void *)a, (unsigned long)b, (const char *)c);
    return delete_module((const char *)a, (unsigned)b);
}

__attribute__((visibility("hidden"), used)) long gpusim_fail(long negative)
{
    errno = (int)-negative;
    return -1;
}

#if defined(__x86_64__)
/* Assembler passes every other call to the kernel exactly like syscall() of the C library. */
__asm__(".text\n"
        ".globl syscall\n"
        ".type syscall, @function\n"
        "syscall:\n"
        "    cmp $313, %rdi\n" /* finit_module */
        "    je 1f\n"
        "    cmp $175, %rdi\n" /* init_module */
        "    je 1f\n"
        "    cmp $176, %rdi\n" /* delete_module */
        "    je 1f\n"
        "    mov %rdi, %rax\n"
        "    mov %rsi, %rdi\n"
        "    mov %rdx, %rsi\n"
        "    mov %rcx, %rdx\n"
        "    mov %r8, %r10\n"
        "    mov %r9, %r8\n"
        "    mov 8(%rsp), %r9\n"
        "    syscall\n"
        "    cmp $-4095, %rax\n"
        "    jae 2f\n"
        "    ret\n"
        "1:  jmp gpusim_module_call\n"
        "2:  mov %rax, %rdi\n"
        "    jmp gpusim_fail\n"
        ".size syscall, . - syscall\n");
_Static_assert(SYS_finit_module == 313 && SYS_init_module == 175 && SYS_delete_module == 176, "x86_64 numbers");
#else
API long syscall(long number, ...)
{
    static long (*real)(long, ...);
    long a[6];
    va_list arguments;
    va_start(arguments, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(arguments, long);
    va_end(arguments);
    if (number == SYS_finit_module || number == SYS_init_module || number == SYS_delete_module)
        return gpusim_module_call(number, a[0], a[1], a[2]);
    if (!real)
        real = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
#endif

/* ---- files that the real kernel lacks --------------------------------------------------------------------------- */

/* A kernel without modules has no /proc/modules for gpusim to mount over, so opening it opens the simulated file. */
static const char *instead(const char *path)
{
    return path && path[0] == '/' && path[1] == 'p' && !strcmp(path, PROC_MODULES) &&
                   syscall(SYS_faccessat, AT_FDCWD, PROC_MODULES, F_OK, 0)
               ? OUR_MODULES
               : path;
}

/* NVIDIA's nodes have no driver. On the host, opening one opens /dev/null while the module is loaded. Containers do not
 * preload this library and get ENXIO, or EPERM if the device cgroup forbids the node. */
static int stand_in(int fd, const char *path, int flags)
{
    if (fd >= 0 || errno != ENXIO || strncmp(path, "/dev/nvidia", 11))
        return fd;
    if (!syscall(SYS_faccessat, AT_FDCWD, "/sys/module/nvidia/initstate", F_OK, 0))
        return (int)syscall(SYS_openat, AT_FDCWD, "/dev/null", flags & (O_ACCMODE | O_CLOEXEC));
    errno = ENXIO;
    return fd;
}

#define REAL(name)                                        \
    static __typeof__(name) *real;                        \
    if (!real)                                            \
        real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)
#define MODE(last)                                                                                \
    va_list arguments;                                                                            \
    va_start(arguments, last);                                                                    \
    mode_t mode = last & (O_CREAT | (O_TMPFILE & ~O_DIRECTORY)) ? va_arg(arguments, mode_t) : 0;  \
    va_end(arguments)

#define OPEN(name)                                                          \
    API int name(const char *path, int flags, ...)                          \
    {                                                                       \
        MODE(flags);                                                        \
        REAL(name);                                                         \
        return stand_in(real(instead(path), flags, mode), path, flags);     \
    }
#define OPENAT(name)                                                                \
    API int name(int directory, const char *path, int flags, ...)                   \
    {                                                                               \
        MODE(flags);                                                                \
        REAL(name);                                                                 \
        return stand_in(real(directory, instead(path), flags, mode), path, flags);  \
    }
#define FOPEN(name)                                                  \
    API FILE *name(const char *path, const char *mode)               \
    {                                                                \
        REAL(name);                                                  \
        return real(instead(path), mode);                            \
    }

OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)
FOPEN(fopen)
FOPEN(fopen64)

/* The persistence daemon queries whether the GPU memory is a separate NUMA node. The buffer that it passes contains
 * zeros, which means no, so the call only has to succeed. */
API int ioctl(int fd, unsigned long request, ...)
{
    struct stat st;
    va_list arguments;
    va_start(arguments, request);
    void *argument = va_arg(arguments, void *);
    va_end(arguments);
    if (_IOC_TYPE(request) == 'F' && (_IOC_NR(request) == 215 || _IOC_NR(request) == 216) &&
        !fstat(fd, &st) && S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3))
        return 0;
    return (int)syscall(SYS_ioctl, fd, request, argument);
}
