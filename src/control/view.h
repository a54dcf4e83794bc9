/*
 * view: boxes and steps as the app sees them: what the tools answer, and what a person wants to know besides. Nothing
 * here suspends.
 */
#pragma once

#include "control/control.h"

#define VIEW_COMMAND_SHORT ((size_t) 300)
#define VIEW_COMMAND_WHOLE ((size_t) 8192) /* as much as is kept */

/* One step as an object; its command is cut at so many bytes (`commandCut`). */
void view_step(struct jw *w, const struct step *s, size_t command_max);
/*
 * Members of a box: `conversation`, `heardAt`, `now` (the newest call that runs, or null), `running` (how many do, 100
 * at most), `last` (the newest call, or null).
 */
void view_box(struct jw *w, struct control *c, const struct box_row *row);
/* A short name of a conversation that tells two apart and does not give its id away. "" for NULL. */
void view_conversation(const char *agent, char ret[static 9]);
