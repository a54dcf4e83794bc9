/*
 * seccomp: the system call filter of a box. It refuses with an error number and never kills: programs fall back. The
 * BPF is written once by box_filter and shared by all boxes. Nothing here blocks.
 */
#pragma once

#include <linux/filter.h>

/* The filter; the storage is static. */
const struct sock_fprog *box_filter(void);
/* Sets no_new_privs and loads a filter into the calling thread; -errno. */
int box_filter_load(const struct sock_fprog *program);
