/*
 * git: the user's own git, asked by plumbing commands. It alone knows their config, sparse trees and ignore rules.
 *
 * Always -z and "--", LC_ALL=C, GIT_OPTIONAL_LOCKS=0 (their index is never touched), and without the GIT_* variables
 * that would point it at another repository (the adapter may have been started by a hook). Every function suspends.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "loop/coro.h"
#include "sync/tree.h"

struct git_info {
        bool is_repo;
        char *toplevel; /* of the working tree */
};
void git_info_done(struct git_info *g);

/* 0 also when root is in no repository (is_repo false); an error when git refuses to say (safe.directory …). */
int coroutine_fn git_probe(const char *root, struct git_info *ret, struct err *e);
/* What is tracked, or what is untracked and not ignored, raw as git prints it (git_parse_list). Two questions, because
 * the first is answered at once from the index, and the second only after a walk through the tree. */
int coroutine_fn git_tracked(const char *root, struct buf *out, struct err *e);
int coroutine_fn git_untracked(const char *root, struct buf *out, struct err *e);
/* What differs from the last commit, untracked files too, raw as git prints it: "XY path", NUL terminated, paths from
 * the top of the working tree. */
int coroutine_fn git_status(const char *root, struct buf *out, struct err *e);
/* Which of the NUL-terminated paths are ignored: those, NUL terminated. */
int coroutine_fn git_check_ignore(const char *root, const struct buf *paths, struct buf *out, struct err *e);

/* Pure: takes over the text of git_tracked or git_untracked and adds its entries to t. -EPROTO for text of another
 * form. */
int git_parse_list(struct tree *t, struct buf *text, struct err *e);
