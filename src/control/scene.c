#include "control/scene.h"

#include "base/hash.h"
#include "base/mem.h"
#include "control/scene_ports.h"

#include <errno.h>
#include <stdio.h>

#define KEY_BYTES 16
/* What remains of a label beside box and key. */
#define NAME_MAX_IN(box) (SCENE_LABEL_MAX - SCENE_KEY_LEN - 4 - strlen(box))

/* Each text begins with what it is for; no download link signs a text like these. */
static void key_from(const struct control *c, const char *text, char ret[static SCENE_KEY_LEN + 1])
{
        static const char digits[] = "abcdefghijklmnopqrstuvwxyz234567";
        unsigned char mac[HASH_LEN];
        unsigned bits = 0, have = 0;
        size_t at = 0;

        hmac_sha256(c->cfg.link_key, text, strlen(text), mac);
        for (size_t i = 0; i < KEY_BYTES; i++) {
                bits = bits << 8 | mac[i];
                for (have += 8; have >= 5; have -= 5)
                        ret[at++] = digits[bits >> (have - 5) & 31];
        }
        ret[at++] = digits[bits << (5 - have) & 31];
        ret[at] = '\0';
}

void scene_key(const struct control *c, const char *box, char ret[static SCENE_KEY_LEN + 1])
{
        char text[64];

        (void) snprintf(text, sizeof text, "scene key\n%.33s", box);
        key_from(c, text, ret);
}

void scene_port_key(const struct control *c, const char *what, const char *box, unsigned port,
                    char ret[static SCENE_KEY_LEN + 1])
{
        char text[96];

        (void) snprintf(text, sizeof text, "scene %.16s\n%.33s\n%u", what, box, port);
        key_from(c, text, ret);
}

void scene_label(const struct control *c, const char *box, const struct wires *s, size_t index,
                 char ret[static SCENE_LABEL_MAX + 1])
{
        char key[SCENE_KEY_LEN + 1];
        const char *name = s->wire[index].name;

        scene_key(c, box, key);
        /* "xn--" announces Punycode (RFC 5890 §2.3.1). */
        if (strlen(name) > NAME_MAX_IN(box) || cstr_eq(name, "xn"))
                (void) snprintf(ret, SCENE_LABEL_MAX + 1, "%zu--%s--%s", index, box, key);
        else
                (void) snprintf(ret, SCENE_LABEL_MAX + 1, "%s--%s--%s", name, box, key);
}

int scene_origin(const struct control *c, const char *box, const struct wires *s, size_t index, struct buf *out)
{
        char label[SCENE_LABEL_MAX + 1];
        const char *scheme = "http", *domain = c->cfg.scene_domain, *port = strrchr(c->origin, ':');

        if (c->scene_ports) {
                unsigned at = scene_port_give(c->scene_ports, box, s, index);

                return at ? buf_addf(out, "http://%s:%u", c->cfg.scene_host, at) : -ENOSPC;
        }
        if (domain && str_starts(str_of(domain), STR("https://")))
                scheme = "https";
        if (domain && strstr(domain, "://"))
                domain = strstr(domain, "://") + 3;
        /* A domain with a scheme or a port of its own is that of a proxy before this server. */
        bool ours = !domain || (domain == c->cfg.scene_domain && !strchr(domain, ':'));
        scene_label(c, box, s, index, label);
        return buf_addf(out, "%s://%s.%s%s", scheme, label, domain ? domain : "localhost", ours && port ? port : "");
}

static bool rcut(struct str *s, struct str *ret_last)
{
        for (size_t i = s->n; i >= 2; i--)
                if (s->p[i - 1] == '-' && s->p[i - 2] == '-') {
                        *ret_last = str_n(s->p + i, s->n - i);
                        s->n = i - 2;
                        return true;
                }
        return false;
}

bool scene_name_parse(struct str label, struct scene_name *ret)
{
        ret->service = label;
        return rcut(&ret->service, &ret->key) && rcut(&ret->service, &ret->box) && ret->service.n && ret->box.n &&
               ret->box.n <= 32;
}

static void lower(struct str s, char *ret)
{
        for (size_t i = 0; i < s.n; i++)
                ret[i] = s.p[i] >= 'A' && s.p[i] <= 'Z' ? (char) (s.p[i] + 32) : s.p[i];
        ret[s.n] = '\0';
}

bool scene_key_ok(const struct control *c, const char *box, struct str key)
{
        char want[SCENE_KEY_LEN + 1], given[SCENE_KEY_LEN + 1];

        if (key.n != SCENE_KEY_LEN)
                return false;
        scene_key(c, box, want);
        lower(key, given); /* host names have no case */
        return mem_equal(want, given, SCENE_KEY_LEN);
}

int scene_service_find(const struct wires *s, struct str name)
{
        uint64_t place;

        for (size_t i = 0; i < s->count; i++)
                if (str_ieq(name, str_of(s->wire[i].name)))
                        return (int) i;
        /* No service's name begins with a digit. */
        if (parse_u64(name, WIRES_MAX, &place) == 0 && place < s->count)
                return (int) place;
        return -ENOENT;
}

bool scene_domain_ok(const char *s)
{
        const char *sep = strstr(s, "://");
        struct str rest = str_of(sep ? sep + 3 : s);
        struct str name = str_cut(&rest, ':');
        uint64_t port;

        if (sep && !str_eq(str_n(s, (size_t) (sep - s)), STR("http")) &&
            !str_eq(str_n(s, (size_t) (sep - s)), STR("https")))
                return false;
        if (strchr(s, ':') && s[strlen(s) - 1] == ':')
                return false;
        if (rest.n && (parse_u64(rest, UINT16_MAX, &port) < 0 || port == 0))
                return false;
        if (!name.n || name.n > 253 - SCENE_LABEL_MAX - 1 || name.p[0] == '.' || name.p[name.n - 1] == '.')
                return false;
        for (size_t i = 0; i < name.n; i++)
                if (!c_is_alnum(name.p[i]) && name.p[i] != '-' && name.p[i] != '.')
                        return false;
        return true;
}

bool scene_host_label(const struct control *c, struct str host, struct str *ret_label)
{
        const char *domain = c->cfg.scene_domain ? c->cfg.scene_domain : "localhost";
        const char *colon = host.n ? memrchr(host.p, ':', host.n) : NULL;

        if (strstr(domain, "://"))
                domain = strstr(domain, "://") + 3;
        struct str end = str_of(domain);
        end = str_cut(&end, ':');
        if (colon)
                host.n = (size_t) (colon - host.p);
        if (host.n < end.n + 2 || !str_ieq(str_n(host.p + host.n - end.n, end.n), end) ||
            host.p[host.n - end.n - 1] != '.')
                return false;
        *ret_label = str_n(host.p, host.n - end.n - 1);
        return !memchr(ret_label->p, '.', ret_label->n);
}

static int write_one(struct jw *w, const char *key, const struct control *c, const char *box, const struct wires *s,
                     size_t index)
{
        _cleanup_buf_ struct buf url = BUF_MAX(512);
        char secret[SCENE_KEY_LEN + 1];
        int r = scene_origin(c, box, s, index, &url);

        scene_key(c, box, secret);
        if (r == 0)
                r = c->scene_ports ? buf_addf(&url, SCENE_DOOR "%s/", secret) : buf_addc(&url, '/');
        if (r == 0)
                jw_kstr(w, key, buf_cstr(&url));
        return r;
}

void scene_write_url(struct jw *w, const struct control *c, const char *box, const struct wires *s, size_t index)
{
        char range[32];

        if (write_one(w, "url", c, box, s, index) != -ENOSPC)
                return;
        scene_ports_words(c->scene_ports, range);
        _cleanup_free_ char *why = xasprintf("none of the ports %s that the server has for scenes is free: delete a "
                                             "box, or let the operator widen --scene-ports",
                                             range);
        jw_kstr(w, "urlMissing", why);
}

void scene_write_box(struct jw *w, const struct control *c, const struct box_row *row)
{
        _cleanup_wires_ struct wires s;
        size_t web = 0;

        wires_read(row, &s);
        if (!s.count)
                return;
        while (web < s.count && !s.wire[web].web)
                web++;
        (void) write_one(w, "sceneUrl", c, row->id, &s, 0);
        (void) write_one(w, "webUrl", c, row->id, &s, web < s.count ? web : 0);
}
