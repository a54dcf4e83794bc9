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
        _cleanup_close_ int host = open_folder(images, "host", true, e), fresh = -1;
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

int image_open(int images, const char *name, const char *host_version, struct image *ret, struct err *e)
{
        bool host = cstr_eq(name, "host");
        _cleanup_close_ int dir = -1;
        int fd;

        if (!image_name_ok(name))
                return err_set(e, -EINVAL, "this is no name of an image");
        dir = openat(images, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (dir < 0)
                return err_set(e, -ENOENT, "there is no image `%s`", name);
        snprintf(ret->version, sizeof(ret->version), "%s", host ? host_version : "rootfs");
        fd = openat(dir, ret->version, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
                return err_set(e, -ENOENT, "the image `%s` is not ready", name);
        ret->lower = fd;
        ret->with_usr = host;
        return 0;
}

void image_host_sweep(int images, bool (*used)(const char *version, void *arg), void *arg)
{
        _cleanup_close_ int host = openat(images, "host", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
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

void image_each(int images, void (*fn)(const char *name, void *arg), void *arg)
{
        int fd = openat(images, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *d = fd < 0 ? NULL : fdopendir(fd);

        if (!d) {
                if (fd >= 0)
                        close(fd);
                return;
        }
        for (struct dirent *it; (it = readdir(d));) {
                char path[sizeof(it->d_name) + 16];
                snprintf(path, sizeof(path), "%s/rootfs", it->d_name);
                if (cstr_eq(it->d_name, "host") ||
                    (image_name_ok(it->d_name) && faccessat(fd, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0))
                        fn(it->d_name, arg);
        }
        closedir(d);
}
