#include "boxhost/skeleton.h"

#include "boxhost/image.h"
#include "boxhost/state.h"
#include "boxhost/sys.h"
#include "base/file.h"
#include "base/str.h"

#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>

#define FORMAT 5U /* counts up when the making changes, so that old skeletons are made anew */
#define DEPTH_MAX 16
#define FILE_MAX (64 << 20)

/* Names directly below /etc; patterns, files or folders. Anything not listed is never looked at. */
static const char *const etc_list[] = {
        "adduser.conf",
        "deluser.conf",
        "alternatives",
        "bash.bashrc",
        "bash_completion*",
        "bindresvport.blacklist",
        "ca-certificates",
        "ca-certificates.conf",
        "chromium",
        "chromium.d",
        "debconf.conf",
        "debian_version",
        "dpkg",
        "emacs",
        "fonts",
        "gai.conf",
        "glvnd",
        "groff",
        "gtk-[234].0",
        "host.conf",
        "ImageMagick-*",
        "inputrc",
        "issue",
        "issue.net",
        "java",
        "java-*",
        "ld.so.cache",
        "ld.so.conf",
        "ld.so.conf.d",
        "libaudit.conf",
        "locale.alias",
        "locale.gen",
        "localtime",
        "login.defs",
        "lsb-release",
        "magic",
        "magic.mime",
        "mailcap",
        "mailcap.order",
        "manpath.config",
        "mime.types",
        "networks",
        "OpenCL",
        "openal",
        "os-release",
        "pam.conf",
        "pam.d",
        "perl",
        "php",
        "protocols",
        "python",
        "python3",
        "python2*",
        "python3.*",
        "R",
        "rpc",
        "security",
        "selinux",
        "services",
        "shells",
        "skel",
        "terminfo",
        "texmf",
        "timezone",
        "ucf.conf",
        "vim",
        "vulkan",
        "X11",
        "xattr.conf",
        "xdg",
        "xml",
        "sgml",
        "debuginfod",
};
static const char *const ssl_list[] = { "certs", "openssl.cnf" };
static const char *const apt_list[] = { "sources.list",  "sources.list.d", "keyrings",
                                        "trusted.gpg",   "trusted.gpg.d",  "preferences",
                                        "preferences.d", "apt.conf.d",     "listchanges.conf*" };
static const char *const default_list[] = { "locale", "useradd", "keyboard" };
static const char *const dpkg_list[] = { "status",       "available", "diversions", "statoverride", "info",
                                         "alternatives", "triggers",  "arch",       "cmethopt" };
static const char *const apt_state_list[] = { "extended_states" };
static const char *const font_cache_list[] = { "*" };

struct part {
        const char *folder;
        const char *const *list;
        size_t count;
        bool check; /* text that may hold credentials */
};

static const struct part parts[] = {
        { "etc", etc_list, ARRAY_LEN(etc_list), false },
        { "etc/ssl", ssl_list, ARRAY_LEN(ssl_list), false },
        { "etc/apt", apt_list, ARRAY_LEN(apt_list), true },
        { "etc/default", default_list, ARRAY_LEN(default_list), false },
        { "var/lib/dpkg", dpkg_list, ARRAY_LEN(dpkg_list), false },
        { "var/lib/apt", apt_state_list, ARRAY_LEN(apt_state_list), false },
        { "var/cache/fontconfig", font_cache_list, ARRAY_LEN(font_cache_list), false },
};

static const struct {
        const char *path;
        mode_t mode;
} empty_folders[] = {
        { "boot", 0755 },
        { "dev", 0755 },
        { "etc", 0755 },
        { "etc/opt", 0755 },
        { "home", 0755 },
        { "media", 0755 },
        { "mnt", 0755 },
        { "opt", 0755 },
        { "proc", 0555 },
        { "root", 0700 },
        { "run", 0755 },
        { "srv", 0755 },
        { "sys", 0555 },
        { "tmp", 01777 },
        { "usr", 0755 },
        { "work", 0755 },
        { "var", 0755 },
        { "var/backups", 0755 },
        { "var/cache", 0755 },
        { "var/cache/apt", 0755 },
        { "var/cache/apt/archives", 0755 },
        { "var/cache/apt/archives/partial", 0700 },
        { "var/cache/debconf", 0755 },
        { "var/cache/fontconfig", 0755 },
        { "var/cache/ldconfig", 0700 },
        { "var/lib", 0755 },
        { "var/lib/apt", 0755 },
        { "var/lib/apt/lists", 0755 },
        { "var/lib/apt/lists/partial", 0700 },
        { "var/lib/apt/periodic", 0755 },
        { "var/lib/apt/mirrors", 0755 },
        { "var/lib/apt/mirrors/partial", 0755 },
        { "var/lib/dpkg", 0755 },
        { "var/lib/dpkg/updates", 0755 },
        { "var/lib/dpkg/parts", 0755 },
        { "var/lib/misc", 0755 },
        { "var/lib/pam", 0755 },
        { "var/lib/ucf", 0755 },
        { "var/lib/systemd", 0755 },
        { "var/lib/xkb", 0755 },
        { "var/local", 02775 },
        { "var/log", 0755 },
        { "var/log/apt", 0755 },
        { "var/mail", 02775 },
        { "var/opt", 0755 },
        { "var/spool", 0755 },
        { "var/tmp", 01777 },
};

static bool listed(const struct part *p, const char *name)
{
        for (size_t i = 0; i < p->count; i++) {
                if (fnmatch(p->list[i], name, 0) == 0)
                        return true;
        }
        return false;
}

static uint64_t mix(uint64_t h, const void *p, size_t n)
{
        const unsigned char *b = p;

        for (size_t i = 0; i < n; i++)
                h = (h ^ b[i]) * 1099511628211ULL;
        return h;
}

/* One walk serves both purposes: with to < 0 it only takes the fingerprint. */
struct walk {
        uint64_t print;
        bool check;
        struct err *e;
};

/* "scheme://user:password@host" anywhere, or a line that speaks of a password. */
static bool has_credentials(int fd)
{
        _cleanup_free_ char *text = xmalloc(1 << 16);
        ssize_t n = pread(fd, text, (1 << 16) - 1, 0);
        const char *p;

        if (n <= 0)
                return false;
        text[n] = '\0';
        if (strlen(text) < (size_t) n) /* binary: a key ring */
                return false;
        if (strcasestr(text, "password") || strcasestr(text, "passwd") || strcasestr(text, "login "))
                return true;
        for (p = strstr(text, "://"); p; p = strstr(p + 3, "://")) {
                size_t host = strcspn(p + 3, "/ \t\n\"'");
                if (memchr(p + 3, '@', host))
                        return true;
        }
        return false;
}

static int copy_file(struct walk *w, int from_dir, int to_dir, const char *name, const struct stat *st)
{
        _cleanup_close_ int from = openat(from_dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC), to = -1;
        mode_t mode = (st->st_mode & 0111) ? 0755 : 0644;

        if (from < 0)
                return 0; /* gone meanwhile */
        if (w->check && has_credentials(from))
                return 0;
        to = openat(to_dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
        if (to < 0)
                return errno == EEXIST ? 0 : err_sys(w->e, -errno, "cannot make %s in the image", name);
        for (off_t left = st->st_size; left > 0;) {
                ssize_t n = sendfile(to, from, NULL, (size_t) left);
                if (n < 0)
                        return err_sys(w->e, -errno, "cannot copy %s into the image", name);
                if (n == 0)
                        break;
                left -= n;
        }
        if (fchmod(to, mode) < 0 || futimens(to, (const struct timespec[2]){ st->st_mtim, st->st_mtim }) < 0)
                return err_sys(w->e, -errno, "cannot finish %s in the image", name);
        return 0;
}

static int copy_link(struct walk *w, int from_dir, int to_dir, const char *name)
{
        char target[4096];
        ssize_t n = readlinkat(from_dir, name, target, sizeof(target) - 1);

        if (n < 0)
                return 0;
        target[n] = '\0';
        if (symlinkat(target, to_dir, name) < 0 && errno != EEXIST)
                return err_sys(w->e, -errno, "cannot make the link %s in the image", name);
        return 0;
}

static int visit(struct walk *w, int from_dir, int to_dir, const char *name, int depth);

static int visit_folder(struct walk *w, int from_dir, int to_dir, const char *name, int depth)
{
        _cleanup_close_ int to = -1;
        int fd = openat(from_dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), r = 0;
        DIR *d = fd < 0 ? NULL : fdopendir(fd);

        if (!d) {
                if (fd >= 0)
                        close(fd);
                return 0;
        }
        if (to_dir >= 0) {
                if (mkdirat(to_dir, name, 0755) < 0 && errno != EEXIST)
                        r = err_sys(w->e, -errno, "cannot make the folder %s in the image", name);
                else
                        to = openat(to_dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
                if (r == 0 && to < 0)
                        r = err_sys(w->e, -errno, "cannot open the folder %s in the image", name);
        }
        for (struct dirent *it; r == 0 && (it = readdir(d));) {
                if (!cstr_eq(it->d_name, ".") && !cstr_eq(it->d_name, ".."))
                        r = visit(w, dirfd(d), to, it->d_name, depth + 1);
        }
        closedir(d);
        return r;
}

static int visit(struct walk *w, int from_dir, int to_dir, const char *name, int depth)
{
        struct stat st;

        if (depth > DEPTH_MAX || fstatat(from_dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return 0;
        w->print = mix(w->print, name, strlen(name) + 1);
        w->print = mix(w->print, &st.st_mtim, sizeof(st.st_mtim));
        w->print = mix(w->print, &st.st_mode, sizeof(st.st_mode));
        w->print = mix(w->print, &st.st_size, sizeof(st.st_size));
        if (S_ISDIR(st.st_mode))
                return (st.st_mode & 0005) == 0005 ? visit_folder(w, from_dir, to_dir, name, depth) : 0;
        if (to_dir < 0)
                return 0;
        if (S_ISLNK(st.st_mode))
                return copy_link(w, from_dir, to_dir, name);
        /* What not everybody on the machine may read is nobody's business in a box either. */
        if (S_ISREG(st.st_mode) && (st.st_mode & 0004) && st.st_size <= FILE_MAX)
                return copy_file(w, from_dir, to_dir, name, &st);
        return 0;
}

static int visit_part(struct walk *w, const struct part *p, int to_root)
{
        _cleanup_close_ int root = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC), to = -1;
        int fd = sys_open_beneath(root, p->folder, O_RDONLY | O_DIRECTORY, 0), r = 0;
        DIR *d = fd < 0 ? NULL : fdopendir(fd);

        if (!d) {
                if (fd >= 0)
                        close(fd);
                return 0; /* not on this machine */
        }
        if (to_root >= 0) {
                if (mkdirat(to_root, p->folder, 0755) < 0 && errno != EEXIST)
                        r = err_sys(w->e, -errno, "cannot make %s in the image", p->folder);
                else
                        to = openat(to_root, p->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        }
        w->check = p->check;
        for (struct dirent *it; r == 0 && (it = readdir(d));) {
                if (it->d_name[0] != '.' && listed(p, it->d_name))
                        r = visit(w, dirfd(d), to, it->d_name, 0);
        }
        closedir(d);
        return r;
}

uint64_t skeleton_fingerprint(void)
{
        static const char *const others[] = { "/etc/passwd", "/etc/group", "/usr" };
        unsigned format = FORMAT;
        struct walk w = { .print = 14695981039346656037ULL };

        w.print = mix(w.print, &format, sizeof(format));
        /* made anew after each start of the machine, so nobody has to wait until it is safely on the disk */
        w.print = mix(w.print, state_boot_id(), strlen(state_boot_id()));
        for (size_t i = 0; i < ARRAY_LEN(parts); i++)
                (void) visit_part(&w, &parts[i], -1);
        for (size_t i = 0; i < ARRAY_LEN(others); i++) {
                struct stat st;
                if (stat(others[i], &st) == 0)
                        w.print = mix(w.print, &st.st_mtim, sizeof(st.st_mtim));
        }
        return w.print;
}

static int put_text(int dir, const char *path, const struct buf *b, mode_t mode, gid_t gid, struct err *e)
{
        _cleanup_close_ int fd = openat(dir, path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, mode);

        if (fd < 0 || fd_write_all(fd, b->p, b->len) < 0 || fchown(fd, 0, gid) < 0 || fchmod(fd, mode) < 0)
                return err_sys(e, -errno, "cannot make %s in the image", path);
        return 0;
}

/* Copies the accounts of the system (packages refer to them), not those of people; the locked passwords go beside. */
static int put_accounts(int dir, const char *path, const char *shadow_path, bool groups, struct err *e)
{
        _cleanup_buf_ struct buf in = BUF_MAX(1 << 20), out = BUF_MAX(1 << 20), shadow = BUF_MAX(1 << 20);
        char absolute[64];
        struct str text;
        int r;

        snprintf(absolute, sizeof(absolute), "/%s", path);
        if (file_read(AT_FDCWD, absolute, &in) < 0)
                (void) buf_adds(
                        &in,
                        groups ? "root:x:0:\ntty:x:5:\nnogroup:x:65534:\n"
                               : "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n");
        text = buf_str(&in);
        while (text.n > 0) {
                struct str line = str_cut(&text, '\n'), rest = line, name = str_cut(&rest, ':'), number;
                uint64_t id;
                (void) str_cut(&rest, ':');
                number = str_cut(&rest, ':');
                if (parse_u64(number, UINT32_MAX, &id) < 0 || (id >= 1000 && id != 65534) || name.n == 0)
                        continue;
                if (groups)
                        (void) buf_addf(&out, "%.*s:x:%u:\n", (int) name.n, name.p, (unsigned) id);
                else if (id == 0 && str_eq(name, STR("root")))
                        (void) buf_adds(&out, "root:x:0:0:root:/root:/bin/bash\n");
                else
                        (void) buf_addf(&out, "%.*s:x:%u:%.*s\n", (int) name.n, name.p, (unsigned) id, (int) rest.n,
                                        rest.p);
                (void) buf_addf(&shadow, groups ? "%.*s:*::\n" : "%.*s:*:19000:0:99999:7:::\n", (int) name.n, name.p);
        }
        r = put_text(dir, path, &out, 0644, 0, e);
        return r < 0 ? r : put_text(dir, shadow_path, &shadow, 0640, 42, e);
}

static int put_texts(int dir, struct err *e)
{
        static const struct {
                const char *path, *text;
        } texts[] = {
                /* hosts, hostname and resolv.conf are each box's own: see ns.c */
                { "etc/fstab", "" },
                { "etc/environment", "" },
                { "etc/nsswitch.conf", "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\n"
                                       "protocols: files\nservices: files\nethers: files\nrpc: files\n" },
                { "etc/profile", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\nexport PATH\n"
                                 "for f in /etc/profile.d/*.sh; do [ -r \"$f\" ] && . \"$f\"; done\nunset f\n" },
                /* apt's own change of account gains nothing in a box, and fails in folders that only root may enter */
                { "etc/apt/apt.conf.d/90box", "APT::Sandbox::User \"root\";\nAcquire::Languages \"none\";\n" },
        };

        (void) mkdirat(dir, "etc/apt", 0755);
        (void) mkdirat(dir, "etc/apt/apt.conf.d", 0755);
        for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
                struct buf b = { .p = (char *) (uintptr_t) texts[i].text, .len = strlen(texts[i].text) };
                int r = put_text(dir, texts[i].path, &b, 0644, 0, e);
                if (r < 0)
                        return r;
        }
        return 0;
}

/* /bin, /lib … are links into /usr on a merged system; the same links go into the image. */
static int put_links(int dir, struct err *e)
{
        static const char *const names[] = { "bin", "sbin", "lib", "lib32", "lib64", "libx32" };
        static const char *const var[][2] = { { "/run", "var/run" }, { "/run/lock", "var/lock" } };

        for (size_t i = 0; i < ARRAY_LEN(names); i++) {
                char path[16], target[64];
                ssize_t n;
                snprintf(path, sizeof(path), "/%s", names[i]);
                n = readlink(path, target, sizeof(target) - 1);
                if (n <= 0)
                        continue;
                target[n] = '\0';
                if (symlinkat(target[0] == '/' ? target + 1 : target, dir, names[i]) < 0)
                        return err_sys(e, -errno, "cannot make the link %s in the image", names[i]);
        }
        for (size_t i = 0; i < ARRAY_LEN(var); i++) {
                if (symlinkat(var[i][0], dir, var[i][1]) < 0)
                        return err_sys(e, -errno, "cannot make the link %s in the image", var[i][1]);
        }
        return 0;
}

static int put_ca_bundle(int dir, struct err *e)
{
        const char *path = image_ca_bundle();
        _cleanup_buf_ struct buf b = BUF_MAX(16 << 20);

        (void) mkdirat(dir, "etc/ssl", 0755);
        (void) mkdirat(dir, "etc/ssl/certs", 0755);
        if (!path || file_read(AT_FDCWD, path, &b) < 0)
                return 0;
        (void) unlinkat(dir, "etc/ssl/certs/ca-certificates.crt", 0); /* a copied link would lead nowhere */
        return put_text(dir, "etc/ssl/certs/ca-certificates.crt", &b, 0644, 0, e);
}

int skeleton_make(int dir, struct err *e)
{
        struct walk w = { .e = e };
        int r = 0;

        for (size_t i = 0; r == 0 && i < ARRAY_LEN(empty_folders); i++) {
                if (mkdirat(dir, empty_folders[i].path, 0755) < 0 && errno != EEXIST)
                        r = err_sys(e, -errno, "cannot make /%s in the image", empty_folders[i].path);
                else if (fchmodat(dir, empty_folders[i].path, empty_folders[i].mode, 0) < 0)
                        r = err_sys(e, -errno, "cannot make /%s in the image", empty_folders[i].path);
        }
        for (size_t i = 0; r == 0 && i < ARRAY_LEN(parts); i++)
                r = visit_part(&w, &parts[i], dir);
        if (r == 0)
                r = put_accounts(dir, "etc/passwd", "etc/shadow", false, e);
        if (r == 0)
                r = put_accounts(dir, "etc/group", "etc/gshadow", true, e);
        if (r == 0)
                r = put_texts(dir, e);
        if (r == 0)
                r = put_links(dir, e);
        return r < 0 ? r : put_ca_bundle(dir, e);
}
