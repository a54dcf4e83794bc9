#include "control/secrets.h"

#include "base/file.h"
#include "base/ids.h"
#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static int read_key(int fd, unsigned char key[SEAL_KEY_LEN], struct err *e)
{
        struct stat st;

        if (fstat(fd, &st) < 0)
                return err_sys(e, -errno, "secrets.key");
        if (!S_ISREG(st.st_mode) || st.st_size != SEAL_KEY_LEN)
                return err_set(
                        e, -ENOKEY,
                        "secrets.key in the server's state folder is no key file of %d bytes (it has %lld): put the "
                        "right file back",
                        SEAL_KEY_LEN, (long long) st.st_size);
        if (st.st_mode & 077)
                return err_set(
                        e, -ENOKEY,
                        "secrets.key in the server's state folder can be read by others than its owner (mode %03o): "
                        "run chmod 600 on it",
                        (unsigned) st.st_mode & 0777);
        ssize_t n = pread(fd, key, SEAL_KEY_LEN, 0);
        if (n != SEAL_KEY_LEN)
                return err_set(e, -ENOKEY, "secrets.key in the server's state folder cannot be read");
        return 0;
}

int secret_key(struct control *c, bool make, unsigned char key[SEAL_KEY_LEN], struct err *e)
{
        _cleanup_free_ char *path = xasprintf("%s/secrets.key", c->cfg.state_dir ? c->cfg.state_dir : ".");
        _cleanup_close_ int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

        if (fd >= 0)
                return read_key(fd, key, e);
        if (errno != ENOENT)
                return err_sys(e, -ENOKEY, "secrets.key in the server's state folder cannot be opened");
        int any = secrets_any(c->db);
        if (any < 0)
                return err_sys(e, any, "database");
        if (any || !make)
                return err_set(
                        e, -ENOKEY,
                        "secrets.key is missing from the server's state folder, and no secret that was set can be "
                        "opened without it: put the file back, or delete the secrets, stop the boxes that hold "
                        "any, and set them again");
        random_bytes(key, SEAL_KEY_LEN);
        log_info("secrets.key is made: what seals the secrets; keep a copy apart from those of the database");
        return file_write_atomic(AT_FDCWD, path, key, SEAL_KEY_LEN, 0600, e);
}
