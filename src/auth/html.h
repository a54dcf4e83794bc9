/* html: text into HTML. The one place where what strangers wrote becomes part of a page. Nothing here suspends. */
#pragma once

#include "base/buf.h"

/* Appends s so that it is text, in an element or in a quoted attribute: & < > " ' ` are references, control bytes and
 * invalid UTF-8 become U+FFFD, and so do the characters that turn the direction of the text around them (a name must
 * not rewrite its neighbours). */
int html_escape(struct buf *out, struct str s);
