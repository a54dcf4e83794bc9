/*
 * log: one line per event on stderr. Programs log; libraries return errors (they may log at debug only).
 * Control bytes in a message are escaped, so a hostile string cannot forge a line. No secret is ever passed here.
 */
#pragma once

#include <stdbool.h>

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* The one piece of process-wide state of base/: where and how much is logged. */
void log_setup(const char *program, enum log_level max);
int log_level_parse(const char *s, enum log_level *ret); /* error warning info debug; -EINVAL */
bool log_enabled(enum log_level l);
void log_at(enum log_level l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define log_error(...) log_at(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_at(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_info(...) log_at(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...) log_at(LOG_LEVEL_DEBUG, __VA_ARGS__)
