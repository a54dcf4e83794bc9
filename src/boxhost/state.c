#include "boxhost/state.h"

#include "boxhost/sys.h"
#include "base/file.h"
#include "base/json.h"
#include "base/str.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SPEC_MAX 8192

const char *state_boot_id(void)
{
        static char id[64];

        if (!id[0] && sys_read(AT_FDCWD, "/proc/sys/kernel/random/boot_id", id, sizeof(id)) > 0)
                id[strcspn(id, "\n")] = '\0';
        return id;
}

static int spec_print(const struct box *b, struct buf *out)
{
        struct jw w;

        jw_init(&w, out);
        jw_obj(&w);
        jw_kint(&w, "version", 1);
        jw_kstr(&w, "box", b->id);
        jw_kstr(&w, "image", b->image);
        jw_kstr(&w, "skeleton", b->skeleton);
        jw_kstr(&w, "lower", b->lower);
        jw_kint(&w, "index", b->index);
        jw_kint(&w, "owner", b->owner);
        jw_kint(&w, "loop", b->loop);
        jw_kint(&w, "pid", b->pid);
        jw_kint(&w, "startTime", (int64_t) b->start_time);
        jw_kstr(&w, "boot", state_boot_id());
        jw_kint(&w, "createdAt", b->created_ms);
        jw_kobj(&w, "size");
        jw_key(&w, "cpus");
        jw_double(&w, b->size.cpus);
        jw_kint(&w, "memoryBytes", (int64_t) b->size.memory);
        jw_kint(&w, "pids", (int64_t) b->size.pids);
        jw_kint(&w, "diskBytes", (int64_t) b->size.disk);
        return jw_end_all(&w);
}

int spec_write(int box_dir, const struct box *b, struct err *e)
{
        _cleanup_buf_ struct buf text = BUF_MAX(SPEC_MAX);
        _cleanup_close_ int fd =
                openat(box_dir, "spec.new", O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
        int r = spec_print(b, &text);

        if (fd < 0)
                return err_sys(e, -errno, "cannot write the record of box %s", b->id);
        if (r == 0)
                r = fd_write_all(fd, text.p, text.len);
        if (r == 0 && renameat(box_dir, "spec.new", box_dir, "spec.json") < 0)
                r = -errno;
        /* Not synced: what a kill leaves is in the page cache, and a power cut ends the box itself. */
        return r < 0 ? err_sys(e, r, "cannot write the record of box %s", b->id) : 0;
}

void spec_withdraw(int boxes_dir, const char *id)
{
        char path[BOX_ID_MAX + 16];

        snprintf(path, sizeof(path), "%s/spec.json", id);
        (void) unlinkat(boxes_dir, path, 0);
}

int spec_read(int boxes_dir, const char *id, struct box *ret, struct err *e)
{
        _cleanup_buf_ struct buf text = BUF_MAX(SPEC_MAX);
        _cleanup_json_ struct json *j = NULL;
        const struct json *size;
        char path[BOX_ID_MAX + 16];
        int r;

        snprintf(path, sizeof(path), "%s/spec.json", id);
        r = file_read(boxes_dir, path, &text);
        if (r < 0)
                return err_sys(e, r, "cannot read the record of box %s", id);
        r = json_parse(text.p, text.len, &j, e);
        if (r < 0)
                return err_wrap(e, "the record of box %s", id);
        snprintf(ret->id, sizeof(ret->id), "%s", id);
        snprintf(ret->image, sizeof(ret->image), "%s", json_get_str(j, "image", "host"));
        snprintf(ret->skeleton, sizeof(ret->skeleton), "%s", json_get_str(j, "skeleton", ""));
        snprintf(ret->lower, sizeof(ret->lower), "%s", json_get_str(j, "lower", ""));
        ret->index = (unsigned) json_get_int(j, "index", 0) % NET_INDEX_MAX;
        ret->owner = (unsigned) json_get_int(j, "owner", ret->index) % NET_INDEX_MAX;
        ret->loop = (int) json_get_int(j, "loop", -1);
        ret->start_time = (uint64_t) json_get_int(j, "startTime", 0);
        ret->created_ms = json_get_int(j, "createdAt", 0);
        ret->pid = cstr_eq(json_get_str(j, "boot", ""), state_boot_id()) ? (pid_t) json_get_int(j, "pid", 0) : 0;
        size = json_get(j, "size");
        ret->size.cpus = json_double(json_get(size, "cpus"));
        ret->size.memory = (uint64_t) json_get_int(size, "memoryBytes", 0);
        ret->size.pids = (uint64_t) json_get_int(size, "pids", 0);
        ret->size.disk = (uint64_t) json_get_int(size, "diskBytes", 0);
        return 0;
}
