#include "formats/keras.h"

#include "core/error.h"
#include "core/memory.h"
#include "formats/json_tree.h"
#include "formats/mapped_file.h"
#include "formats/zip.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_CONFIG = 1 << 26 };

/* ---- archives ---- */

static int member_of(const aril__zip *z, const char *name)
{
    for (int i = 0; i < z->n; i++)
        if (strcmp(z->member[i].name, name) == 0) return i;
    return -1;
}

static aril_status read_version(aril__keras_file *f, const aril__zip *z)
{
    int at = member_of(z, "metadata.json");
    aril__bytes text = { 0 };
    aril__json_tree tree;
    if (at < 0 || z->member[at].size > MAX_CONFIG) return ARIL_OK;
    aril_status s = aril__zip_read(z, at, &text);
    if (s == ARIL_OK) s = aril__json_parse(&tree, "metadata.json", (char *)text.at, text.n);
    if (s == ARIL_OK) {
        const char *version = aril__json_text(aril__json_get(tree.root, "keras_version"), NULL);
        f->version = version ? aril__strdup(version) : NULL;
        if (version && !f->version)
            s = aril__fail(ARIL_ERR_MEMORY, "out of memory reading %s", z->source.name);
        aril__json_tree_free(&tree);
    }
    aril__bytes_free(&text);
    return s;
}

static aril_status read_config(aril__keras_file *f, const aril__zip *z, const char *path)
{
    int at = member_of(z, "config.json");
    if (at < 0)
        return aril__fail(ARIL_ERR_FORMAT, "%s is a zip archive without config.json: not of Keras",
                          path);
    if (z->member[at].size > MAX_CONFIG)
        return aril__fail(ARIL_ERR_FORMAT, "%s: config.json is larger than %d bytes", path,
                          MAX_CONFIG);
    aril__bytes text = { 0 };
    aril_status s = aril__zip_read(z, at, &text);
    if (s < 0) {
        aril__bytes_free(&text);
        return s;
    }
    f->config = (char *)text.at;
    f->config_size = text.n;
    return ARIL_OK;
}

static aril_status read_weights(aril__keras_file *f, const aril__zip *z, const char *path)
{
    int at = member_of(z, "model.weights.h5");
    if (at < 0)
        return aril__fail(ARIL_ERR_UNSUPPORTED,
                          "%s has no model.weights.h5; sharded and NumPy weights are not supported",
                          path);
    const aril__zip_member *m = &z->member[at];
    const unsigned char *data;
    uint64_t offset = 0;
    aril_status s =
        m->method == 0 ? aril__zip_data(z, at, &offset) : aril__zip_read(z, at, &f->unpacked);
    if (s < 0) return s;
    data = m->method == 0 ? z->source.memory + offset : f->unpacked.at;
    if (m->method == 0 && aril__crc32(0, data, (size_t)m->size) != m->crc)
        return aril__fail(ARIL_ERR_FORMAT, "%s: %s is corrupt: its checksum does not match", path,
                          m->name);
    f->arrays = aril__hdf5_open_memory(data, (size_t)m->size, path);
    return f->arrays ? ARIL_OK : ARIL_ERR_FORMAT;
}

/* The archive is mapped, so that large weights, which are stored, are read where they lie. */
static aril_status open_archive(aril__keras_file *f, const char *path)
{
    aril__zip z;
    aril__source source;
    f->mapped = aril__mapped_open("Keras", path);
    if (!f->mapped) return ARIL_ERR_IO;
    aril_status s = aril__source_named(&source, path, aril__mapped_data(f->mapped),
                                       aril__mapped_size(f->mapped));
    if (s < 0) return s;
    s = aril__zip_open(&z, source);
    if (s < 0) return s;
    s = read_config(f, &z, path);
    if (s == ARIL_OK) s = read_version(f, &z);
    if (s == ARIL_OK) s = read_weights(f, &z, path);
    aril__zip_close(&z);
    return s;
}

/* ---- HDF5 ---- */

static aril_status take_text(const aril__hdf5 *h, const char *group, const char *attribute,
                             char **out)
{
    aril__hdf5_texts t;
    aril_status s = aril__hdf5_attribute(h, group, attribute, &t);
    if (s == ARIL_OK && t.n > 0 && !*out) {
        *out = t.at[0];
        t.at[0] = NULL;
    }
    aril__hdf5_texts_free(&t);
    return s;
}

static aril_status open_arrays(aril__keras_file *f, const char *path)
{
    f->arrays = aril__hdf5_open(path);
    if (!f->arrays) return ARIL_ERR_FORMAT;
    aril_status s = take_text(f->arrays, "/", "model_config", &f->config);
    if (s == ARIL_OK) s = take_text(f->arrays, "/", "keras_version", &f->version);
    if (s == ARIL_OK) s = take_text(f->arrays, "model_weights", "keras_version", &f->version);
    f->config_size = f->config ? strlen(f->config) : 0;
    return s;
}

/* ---- any ---- */

static aril_status open_config(aril__keras_file *f, const char *path)
{
    aril__bytes text = { 0 };
    aril_status s = aril__read_file("Keras", path, MAX_CONFIG, &text);
    if (s < 0) return s;
    f->config = (char *)text.at;
    f->config_size = text.n;
    return ARIL_OK;
}

aril_status aril__keras_open(aril__keras_file *f, const char *path)
{
    *f = (aril__keras_file){ 0 };
    aril__source source;
    unsigned char head[8] = { 0 };
    aril_status s = aril__source_open(&source, "Keras", path);
    if (s < 0) return s;
    size_t n = source.size < sizeof head ? (size_t)source.size : sizeof head;
    s = aril__source_read(&source, 0, head, n);
    aril__source_close(&source);
    if (s == ARIL_OK) {
        if (memcmp(head, "PK\3\4", 4) == 0)
            s = open_archive(f, path);
        else if (aril__hdf5_is(path))
            s = open_arrays(f, path);
        else if (head[0] == '{')
            s = open_config(f, path);
        else
            s = aril__fail(ARIL_ERR_FORMAT,
                           "%s is not a file of Keras: neither a .keras archive nor HDF5 nor JSON",
                           path);
    }
    if (s < 0) aril__keras_close(f);
    return s;
}

void aril__keras_close(aril__keras_file *f)
{
    aril__hdf5_close(f->arrays);
    aril__bytes_free(&f->unpacked);
    aril__mapped_close(f->mapped);
    free(f->config);
    free(f->version);
    *f = (aril__keras_file){ 0 };
}
