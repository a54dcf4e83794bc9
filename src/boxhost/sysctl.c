/*
 * Settings of the whole machine. The first instance that changes one notes what was in /run/psbx/original; each
 * instance notes itself in /run/psbx/instances; the last one to clean up puts things back. /run forgets at a reboot, as
 * the settings do.
 */
#include "boxhost/state.h"

#include "boxhost/sys.h"
#include "base/file.h"
#include "base/log.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define NOTES "/run/psbx"

static const struct {
        const char *name;
        uint64_t least;
        bool per_network; /* of the network namespace, not of the machine */
} settings[] = {
        { "fs/inotify/max_user_instances", 8192,
          false }, /* all boxes share it: it is charged to the creator of the userns */
        { "fs/inotify/max_user_watches", 1048576, false },
        { "kernel/pid_max", 4194304, false },
        { "kernel/pty/max", 16384, false },
        { "net/ipv4/ip_forward", 1, true },
};

static uint64_t network_id(void)
{
        struct stat st;

        return stat("/proc/self/ns/net", &st) == 0 ? (uint64_t) st.st_ino : 0;
}

static void note_path(size_t i, char *out, size_t n)
{
        char name[64];

        snprintf(name, sizeof(name), "%s", settings[i].name);
        for (char *p = name; *p; p++)
                *p = *p == '/' ? '.' : *p;
        snprintf(out, n, NOTES "/original/%s@%" PRIu64, name, settings[i].per_network ? network_id() : 0);
}

void sysctl_raise(const char *instance)
{
        char path[160], text[32];

        (void) mkdir_all(NOTES "/original", 0755);
        (void) mkdir_all(NOTES "/instances", 0755);
        snprintf(path, sizeof(path), NOTES "/instances/%s@%" PRIu64, instance, network_id());
        (void) file_write_atomic(AT_FDCWD, path, "", 0, 0600, NULL);
        for (size_t i = 0; i < ARRAY_LEN(settings); i++) {
                char setting[96];
                struct err e = { 0 };
                uint64_t now;
                snprintf(setting, sizeof(setting), "/proc/sys/%s", settings[i].name);
                if (sys_read_u64(AT_FDCWD, setting, &now) < 0 || now >= settings[i].least)
                        continue;
                note_path(i, path, sizeof(path));
                snprintf(text, sizeof(text), "%" PRIu64, now);
                if (access(path, F_OK) < 0)
                        (void) file_write_atomic(AT_FDCWD, path, text, strlen(text), 0600, NULL);
                snprintf(text, sizeof(text), "%" PRIu64, settings[i].least);
                if (sys_write(AT_FDCWD, setting, text, &e) < 0)
                        log_warning("%s", err_text(&e));
        }
}

/* Is another instance noted, anywhere or in this network namespace? */
static bool others(uint64_t network)
{
        char suffix[32];
        DIR *d = opendir(NOTES "/instances");
        bool found = false;

        if (!d)
                return false;
        snprintf(suffix, sizeof(suffix), "@%" PRIu64, network);
        for (struct dirent *it; (it = readdir(d));) {
                if (it->d_name[0] != '.' && (network == 0 || str_ends(str_of(it->d_name), str_of(suffix))))
                        found = true;
        }
        closedir(d);
        return found;
}

void sysctl_restore(const char *instance)
{
        char path[160], text[64];

        snprintf(path, sizeof(path), NOTES "/instances/%s@%" PRIu64, instance, network_id());
        (void) unlink(path);
        for (size_t i = 0; i < ARRAY_LEN(settings); i++) {
                char setting[96];
                note_path(i, path, sizeof(path));
                if (others(settings[i].per_network ? network_id() : 0) ||
                    sys_read(AT_FDCWD, path, text, sizeof(text)) <= 0)
                        continue;
                snprintf(setting, sizeof(setting), "/proc/sys/%s", settings[i].name);
                if (sys_write(AT_FDCWD, setting, text, NULL) == 0)
                        (void) unlink(path);
        }
        (void) rmdir(NOTES "/original");
        (void) rmdir(NOTES "/instances");
        (void) rmdir(NOTES);
}
