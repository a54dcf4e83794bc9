#include "web/front.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "control/events.h"
#include "control/pool.h"
#include "web/scenes.h"

#include <fcntl.h>
#include <unistd.h>

static int metric(struct buf *b, const char *name, const char *type, const char *help, double value)
{
        return buf_addf(b, "# HELP psbx_%s %s\n# TYPE psbx_%s %s\npsbx_%s %.17g\n", name, help, name, type, name,
                        value);
}

static double resident_bytes(void)
{
        _cleanup_buf_ struct buf b = BUF_MAX(256);
        uint64_t pages = 0;

        if (file_read(AT_FDCWD, "/proc/self/statm", &b) < 0)
                return 0;
        struct str line = buf_str(&b);
        (void) str_cut(&line, ' '); /* the size; the resident part follows */
        if (parse_u64(str_cut(&line, ' '), INT64_MAX, &pages) < 0)
                return 0;
        return (double) pages * (double) sysconf(_SC_PAGESIZE);
}

int metrics_write(const struct front *f, struct buf *b)
{
        struct http_stats http;
        struct mcp_stats mcp;
        const struct control *c = f->control;
        int r;

        http_server_stats(f->http, &http);
        mcp_server_stats(f->mcp, &mcp);
        r = metric(b, "uptime_seconds", "gauge", "Seconds since the server started.",
                   (double) (clock_ms() - f->started_ms) / 1000);
        const struct {
                const char *name, *type, *help;
                double value;
        } rows[] = {
                { "resident_bytes", "gauge", "Resident memory of the server.", resident_bytes() },
                { "boxes_running", "gauge", "Boxes that run.", (double) control_running(c) },
                { "boxes_warm", "gauge", "Boxes that stand ready for the next start.", (double) pool_ready(c->pool) },
                { "boxes_max", "gauge", "Boxes that may run at once.", (double) control_boxes_max(c) },
                { "box_starts_total", "counter", "Boxes started.", (double) c->starts },
                { "box_start_failures_total", "counter", "Box starts that failed.", (double) c->start_failures },
                { "execs_total", "counter", "Commands run.", (double) c->execs },
                { "object_bytes", "gauge", "Bytes kept for downloads.", (double) objects_bytes(c->objects) },
                { "http_requests_total", "counter", "HTTP requests answered.", (double) http.requests },
                { "http_connections", "gauge", "Open HTTP connections.", (double) http.connections_open },
                { "http_connections_total", "counter", "HTTP connections accepted.", (double) http.connections_total },
                { "http_refused_total", "counter", "Requests or connections refused by limits or by the codec.",
                  (double) http.refused },
                { "mcp_calls_total", "counter", "Tool calls.", (double) mcp.calls },
                { "mcp_calls_running", "gauge", "Tool calls under way.", (double) mcp.running },
                { "mcp_streams", "gauge", "Open notification streams.", (double) mcp.streams },
                { "scene_tunnels", "gauge", "Open WebSockets and other upgraded connections of scenes.",
                  f->scenes ? (double) scenes_tunnels(f->scenes) : 0 },
                { "event_streams", "gauge", "Open streams of events to people's browsers.",
                  (double) events_streams(c->events) },
                { "coroutines", "gauge", "Live coroutines.", (double) coro_count() },
        };
        for (size_t i = 0; r == 0 && i < ARRAY_LEN(rows); i++)
                r = metric(b, rows[i].name, rows[i].type, rows[i].help, rows[i].value);
        return r;
}
