/*
 * tree: the processes below one process, seen through /proc; signalling and ending them.
 * "Below" follows parents. Because every keeper is a child subreaper, a process that forks twice and calls setsid is
 * still below it. Nothing outside that tree is ever signalled.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct proc {
        pid_t pid, ppid, pgrp;
        char state;
        uint64_t start; /* clock ticks after boot: with the pid it names one process for good */
        uint64_t cpu_ms;
        uint64_t rss;
};

struct proc_table {
        struct proc *v; /* sorted by pid */
        size_t n, cap;
};

int proc_scan(struct proc_table *t); /* -errno; the table may be reused */
void proc_table_done(struct proc_table *t);
const struct proc *proc_find(const struct proc_table *t, pid_t pid);
/* True when pid is below root (not root itself). */
bool proc_below(const struct proc_table *t, pid_t pid, pid_t root);
/* One line of /proc/<pid>/stat; false for a malformed one. */
bool proc_parse(const char *line, size_t n, struct proc *p);

struct tree {
        pid_t root;
        /* Children of root that are not part of the tree (and everything below them). */
        bool (*outside)(pid_t pid, void *arg);
        /* Reaps what has died; called between the rounds. */
        void (*reap)(void *arg);
        void *arg;
};

/* Sends sig to every live process of the tree; how many there were. */
size_t tree_signal(const struct tree *t, int sig);
size_t tree_count(const struct tree *t);
/* Stops, kills and reaps until nothing of the tree is left or the time is over; returns how many are left. */
size_t tree_kill(const struct tree *t, int64_t limit_ms);
