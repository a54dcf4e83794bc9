#include "boxhost/caps.h"

#include "base/mem.h"

#include <errno.h>
#include <linux/prctl.h>
#include <sys/capability.h>
#include <sys/prctl.h>

/* NET_RAW stays since a ping with file capabilities would not even start without it. */
static const cap_value_t kept[] = { CAP_CHOWN,  CAP_DAC_OVERRIDE, CAP_FOWNER,  CAP_FSETID,           CAP_KILL,
                                    CAP_SETGID, CAP_SETUID,       CAP_SETFCAP, CAP_NET_BIND_SERVICE, CAP_SYS_CHROOT,
                                    CAP_NET_RAW };

uint64_t caps_kept(void)
{
        uint64_t mask = 0;

        for (size_t i = 0; i < ARRAY_LEN(kept); i++)
                mask |= 1ULL << kept[i];
        return mask;
}

int caps_keep(void)
{
        cap_t caps;
        int r = 0;

        (void) prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
        for (int c = 0; c <= (int) cap_max_bits() - 1; c++) {
                if (!(caps_kept() >> c & 1) && prctl(PR_CAPBSET_DROP, c, 0, 0, 0) < 0 && errno != EINVAL)
                        return -errno;
        }
        caps = cap_init();
        if (!caps)
                return -ENOMEM;
        if (cap_set_flag(caps, CAP_PERMITTED, ARRAY_LEN(kept), kept, CAP_SET) < 0 ||
            cap_set_flag(caps, CAP_EFFECTIVE, ARRAY_LEN(kept), kept, CAP_SET) < 0 || cap_set_proc(caps) < 0)
                r = -errno;
        cap_free(caps);
        return r;
}
