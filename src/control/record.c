#include "control/record.h"

#include "base/clock.h"
#include "base/ids.h"
#include "base/mem.h"
#include "base/utf8.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define JOB "screen-record-"
#define STARTED_MS 30000 /* until ffmpeg has opened the screen, cold X server included */
#define FINISH_MS 300000
#define STOP_GRACE_MS 10000
#define SAID_MAX ((size_t) 8 << 10) /* of what a helper job writes */
#define SAID_SHOWN 400
#define OVERVIEW_BYTES_MAX ((size_t) 1000000)
#define OVERVIEW_PIXELS_MAX 1150000u

/*
 * x264 as fast as it goes: a screen that stands still costs next to nothing, and a box has better things to do. yuv420p
 * wants even sides. A fragment of two seconds is what a kill can cost. -n: a recording that waits is never lost.
 */
static const char start_script[] =
        "umask 077; mkdir -p /var/lib/boxd/record && cd /var/lib/boxd/record || exit 1\n"
        "command -v ffmpeg >/dev/null || { echo 'no ffmpeg' >&2; exit 127; }\n"
        "exec ffmpeg -hide_banner -nostdin -nostats -n -f x11grab -framerate %d %s-i :99%s -t %d -fs %lld "
        "-vf 'crop=trunc(iw/2)*2:trunc(ih/2)*2' -c:v libx264 -preset ultrafast -crf 26 -pix_fmt yuv420p -threads 2 "
        "-g %d -frag_duration 2000000 -flush_packets 1 "
        "-movflags +frag_keyframe+empty_moov+default_base_moof screen.mp4\n";

/*
 * Without encoding anew: the index goes to the front; on a full disk the file plays as it is. One that is no video at
 * all is put aside, so that the next can begin. Of a long one only key frames are looked at for the overview.
 */
static const char finish_script[] =
        "cd /var/lib/boxd/record || exit 1; rm -f recording.mp4 overview.jpg\n"
        "ffmpeg -nostdin -v error -y -i screen.mp4 -c copy -movflags +faststart recording.mp4 ||"
        " { rm -f recording.mp4; ln screen.mp4 recording.mp4; }\n"
        "s=$(ffprobe -v error -show_entries format=duration -of csv=p=0 recording.mp4) ||"
        " { mv -f screen.mp4 unfinished.mp4; exit 1; }\n"
        "case ${s%%.*} in ''|*[!0-9]*) s=0;; esac\n"
        "skip=; [ \"${s%%.*}\" -lt 60 ] || skip='-skip_frame nokey'\n"
        "ffmpeg -nostdin -v error -y $skip -i recording.mp4 -vf \"fps=12/$s,"
        "scale=320:240:force_original_aspect_ratio=decrease:force_divisible_by=2,tile=4x3\" "
        "-frames:v 1 -q:v 4 overview.jpg\n"
        "echo \"$s\"\n";

static const char forget_script[] = "cd /var/lib/boxd/record && rm -f screen.mp4 recording.mp4 overview.jpg\n";

static struct json *head_of(const char *op, const char *id)
{
        struct json *h = json_obj();

        json_set_str(h, "op", op);
        json_set_str(h, "id", id);
        return h;
}

static struct json *exec_head(const char *id, const char *cmd, const char *note, bool background)
{
        struct json *h = head_of("exec", id);

        json_set_str(h, "cmd", cmd);
        json_set_str(h, "cwd", ".");
        json_set_str(h, "note", note);
        json_set_bool(h, "background", background);
        if (!background)
                json_set_int(h, "timeoutMs", FINISH_MS);
        return h;
}

/* Runs an operation to its result and keeps the first SAID_MAX bytes of stdout and stderr together. */
static int coroutine_fn run(struct control *c, const char *box, struct json *head, struct buf *said, struct json **ret,
                            struct err *e)
{
        _cleanup_guest_ struct guest_op g = { 0 };
        bool full = false;
        int r = guest_open(c, box, head, &g, e);

        if (r < 0)
                return r;
        g.idle_ms = FINISH_MS + 30000;
        for (;;) {
                enum guest_stream stream = GUEST_CONTROL;
                _cleanup_json_ struct json *control = NULL;
                char piece[1024];
                ssize_t n = guest_recv(&g, piece, sizeof piece, &stream, &control, e);

                if (n == -ENODATA)
                        break;
                if (n < 0)
                        return (int) n;
                if (control || full)
                        continue;
                if (said->len + (size_t) n <= SAID_MAX)
                        (void) buf_add(said, piece, (size_t) n);
                else
                        full = true;
        }
        r = guest_result_error(g.result, e);
        if (r == 0 && ret)
                *ret = json_ref(g.result);
        return r;
}

static int coroutine_fn run_script(struct control *c, const char *box, const char *script, struct buf *said,
                                   struct err *e)
{
        _cleanup_json_ struct json *result = NULL;
        char id[40] = "screen-helper-";

        random_id(id + strlen(id), 10);
        int r = run(c, box, exec_head(id, script, "finishes a recording of the screen", false), said, &result, e);
        if (r < 0)
                return r;
        return json_get_int(result, "exitCode", 1) == 0 ? 0 : -EIO;
}

/* The id of the recording that runs, "" when none does. */
static int coroutine_fn find_running(struct control *c, const char *box, char id[64], struct err *e)
{
        _cleanup_json_ struct json *answer = NULL;
        struct json *head = head_of("procs", NULL);

        id[0] = '\0';
        json_set_str(head, "action", "list");
        int r = guest_ask(c, box, head, &answer, e);
        const struct json *jobs = json_get(answer, "jobs");
        for (size_t i = 0; r == 0 && i < json_len(jobs); i++) {
                const char *job = json_get_str(json_at(jobs, i), "id", "");

                if (str_starts(str_of(job), STR(JOB)) && strlen(job) < 64 &&
                    json_get_bool(json_at(jobs, i), "running", false))
                        (void) snprintf(id, 64, "%s", job);
        }
        return r;
}

/* 1 when a file of a recording waits, 0 when not. */
static int coroutine_fn file_waits(struct control *c, const char *box, struct err *e)
{
        struct json *head = head_of("stat", NULL);

        json_set_str(head, "root", "record");
        json_set_str(head, "path", "screen.mp4");
        int r = guest_ask(c, box, head, NULL, e);
        return r == 0 ? 1 : r == -ENOENT ? 0 : r;
}

static int check_none(int running, int waits, struct err *e)
{
        if (running)
                return err_set(
                        e, -EALREADY,
                        "a recording of this box's screen runs already: {record: \"stop\"} ends it and gives it");
        if (waits)
                return err_set(e, -EALREADY,
                               "a recording of this box's screen that has ended waits: {record: \"stop\"} gives it; "
                               "then start again");
        return 0;
}

/*
 * What ffmpeg or the shell said at last, on one line. Only whole lines: the call masks the box's secrets in what it
 * says, and would not know half of one.
 */
static int failed(const struct buf *said, const char *what, struct err *e)
{
        struct str text = str_trim(buf_str(said), " \n"), tail = { "", 0 };
        char line[SAID_SHOWN + 1];
        size_t n = 0;

        if (text.n <= SAID_SHOWN)
                tail = text;
        for (size_t i = 0; i < text.n && !tail.n; i++)
                if (text.p[i] == '\n' && text.n - i - 1 <= SAID_SHOWN)
                        tail = str_n(text.p + i + 1, text.n - i - 1);
        for (size_t i = 0; i < tail.n; i++) {
                unsigned char ch = (unsigned char) tail.p[i];

                line[n++] = (char) (ch == '\n' ? ' ' : ch < 0x20 || ch > 0x7e ? '?' : ch);
        }
        line[n] = '\0';
        return err_set(e, -EIO, "%s: %s", what, n ? line : "it did not say why");
}

/* Recording counts once ffmpeg has opened the screen and its file. */
static int coroutine_fn wait_started(struct control *c, const char *box, const char *id, struct err *e)
{
        _cleanup_buf_ struct buf said = BUF_MAX(SAID_MAX * 2);
        _cleanup_json_ struct json *job = NULL;
        struct json *head = head_of("procs", id), *until = json_obj();

        json_set_str(head, "action", "wait");
        json_set_int(head, "timeoutMs", STARTED_MS);
        json_set_str(until, "log", "Output #0");
        json_set(head, "until", until);
        json_set_int(head, "tail", 20);
        int r = run(c, box, head, &said, &job, e);
        if (r < 0)
                return r;
        if (!json_get_bool(job, "over", false) && json_get_bool(job, "ready", false))
                return 0;
        if (json_get_int(job, "exitCode", -1) == 127)
                return err_set(e, -ENOENT,
                               "this box's image has no ffmpeg: start the box with the image `debian`, or run apt-get "
                               "install ffmpeg");
        if (json_get_bool(job, "over", false))
                return failed(&said, "the recording did not start", e);
        head = head_of("procs", id);
        json_set_str(head, "action", "stop");
        (void) guest_ask(c, box, head, NULL, NULL);
        return err_set(e, -ETIMEDOUT, "the recording did not start within %d s", STARTED_MS / 1000);
}

int coroutine_fn record_start(struct control *c, const struct identity *who, const char *box,
                              const struct rfb_region *region, struct err *e)
{
        char id[64], size[48] = "", at[32] = "";
        int r = find_running(c, box, id, e), waits = r < 0 ? r : file_waits(c, box, e);

        (void) who;
        if (waits < 0)
                return waits;
        r = check_none(id[0], waits, e);
        if (r < 0)
                return r;
        if (region->width) {
                (void) snprintf(size, sizeof size, "-video_size %ux%u ", region->width, region->height);
                (void) snprintf(at, sizeof at, "+%u,%u", region->x, region->y);
        }
        _cleanup_free_ char *cmd =
                xasprintf(start_script, RECORD_FPS, size, at, RECORD_SECONDS_MAX, RECORD_BYTES_MAX, RECORD_FPS * 5);
        (void) snprintf(id, sizeof id, JOB);
        random_id(id + strlen(id), 10);
        r = guest_ask(c, box, exec_head(id, cmd, "records the screen", true), NULL, e);
        return r < 0 ? r : wait_started(c, box, id, e);
}

static int coroutine_fn end_job(struct control *c, const char *box, const char *id, struct err *e)
{
        struct json *head = head_of("procs", id);

        json_set_str(head, "action", "stop");
        json_set_int(head, "graceMs", STOP_GRACE_MS); /* ffmpeg ends its file on SIGTERM */
        int r = guest_ask(c, box, head, NULL, e);
        return r == -ENOENT ? 0 : r;
}

/* An image of the box's making: it is handed on when it is a JPEG within the limits of an image block. */
static void coroutine_fn fetch_overview(struct control *c, const struct identity *who, const char *box,
                                        struct recording *ret)
{
        struct copy copy = { 0 };

        if (copy_out(c, who, box, "record", "overview.jpg", NULL, &copy, NULL) == 0) {
                char *p = copy_bytes(c, &copy, OVERVIEW_BYTES_MAX);

                if (p &&
                    jpeg_size((unsigned char *) p, (size_t) copy.bytes, &ret->overview_width, &ret->overview_height) &&
                    (uint64_t) ret->overview_width * ret->overview_height <= OVERVIEW_PIXELS_MAX) {
                        ret->overview = steal_ptr(p);
                        ret->overview_len = (size_t) copy.bytes;
                }
                free(p);
        }
        json_unref(copy.changed);
}

static int coroutine_fn finish(struct control *c, const struct identity *who, const char *box, struct recording *ret,
                               struct err *e)
{
        _cleanup_buf_ struct buf said = BUF_MAX(SAID_MAX * 2), none = BUF_MAX(SAID_MAX * 2);
        int r = run_script(c, box, finish_script, &said, e);

        if (r == -EIO)
                return failed(&said,
                              "the recording could not be finished; what there is stays in "
                              "the box as /var/lib/boxd/record/unfinished.mp4",
                              e);
        if (r < 0)
                return r;
        const char *last = strrchr(buf_cstr(&said), '\n');
        while (last && last > said.p && last[-1] != '\n')
                last--;
        ret->seconds = last ? strtod(last, NULL) : 0;
        if (!isfinite(ret->seconds) || ret->seconds < 0 || ret->seconds > 10 * RECORD_SECONDS_MAX)
                ret->seconds = 0;
        r = copy_out(c, who, box, "record", "recording.mp4", NULL, &ret->video, e);
        if (r < 0)
                return r;
        fetch_overview(c, who, box, ret);
        (void) run_script(c, box, forget_script, &none, NULL); /* the copy is ours now */
        return 0;
}

int coroutine_fn record_stop(struct control *c, const struct identity *who, const char *box, struct recording *ret,
                             struct err *e)
{
        char id[64];
        int r = find_running(c, box, id, e), waits = r < 0 ? r : file_waits(c, box, e);

        *ret = (struct recording){ 0 };
        if (waits < 0)
                return waits;
        if (!id[0] && !waits)
                return err_set(e, -ESRCH, "no recording of this box's screen runs: {record: \"start\"} begins one");
        ret->ended_itself = !id[0];
        if (id[0])
                r = end_job(c, box, id, e);
        if (r == 0)
                r = finish(c, who, box, ret, e);
        if (r < 0)
                recording_done(ret);
        return r;
}

void recording_done(struct recording *r)
{
        json_unref(steal_ptr(r->video.changed));
        free(steal_ptr(r->overview));
}
