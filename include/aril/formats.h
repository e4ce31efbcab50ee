/* Files: tensors by name (safetensors), images (JPEG, PNG), arrays (NumPy, IDX).
 *
 * Files are written so that nobody ever sees half of one: to a new file in the same folder, which
 * is synced and then takes the place of the old. Where writing fails (a full disk) the old file
 * stays as it was. A file that is truncated, corrupted or of another kind gives an error
 * (ARIL_ERR_FORMAT) that says what is wrong with it. */
#ifndef ARIL_FORMATS_H
#define ARIL_FORMATS_H

#include "aril/named.h"

ARIL_C_BEGIN

/* ---- safetensors: weights as PyTorch and others read and write them ---- */

/* Texts beside the tensors of a file: n keys, each used once, and their values. Borrowed. */
typedef struct aril_metadata {
    int n;
    const char *const *key;
    const char *const *value;
} aril_metadata;

/* Writes tensors, and metadata where it is not NULL. Each name is used once. All dtypes but i4, u4,
 * i2 and u2 can be saved. */
ARIL_API aril_status aril_safetensors_save(const char *path, const aril_named *tensors,
                                           const aril_metadata *metadata);

/* A file that is open for reading. One thread at a time may use it. */
typedef struct aril_safetensors aril_safetensors;

/* Opens a file: reads and checks its header. Tensors are read when they are asked for. NULL, with
 * an error, when the file cannot be read or is not well formed. */
ARIL_API aril_safetensors *aril_safetensors_open(const char *path);
/* The same for a file in memory, which must stay as it is until it is closed. */
ARIL_API aril_safetensors *aril_safetensors_open_memory(const void *data, size_t size);
ARIL_API void aril_safetensors_close(aril_safetensors *f);

/* How many tensors it holds; the name, dtype and shape of the i-th, in the order of its header.
 * Names belong to f. Where there is no i-th: NULL, f32, no dimensions. */
ARIL_API int aril_safetensors_count(const aril_safetensors *f);
ARIL_API const char *aril_safetensors_name(const aril_safetensors *f, int i);
ARIL_API aril_dtype aril_safetensors_dtype(const aril_safetensors *f, int i);
ARIL_API aril_shape aril_safetensors_shape(const aril_safetensors *f, int i);

/* The number of the tensor of a name, -1 where there is none. */
ARIL_API int aril_safetensors_find(const aril_safetensors *f, const char *name);

/* The i-th tensor, read from the file into memory of its own (CPU); owned by the scope. */
ARIL_API aril_tensor *aril_safetensors_tensor(aril_safetensors *f, int i);

/* All tensors, read once and kept until f is closed (aril_keep holds one longer). NULL, with an
 * error, on failure. */
ARIL_API const aril_named *aril_safetensors_all(aril_safetensors *f);

/* The texts beside the tensors, which belong to f; the value of one key, NULL where there is
 * none. */
ARIL_API aril_metadata aril_safetensors_metadata(const aril_safetensors *f);
ARIL_API const char *aril_safetensors_get(const aril_safetensors *f, const char *key);

/* ---- images: JPEG and PNG, where the build found libjpeg and libpng ---- */

/* How to read one. All zeros: as it is in the file, upright, in 8 bits. */
typedef struct aril_image_opts {
    int channels;   /* 1 (gray), 2 (with alpha), 3 (RGB), 4 (with alpha); 0: those of the file */
    bool deep;      /* 16 bits of a channel stay 16: the result is u16 */
    bool as_stored; /* leave the orientation that a camera noted (EXIF) aside */
    /* a JPEG may come out smaller by 2, 4 or 8, but no smaller than this; 0: it does not */
    int64_t min_width, min_height;
} aril_image_opts;

/* The image of a file, or of a file's bytes. u8 (or u16) [C,H,W] */
ARIL_API aril_tensor *aril_image_read(const char *path, aril_image_opts opts);
ARIL_API aril_tensor *aril_image_decode(const void *data, size_t size, aril_image_opts opts);

typedef struct aril_image_write_opts {
    int quality; /* of JPEG: 1 .. 100; 0: 90 */
} aril_image_write_opts;

/* Writes a image [C,H,W] or [H,W], or a sheet of images [N,C,H,W], as PNG or JPEG: the end of
 * the file's name says which (.png, .jpg, .jpeg). u8, or floating point of 0..1, which is clamped
 * and rounded. C is 1 to 4; 1 or 3 for JPEG. PNG is written without libpng. */
ARIL_API aril_status aril_image_write(const char *path, aril_tensor *image,
                                      aril_image_write_opts opts);

/* ---- arrays ---- */

/* The array of an IDX file, as MNIST's, also compressed by gzip (where the build found zlib): u8,
 * i8, i16, i32, f32 or f64. */
ARIL_API aril_tensor *aril_idx_read(const char *path);

/* NumPy's .npy: bool, whole numbers, f16, f32 and f64, in either order of bytes and of
 * dimensions. */
ARIL_API aril_tensor *aril_npy_read(const char *path);
ARIL_API aril_status aril_npy_write(const char *path, aril_tensor *t);

/* NumPy's .npz, an archive of them, stored or compressed (numpy.savez, numpy.savez_compressed).
 * Opening reads the list of names alone. NULL, with an error, on failure. The memory of a file in
 * memory must stay until it is closed. */
typedef struct aril_npz aril_npz;
ARIL_API aril_npz *aril_npz_open(const char *path);
ARIL_API aril_npz *aril_npz_open_memory(const void *data, size_t size);
ARIL_API void aril_npz_close(aril_npz *f);
/* How many arrays; the name of the i-th (NULL: there is none), the number of one of a name (-1:
 * there is none). */
ARIL_API int aril_npz_count(const aril_npz *f);
ARIL_API const char *aril_npz_name(const aril_npz *f, int i);
ARIL_API int aril_npz_find(const aril_npz *f, const char *name);
/* The i-th array, owned by the scope. */
ARIL_API aril_tensor *aril_npz_tensor(aril_npz *f, int i);

/* Writes arrays as numpy.savez does. Without names they are called arr_0, arr_1 ... */
ARIL_API aril_status aril_npz_write(const char *path, const aril_named *tensors);

/* ---- HDF5, where the build found its headers and the library is there when a first file is used
 * ---- */

/* An array of a file by its name, such as "data" or "group/x": whole numbers and floats; owned by
 * the scope. */
ARIL_API aril_tensor *aril_hdf5_read(const char *path, const char *name);
/* Writes arrays; a '/' in a name makes a group. All dtypes of 8 to 64 bits but bf16, f16 and the
 * 8-bit floats. bool is written as u8. */
ARIL_API aril_status aril_hdf5_write(const char *path, const aril_named *tensors);

ARIL_C_END

#endif
