/*
 * browser: shows an address to the person: $BROWSER (a list of commands separated by colons, where %s stands for the
 * address), else the system's opener. No shell is involved, and the secrets of our environment do not go along.
 */
#pragma once

#include "loop/coro.h"

#include <stdbool.h>
#include <stddef.h>

/* False when nothing could be started. Never suspends; what was started outlives this process. */
bool browser_open(const char *link);

/* Pure: one command of $BROWSER, cut at its spaces into argv (at most n - 1 words and a NULL), the address put in. Free
 * the words with browser_free_words. False when it does not fit. */
bool browser_words(const char *command, size_t len, const char *link, char **argv, size_t n);
void browser_free_words(char **argv);
