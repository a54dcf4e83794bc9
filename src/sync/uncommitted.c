/* uncommitted: what of the working tree is in no commit; asked of git while the upload runs. */
#include "base/mem.h"
#include "sync/git.h"
#include "sync/job.h"

#define PATHS_MAX ((size_t) 1 << 20)

void uncommitted_parse(struct str status, struct buf *paths)
{
        while (status.n) {
                struct str line = str_cut(&status, '\0');

                if (line.n < 4 || line.p[2] != ' ' || buf_add(paths, line.p + 3, line.n - 3) < 0 ||
                    buf_addc(paths, '\0') < 0)
                        return;
        }
}

void coroutine_fn job_uncommitted(struct sync_job *j)
{
        _cleanup_buf_ struct buf status = BUF_MAX(PATHS_MAX);
        struct err ignored = { 0 };

        j->uncommitted = BUF_MAX(PATHS_MAX);
        if (git_status(j->local, &status, &ignored) == 0)
                uncommitted_parse(buf_str(&status), &j->uncommitted);
}
