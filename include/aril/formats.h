/* File formats: named tensors (safetensors), images (JPEG, PNG), arrays (NumPy, IDX, HDF5).
 *
 * Files are written atomically: to a temporary file in the same folder, which is synced and then
 * renamed over the old one. If writing fails (a full disk), the old file is unchanged. A file that
 * is truncated, corrupted or of another format is an error (ARIL_ERR_FORMAT) that says what is
 * wrong with it. */
#ifndef ARIL_FORMATS_H
#define ARIL_FORMATS_H

#include "aril/named.h"

#include <stdio.h>

ARIL_C_BEGIN

/* Creates a folder and its missing parents, for the files of a run. A folder that already exists is
 * fine; anything else of that name is an error (ARIL_ERR_IO). */
ARIL_API aril_status aril_folder_create(const char *path);

/* ---- safetensors: weights as PyTorch and others read and write them ---- */

/* Text metadata of a file: n unique keys and their values. Borrowed. */
typedef struct aril_metadata {
    int n;
    const char *const *key;
    const char *const *value;
} aril_metadata;

/* Writes tensors, and metadata unless it is NULL. Names must be unique. All dtypes except i4, u4,
 * i2 and u2 can be saved. */
ARIL_API aril_status aril_safetensors_save(const char *path, const aril_named *tensors,
                                           const aril_metadata *metadata);

/* A file that is open for reading. Only one thread may use it at a time. */
typedef struct aril_safetensors aril_safetensors;

/* Opens a file: reads and checks its header. Tensors are read on demand. NULL, with an error, when
 * the file cannot be read or is malformed. */
ARIL_API aril_safetensors *aril_safetensors_open(const char *path);
/* The same for a file in memory, which must stay unchanged until the file is closed. */
ARIL_API aril_safetensors *aril_safetensors_open_memory(const void *data, size_t size);
ARIL_API void aril_safetensors_close(aril_safetensors *f);

/* The number of tensors; the name, dtype and shape of the i-th, in header order. Names belong to f.
 * If there is no i-th: NULL, f32, no dimensions. */
ARIL_API int aril_safetensors_count(const aril_safetensors *f);
ARIL_API const char *aril_safetensors_name(const aril_safetensors *f, int i);
ARIL_API aril_dtype aril_safetensors_dtype(const aril_safetensors *f, int i);
ARIL_API aril_shape aril_safetensors_shape(const aril_safetensors *f, int i);

/* The index of the tensor with a name, -1 if there is none. */
ARIL_API int aril_safetensors_find(const aril_safetensors *f, const char *name);

/* The i-th tensor, read from the file into new CPU memory; owned by the scope. */
ARIL_API aril_tensor *aril_safetensors_tensor(aril_safetensors *f, int i);

/* All tensors, read once and kept until f is closed (aril_keep holds one longer). NULL, with an
 * error, on failure. */
ARIL_API const aril_named *aril_safetensors_all(aril_safetensors *f);

/* The metadata, which belongs to f; the value of one key, NULL if there is none. */
ARIL_API aril_metadata aril_safetensors_metadata(const aril_safetensors *f);
ARIL_API const char *aril_safetensors_get(const aril_safetensors *f, const char *key);

/* ---- models of other frameworks ---- */

/* Whether aril_describe_file takes a file: one named .onnx, .caffemodel, .prototxt, .binaryproto or
 * .solverstate, or a solverstate of Caffe in HDF5, which is known by its contents. */
ARIL_API bool aril_describes_file(const char *path);

/* Prints what an ONNX model, a Caffe net or a Caffe solver contains: inputs and outputs with their
 * types, nodes or layers, and the shapes of their weights, which are not read. The types of values
 * inside an ONNX model are inferred; where they cannot be, they are those that the file declares.
 * ARIL_ERR_FORMAT if the file is malformed; the error names the place in it. */
ARIL_API aril_status aril_describe_file(const char *path, FILE *out);

/* ---- images: BMP, PGM, PPM; JPEG and PNG where the build found libjpeg and libpng ---- */

/* How to read an image. All zeros: the channels of the file, EXIF orientation applied, 8 bits. */
typedef struct aril_image_opts {
    int channels;   /* 1 (gray), 2 (with alpha), 3 (RGB), 4 (with alpha); 0: those of the file */
    bool deep;      /* 16-bit channels stay 16-bit: the result is u16 */
    bool as_stored; /* ignore the EXIF orientation */
    /* a JPEG may be downscaled by 2, 4 or 8 while decoding, but no smaller than this; 0: never */
    int64_t min_width, min_height;
} aril_image_opts;

/* Reads an image from a file, or from a file's bytes in memory. u8 (or u16) [C,H,W] */
ARIL_API aril_tensor *aril_image_read(const char *path, aril_image_opts opts);
ARIL_API aril_tensor *aril_image_decode(const void *data, size_t size, aril_image_opts opts);

typedef struct aril_image_write_opts {
    int quality; /* JPEG: 1 .. 100; default 90 */
} aril_image_write_opts;

/* Writes an image [C,H,W] or [H,W], or a grid of images [N,C,H,W], as PNG or JPEG, chosen by the
 * file extension (.png, .jpg, .jpeg). u8, or floats in 0..1, which are clamped and rounded. C is 1
 * to 4; 1 or 3 for JPEG. Writing PNG does not need libpng. */
ARIL_API aril_status aril_image_write(const char *path, aril_tensor *image,
                                      aril_image_write_opts opts);

/* ---- arrays ---- */

/* Reads an IDX file, such as MNIST's, optionally gzip-compressed (if the build found zlib): u8, i8,
 * i16, i32, f32 or f64. */
ARIL_API aril_tensor *aril_idx_read(const char *path);

/* NumPy's .npy: bool, integers, f16, f32 and f64; reads either byte order, and C or Fortran
 * order. */
ARIL_API aril_tensor *aril_npy_read(const char *path);
ARIL_API aril_status aril_npy_write(const char *path, aril_tensor *t);

/* NumPy's .npz, an archive of .npy files, stored or compressed (numpy.savez,
 * numpy.savez_compressed). Opening reads only the list of names. NULL, with an error, on failure.
 * The memory of a file in memory must stay valid until the file is closed. */
typedef struct aril_npz aril_npz;
ARIL_API aril_npz *aril_npz_open(const char *path);
ARIL_API aril_npz *aril_npz_open_memory(const void *data, size_t size);
ARIL_API void aril_npz_close(aril_npz *f);
/* The number of arrays; the name of the i-th (NULL: there is none); the index of the array with a
 * name (-1: there is none). */
ARIL_API int aril_npz_count(const aril_npz *f);
ARIL_API const char *aril_npz_name(const aril_npz *f, int i);
ARIL_API int aril_npz_find(const aril_npz *f, const char *name);
/* The i-th array, owned by the scope. */
ARIL_API aril_tensor *aril_npz_tensor(aril_npz *f, int i);

/* Writes arrays as numpy.savez does. Without names they are named arr_0, arr_1 ... */
ARIL_API aril_status aril_npz_write(const char *path, const aril_named *tensors);

/* ---- HDF5: read without its library; written if the build found its headers, with the library
 * loaded on first use ---- */

/* Reads an array by name, such as "data" or "group/x": integers and floats; owned by the scope. */
ARIL_API aril_tensor *aril_hdf5_read(const char *path, const char *name);
/* Writes arrays; a '/' in a name creates a group. All dtypes of 8 to 64 bits except bf16, f16 and
 * the 8-bit floats. bool is written as u8. */
ARIL_API aril_status aril_hdf5_write(const char *path, const aril_named *tensors);

ARIL_C_END

#endif
