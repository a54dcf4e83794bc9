#include "boxhost/image_build.h"

#include "boxhost/image_recipe.h"
#include "boxhost/image_run.h"
#include "boxhost/image_sources.h"
#include "boxhost/sys.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/ids.h"
#include "base/json.h"
#include "base/str.h"

#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#define MIB (1ULL << 20)
#define LOG_FILE ".build.log"
#define LOG_MAX (64ULL << 20)
#define LIST_MAX (256 << 10)
#define PROXIES_MAX 8

struct build {
        struct image_store *s;
        const struct image_build *b;
        struct image_progress progress;
        struct image_recipe recipe;
        struct image_sources sources;
        char folder[24]; /* below the images */
        char path[PATH_MAX];
        int dir, log;
        uint64_t logged;
};

/* ---- before anything is made ---- */

static int check_name(const struct build *x, struct err *e)
{
        _cleanup_buf_ struct buf names = BUF_MAX(256);
        char hand_made[IMAGE_NAME_MAX + 16];
        const char *name = x->b->name;

        if (!image_recipe_known(x->b->recipe)) {
                image_recipe_names(&names);
                return err_set(e, -ENOENT, "there is no recipe `%s`; there are: %s", x->b->recipe, buf_cstr(&names));
        }
        if (!image_name_ok(name) || cstr_eq(name, IMAGE_HOST))
                return err_set(
                        e, -EINVAL,
                        "`%s` is no name for an image: letters, digits, dots, hyphens and underlines, at most %d, "
                        "and not `host`",
                        name, IMAGE_NAME_MAX);
        snprintf(hand_made, sizeof(hand_made), "%s/rootfs", name);
        if (faccessat(x->s->images, hand_made, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
                return err_set(e, -EEXIST, "the image `%s` was unpacked by hand: remove it first, or give --name",
                               name);
        if (!sys_program("mmdebstrap"))
                return err_set(e, -ENOENT,
                               "mmdebstrap, which makes the image, is not installed: apt-get install mmdebstrap");
        return 0;
}

static int read_recipe(struct build *x, struct err *e)
{
        _cleanup_buf_ struct buf text = BUF_MAX(LIST_MAX);
        const char *file = image_recipe_file(x->b->recipe, x->sources.release);
        int r;

        if (!x->b->packages)
                return image_recipe_parse(str_of(file), &x->recipe, e);
        r = file_read(AT_FDCWD, x->b->packages, &text);
        if (r < 0)
                return err_sys(e, r, "cannot read the list %s", x->b->packages);
        r = image_recipe_parse(buf_str(&text), &x->recipe, e);
        return r < 0 ? err_wrap(e, "%s", x->b->packages) : 0;
}

/* need counts what lies beside the image that there is; the old one goes only afterwards. */
static int check_room(const struct build *x, uint64_t need, struct err *e)
{
        struct statvfs v;
        uint64_t have;

        if (fstatvfs(x->s->images, &v) < 0)
                return err_sys(e, -errno, "cannot look at the room in %s", x->s->folder);
        have = (uint64_t) v.f_bavail * v.f_frsize;
        if (have >= need)
                return 0;
        return err_set(e, -ENOSPC,
                       "making this image takes %llu MiB in %s, and %llu MiB are free: free some room, or use another "
                       "state folder with --state",
                       (unsigned long long) (need / MIB), x->s->folder, (unsigned long long) (have / MIB));
}

static bool release_known(const char *release, void *arg)
{
        const struct build *x = arg;

        return !cstr_eq(release, "setup") && !cstr_eq(release, "finish") &&
               image_recipe_file(x->b->recipe, release) != NULL;
}

/* ---- the folder that it is made in ---- */

static int put(int dir, const char *name, struct str text, mode_t mode, struct err *e)
{
        return file_write_atomic(dir, name, text.p ? text.p : "", text.n, mode, e);
}

static int make_folder(struct build *x, struct err *e)
{
        char id[13];

        random_id(id, 12);
        snprintf(x->folder, sizeof(x->folder), ".build-%s", id);
        if (snprintf(x->path, sizeof(x->path), "%s/%s", x->s->folder, x->folder) >= (int) sizeof(x->path) - 32)
                return err_set(e, -ENAMETOOLONG, "the path of the state folder is too long");
        /* Root's alone, for ever: programs with the setuid bit lie in the tree. */
        if (mkdirat(x->s->images, x->folder, 0700) < 0)
                return err_sys(e, -errno, "cannot make a folder in %s", x->s->folder);
        x->dir = openat(x->s->images, x->folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (x->dir < 0 || mkdirat(x->dir, "work", 0700) < 0 || mkdirat(x->dir, "work/lists", 0700) < 0 ||
            mkdirat(x->dir, "work/tmp", 0700) < 0)
                return err_sys(e, -errno, "cannot make a folder in %s", x->s->folder);
        x->log = openat(x->s->images, LOG_FILE, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
        return x->log < 0 ? err_sys(e, -errno, "cannot make the log") : 0;
}

static int put_work(struct build *x, struct err *e)
{
        const char *setup = image_recipe_file(x->b->recipe, "setup"),
                   *finish = image_recipe_file(x->b->recipe, "finish");
        int r = put(x->dir, "work/setup", str_of(setup), 0700, e);

        if (r == 0)
                r = put(x->dir, "work/finish", str_of(finish), 0700, e);
        if (r == 0)
                r = put(x->dir, "work/keys", buf_str(&x->sources.keys), 0600, e);
        if (r == 0)
                r = put(x->dir, "work/apt.conf", buf_str(&x->sources.settings), 0600, e);
        if (r == 0)
                r = put(x->dir, "work/apt.kept", buf_str(&x->sources.kept), 0600, e);
        if (r == 0)
                r = put(x->dir, "work/sources", buf_str(&x->sources.lines), 0600, e);
        return r;
}

/* ---- mmdebstrap ---- */

static void tell(struct build *x)
{
        x->b->tell(&x->progress, x->b->arg);
}

static void enter(struct build *x, const char *stage)
{
        x->progress.stage = stage;
        x->progress.done = x->progress.total = 0;
        tell(x);
}

static int take_line(struct str line, void *arg)
{
        struct build *x = arg;
        uint64_t before = x->progress.disk_bytes;

        if (x->logged < LOG_MAX) {
                x->logged += line.n + 1;
                if (fd_write_all(x->log, line.p, line.n) < 0 || fd_write_all(x->log, "\n", 1) < 0)
                        x->logged = LOG_MAX;
        }
        if (image_progress_line(&x->progress, line))
                tell(x);
        /* apt knows better than the recipe, and says so before it fetches anything */
        if (x->progress.disk_bytes > before && check_room(x, x->progress.disk_bytes - before, NULL) < 0) {
                x->progress.kind = FAULT_SPACE;
                return -ENOSPC;
        }
        return 0;
}

static int explain(struct build *x, int r, struct err *e)
{
        struct image_progress *p = &x->progress;

        if (r == -ECANCELED)
                return err_set(e, r, "stopped; nothing was changed");
        if (r == -ENOSPC)
                return check_room(x, p->disk_bytes, e) < 0 ? e->code
                                                           : err_set(e, r, "the disk was full for a moment: try again");
        return err_set(e, r, "making the image failed while %s: %s; %s (%s/" LOG_FILE ")", p->stage,
                       p->fault[0] ? p->fault : err_text(e), image_progress_advice(p), x->s->folder);
}

static int run_mmdebstrap(struct build *x, struct err *e)
{
        char conf[PATH_MAX + 32], setup[PATH_MAX + 32], finish[PATH_MAX + 32], root[PATH_MAX + 32], tmp[PATH_MAX + 32];
        _cleanup_free_ char *include = xasprintf("--include=%s", buf_cstr(&x->recipe.packages));
        _cleanup_close_ int input = openat(x->dir, "work/sources", O_RDONLY | O_CLOEXEC);
        const char *const argv[] = { "mmdebstrap", "--verbose", "--mode=root", "--variant=minbase",
                                     "--format=directory",
                                     /* a power cut costs the build, not an image: image_commit writes all at once */
                                     "--dpkgopt=force-unsafe-io", conf, setup, finish,
                                     x->recipe.count ? include : "--include=apt", /* which is there anyway */
                                     x->sources.release, root, "-", NULL };
        const char *env[5 + PROXIES_MAX + 1] = { "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "HOME=/",
                                                 "DEBIAN_FRONTEND=noninteractive", tmp };
        struct image_run run = { .program = sys_program("mmdebstrap"),
                                 .argv = argv,
                                 .env = env,
                                 .input = input,
                                 .cancel = x->b->cancel,
                                 .line = take_line,
                                 .arg = x };
        int r;

        if (input < 0)
                return err_sys(e, -errno, "cannot open the sources");
        snprintf(conf, sizeof(conf), "--aptopt=%s/work/apt.conf", x->path);
        snprintf(setup, sizeof(setup), "--setup-hook=%s/work/setup", x->path);
        snprintf(finish, sizeof(finish), "--customize-hook=%s/work/finish", x->path);
        snprintf(root, sizeof(root), "%s/rootfs", x->path);
        snprintf(tmp, sizeof(tmp), "TMPDIR=%s/work/tmp", x->path);
        for (size_t i = 0; i < PROXIES_MAX && x->b->proxy[i]; i++)
                env[5 + i] = x->b->proxy[i];
        r = image_run(&run, e);
        return r < 0 ? explain(x, r, e) : 0;
}

/* ---- afterwards ---- */

static uint64_t walked; /* nftw passes nothing on */

static int add_file(const char *path, const struct stat *st, int kind, struct FTW *at)
{
        (void) path;
        (void) at;
        /* a file with several names is counted once for each: near enough */
        if (kind != FTW_NS)
                walked += (uint64_t) st->st_blocks * 512 / (S_ISREG(st->st_mode) ? st->st_nlink : 1);
        return 0;
}

static unsigned count_packages(int dir)
{
        _cleanup_buf_ struct buf b = BUF_MAX(64 << 20);
        unsigned n = 0;

        if (file_read(dir, "rootfs/var/lib/dpkg/status", &b) < 0)
                return 0;
        for (struct str rest = buf_str(&b); rest.n > 0;)
                n += str_starts(str_cut(&rest, '\n'), STR("Package: "));
        return n;
}

static int put_about(struct build *x, const struct image_built *built, struct err *e)
{
        _cleanup_buf_ struct buf text = BUF_MAX(4096);
        char at[RFC3339_LEN];
        struct jw w;

        jw_init(&w, &text);
        jw_obj(&w);
        jw_kstr(&w, "recipe", x->b->packages ? NULL : x->b->recipe);
        jw_kstr(&w, "release", built->release);
        jw_kstr(&w, "builtAt", rfc3339(wall_ms(), at));
        jw_kint(&w, "packages", built->packages);
        jw_kint(&w, "bytes", (int64_t) built->bytes);
        if (jw_end_all(&w) < 0)
                return err_set(e, -EIO, "cannot describe the image");
        return put(x->dir, "image.json", buf_str(&text), 0644, e);
}

static int keep(struct build *x, struct image_built *ret, struct err *e)
{
        char root[PATH_MAX + 32], id[13];
        int r;

        enter(x, "keeping the image");
        snprintf(root, sizeof(root), "%s/rootfs", x->path);
        walked = 0;
        (void) nftw(root, add_file, 32, FTW_PHYS | FTW_MOUNT);
        ret->bytes = walked;
        ret->packages = count_packages(x->dir);
        snprintf(ret->release, sizeof(ret->release), "%s", x->sources.release);
        random_id(id, 12);
        snprintf(ret->version, sizeof(ret->version), "v-%s", id);
        r = put_about(x, ret, e);
        if (r == 0 && remove_tree(x->dir, "work") < 0)
                r = err_set(e, -EIO, "cannot remove what the making needed");
        if (r == 0)
                r = image_commit(x->s, x->folder, x->b->name, ret->version, e);
        if (r == 0)
                x->folder[0] = '\0'; /* it has another name now */
        if (r == 0 && !x->b->keep_default)
                r = image_choose_default(x->s, x->b->name, e);
        return r;
}

static int make(struct build *x, struct image_built *ret, struct err *e)
{
        char lists[PATH_MAX + 32];
        int r;

        image_clean(x->s->images, true);
        r = make_folder(x, e);
        if (r < 0)
                return r;
        tell(x);
        snprintf(lists, sizeof(lists), "%s/work/lists", x->path);
        r = image_sources_read(&x->sources, lists, release_known, x, e);
        if (r == 0)
                r = read_recipe(x, e);
        if (r == 0)
                r = check_room(x, x->recipe.disk_mib * MIB, e);
        if (r == 0)
                r = put_work(x, e);
        if (r == 0)
                r = run_mmdebstrap(x, e);
        return r < 0 ? r : keep(x, ret, e);
}

int image_build(struct image_store *s, const struct image_build *b, struct image_built *ret, struct err *e)
{
        struct build x = { .s = s, .b = b, .dir = -1, .log = -1, .recipe = { .packages = BUF_MAX(0) } };
        int64_t begin = clock_ms();
        int r = check_name(&x, e);

        *ret = (struct image_built){ 0 };
        image_progress_init(&x.progress);
        image_sources_init(&x.sources);
        if (r == 0)
                r = image_store_begin_build(s, e);
        if (r == 0)
                r = make(&x, ret, e);
        if (x.folder[0] && remove_tree(s->images, x.folder) < 0 && r == 0)
                r = err_set(e, -EIO, "cannot remove what the build left");
        /* A log is worth something only where it says what went wrong. */
        if (x.log >= 0 && (r == 0 || r == -ECANCELED || x.logged == 0))
                (void) unlinkat(s->images, LOG_FILE, 0);
        if (r == 0 && image_sweep(s->images, s->boxes, s->lock))
                image_clean(s->images, true);
        closep(&x.dir);
        closep(&x.log);
        image_recipe_done(&x.recipe);
        image_sources_done(&x.sources);
        ret->ms = clock_ms() - begin;
        return r;
}
