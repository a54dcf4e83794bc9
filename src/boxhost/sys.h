/*
 * sys: what libc does not wrap, and small reads and writes of kernel files by directory descriptor.
 * Owns nothing. Only sys_run and sys_capture block (they wait for a helper program, with a deadline).
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

/* The kernel's struct clone_args (version 2, with cgroup); linux/sched.h clashes with sched.h on older libcs. */
struct sys_clone_args {
        uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size,
                cgroup;
};

#define SYS_CLONE_INTO_CGROUP 0x200000000ULL

static inline pid_t sys_clone3(struct sys_clone_args *a)
{
        return (pid_t) syscall(SYS_clone3, a, sizeof(*a));
}

static inline int sys_pivot_root(const char *new_root, const char *put_old)
{
        return (int) syscall(SYS_pivot_root, new_root, put_old);
}

static inline int sys_pidfd_open(pid_t pid)
{
        return (int) syscall(SYS_pidfd_open, pid, 0);
}

static inline int sys_pidfd_kill(int pidfd, int sig)
{
        return (int) syscall(SYS_pidfd_send_signal, pidfd, sig, NULL, 0);
}

static inline int sys_execveat(int fd, const char *const argv[], const char *const envp[])
{
        return (int) syscall(SYS_execveat, fd, "", argv, envp, AT_EMPTY_PATH);
}

/* Opens path beneath dirfd without following any link; -errno. */
int sys_open_beneath(int dirfd, const char *path, int flags, mode_t mode);

/* One write(2) of text into an existing kernel file. */
int sys_write(int dirfd, const char *path, const char *text, struct err *e);
/* Reads at most n - 1 bytes and terminates them; the length, or -errno. */
ssize_t sys_read(int dirfd, const char *path, char *out, size_t n);
/* A file that holds one number ("max" reads as UINT64_MAX); -errno. */
int sys_read_u64(int dirfd, const char *path, uint64_t *ret);
/* The number after `key ` at a line start, as in memory.events; -ENOENT. */
int sys_find_key(const char *text, const char *key, uint64_t *ret);

/* Sends up to 8 descriptors with n bytes, and takes them; -errno. */
#define SYS_FDS_MAX 8
int sys_send_fds(int sock, const void *p, size_t n, const int *fds, size_t count);
ssize_t sys_recv_fds(int sock, void *p, size_t n, int *fds, size_t max, size_t *ret_count);

/* Start time of a process in clock ticks since boot (field 22 of stat); -ESRCH when it is gone or a zombie. */
int sys_start_time(pid_t pid, uint64_t *ret);

/* The absolute path of a program in the system's own folders (never the caller's PATH), or NULL. */
const char *sys_program(const char *name);
/*
 * Runs a helper with an empty environment, text on its stdin, and waits at most timeout_ms. The first
 * line it wrote to stderr goes into e. 0 when it exits with 0.
 */
int sys_run(const char *const argv[], const char *text, unsigned timeout_ms, struct err *e);
/* The same, and appends what it wrote to stdout to out; -ENOBUFS when that is more than out may hold. */
int sys_capture(const char *const argv[], struct buf *out, unsigned timeout_ms, struct err *e);
/* Puts default dispositions and an empty mask: for what is about to be executed. */
void sys_reset_signals(void);
