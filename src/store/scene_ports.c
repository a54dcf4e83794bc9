#include "store/scene_ports.h"

int scene_port_insert(struct db *db, unsigned port, const char *box, const char *service, struct err *e)
{
        struct query q;

        query(db, &q, "INSERT INTO scene_ports (port, box_id, service) VALUES (?, ?, ?)");
        query_int(&q, port);
        query_str(&q, box);
        query_str(&q, service);
        return query_run(&q, e);
}

int scene_port_delete(struct db *db, unsigned port, struct err *e)
{
        struct query q;

        query(db, &q, "DELETE FROM scene_ports WHERE port = ?");
        query_int(&q, port);
        return query_run(&q, e);
}

int scene_port_each(struct db *db, unsigned from, unsigned to,
                    void (*fn)(unsigned port, const char *box, const char *service, void *arg), void *arg,
                    struct err *e)
{
        struct query q;

        query(db, &q, "DELETE FROM scene_ports WHERE port NOT BETWEEN ? AND ?");
        query_int(&q, from);
        query_int(&q, to);
        int r = query_run(&q, e);
        if (r < 0)
                return r;
        query(db, &q, "SELECT port, box_id, service FROM scene_ports ORDER BY port");
        while (query_row(&q))
                fn((unsigned) col_int(&q, 0), col_str(&q, 1), col_str(&q, 2), arg);
        return query_end(&q, e);
}

int scene_port_sweep(struct db *db, void (*fn)(unsigned port, void *arg), void *arg, struct err *e)
{
        struct query q;

        query(db, &q,
              "DELETE FROM scene_ports WHERE box_id NOT IN (SELECT id FROM boxes WHERE state <> 'deleted') "
              "RETURNING port");
        while (query_row(&q))
                fn((unsigned) col_int(&q, 0), arg);
        return query_end(&q, e);
}
