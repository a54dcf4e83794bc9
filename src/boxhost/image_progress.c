#include "boxhost/image_progress.h"

#include "base/mem.h"

#include <stdio.h>

void image_progress_init(struct image_progress *p)
{
        *p = (struct image_progress){ .stage = "looking at the sources" };
}

static bool enter(struct image_progress *p, const char *stage)
{
        p->stage = stage;
        p->done = p->total = 0;
        return true;
}

/* dpkg goes back and forth between unpacking and setting up, so each has its own count. */
static bool count(struct image_progress *p, const char *stage, unsigned *done)
{
        if (p->packages == 0)
                return false;
        if (*done < p->packages)
                ++*done;
        p->stage = stage;
        p->done = *done;
        p->total = p->packages;
        return true;
}

static uint64_t unit_of(struct str word)
{
        static const struct {
                struct str name;
                uint64_t bytes;
        } units[] = { { { "B", 1 }, 1 }, { { "kB", 2 }, 1000 }, { { "MB", 2 }, 1000000 }, { { "GB", 2 }, 1000000000 } };

        for (size_t i = 0; i < ARRAY_LEN(units); i++) {
                if (str_eq(word, units[i].name))
                        return units[i].bytes;
        }
        return 0;
}

/* "After this operation, 1,656 MB of …" (apt 2) or "Space needed: 1,656 MB / …" (apt 3) */
static void add_space(struct image_progress *p, struct str rest)
{
        struct str number = str_cut(&rest, ' '), unit = str_cut(&rest, ' ');
        uint64_t value = 0;

        for (size_t i = 0; i < number.n && i < 12; i++) {
                char c = number.p[i];
                if (c == '.')
                        break;
                if (c >= '0' && c <= '9')
                        value = value * 10 + (uint64_t) (c - '0');
        }
        p->disk_bytes += value * unit_of(unit);
}

static bool after(struct str line, struct str prefix, struct str *rest)
{
        if (!str_starts(line, prefix))
                return false;
        *rest = str_n(line.p + prefix.n, line.n - prefix.n);
        return true;
}

/* "0 upgraded, 811 newly installed, 0 to remove" or, from apt 3, "  Upgrading: 0, Installing: 811, Removing: 0, …" */
static void read_total(struct image_progress *p, struct str line)
{
        while (line.n > 0) {
                struct str part = str_trim(str_cut(&line, ','), " "), rest = { NULL, 0 };
                uint64_t n;
                if (after(part, STR("Installing: "), &rest))
                        part = rest;
                else if (str_ends(part, STR(" newly installed")))
                        part.n -= STR(" newly installed").n;
                else
                        continue;
                if (parse_u64(part, 1000000, &n) == 0) {
                        p->packages = (unsigned) n;
                        p->fetched = p->unpacked = p->set_up = 0;
                }
        }
}

static bool enter_step(struct image_progress *p, struct str line)
{
        static const struct {
                struct str says;
                const char *stage;
        } steps[] = {
                { STR("I: running apt-get update"), "reading the package lists" },
                { STR("I: downloading packages"), "choosing the base system" },
                { STR("I: extracting archives"), "unpacking the base system" },
                { STR("I: installing essential packages"), "setting up the base system" },
                { STR("I: installing remaining packages"), "choosing packages" },
                { STR("I: cleaning"), "cleaning up" },
        };

        for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
                if (str_starts(line, steps[i].says))
                        return enter(p, steps[i].stage);
        }
        return false;
}

static void note_fault(struct image_progress *p, struct str line)
{
        static const struct {
                struct str word;
                enum image_fault kind;
        } words[] = {
                { STR("No space left on device"), FAULT_SPACE },
                { STR("Temporary failure resolving"), FAULT_NETWORK },
                { STR("Could not resolve"), FAULT_NETWORK },
                { STR("Could not connect"), FAULT_NETWORK },
                { STR("Unable to connect"), FAULT_NETWORK },
                { STR("Connection timed out"), FAULT_NETWORK },
                { STR("Connection failed"), FAULT_NETWORK },
                { STR("Network is unreachable"), FAULT_NETWORK },
                { STR("Unable to locate package"), FAULT_PACKAGE },
                { STR("has no installation candidate"), FAULT_PACKAGE },
                { STR("NO_PUBKEY"), FAULT_KEY },
                { STR("is not signed"), FAULT_KEY },
                { STR("Failed to fetch"), FAULT_NETWORK },
        };

        if (p->kind != FAULT_OTHER)
                return;
        for (size_t i = 0; i < ARRAY_LEN(words); i++) {
                if (!str_has(line, words[i].word))
                        continue;
                p->kind = words[i].kind;
                snprintf(p->fault, sizeof(p->fault), "%.*s", (int) line.n, line.p);
                return;
        }
        /* the first one: the rest only say that something failed before */
        if (!p->fault[0] && (str_starts(line, STR("E: ")) || str_starts(line, STR("dpkg: error"))))
                snprintf(p->fault, sizeof(p->fault), "%.*s", (int) line.n, line.p);
}

bool image_progress_line(struct image_progress *p, struct str line)
{
        struct str rest;

        if (str_starts(line, STR("I: ")))
                return enter_step(p, line);
        if (str_starts(line, STR("Get:")))
                return count(p, "downloading packages", &p->fetched);
        if (str_starts(line, STR("Unpacking ")))
                return count(p, "unpacking packages", &p->unpacked);
        if (str_starts(line, STR("Setting up ")))
                return count(p, "setting up packages", &p->set_up);
        if (after(line, STR("After this operation, "), &rest) || after(line, STR("  Space needed: "), &rest))
                add_space(p, rest);
        else if (str_has(line, STR(" newly installed")) || str_has(line, STR("Installing: ")))
                read_total(p, line);
        else
                note_fault(p, line);
        return false;
}

const char *image_progress_advice(const struct image_progress *p)
{
        static const char *const advice[] = {
                [FAULT_OTHER] = "the log says more",
                [FAULT_NETWORK] =
                        "the mirror of this machine's apt cannot be reached: see whether `apt-get update` works here, "
                        "and look at the network, its proxy (http_proxy, Acquire::http::Proxy) and "
                        "/etc/apt/sources.list",
                [FAULT_PACKAGE] = "this machine's mirror does not have that package: look at the list, or at "
                                  "/etc/apt/sources.list",
                [FAULT_SPACE] = "free some room in the state folder's file system, or use another with --state",
                [FAULT_KEY] = "the mirror's signature cannot be checked: install debian-archive-keyring",
        };

        return advice[p->kind];
}
