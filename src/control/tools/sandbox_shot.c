#include "control/record.h"
#include "control/screen.h"
#include "control/tool.h"

#include "base/clock.h"
#include "base/mem.h"

static struct rfb_region region_of(const struct json *args)
{
        const struct json *g = json_get(args, "region");

        return (struct rfb_region){ (unsigned) json_get_int(g, "x", 0), (unsigned) json_get_int(g, "y", 0),
                                    (unsigned) json_get_int(g, "width", 0), (unsigned) json_get_int(g, "height", 0) };
}

static void write_size(struct jw *w, const char *key, unsigned width, unsigned height)
{
        jw_kobj(w, key);
        jw_kint(w, "width", width);
        jw_kint(w, "height", height);
        jw_end(w);
}

static void coroutine_fn take(struct tool_call *t, const struct box *b)
{
        const char *wanted = json_get_str(t->args, "format", NULL);
        enum picture_format format = !wanted ? PICTURE_ANY : cstr_eq(wanted, "png") ? PICTURE_PNG : PICTURE_JPEG;
        _cleanup_buf_ struct buf out = BUF_MAX(TOOL_TEXT_MAX);
        _cleanup_shot_ struct shot s = { 0 };
        struct rfb_region region = region_of(t->args);
        struct err e = { 0 };
        struct jw w;

        if (tool_failed(t, screen_shot(t->c, b->id, &region, format, &s, &e), &e))
                return;
        jw_init(&w, &out);
        jw_obj(&w);
        jw_kstr(&w, "format", s.image.format == PICTURE_JPEG ? "jpeg" : "png");
        jw_kint(&w, "width", s.image.width);
        jw_kint(&w, "height", s.image.height);
        jw_kint(&w, "bytes", (int64_t) s.image.bytes.len);
        write_size(&w, "screen", s.screen[0], s.screen[1]);
        jw_kobj(&w, "region");
        jw_kint(&w, "x", s.region.x);
        jw_kint(&w, "y", s.region.y);
        jw_kint(&w, "width", s.region.width);
        jw_kint(&w, "height", s.region.height);
        jw_end(&w);
        jw_key(&w, "scale"); /* image pixels to a screen pixel */
        jw_double(&w, (double) s.image.width / s.region.width);
        tool_answer(t, &w, &out);
        mcp_result_image(t->r, picture_mime(s.image.format), s.image.bytes.p, s.image.bytes.len);
}

static void coroutine_fn start(struct tool_call *t, const struct box *b)
{
        _cleanup_buf_ struct buf out = BUF_MAX(TOOL_TEXT_MAX);
        struct rfb_region region = region_of(t->args);
        char at[RFC3339_LEN];
        struct err e = { 0 };
        struct jw w;

        if (tool_failed(t, record_start(t->c, t->who, b->id, &region, &e), &e))
                return;
        jw_init(&w, &out);
        jw_obj(&w);
        jw_kbool(&w, "recording", true);
        jw_kstr(&w, "startedAt", rfc3339(wall_ms(), at));
        jw_kint(&w, "maxSeconds", RECORD_SECONDS_MAX);
        jw_kint(&w, "maxBytes", RECORD_BYTES_MAX);
        jw_kstr(&w, "next", "call again with record: \"stop\" to end it and get the video");
        tool_answer(t, &w, &out);
}

static void coroutine_fn stop(struct tool_call *t, const struct box *b)
{
        _cleanup_buf_ struct buf out = BUF_MAX(TOOL_TEXT_MAX);
        _cleanup_recording_ struct recording rec = { 0 };
        struct err e = { 0 };
        struct jw w;

        if (tool_failed(t, record_stop(t->c, t->who, b->id, &rec, &e), &e))
                return;
        jw_init(&w, &out);
        jw_obj(&w);
        jw_kbool(&w, "recording", false);
        copy_write_link(&w, t->c, &rec.video);
        jw_key(&w, "seconds");
        jw_double(&w, rec.seconds);
        jw_kint(&w, "bytes", rec.video.bytes);
        jw_kstr(&w, "contentType", "video/mp4");
        if (rec.ended_itself)
                jw_kstr(&w, "note",
                        "the recording had ended by itself before this call: at its limit, or with ffmpeg or the X "
                        "server");
        if (rec.overview)
                write_size(&w, "overview", rec.overview_width, rec.overview_height);
        tool_answer(t, &w, &out);
        if (rec.overview)
                mcp_result_image(t->r, "image/jpeg", rec.overview, rec.overview_len);
}

void coroutine_fn tool_sandbox_shot(struct tool_call *t)
{
        const char *record = json_get_str(t->args, "record", NULL);
        _cleanup_box_ struct box *b = NULL;
        struct err e = { 0 };

        if (record && json_get(t->args, "format")) {
                mcp_fail(t->r, "sandbox_shot: `format` is for a picture; a recording is always an mp4: leave it out");
                return;
        }
        if (record && cstr_eq(record, "stop") && json_get(t->args, "region")) {
                mcp_fail(t->r, "sandbox_shot: `region` belongs to record: \"start\"; with \"stop\" leave it out");
                return;
        }
        if (box_acquire(t->c, t->who, json_get_str(t->args, "id", ""), &b, &e) < 0) {
                tool_error(t, &e);
                return;
        }
        if (!record)
                take(t, b);
        else if (cstr_eq(record, "start"))
                start(t, b);
        else
                stop(t, b);
}
