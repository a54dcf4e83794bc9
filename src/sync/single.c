#include "base/mem.h"
#include "sync/job.h"
#include "sync/scan.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

/* The file's folder is opened as the tree's root, and the tree has one entry with the file's own name. */
static int coroutine_fn scan_single(struct sync_job *j, struct err *e)
{
        char *slash = strrchr(j->local, '/');
        _cleanup_free_ char *folder =
                slash == j->local ? xstrdup("/") : xstrndup(j->local, (size_t) (slash - j->local));
        size_t len = strlen(slash + 1);
        int r;

        j->tree.root = xstrdup(folder);
        j->tree.root_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (j->tree.root_fd < 0)
                return err_sys(e, -errno, "cannot open %.200s", folder);
        (void) tree_add(&j->tree, tree_strn(&j->tree, slash + 1, len), len);
        r = scan_tree(&j->tree, j->cache);
        if (r == 0 && (j->tree.v[0].state != ENTRY_OK || j->tree.v[0].kind == GUEST_KIND_LINK)) {
                r = j->tree.v[0].err ? j->tree.v[0].err : -EINVAL;
                return err_sys(e, r, "%.300s cannot be read", j->local);
        }
        return r;
}

/* Asks about dest by its own name in the folder above, so that an unchanged file is not sent again. */
static int coroutine_fn compare_in_place(struct sync_job *j, struct err *e)
{
        _cleanup_free_ char *parent = xstrndup(j->dest.path, dest_parent_len(&j->dest));
        struct entry renamed = j->tree.v[0];
        struct tree t = { .v = &renamed, .n = 1, .root_fd = -1 };

        renamed.path = dest_base(&j->dest);
        renamed.path_len = (uint16_t) strlen(renamed.path);
        plan_done(&j->plan);
        return plan_ask(j->env, j->id, parent, &t, NULL, &j->plan, e);
}

static int land_in_folder(struct sync_job *j, struct err *e)
{
        const char *name = j->tree.v[0].path;
        size_t n = strlen(j->dest.path);

        if (n + 1 + strlen(name) > GUEST_PATH_MAX)
                return err_set(e, -ENAMETOOLONG, "`dest` is too long");
        if (n)
                j->dest.path[n++] = '/';
        memcpy(j->dest.path + n, name, strlen(name) + 1);
        j->dest.folder = false;
        return 0;
}

/*
 * Whether dest names the file itself or a folder to put it in, only the box knows: unless dest ends in a slash it is
 * asked once with dest as a folder, and a second time only when a file is there to be compared with.
 */
int coroutine_fn job_single(struct sync_job *j, struct err *e)
{
        int r;

        j->step = "reading the local file";
        j->cache = cache_open(NULL, "");
        r = scan_single(j, e);
        if (r < 0)
                return r;
        j->step = "comparing with the box";
        r = plan_ask(j->env, j->id, j->dest.path, &j->tree, NULL, &j->plan, e);
        if (r < 0)
                return r;
        if (j->dest.folder && j->plan.is_file)
                return err_set(e, -ENOTDIR, "/work/%s is a file in the box, but `dest` ends in a slash", j->dest.path);
        if (j->dest.folder || (j->plan.exists && !j->plan.is_file))
                return land_in_folder(j, e);
        return j->plan.is_file ? compare_in_place(j, e) : 0;
}
