#include "boxhost/image.h"

#include "boxhost/skeleton.h"
#include "boxhost/sys.h"
#include "base/file.h"
#include "base/log.h"
#include "base/str.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

bool image_name_ok(const char *name)
{
        size_t n = strlen(name);

        if (n == 0 || n > IMAGE_NAME_MAX || !c_is_alnum(name[0]))
                return false;
        for (size_t i = 0; i < n; i++) {
                if (!c_is_alnum(name[i]) && !strchr("._-", name[i]))
                        return false;
        }
        return true;
}

const char *image_ca_bundle(void)
{
        static const char *const places[] = { "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
                                              "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem" };

        for (size_t i = 0; i < ARRAY_LEN(places); i++) {
                if (access(places[i], R_OK) == 0)
                        return places[i];
        }
        return NULL;
}

#define DEFAULT_FILE ".default"

static int open_folder(int at, const char *name, bool make, struct err *e)
{
        int fd;

        if (make && mkdirat(at, name, 0755) < 0 && errno != EEXIST)
                return err_sys(e, -errno, "cannot make the folder %s", name);
        fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        return fd < 0 ? err_sys(e, -errno, "cannot open the folder %s", name) : fd;
}

int image_host_prepare(int images, char version[IMAGE_SKELETON_MAX], struct err *e)
{
        _cleanup_close_ int host = open_folder(images, IMAGE_HOST, true, e), fresh = -1;
        uint64_t print;
        int r;

        if (host < 0)
                return host;
        print = skeleton_fingerprint();
        snprintf(version, IMAGE_SKELETON_MAX, "skel-%016" PRIx64, print);
        if (faccessat(host, version, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
                return 0;
        r = remove_tree(host, "new");
        if (r < 0)
                return err_sys(e, r, "cannot remove a half-made image");
        fresh = open_folder(host, "new", true, e);
        if (fresh < 0)
                return fresh;
        r = skeleton_make(fresh, e);
        if (r == 0 && renameat(host, "new", host, version) < 0)
                r = err_sys(e, -errno, "cannot keep the image");
        return r;
}

bool image_version_ok(const char *version)
{
        size_t n = strlen(version);

        if (n < 3 || n >= IMAGE_SKELETON_MAX || version[0] != 'v' || version[1] != '-')
                return false;
        for (size_t i = 2; i < n; i++) {
                if (!c_is_alnum(version[i]))
                        return false;
        }
        return true;
}

int image_current(int images, const char *name, char version[IMAGE_SKELETON_MAX])
{
        char path[IMAGE_NAME_MAX + 16];
        ssize_t n;

        if (!image_name_ok(name))
                return -ENOENT;
        snprintf(path, sizeof(path), "%s/current", name);
        n = readlinkat(images, path, version, IMAGE_SKELETON_MAX - 1);
        if (n <= 0)
                return -ENOENT;
        version[n] = '\0';
        return image_version_ok(version) ? 0 : -ENOENT;
}

int image_open_version(int images, const char *name, const char *version, struct image *ret, struct err *e)
{
        char path[IMAGE_NAME_MAX + IMAGE_SKELETON_MAX + 16];
        bool host = cstr_eq(name, IMAGE_HOST);
        int fd;

        if (!image_name_ok(name) || strchr(version, '/') || version[0] == '.' || strlen(version) >= IMAGE_SKELETON_MAX)
                return err_set(e, -EINVAL, "this is no name of an image");
        snprintf(path, sizeof(path), "%s/%s%s", name, version, image_version_ok(version) ? "/rootfs" : "");
        fd = openat(images, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
                return err_set(e, -ENOENT, "the image `%s` is not ready", name);
        snprintf(ret->version, sizeof(ret->version), "%s", version);
        ret->lower = fd;
        ret->with_usr = host;
        return 0;
}

static void add_name(const char *name, void *arg)
{
        struct buf *b = arg;

        (void) buf_addf(b, "%s%s", b->len ? ", " : "", name);
}

static int not_there(int images, const char *name, struct err *e)
{
        _cleanup_buf_ struct buf names = BUF_MAX(256);

        image_each(images, add_name, &names);
        return err_set(e, -ENOENT, "there is no image `%s`; there are: %s", name, buf_cstr(&names));
}

int image_open(int images, const char *name, const char *host_version, struct image *ret, struct err *e)
{
        char version[IMAGE_SKELETON_MAX] = "rootfs";
        struct stat st;

        if (!image_name_ok(name))
                return err_set(e, -EINVAL, "this is no name of an image");
        if (fstatat(images, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(st.st_mode))
                return not_there(images, name, e);
        if (cstr_eq(name, IMAGE_HOST))
                snprintf(version, sizeof(version), "%s", host_version);
        else
                (void) image_current(images, name, version);
        return image_open_version(images, name, version, ret, e);
}

static bool is_ready(int images, const char *name)
{
        char version[IMAGE_SKELETON_MAX] = "rootfs";
        struct image image = { .lower = -1 };

        if (cstr_eq(name, IMAGE_HOST))
                return true;
        (void) image_current(images, name, version);
        if (image_open_version(images, name, version, &image, NULL) < 0)
                return false;
        close(image.lower);
        return true;
}

void image_default(int images, char ret[IMAGE_NAME_MAX + 1])
{
        _cleanup_buf_ struct buf b = BUF_MAX(IMAGE_NAME_MAX + 1);

        if (file_read(images, DEFAULT_FILE, &b) == 0) {
                struct str name = str_trim(buf_str(&b), "\n ");
                snprintf(ret, IMAGE_NAME_MAX + 1, "%.*s", (int) name.n, name.p);
                if (is_ready(images, ret))
                        return;
        }
        snprintf(ret, IMAGE_NAME_MAX + 1, "%s", IMAGE_HOST);
}

int image_set_default(int images, const char *name, struct err *e)
{
        if (!image_name_ok(name) || !is_ready(images, name))
                return not_there(images, name, e);
        return file_write_atomic(images, DEFAULT_FILE, name, strlen(name), 0644, e);
}

void image_identity(const struct image *image, char ret[static IMAGE_IDENTITY_MAX])
{
        struct statx st = { 0 };

        /* A name can come back with other files behind it: the folder's birth tells. A skeleton's name is made of what
         * is in it. */
        if (image->with_usr || statx(image->lower, "", AT_EMPTY_PATH, STATX_INO | STATX_BTIME, &st) < 0)
                snprintf(ret, IMAGE_IDENTITY_MAX, "%s", image->version);
        else
                snprintf(ret, IMAGE_IDENTITY_MAX, "%s:%" PRIu64 ":%" PRId64 ".%u", image->version,
                         (uint64_t) st.stx_ino, (int64_t) st.stx_btime.tv_sec, st.stx_btime.tv_nsec);
}

void image_host_sweep(int images, bool (*used)(const char *version, void *arg), void *arg)
{
        _cleanup_close_ int host = openat(images, IMAGE_HOST, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        int fd = host < 0 ? -1 : openat(host, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *d = fd < 0 ? NULL : fdopendir(fd);

        if (!d) {
                if (fd >= 0)
                        close(fd);
                return;
        }
        for (struct dirent *it; (it = readdir(d));) {
                if (it->d_name[0] != '.' && !used(it->d_name, arg) && remove_tree(host, it->d_name) < 0)
                        log_warning("cannot remove the old image %s", it->d_name);
        }
        closedir(d);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
        return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_name(const struct dirent *it)
{
        return image_name_ok(it->d_name) && !cstr_eq(it->d_name, IMAGE_HOST);
}

void image_each(int images, void (*fn)(const char *name, void *arg), void *arg)
{
        struct dirent **list = NULL;
        int n = scandirat(images, ".", &list, is_name, by_name);

        fn(IMAGE_HOST, arg);
        for (int i = 0; i < n; i++) {
                if (is_ready(images, list[i]->d_name))
                        fn(list[i]->d_name, arg);
                freep(&list[i]);
        }
        freep(&list);
}
