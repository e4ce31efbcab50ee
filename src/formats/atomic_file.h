/* Atomic file writes: the new contents go to a new file in the same folder, which is synced and
 * then renamed over the old one.
 *
 *     aril__file *f = aril__file_begin(path);
 *     if (!f) return aril__latest_status();
 *     aril__file_write(f, data, size);
 *     return aril__file_commit(f);
 *
 * A write that fails (a full disk) is remembered: commit then removes the new file, leaves the old
 * one as it was, and returns the error. A process that is killed leaves at most one file
 * ".NAME.new0" behind, which the next write to that name takes over. */
#ifndef ARIL_FORMATS_ATOMIC_FILE_H
#define ARIL_FORMATS_ATOMIC_FILE_H

#include "aril/base.h"

typedef struct aril__file aril__file;

/* Starts a new file for `path`. A symbolic link is followed; anything but a regular file (a pipe, a
 * device) is written to directly. NULL, with an error, if it cannot be created. */
aril__file *aril__file_begin(const char *path);

/* Appends bytes. The first failure sets the error; later calls do nothing and return it again. */
aril_status aril__file_write(aril__file *f, const void *data, size_t size);

/* Replaces bytes that were appended before. */
aril_status aril__file_overwrite(aril__file *f, uint64_t at, const void *data, size_t size);

/* The number of bytes appended so far. */
uint64_t aril__file_size(const aril__file *f);

/* From now on the commit is an error if the file exists by then: two writers of a new file do not
 * replace each other's. */
void aril__file_only_new(aril__file *f);

/* Syncs what was appended, so that only the rename is left to aril__file_commit: of files that
 * belong together all are stored before the first is replaced. */
aril_status aril__file_store(aril__file *f);

/* Where the new contents are until they are committed: complete once they are stored. */
const char *aril__file_fresh(const aril__file *f);

/* Syncs, renames and frees f; after a failed write, does what aril__file_abandon does and returns
 * the error. */
aril_status aril__file_commit(aril__file *f);

/* Removes the new file and frees f; the old one stays. NULL is allowed. */
void aril__file_abandon(aril__file *f);

/* Files that belong together, such as the parts of a model, and a last file that names them (the
 * index). The parts get names that no file has, so that the set of before stays whole until the new
 * index replaces the old one: readers of the index find all old files or all new ones.
 *
 *     aril__file *index = aril__file_begin(path);
 *     aril__file *part = aril__file_begin_part(index, part_path);    one after the other
 *     ... aril__file_commit(part) ...
 *     aril__file_write(index, ...);
 *     aril__file_commit_parts(index, n, part_paths);
 *
 * aril__file_abandon(index) removes all parts that were committed. */

/* Starts a part of the set that `index` completes. aril__file_commit stores it under a temporary
 * name in the folder of `path`, which is otherwise for messages only. NULL, with an error, if it
 * cannot be created. */
aril__file *aril__file_begin_part(aril__file *index, const char *path);

/* Gives the n parts their names, in the order in which they were begun, then commits the index. No
 * file may have one of the names. After a failure none of the parts is there, and the old index is
 * as it was; a process that is killed may leave parts, which are marked as unfinished. */
aril_status aril__file_commit_parts(aril__file *index, int n, char *const *paths);

/* Whether it is a regular file that is marked as unfinished: what a killed process left, unless an
 * index names it. */
bool aril__file_is_unfinished(const char *path);

/* Marks a regular file as unfinished, or no longer; where the file system cannot, it does nothing.
 * Links are not followed. */
void aril__file_mark(const char *path, bool unfinished);

/* Waits until no other writer holds the lock of the folder that contains `file`. The result, which
 * is negative where folders cannot be locked, goes to aril__folder_unlock. */
int aril__folder_lock(const char *file);
void aril__folder_unlock(int lock);

/* Creates a folder and its parents if missing. `what` is a prefix for messages. */
aril_status aril__folder_create(const char *what, const char *path);

/* The same for the folder that will contain `file`. */
aril_status aril__folder_create_for(const char *what, const char *file);

/* Syncs the folder that contains `file`, so that a rename in it lasts. */
aril_status aril__folder_sync(const char *file);

/* Begin, write and commit in one call. */
aril_status aril__file_replace(const char *path, const void *data, size_t size);

#endif
