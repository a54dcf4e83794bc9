/* ports: which TCP ports somebody listens on in this network namespace, from /proc/net/tcp and tcp6. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

bool port_listens(int port);
/* One line of /proc/net/tcp{,6}: true when it is a socket that listens on port. */
bool port_line_listens(const char *line, size_t n, int port);
