#include "boxhost/features.h"

#include "boxhost/idmap.h"
#include "boxhost/net.h"
#include "boxhost/seccomp.h"
#include "boxhost/sys.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

void features_lack(struct features *f, const char *what, const char *cost, const char *why)
{
        struct missing *m;

        if (f->n == MISSING_MAX)
                return;
        m = &f->missing[f->n++];
        m->what = what;
        m->cost = cost;
        snprintf(m->why, sizeof(m->why), "%s", why ? why : "");
}

void features_cgroups(struct features *f, const struct cgroups *c)
{
        bool v1 = false;

        for (unsigned k = 0; k < CG_CONTROLLERS; k++)
                v1 |= c->has[k] >= 0 && !c->layout.h[c->has[k]].v2;
        f->layout = c->v2 >= 0 ? (v1 ? "mixed" : "v2") : (v1 ? "v1" : "none");
        f->cpu = c->has[CG_CPU] >= 0;
        f->memory = c->has[CG_MEMORY] >= 0;
        f->pids = c->has[CG_PIDS] >= 0;
        f->freeze = c->has[CG_FREEZER] >= 0;
        f->kill = c->kill;
        if (!f->cpu)
                features_lack(f, "cgroup cpu", "no CPU limit: a busy box slows the others down", NULL);
        if (!f->memory)
                features_lack(f, "cgroup memory", "no memory limit: a greedy box can bring the machine down", NULL);
        if (!f->pids)
                features_lack(f, "cgroup pids", "no process limit: a fork bomb hurts every box", NULL);
        if (!f->freeze)
                features_lack(f, "cgroup freeze", "boxes cannot be paused", NULL);
}

static bool can_idmap(struct err *e)
{
        int go[2], userns = -1, fd = -1, r;
        pid_t pid;
        char c = 0;

        if (pipe2(go, O_CLOEXEC) < 0)
                return err_sys(e, -errno, "no pipe"), false;
        pid = fork();
        if (pid == 0) {
                c = unshare(CLONE_NEWUSER) == 0 ? 'y' : 'n';
                (void) !write(go[1], &c, 1);
                for (;;)
                        pause();
        }
        if (pid < 0 || read(go[0], &c, 1) != 1 || c != 'y')
                r = err_set(e, -EPERM, "user namespaces are not available");
        else
                r = idmap_give(pid, 0, &userns, e);
        if (r == 0)
                r = idmap_clone(AT_FDCWD, "/usr", userns, &fd, e);
        if (pid > 0) {
                (void) kill(pid, SIGKILL);
                (void) waitpid(pid, NULL, 0);
        }
        close(go[0]);
        close(go[1]);
        closep(&userns);
        closep(&fd);
        return r == 0;
}

void features_kernel(struct features *f)
{
        struct err e = { 0 };
        unsigned action = SECCOMP_RET_ERRNO;

        f->root = geteuid() == 0;
        if (!f->root)
                features_lack(f, "root", "boxhost cannot make boxes", "it must run as root");
        f->idmap = f->root && can_idmap(&e);
        if (f->root && !f->idmap)
                features_lack(f, "idmapped mounts", "boxhost cannot make boxes", err_text(&e));
        f->seccomp = syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0;
        if (!f->seccomp)
                features_lack(f, "seccomp", "boxhost cannot make boxes safely", NULL);
}

void features_print(const struct features *f, struct jw *w)
{
        jw_kobj(w, "features");
        jw_kbool(w, "root", f->root);
        jw_kobj(w, "cgroup");
        jw_kstr(w, "layout", f->layout ? f->layout : "none");
        jw_kbool(w, "cpu", f->cpu);
        jw_kbool(w, "memory", f->memory);
        jw_kbool(w, "pids", f->pids);
        jw_kbool(w, "freeze", f->freeze);
        jw_kbool(w, "kill", f->kill);
        jw_end(w);
        jw_kbool(w, "net", f->net);
        jw_kbool(w, "dns", f->dns);
        jw_kbool(w, "disk", f->disk);
        jw_kbool(w, "seccomp", f->seccomp);
        jw_kbool(w, "idmap", f->idmap);
        jw_end(w);
        jw_karr(w, "missing");
        for (size_t i = 0; i < f->n; i++) {
                jw_obj(w);
                jw_kstr(w, "what", f->missing[i].what);
                jw_kstr(w, "cost", f->missing[i].cost);
                if (f->missing[i].why[0])
                        jw_kstr(w, "why", f->missing[i].why);
                jw_end(w);
        }
        jw_end(w);
}

/* In a network namespace of its own, so the machine's rules are not touched. */
static bool can_filter(struct err *e)
{
        struct net_config config = { .instance = "probe" };
        int status = 0, out[2];
        pid_t pid;

        if (net_range_parse("198.18.0.0/16", &config.subnet) < 0 || pipe2(out, O_CLOEXEC) < 0)
                return false;
        pid = fork();
        if (pid == 0) {
                struct err why = { 0 };
                int r = unshare(CLONE_NEWNET) < 0 ? -errno : net_rules_load(&config, &why);
                if (r < 0)
                        (void) !write(out[1], err_text(&why), strlen(err_text(&why)));
                _exit(r < 0);
        }
        close(out[1]);
        if (pid > 0)
                (void) waitpid(pid, &status, 0);
        if (pid < 0 || status != 0) {
                char text[ERR_MSG_MAX] = "";
                ssize_t n = read(out[0], text, sizeof(text) - 1);
                (void) err_set(e, -EIO, "%.*s", n > 0 ? (int) n : 0, text);
        }
        close(out[0]);
        return pid > 0 && status == 0;
}

void features_alone(struct features *f)
{
        struct cgroups c;
        struct err e = { 0 };

        *f = (struct features){ .n = 0 };
        features_kernel(f);
        if (!f->root)
                return;
        if (cgroups_open(&c, "probe", &e) == 0) {
                features_cgroups(f, &c);
                cgroups_destroy(&c);
        }
        f->net = f->dns = can_filter(&e);
        if (!f->net)
                features_lack(f, "network", "boxes have no network", err_text(&e));
        f->disk = access("/dev/loop-control", R_OK | W_OK) == 0 && sys_program("mkfs.ext4");
        if (!f->disk)
                features_lack(f, "disk limit", "no disk limit: a box can fill the machine's disk",
                              sys_program("mkfs.ext4") ? "no loop devices" : "mkfs.ext4 is not installed");
}
