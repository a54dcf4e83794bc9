/* What boxhost accepts from its peer: names, sizes and variables of a box. */
#include "boxhost/box.h"

#include "base/mem.h"
#include "base/str.h"

#include <string.h>
#include <sys/sysinfo.h>

#define MIB (1ULL << 20)
#define ENV_BYTES_MAX 8192

static bool is_lower_or_digit(char c)
{
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

bool box_id_ok(const char *id)
{
        size_t n = strlen(id);

        if (n < 4 || n > BOX_ID_MAX)
                return false;
        for (size_t i = 0; i < n; i++) {
                if (!is_lower_or_digit(id[i]))
                        return false;
        }
        return true;
}

bool box_hostname_ok(const char *name)
{
        size_t n = strlen(name);

        if (n == 0 || n > 63 || name[0] == '-' || name[n - 1] == '-')
                return false;
        for (size_t i = 0; i < n; i++) {
                if (!c_is_alnum(name[i]) && name[i] != '-')
                        return false;
        }
        return true;
}

bool box_env_ok(const char *assignment)
{
        const char *eq = strchr(assignment, '=');

        if (!eq || eq == assignment || strlen(assignment) > ENV_BYTES_MAX || (*assignment >= '0' && *assignment <= '9'))
                return false;
        for (const char *p = assignment; p < eq; p++) {
                if (!c_is_alnum(*p) && *p != '_')
                        return false;
        }
        return true;
}

static uint64_t clamp(uint64_t v, uint64_t low, uint64_t high)
{
        return v < low ? low : v > high ? high : v;
}

void box_size_clamp(struct box_size *s)
{
        int cpus = get_nprocs();

        if (!(s->cpus >= 0.05)) /* also when it is no number */
                s->cpus = 0.05;
        if (s->cpus > cpus)
                s->cpus = cpus;
        s->memory = clamp(s->memory, 32 * MIB, 1ULL << 44) & ~4095ULL;
        s->pids = clamp(s->pids, 16, 1U << 20);
        s->disk = clamp(s->disk, 64 * MIB, 1ULL << 43) & ~(MIB - 1);
}
