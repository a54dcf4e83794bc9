#include "web/app.h"

#include "base/mem.h"
#include "guest/gz.h"

#include "app_data.h"

#include <errno.h>
#include <stdlib.h>

/*
 * Only files of this server run, and no text ever becomes a script or markup: the two policies are lit-html's, for its
 * constant templates, and the app's own, for the address of its service worker.
 */
static const char policy[] =
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; media-src 'self' blob:; "
        "font-src 'self'; connect-src 'self'; worker-src 'self'; manifest-src 'self'; base-uri 'none'; form-action "
        "'self'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types lit-html psbx";

static const struct app_file *find(struct str path)
{
        for (size_t i = 0; i < app_files_count; i++)
                if (str_eq(path, str_of(app_files[i].path)))
                        return &app_files[i];
        return NULL;
}

static void add_headers(struct call *c, const struct app_file *f)
{
        (void) call_add_header(c, "ETag", f->etag);
        (void) call_add_header(c, "Vary", "Accept-Encoding");
        (void) call_add_header(c, "Cache-Control", f->fixed ? "public, max-age=31536000, immutable" : "no-cache");
        (void) call_add_header(c, "Cross-Origin-Resource-Policy", "same-origin");
        (void) call_add_header(c, "Referrer-Policy", "same-origin");
        (void) call_add_header(c, "Content-Security-Policy", policy);
        (void) call_add_header(c, "Cross-Origin-Opener-Policy", "same-origin");
        (void) call_add_header(c, "Permissions-Policy",
                               "camera=(self), microphone=(self), display-capture=(self), geolocation=()");
}

/* Whether gzip may be sent (RFC 9110 §12.5.3): named, or `*`, and not with q=0. */
static bool takes_gzip(struct str accept)
{
        while (accept.n) {
                struct str params = str_trim(str_cut(&accept, ','), " \t");
                struct str name = str_trim(str_cut(&params, ';'), " \t");

                if (!str_ieq(name, STR("gzip")) && !str_eq(name, STR("*")))
                        continue;
                params = str_trim(params, " \t");
                return !str_starts(params, STR("q=0")) || (params.n > 3 && strpbrk(params.p + 3, "123456789"));
        }
        return false;
}

/* For the odd client that takes no gzip. */
static void coroutine_fn send_plain(struct call *c, const struct app_file *f)
{
        _cleanup_(gz_in_freep) struct gz_in *z = gz_in_new();
        _cleanup_free_ char *p = xmalloc(f->len + 1);
        struct str in = str_n((const char *) f->gz, f->gz_len);
        size_t n = 0;
        long got = 1;

        while (z && n < f->len && got > 0) {
                got = gz_inflate(z, &in, p + n, f->len - n);
                n += got > 0 ? (size_t) got : 0;
        }
        if (n < f->len)
                (void) call_reply_error(c, 500, "internal", "the file cannot be unpacked");
        else
                (void) call_reply(c, 200, f->type, p, n);
}

static void coroutine_fn send_file(struct call *c, const struct app_file *f)
{
        add_headers(c, f);
        if (str_eq(call_header(c, "If-None-Match"), str_of(f->etag))) {
                (void) call_reply(c, 304, NULL, NULL, 0);
        } else if (takes_gzip(call_header(c, "Accept-Encoding"))) {
                (void) call_add_header(c, "Content-Encoding", "gzip");
                (void) call_reply(c, 200, f->type, f->gz, f->gz_len);
        } else {
                send_plain(c, f);
        }
}

bool coroutine_fn app_handle(struct call *c)
{
        struct str path = call_path(c);

        if (str_eq(path, STR("/app")))
                path = STR("/app/");
        if (!str_starts(path, STR("/app/")))
                return false;
        if (!str_eq(call_method(c), STR("GET")) && !str_eq(call_method(c), STR("HEAD"))) {
                (void) call_add_header(c, "Allow", "GET, HEAD");
                (void) call_reply_error(c, 405, "method_not_allowed", "this address takes GET and HEAD");
                return true;
        }
        const struct app_file *f = find(path);
        if (!f && str_starts(path, STR("/app/a/")))
                (void) call_reply_error(c, 404, "not_found", "there is nothing at this address");
        else
                send_file(c, f ? f : find(STR("/app/")));
        return true;
}
