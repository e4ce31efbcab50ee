/* Zip archives, including zip64: reads stored and deflated members, writes stored ones. */
#ifndef ARIL_FORMATS_ZIP_H
#define ARIL_FORMATS_ZIP_H

#include "formats/atomic_file.h"
#include "formats/bytes.h"
#include "formats/source.h"

typedef struct aril__zip_member {
    char *name;
    uint64_t head;         /* offset of its local header */
    uint64_t packed, size; /* compressed and uncompressed size */
    uint32_t crc;
    int method; /* 0: stored, 8: deflated */
} aril__zip_member;

typedef struct aril__zip {
    aril__source source;
    int n;
    aril__zip_member *member;
} aril__zip;

/* Reads the central directory. Takes over the source, even on failure. */
aril_status aril__zip_open(aril__zip *z, aril__source source);
void aril__zip_close(aril__zip *z);

/* Appends the contents of member i to *out, after verifying the checksum. */
aril_status aril__zip_read(const aril__zip *z, int i, aril__bytes *out);

/* The offset in the archive at which the data of member i begins, and its checked end. */
aril_status aril__zip_data(const aril__zip *z, int i, uint64_t *at);

/* Reads up to `want` first bytes of member i without the checksum: *got. */
aril_status aril__zip_first(const aril__zip *z, int i, void *to, size_t want, size_t *got);

/* Writing: members one after the other, then the central directory. A member has two parts (head,
 * data), either of which may be empty. Errors are those of the file. */
typedef struct aril__zip_writer {
    aril__file *file;
    aril__bytes list;
    int n;
} aril__zip_writer;

aril_status aril__zip_add(aril__zip_writer *w, const char *name, const void *head, size_t head_size,
                          const void *data, size_t data_size);
/* The same, of one part that begins at a multiple of `alignment` bytes of the file. */
aril_status aril__zip_add_aligned(aril__zip_writer *w, const char *name, const void *data,
                                  size_t size, size_t alignment);
aril_status aril__zip_finish(aril__zip_writer *w);

#endif
