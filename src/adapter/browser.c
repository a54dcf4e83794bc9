#include "adapter/browser.h"
#include "base/mem.h"
#include "base/str.h"
#include "loop/child.h"

#include <stdlib.h>

#define WORDS_MAX 32

extern char **environ;

void browser_free_words(char **argv)
{
        for (size_t i = 0; argv[i]; i++)
                free(argv[i]);
}

static char *with_link(struct str word, const char *link, bool *used)
{
        for (size_t i = 0; i + 1 < word.n; i++)
                if (word.p[i] == '%' && word.p[i + 1] == 's') {
                        *used = true;
                        return xasprintf("%.*s%s%.*s", (int) i, word.p, link, (int) (word.n - i - 2), word.p + i + 2);
                }
        return xstrndup(word.p, word.n);
}

bool browser_words(const char *command, size_t len, const char *link, char **argv, size_t n)
{
        struct str rest = str_n(command, len);
        bool used = false;
        size_t k = 0;

        while (rest.n) {
                struct str word = str_cut(&rest, ' ');

                if (!word.n)
                        continue;
                if (k + 2 >= n) {
                        argv[k] = NULL;
                        browser_free_words(argv);
                        return false;
                }
                argv[k++] = with_link(word, link, &used);
        }
        if (k && !used)
                argv[k++] = xstrdup(link);
        argv[k] = NULL;
        return k > 0;
}

static bool is_secret(const char *variable)
{
        static const char *const names[] = { "PARALLELSANDBOX_API_KEY=", "PARALLELSANDBOX_OAUTH_CLIENT_SECRET=" };

        for (size_t i = 0; i < ARRAY_LEN(names); i++)
                if (strncmp(variable, names[i], strlen(names[i])) == 0)
                        return true;
        return false;
}

static const char **clean_env(void)
{
        const char **out;
        size_t n = 0, k = 0;

        while (environ[n])
                n++;
        out = xcalloc(n + 1, sizeof *out);
        for (size_t i = 0; i < n; i++)
                if (!is_secret(environ[i]))
                        out[k++] = environ[i];
        return out;
}

/* A child that is dropped is killed; a browser is meant to stay, so somebody waits for it. */
static void coroutine_fn keep(void *arg)
{
        struct child *c = arg;

        (void) child_wait(c, -1);
        child_free(c);
}

static bool spawn(char *const *argv)
{
        _cleanup_free_ const char **env = clean_env();
        const struct child_spec spec = { .argv = (const char *const *) argv,
                                         .env = env,
                                         .io = { CHILD_NULL, CHILD_NULL, CHILD_NULL },
                                         .new_session = true };
        struct child *c = NULL;

        if (child_spawn(&spec, &c, NULL) < 0)
                return false;
        if (!coro_start(keep, c, 0, "browser"))
                child_free(c);
        return true;
}

static bool try(const char *command, size_t len, const char *link)
{
        char *argv[WORDS_MAX];
        bool ok;

        if (!browser_words(command, len, link, argv, ARRAY_LEN(argv)))
                return false;
        ok = spawn(argv);
        browser_free_words(argv);
        return ok;
}

bool browser_open(const char *link)
{
        const char *named = getenv("BROWSER");
        struct str rest = str_of(named ? named : "");

        while (rest.n) {
                struct str command = str_cut(&rest, ':');

                if (try(command.p, command.n, link))
                        return true;
        }
#ifdef __APPLE__
        return try("open", 4, link);
#else
        return try("xdg-open", 8, link);
#endif
}
