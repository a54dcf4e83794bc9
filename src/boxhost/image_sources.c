#include "boxhost/image_sources.h"

#include "boxhost/sys.h"
#include "base/mem.h"
#include "base/str.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define TEXT_MAX (1 << 20)
#define SOURCES_MAX (32 << 10)
#define ASK_MS 60000
#define UPDATE_MS 600000
#define USUAL_KEYS "/usr/share/keyrings/debian-archive-keyring.gpg"

void image_sources_init(struct image_sources *s)
{
        *s = (struct image_sources){ .lines = BUF_MAX(SOURCES_MAX),
                                     .keys = BUF_MAX(SOURCES_MAX),
                                     .settings = BUF_MAX(SOURCES_MAX),
                                     .kept = BUF_MAX(SOURCES_MAX) };
}

void image_sources_done(struct image_sources *s)
{
        buf_done(&s->lines);
        buf_done(&s->keys);
        buf_done(&s->settings);
        buf_done(&s->kept);
}

struct source_row {
        struct str label, codename, release, component, keys, uri;
};

/* apt leaves a field that it does not know as it stands in the format. */
static struct str field(struct str *line)
{
        struct str s = str_cut(line, '|');

        return str_starts(s, STR("$(")) ? str_n(NULL, 0) : s;
}

static struct source_row read_row(struct str line)
{
        struct source_row r;

        r.label = field(&line);
        r.codename = field(&line);
        r.release = field(&line);
        r.component = field(&line);
        r.keys = field(&line);
        r.uri = line;
        if (r.codename.n == 0)
                r.codename = r.release;
        return r;
}

/* Other archives on this machine are its own business: their packages run as root while the image is made. */
static bool is_debians(const struct source_row *r)
{
        return r->uri.n > 0 && r->release.n > 0 && str_eq(r->component, STR("main")) &&
               (r->label.n == 0 || str_eq(r->label, STR("Debian")) || str_eq(r->label, STR("Debian-Security")));
}

/* "bookworm" itself, its updates and its security fixes. */
static bool belongs(struct str codename, const char *release)
{
        struct str rest = codename, main = str_of(release);

        if (!str_starts(codename, main))
                return false;
        rest.p += main.n;
        rest.n -= main.n;
        return rest.n == 0 || str_eq(rest, STR("-updates")) || str_eq(rest, STR("-security"));
}

static void add_source(struct image_sources *s, const struct source_row *r)
{
        _cleanup_buf_ struct buf line = BUF_MAX(4096);
        struct str keys = r->keys;

        /* a key in the text itself, or several files, is left to apt's own trusted keys */
        if (keys.n == 0 || keys.p[0] != '/' || memchr(keys.p, ',', keys.n) || memchr(keys.p, ' ', keys.n))
                keys = access(USUAL_KEYS, R_OK) == 0 ? STR(USUAL_KEYS) : str_n(NULL, 0);
        if (keys.n)
                (void) buf_addf(&line, "deb [signed-by=%.*s] ", (int) keys.n, keys.p);
        else
                (void) buf_adds(&line, "deb ");
        (void) buf_addf(&line, "%.*s %.*s main\n", (int) r->uri.n, r->uri.p, (int) r->release.n, r->release.p);
        if (str_has(buf_str(&s->lines), buf_str(&line)))
                return; /* apt names a source once for each architecture */
        (void) buf_addstr(&s->lines, buf_str(&line));
        if (keys.n && !str_eq(keys, STR(USUAL_KEYS)))
                (void) buf_addf(&s->keys, "%.*s\n", (int) keys.n, keys.p);
}

int image_sources_parse(struct image_sources *s, struct str text, bool (*known)(const char *release, void *arg),
                        void *arg, struct err *e)
{
        struct str rest = text;

        while (rest.n > 0 && !s->release[0]) {
                struct source_row r = read_row(str_cut(&rest, '\n'));
                char name[IMAGE_RELEASE_MAX];
                if (!is_debians(&r) || r.codename.n >= sizeof(name))
                        continue;
                snprintf(name, sizeof(name), "%.*s", (int) r.codename.n, r.codename.p);
                if (known(name, arg))
                        snprintf(s->release, sizeof(s->release), "%s", name);
        }
        if (!s->release[0])
                return err_set(e, -ENOENT,
                               "the sources of this machine's apt (/etc/apt) have no Debian release that there is a "
                               "recipe for");
        for (rest = text; rest.n > 0;) {
                struct source_row r = read_row(str_cut(&rest, '\n'));
                if (is_debians(&r) && belongs(r.codename, s->release))
                        add_source(s, &r);
        }
        return 0;
}

static bool is_one_of(struct str name, const char *const *list, size_t n)
{
        for (size_t i = 0; i < n; i++) {
                if (str_eq(name, str_of(list[i])))
                        return true;
        }
        return false;
}

/* A proxy that only this machine can reach, or that asks for a password, is of no use or no business in a box. */
static bool proxy_may_stay(struct str value)
{
        static const char *const own[] = { "://localhost", "://127.", "://[::1]" };

        if (memchr(value.p, '@', value.n))
                return false;
        for (size_t i = 0; i < ARRAY_LEN(own); i++) {
                if (str_has(value, str_of(own[i])))
                        return false;
        }
        return true;
}

void image_settings_parse(struct image_sources *s, struct str text)
{
        static const char *const plain[] = { "Acquire::Check-Valid-Until", "Acquire::Check-Date", "Acquire::Retries",
                                             "Acquire::ForceIPv4", "Acquire::ForceIPv6" };

        (void) buf_adds(&s->settings, "APT::Install-Recommends \"false\";\nAcquire::Languages \"none\";\n");
        (void) buf_adds(&s->kept, "APT::Sandbox::User \"root\";\nAcquire::Languages \"none\";\n");
        while (text.n > 0) {
                struct str line = str_cut(&text, '\n'), value = line, name = str_cut(&value, ' ');
                bool is_plain = is_one_of(name, plain, ARRAY_LEN(plain));
                bool of_transport =
                        str_starts(name, STR("Acquire::http::")) || str_starts(name, STR("Acquire::https::"));
                if (str_eq(value, STR("\"\";")) || (!is_plain && !of_transport))
                        continue;
                (void) buf_addf(&s->settings, "%.*s\n", (int) line.n, line.p);
                if (is_plain || (str_ends(name, STR("::Proxy")) && proxy_may_stay(value)))
                        (void) buf_addf(&s->kept, "%.*s\n", (int) line.n, line.p);
        }
}

static int ask_sources(const char *lists, struct buf *text, struct err *e)
{
        char option[600];
        const char *argv[] = { "apt-get", "indextargets", "--format", IMAGE_SOURCES_FORMAT, "Created-By: Packages",
                               NULL,      NULL,           NULL };

        if (lists) {
                snprintf(option, sizeof(option), "Dir::State::Lists=%s", lists);
                argv[5] = "-o";
                argv[6] = option;
        }
        buf_clear(text);
        return sys_capture(argv, text, ASK_MS, e);
}

/* Without package lists apt names no sources; fetched into a folder of ours, they change nothing on the machine. */
static int fetch_lists(const char *lists, struct err *e)
{
        char option[600];
        const char *const argv[] = { "apt-get", "update", "-qq", "-o", option, NULL };

        snprintf(option, sizeof(option), "Dir::State::Lists=%s", lists);
        return sys_run(argv, NULL, UPDATE_MS, e);
}

int image_sources_read(struct image_sources *s, const char *work, bool (*known)(const char *release, void *arg),
                       void *arg, struct err *e)
{
        static const char *const dump[] = { "apt-config", "dump", NULL };
        _cleanup_buf_ struct buf text = BUF_MAX(TEXT_MAX);
        struct err why = { 0 };
        int r = ask_sources(NULL, &text, e);

        if (r < 0)
                return r;
        if (image_sources_parse(s, buf_str(&text), known, arg, e) < 0) {
                /* one source that fails is none of ours, perhaps; the answer tells */
                bool fetched = fetch_lists(work, &why) == 0;
                r = ask_sources(work, &text, e);
                if (r == 0)
                        r = image_sources_parse(s, buf_str(&text), known, arg, e);
                if (r < 0)
                        return fetched ? r
                                       : err_set(e, r, "%s; apt-get update says: %.200s", err_text(e), err_text(&why));
        }
        buf_clear(&text);
        r = sys_capture(dump, &text, ASK_MS, e);
        if (r < 0)
                return r;
        image_settings_parse(s, buf_str(&text));
        return 0;
}
