/* Writing HDF5 through its C library, loaded with dlopen on first use: it pulls in many other
 * libraries that few programs need. Files are read without it (hdf5/), since it crashes on damaged
 * ones. */
#include "formats/hdf5.h"

#include "aril/device.h"
#include "aril/dtype.h"
#include "aril/formats.h"
#include "aril/create.h"
#include "aril/scope.h"
#include "core/error.h"
#include "core/file.h"
#include "core/memory.h"
#include "core/tensor.h"
#include "formats/array.h"
#include "formats/atomic_file.h"
#include "formats/bytes.h"
#include "formats/hdf5_library.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef ARIL_HAVE_HDF5

/* ---- writing: to memory, which then replaces the file atomically ---- */

/* Creates an array, or with a type of text a string, and writes it. The time is not stored: the
 * same contents make the same file. */
static bool create(hid_t file, const char *name, hid_t type, hid_t space, const void *data)
{
    hid_t links = aril__h5.H5Pcreate_(*aril__h5.H5P_CLS_LINK_CREATE_ID_g_), array = -1,
          how = aril__h5.H5Pcreate_(*aril__h5.H5P_CLS_DATASET_CREATE_ID_g_);
    if (space >= 0 && links >= 0 && how >= 0 &&
        aril__h5.H5Pset_create_intermediate_group_(links, 1) >= 0 &&
        aril__h5.H5Pset_obj_track_times_(how, false) >= 0)
        array = aril__h5.H5Dcreate2_(file, name, type, space, links, how, H5P_DEFAULT);
    bool good = array >= 0 && (!data || aril__h5.H5Dwrite_(array, type, H5S_ALL, H5S_ALL,
                                                           H5P_DEFAULT, data) >= 0);
    if (array >= 0) aril__h5.H5Dclose_(array);
    if (links >= 0) aril__h5.H5Pclose_(links);
    if (how >= 0) aril__h5.H5Pclose_(how);
    return good;
}

static aril_status cannot_create(const char *what, const char *name)
{
    return aril__fail(ARIL_ERR_ARG, "HDF5 cannot create the %s \"%s\": is the name used twice?",
                      what, name);
}

static aril_status write_array(hid_t file, const char *name, aril_tensor *t)
{
    ARIL_SCOPE;
    hid_t type = aril__h5_memory_type(aril_dtype_of(t));
    if (type < 0)
        return aril__fail(ARIL_ERR_DTYPE, "%s: HDF5 has no dtype %s; cast to f32", name,
                          aril_dtype_name(aril_dtype_of(t)));
    const void *data = aril_data(t);
    if (!data && aril_numel(t) > 0) return aril__latest_status();
    aril_shape s = aril_shape_of(t);
    hsize_t dim[ARIL_MAX_DIMS] = { 0 };
    for (int i = 0; i < s.ndim; i++) dim[i] = (hsize_t)s.dim[i];
    hid_t space = aril__h5.H5Screate_simple_(s.ndim, dim, NULL);
    bool good = create(file, name, type, space, aril_numel(t) > 0 ? data : NULL);
    if (space >= 0) aril__h5.H5Sclose_(space);
    return good ? ARIL_OK : cannot_create("array", name);
}

static aril_status write_text(hid_t file, const char *name, const char *text)
{
    hid_t type = aril__h5.H5Tcopy_(*aril__h5.H5T_C_S1_g_),
          space = aril__h5.H5Screate_simple_(0, NULL, NULL);
    bool good = type >= 0 && aril__h5.H5Tset_size_(type, strlen(text) + 1) >= 0 &&
                create(file, name, type, space, text);
    if (space >= 0) aril__h5.H5Sclose_(space);
    if (type >= 0) aril__h5.H5Tclose_(type);
    return good ? ARIL_OK : cannot_create("text", name);
}

static aril_status write_group(hid_t file, const char *name)
{
    hid_t links = aril__h5.H5Pcreate_(*aril__h5.H5P_CLS_LINK_CREATE_ID_g_), group = -1;
    if (links >= 0 && aril__h5.H5Pset_create_intermediate_group_(links, 1) >= 0)
        group = aril__h5.H5Gcreate2_(file, name, links, H5P_DEFAULT, H5P_DEFAULT);
    if (group < 0) group = aril__h5.H5Gopen2_(file, name, H5P_DEFAULT); /* it may exist */
    if (group >= 0) aril__h5.H5Gclose_(group);
    if (links >= 0) aril__h5.H5Pclose_(links);
    return group >= 0 ? ARIL_OK : cannot_create("group", name);
}

static aril_status write_contents(hid_t file, const aril__hdf5_contents *c)
{
    aril_status status = ARIL_OK;
    for (int i = 0; i < c->n_groups && status == ARIL_OK; i++)
        status = write_group(file, c->group[i]);
    for (int i = 0; i < c->n_texts && status == ARIL_OK; i++)
        status = write_text(file, c->text_name[i], c->text[i]);
    for (int i = 0; i < c->arrays.n && status == ARIL_OK; i++) {
        char number[24];
        snprintf(number, sizeof number, "%d", i);
        status = write_array(file, c->arrays.name ? c->arrays.name[i] : number, c->arrays.at[i]);
    }
    return status;
}

static aril_status copy_image(hid_t file, aril__bytes *to)
{
    ssize_t size = aril__h5.H5Fflush_(file, H5F_SCOPE_GLOBAL) >= 0
                       ? aril__h5.H5Fget_file_image_(file, NULL, 0)
                       : -1;
    unsigned char *at = size > 0 ? aril__bytes_add(to, NULL, (size_t)size) : NULL;
    return at && aril__h5.H5Fget_file_image_(file, at, (size_t)size) == size
               ? ARIL_OK
               : aril__fail(ARIL_ERR_MEMORY, "out of memory writing HDF5");
}

aril_status aril__hdf5_image(const aril__hdf5_contents *c, aril__bytes *image)
{
    for (int i = 0; i < c->arrays.n; i++) {
        aril_status status = aril__check_value("aril_hdf5_write", c->arrays.at[i]);
        if (status != ARIL_OK) return status;
    }
    aril_status status = aril__h5_begin();
    if (status != ARIL_OK) return status;
    hid_t access = aril__h5.H5Pcreate_(*aril__h5.H5P_CLS_FILE_ACCESS_ID_g_), file = H5I_INVALID_HID;
    if (access >= 0 && aril__h5.H5Pset_fapl_core_(access, 1 << 16, 0) >= 0)
        file = aril__h5.H5Fcreate_("aril", ARIL__H5_CREATE, H5P_DEFAULT,
                                   access); /* the name is never used */
    status = file < 0 ? aril__fail(ARIL_ERR_MEMORY, "out of memory writing HDF5")
                      : write_contents(file, c);
    if (status == ARIL_OK) status = copy_image(file, image);
    if (file >= 0) aril__h5.H5Fclose_(file);
    if (access >= 0) aril__h5.H5Pclose_(access);
    aril__h5_end();
    return status;
}

#else

static aril_status absent(const char *path)
{
    return aril__fail(
        ARIL_ERR_UNSUPPORTED,
        "%s: Aril was built without HDF5, which writes such files; on Debian: apt-get install "
        "libhdf5-dev, then build again",
        path ? path : "HDF5");
}

aril_status aril__hdf5_image(const aril__hdf5_contents *c, aril__bytes *image)
{
    (void)c, (void)image;
    return absent(NULL);
}

#endif

bool aril__hdf5_is(const char *path)
{
    static const unsigned char mark[8] = "\211HDF\r\n\032\n";
    unsigned char head[sizeof mark];
    struct stat st;
    int fd = aril__open_to_read(path, &st);
    bool is = false;
    for (int64_t at = 0; fd >= 0 && !is && at < st.st_size; at = at ? 2 * at : 512) {
        if (!aril__read_at(fd, head, sizeof head, (uint64_t)at)) break;
        if (at == 0 && memcmp(head, "PK", 2) == 0) break; /* an archive, which may hold one */
        is = memcmp(head, mark, sizeof mark) == 0;
    }
    if (fd >= 0) close(fd);
    return is;
}

aril_status aril__hdf5_write(const char *path, const aril__hdf5_contents *c)
{
    aril__bytes image = { 0 };
    aril_status status = aril__hdf5_image(c, &image);
    if (status == ARIL_OK) status = aril__file_replace(path, image.at, image.n);
    aril__bytes_free(&image);
    return status;
}

aril_status aril_hdf5_write(const char *path, const aril_named *tensors)
{
    if (!path || !*path || !tensors)
        return aril__fail(ARIL_ERR_ARG, "aril_hdf5_write: no %s",
                          tensors ? "file name" : "tensors");
    return aril__hdf5_write(path, &(aril__hdf5_contents){ .arrays = *tensors });
}

aril_status aril__hdf5_shape(const char *path, const char *name, aril_shape *shape)
{
    aril__hdf5 *f = aril__hdf5_open(path);
    *shape = (aril_shape){ 0 };
    if (!f) return aril__latest_status();
    aril_status status = ARIL_OK;
    int i = aril__hdf5_find(f, name);
    if (i == ARIL_ERR_MEMORY)
        status = ARIL_ERR_MEMORY;
    else if (i < 0)
        status = aril__fail(ARIL_ERR_ARG, "%s has no array %s of its own", path, name);
    else
        *shape = aril__hdf5_array_shape(f, i);
    aril__hdf5_close(f);
    return status;
}
