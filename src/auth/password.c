#include "auth/password.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/utf8.h"

#include <arpa/inet.h>
#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>

#define WAITING_MAX 64

_Static_assert(crypto_pwhash_STRBYTES <= 160, "a password's hash does not fit");

static const struct limit_rule login_rule = { .free = 5, .base_ms = 1000, .max_ms = 60000, .forget_ms = 15 * 60000 };
static const struct limit_rule address_rule = { .free = 20, .base_ms = 1000, .max_ms = 60000, .forget_ms = 15 * 60000 };

int login_normalize(const char *s, char ret[static 129])
{
        struct str t = str_trim(str_of(s), " \t\r\n");

        if (!t.n || t.n > 100 || !utf8_valid(t))
                return -EINVAL;
        for (size_t i = 0; i < t.n; i++) {
                char c = t.p[i];

                if ((unsigned char) c <= 0x20 || c == 0x7f)
                        return -EINVAL;
                ret[i] = c >= 'A' && c <= 'Z' ? (char) (c | 32) : c;
        }
        ret[t.n] = '\0';
        return 0;
}

const char *password_problem(const char *password, const char *login)
{
        size_t n = 0;

        for (const char *p = password; *p; p++)
                n += ((unsigned char) *p & 0xc0) != 0x80; /* characters, not bytes */
        if (n < PASSWORD_MIN)
                return "error_password_short";
        if (strlen(password) > PASSWORD_MAX)
                return "error_password_long";
        if (login[0] && str_has(str_of(password), str_of(login)) && strlen(password) < strlen(login) + 6)
                return "error_password_login";
        for (const char *p = password; p[1]; p++)
                if (p[0] != p[1])
                        return NULL;
        return "error_password_short";
}

/* ---- hashing ---- */

struct job {
        const char *password;
        char hash[160];
        bool make;
};

static int work(void *arg)
{
        struct job *j = arg;

        if (j->make)
                return crypto_pwhash_str(j->hash, j->password, strlen(j->password), crypto_pwhash_OPSLIMIT_INTERACTIVE,
                                         crypto_pwhash_MEMLIMIT_INTERACTIVE) == 0
                               ? 0
                               : -ENOMEM;
        return crypto_pwhash_str_verify(j->hash, j->password, strlen(j->password)) == 0 ? 0 : -EACCES;
}

/* A hash takes 64 MiB and some tenths of a second: two at a time, and a short queue. */
static int coroutine_fn hash_work(struct auth *a, struct job *j)
{
        if (a->hash_waiting >= WAITING_MAX)
                return -EBUSY;
        a->hash_waiting++;
        int r = sem_take(&a->hashers, -1);
        a->hash_waiting--;
        if (r < 0)
                return r;
        r = offload(work, j);
        sem_give(&a->hashers);
        return r;
}

int coroutine_fn password_hash(struct auth *a, const char *password, char ret[static 160], struct err *e)
{
        struct job j = { .password = password, .make = true };
        int r = hash_work(a, &j);

        if (r < 0)
                return err_set(e, r, "the password cannot be stored now");
        memcpy(ret, j.hash, 160);
        return 0;
}

int coroutine_fn password_verify(struct auth *a, const char *password, const char *hash)
{
        struct job j = { .password = password };

        (void) snprintf(j.hash, sizeof j.hash, "%s", hash[0] ? hash : a->dummy);
        int r = hash_work(a, &j);
        return r == 0 && !hash[0] ? -EACCES : r;
}

/* ---- sign-in ---- */

void limit_address(const struct call *call, char ret[static 80])
{
        struct in6_addr six;
        const char *peer = call_peer(call);

        if (inet_pton(AF_INET6, peer, &six) == 1) {
                memset(six.s6_addr + 8, 0, 8); /* one subscriber has a whole /64 */
                char text[INET6_ADDRSTRLEN];
                (void) snprintf(ret, 80, "a:%s", inet_ntop(AF_INET6, &six, text, sizeof text));
        } else {
                (void) snprintf(ret, 80, "a:%.70s", peer);
        }
}

int coroutine_fn password_sign_in(struct visit *v, const char *login, const char *password, struct person *ret,
                                  int64_t *ret_wait_ms)
{
        char name[129] = "", address[80], key[256], browser[48];
        bool valid = login_normalize(login, name) == 0;
        int64_t now = clock_ms(), wait = 0;

        limit_address(v->call, address);
        /* A browser that was signed in as this login is counted for itself: whoever guesses elsewhere cannot shut it
         * out. */
        bool known = browser_known(v, name, browser);
        (void) snprintf(key, sizeof key, "l:%s:%s", name, known ? browser : "");
        if (!known)
                wait = limit_charge(v->a->limits, str_of(address), &address_rule, now);
        bool charged = !known && !wait;
        if (!wait)
                wait = limit_charge(v->a->limits, str_of(key), &login_rule, now);
        if (wait) {
                if (charged) /* not looked at, so not counted */
                        limit_refund(v->a->limits, str_of(address));
                *ret_wait_ms = wait;
                return -EAGAIN;
        }
        if (!valid || people_by_login(v->a->db, name, ret) < 0)
                *ret = (struct person){ 0 };
        int r = password_verify(v->a, strlen(password) <= PASSWORD_MAX ? password : "", ret->password);
        if (r == -EACCES)
                return r;
        /* Good, or not looked at: neither counts as a guess. */
        if (!known)
                limit_refund(v->a->limits, str_of(address));
        /* The person may have been removed, or the password changed, while it was checked. */
        struct person again;
        if (r == 0 && (people_by_id(v->a->db, ret->id, &again) < 0 || !cstr_eq(again.password, ret->password)))
                r = -EACCES;
        if (r == 0)
                limit_clear(v->a->limits, str_of(key));
        else
                limit_refund(v->a->limits, str_of(key));
        return r;
}
