/* Inspecting HDF5 files, and files of many arrays that stay open. */
#ifndef ARIL_FORMATS_HDF5_H
#define ARIL_FORMATS_HDF5_H

#include "aril/formats.h"
#include "formats/bytes.h"

/* Is it an HDF5 file, by its mark? No error if it cannot be read. */
bool aril__hdf5_is(const char *path);

/* Where an HDF5 file begins, which may follow other data of 512, 1024, 2048 ... bytes; n: it is
 * none. */
size_t aril__hdf5_begin(const unsigned char *data, size_t n);

/* The shape of an array, which is not read. */
aril_status aril__hdf5_shape(const char *path, const char *name, aril_shape *shape);

/* ---- writing ---- */

/* What a file is to hold. */
typedef struct aril__hdf5_contents {
    aril_named arrays;
    /* Strings: scalars of a fixed length that end with NUL. */
    int n_texts;
    const char *const *text_name, *const *text;
    /* Groups, which may be empty; those of arrays need not be listed. */
    int n_groups;
    const char *const *group;
} aril__hdf5_contents;

/* Makes such a file in memory; *image is freed with aril__bytes_free. */
aril_status aril__hdf5_image(const aril__hdf5_contents *c, aril__bytes *image);

/* Writes such a file atomically. */
aril_status aril__hdf5_write(const char *path, const aril__hdf5_contents *c);

/* ---- an open file: its arrays of numbers, in all groups, and its text attributes ---- */

typedef struct aril__hdf5 aril__hdf5;

/* Opens a file, or the image of one in memory, which must stay unchanged until it is closed. `name`
 * names it in messages. NULL, with an error, on failure. */
aril__hdf5 *aril__hdf5_open(const char *path);
aril__hdf5 *aril__hdf5_open_memory(const void *data, size_t size, const char *name);
void aril__hdf5_close(aril__hdf5 *f); /* NULL is allowed */

/* The number of arrays; the full name ("group/x"), dtype and shape of the i-th, sorted by name; the
 * index of the array with a name: -1 without an error if there is none, ARIL_ERR_MEMORY if memory
 * ran out in the search. */
int aril__hdf5_count(const aril__hdf5 *f);
const char *aril__hdf5_array_name(const aril__hdf5 *f, int i);
aril_dtype aril__hdf5_array_dtype(const aril__hdf5 *f, int i);
aril_shape aril__hdf5_array_shape(const aril__hdf5 *f, int i);
int aril__hdf5_find(const aril__hdf5 *f, const char *name);

/* Where the object of the i-th array is: the same for hard links, which are names of one object. */
uint64_t aril__hdf5_array_address(const aril__hdf5 *f, int i);

/* The number of arrays that are not of numbers, or cannot be read for another reason, which
 * *problem is set to; the name of the i-th. */
int aril__hdf5_refused(const aril__hdf5 *f);
const char *aril__hdf5_refused_name(const aril__hdf5 *f, int i, const char **problem);

/* Reads the i-th array, owned by the scope. */
aril_tensor *aril__hdf5_array(const aril__hdf5 *f, int i);

/* A list of strings, freed with aril__hdf5_texts_free. */
typedef struct aril__hdf5_texts {
    int n;
    char **at;
} aril__hdf5_texts;

/* Reads a text attribute of a group ("/": the file itself), of one string or many. An attribute
 * that is missing or empty has none; one that is not text is an error. */
aril_status aril__hdf5_attribute(const aril__hdf5 *f, const char *group, const char *attribute,
                                 aril__hdf5_texts *out);
void aril__hdf5_texts_free(aril__hdf5_texts *t);

/* The same for an array of strings; missing: none. */
aril_status aril__hdf5_text_array(const aril__hdf5 *f, const char *name, aril__hdf5_texts *out);

/* The names in a group, sorted. 1, without an error, if there is no such group. */
int aril__hdf5_group(const aril__hdf5 *f, const char *name, aril__hdf5_texts *out);

#endif
