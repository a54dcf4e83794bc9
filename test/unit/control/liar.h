/* liar: a box's daemon that says what a test wrote down, whatever it is asked, from a process of its own; then it hangs
 * up. */
#pragma once

#include "base/buf.h"
#include "driver/driver.h"

extern struct buf liar_words; /* what it says; cleared by the test */
extern const struct driver_ops liar_ops;

/* Appends a frame whose header says length, and n bytes. */
void liar_frame(unsigned stream, unsigned flags, uint32_t length, const void *p, size_t n);
void liar_control(const char *json);
void liar_reap(void); /* waits for the last one's end */
