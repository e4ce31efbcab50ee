/* Files mapped to memory for reading, so that large tensors are used where they lie.
 *
 * Reading a mapped page beyond the end of its file, which another process may truncate at any time,
 * raises SIGBUS. A handler turns that into zeros and a note: aril__mapped_check, called after the
 * data were used, then returns an error, also if the file was written to in the meantime. A file
 * that is replaced (by rename, as Aril writes files) stays as it was. */
#ifndef ARIL_FORMATS_MAPPED_FILE_H
#define ARIL_FORMATS_MAPPED_FILE_H

#include "aril/base.h"

typedef struct aril__mapped aril__mapped;

/* Maps a regular file; NULL, with an error, on failure. `what` names the kind of file in
 * messages. */
aril__mapped *aril__mapped_open(const char *what, const char *path);
void aril__mapped_close(aril__mapped *f); /* NULL is allowed */

/* Another reference, to be closed too: the file stays mapped until the last is. Returns f. */
aril__mapped *aril__mapped_keep(aril__mapped *f);

/* The contents, aligned to a page, and their size at the time of opening. The memory is private: it
 * may be written to, which the file does not see. */
const void *aril__mapped_data(const aril__mapped *f);
size_t aril__mapped_size(const aril__mapped *f);

/* Whether it is what a server or a failed copy leaves instead of a file: a page in HTML, or
 * nothing. Then it fails with an error that says so, and what was expected. */
bool aril__mapped_is_other(const aril__mapped *f, const char *path, const char *expected);

/* Lets the system take back the memory of what was read: what is read again comes from the file. */
void aril__mapped_rest(const aril__mapped *f);

/* ARIL_ERR_IO if the file has changed since it was opened: what was read may be mixed, or zeros. */
aril_status aril__mapped_check(const aril__mapped *f);

#endif
