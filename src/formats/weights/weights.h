/* Kinds of files with weights, and the list that they fill in. */
#ifndef ARIL_FORMATS_WEIGHTS_WEIGHTS_H
#define ARIL_FORMATS_WEIGHTS_WEIGHTS_H

#include "aril/weights.h"
#include "formats/mapped_file.h"
#include "formats/zip.h"

struct aril__file;

/* One tensor of a file. */
typedef struct aril__weights_entry {
    char *name;
    aril_dtype dtype;
    aril_shape shape;
    char *problem; /* why it cannot be read; NULL: it can */
    int shared;    /* the first entry with the same memory; its own index: none before it */
    uint64_t at;   /* the reader's own, such as an offset or an index */
} aril__weights_entry;

/* A kind of file: a row of aril__weights_kinds. */
typedef struct aril__weights_kind {
    const char *name;       /* for messages: "PyTorch" */
    const char *id;         /* for aril_weights_save: "pytorch" */
    const char *extensions; /* of files to write, separated by blanks; NULL: cannot be written */
    /* 1: a file of this kind, 0: of another, negative: an error that ends the search. It may look
     * at w->data, w->path, w->root_wanted and aril__weights_zip(w). */
    int (*probe)(aril_weights *w);
    /* Adds all entries and metadata. The caller closes w after an error. */
    aril_status (*open)(aril_weights *w);
    /* The i-th tensor, owned by the scope; poison after an error. i is valid and has no problem. */
    aril_tensor *(*tensor)(aril_weights *w, int i);
    /* Checks that files beside the one that is mapped have not changed. NULL: there are none. */
    aril_status (*check)(const aril_weights *w);
    /* Frees w->reader, which may be NULL or half made. NULL: nothing to free. */
    void (*close)(aril_weights *w);
    /* Writes one file. Names are unique texts, tensors have values, metadata may be NULL. NULL:
     * cannot be written. */
    aril_status (*save)(const char *path, const aril_named *tensors, const aril_metadata *metadata);
    /* The same as a part of the set that `index` completes. NULL: only single files. */
    aril_status (*save_part)(struct aril__file *index, const char *path, const aril_named *tensors,
                             const aril_metadata *metadata);
} aril__weights_kind;

/* In the order in which they are tried, NULL at the end. Defined in src/init.c. */
extern const aril__weights_kind *const aril__weights_kinds[];

/* The kind that files with the extension of `path` are written as; NULL: none. */
const aril__weights_kind *aril__weights_kind_for(const char *path);

extern const aril__weights_kind aril__safetensors_weights, aril__parts_weights, aril__npz_weights,
    aril__npy_weights, aril__pytorch_weights, aril__onnx_weights, aril__hdf5_weights,
    aril__tensorflow_weights, aril__matlab_weights, aril__caffe_weights, aril__caffe_hdf5_weights;

struct aril_weights {
    const aril__weights_kind *kind;
    char *path;
    aril__mapped *file;
    const unsigned char *data; /* the contents of the file */
    size_t size;
    void *reader;            /* of the kind */
    const char *root_wanted; /* while it is opened: of the options */
    char *root;              /* the part that was chosen; NULL: "" */
    bool copy;
    bool verify;         /* of the options, or copy */
    bool is_part;        /* of a file with an index: not an index itself */
    bool kernels_turned; /* kernels are in the order of Keras */

    int n, capacity, n_meta, meta_capacity;
    aril__weights_entry *entry;
    int *sorted; /* entries sorted by name */
    char **key, **value;
    aril_named all; /* cached result of aril_weights_all; `at` is NULL until then */

    aril__zip *zip; /* of aril__weights_zip */
};

/* ---- for readers ---- */

/* Opens one file of those that an index names. */
aril_weights *aril__weights_open_part(const char *path, aril_weights_opts opts);

/* Writes files of at most `most` bytes, and their index. */
aril_status aril__weights_save_parts(const char *path, const aril_named *tensors,
                                     const aril__weights_kind *kind, const aril_metadata *metadata,
                                     int64_t most);

/* Adds an entry, named by a printf format; NULL, with an error, when out of memory. Valid until the
 * next is added. */
aril__weights_entry *aril__weights_add(aril_weights *w, const char *name, aril_dtype dtype,
                                       aril_shape shape, uint64_t at);

/* Notes that an entry cannot be read, and why. */
aril_status aril__weights_refuse(aril__weights_entry *e, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Adds a pair of metadata. */
aril_status aril__weights_note(aril_weights *w, const char *key, const char *value);

/* Sets ARIL_ERR_FORMAT: "PATH is not a valid KIND file: ...". */
aril_status aril__weights_malformed(const aril_weights *w, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
aril_status aril__weights_no_memory(const aril_weights *w);

/* The file as a zip archive; NULL if it is none, or with *status after an error. */
const aril__zip *aril__weights_zip(aril_weights *w, aril_status *status);

/* A tensor over contiguous elements in the mapped file, where their alignment allows it; otherwise,
 * or of memory elsewhere, a copy. `big`: big-endian elements. The caller has checked the size. */
aril_tensor *aril__weights_map(aril_weights *w, const unsigned char *at, aril_shape shape,
                               aril_dtype dtype, bool big);

/* The same in another mapped file. */
aril_tensor *aril__weights_map_in(const aril_weights *w, aril__mapped *file,
                                  const unsigned char *at, aril_shape shape, aril_dtype dtype,
                                  bool big);

/* The bytes of a tensor, checked against `most`: false if it has more, or a size is negative. */
bool aril__weights_bytes(aril_shape shape, aril_dtype dtype, uint64_t most, uint64_t *bytes);

/* aril_renamed with a status; an empty buf: the tensor is left out. */
aril_status aril__rename(const char *name, const aril_rename *rules, char *buf, size_t size);

/* Removes "_orig_mod." wherever a module compiled by torch.compile stands; the "module." in front
 * that DataParallel adds (true if it was there). */
void aril__unwrap_compiled(char *name);
bool aril__unwrap_parallel(char *name);

/* Whether text ends in a suffix, such as ".npy". */
bool aril__ends_with(const char *text, const char *suffix);

#endif
