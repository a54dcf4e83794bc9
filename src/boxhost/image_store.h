/*
 * image_store: changing which images there are while boxes start from them and commands of other processes do the same.
 * One lock (a file, whole) orders them: whoever starts a box shares it until the box's record names the version it
 * needs; whoever changes an image holds it alone, for the time of a few renames. A second lock says that somebody
 * builds. Trees are renamed away first and removed afterwards, so a kill leaves only what the next start removes.
 */
#pragma once

#include "boxhost/image.h"

struct image_store {
        char folder[512]; /* absolute path of the folder of all images */
        int images, boxes, lock, build_lock;
};

/* The images of a state folder, for a command of its own; the folders are made when missing. */
int image_store_open(const char *state, struct image_store *ret, struct err *e);
void image_store_close(struct image_store *s);
/* -EBUSY while somebody else builds. Held until the store is closed or the process ends. */
int image_store_begin_build(struct image_store *s, struct err *e);

/* The descriptor belongs to the caller; nothing else in the process may open the file (closing it drops the lock). */
int image_lock_open(int images, int *ret, struct err *e);
/* Waits two seconds at most, then -EBUSY. */
int image_lock(int lock, bool alone, struct err *e);
void image_unlock(int lock);

/* The folder `made` of all images becomes the current version of an image. All or nothing, and durable. */
int image_commit(struct image_store *s, const char *made, const char *name, const char *version, struct err *e);
/* Takes an image away; -EPERM for `host` and the default, -EBUSY for one that boxes need, with the reason. */
int image_remove(struct image_store *s, const char *name, struct err *e);
/* As image_set_default, and tells those who watch. */
int image_choose_default(struct image_store *s, const char *name, struct err *e);
/* Boxes, archived ones too, whose record names the image. */
size_t image_users(int boxes, const char *name);
/* Versions beside the current one: those that boxes still need. */
size_t image_old_versions(int images, const char *name);

/* Becomes readable when an image was put in place, removed or made the default, by whomever; -1 where that cannot be
 * watched. */
int image_watch(int images);
/* Reads what is there to read; true when it was such a change. */
bool image_changed(int watch);

/* Renames versions away that are not current and that no box needs; true when there is something to remove. */
bool image_sweep(int images, int boxes, int lock);
/* Removes what was renamed away, and what a killed build left unless one is under way (or it is the caller's). */
void image_clean(int images, bool building);
/* The same, in a process of its own: for who must not wait. */
void image_clean_later(int images);
/* After a box is gone: removes its version if it was the last that needed it. */
void image_box_gone(int images, int boxes, int lock, const char *name, const char *version);
