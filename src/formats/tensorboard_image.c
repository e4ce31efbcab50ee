/* Images and embeddings for TensorBoard. */
#include "aril/device.h"
#include "aril/create.h"
#include "aril/index.h"
#include "aril/view.h"
#include "aril/scope.h"
#include "core/error.h"
#include "core/memory.h"
#include "formats/atomic_file.h"
#include "formats/bytes.h"
#include "formats/image_of.h"
#include "formats/png_write.h"
#include "formats/schemas.h"
#include "formats/tensorboard.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static aril_status encode(const char *what, aril_tensor *image, int columns, aril__pixels *pixels,
                          aril__bytes *png)
{
    aril_status s = aril__pixels_of(what, image, columns, pixels);
    if (s == ARIL_OK)
        s = aril__png_encode(what, pixels->at, pixels->width, pixels->height, pixels->channels,
                             pixels->width * pixels->channels, png);
    free(pixels->at);
    pixels->at = NULL;
    return s;
}

aril_status aril_tensorboard_image(aril_tensorboard *tb, const char *tag, aril_tensor *image,
                                   int64_t step)
{
    static const char what[] = "tensorboard_image";
    aril__pixels pixels = { 0 };
    aril__bytes png = { 0 };
    aril__message *v;
    aril_status s = encode(what, image, 0, &pixels, &png);
    if (s == ARIL_OK && !aril__tb_begin(tb, what, tag, step, &v)) s = aril_error_code();
    if (s == ARIL_OK) {
        aril__message *field = aril__message_set_sub(v, "image");
        aril__message_set_int(field, "height", pixels.height);
        aril__message_set_int(field, "width", pixels.width);
        aril__message_set_int(field, "colorspace", pixels.channels);
        aril__message_refer_bytes(field, "encoded_image_string", png.at, png.n);
        s = aril__tb_end(tb, what);
        aril__message_reset(tb->event); /* which refers to the image */
    }
    aril__bytes_free(&png);
    return s;
}

/* ---- the projector ---- */

/* Makes a file name from a tag: anything but a letter or digit becomes _. */
static void file_name(const char *tag, char *to, size_t size)
{
    size_t n = 0;
    for (; tag[n] && n + 1 < size; n++) {
        char c = tag[n];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        to[n] = plain ? c : '_';
    }
    to[n] = '\0';
}

static void points_text(aril__bytes *b, const double *x, int64_t n, int64_t d)
{
    for (int64_t i = 0; i < n * d; i++)
        aril__bytes_print(b, "%.7g%c", x[i], (i + 1) % d == 0 ? '\n' : '\t');
}

static void labels_text(aril__bytes *b, const char *const *labels, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        for (const char *p = labels[i] ? labels[i] : ""; *p; p++)
            aril__bytes_print(b, "%c", *p == '\t' || *p == '\n' || *p == '\r' ? ' ' : *p);
        aril__bytes_print(b, "\n");
    }
}

/* Writes the text to a file and clears it. */
static aril_status save(aril_tensorboard *tb, const char *folder, const char *name, aril__bytes *b)
{
    char path[4096];
    aril_status s = ARIL_OK;
    int length =
        snprintf(path, sizeof path, "%s/%s%s%s", tb->folder, folder, *folder ? "/" : "", name);
    if (b->failed)
        s = aril__fail(ARIL_ERR_MEMORY, "tensorboard_embedding: out of memory for %s", name);
    else if (length >= (int)sizeof path)
        s = aril__fail(ARIL_ERR_ARG, "tensorboard_embedding: the path %s is too long", path);
    else
        s = aril__file_replace(path, b->at, b->n);
    b->n = 0;
    return s;
}

/* The projector's configuration lists all embeddings of the folder, so it is rewritten for each. */
static aril_status save_config(aril_tensorboard *tb)
{
    aril__bytes b = { 0 };
    aril_status s = aril__message_print(tb->projector, &b);
    if (s == ARIL_OK) s = save(tb, "", "projector_config.pbtxt", &b);
    aril__bytes_free(&b);
    return s;
}

/* Adds an embedding, whose files are in a folder, to the configuration. */
static aril_status add_to_config(aril_tensorboard *tb, const char *tag, const char *folder,
                                 const aril_tensorboard_embedding_opts *opts)
{
    char path[256];
    if (!tb->projector) tb->projector = aril__message_new(&aril__tensorboard_ProjectorConfig);
    if (!tb->projector) return aril_error_code();
    aril__message *info = aril__message_add_sub(tb->projector, "embeddings");
    aril__message_set_text(info, "tensor_name", tag);
    snprintf(path, sizeof path, "%s/tensors.tsv", folder);
    aril__message_set_text(info, "tensor_path", path);
    snprintf(path, sizeof path, "%s/metadata.tsv", folder);
    if (opts->labels) aril__message_set_text(info, "metadata_path", path);
    if (opts->images) {
        aril__message *sprite = aril__message_set_sub(info, "sprite");
        snprintf(path, sizeof path, "%s/sprite.png", folder);
        aril__message_set_text(sprite, "image_path", path);
        for (int d = 3; d >= 2; d--)
            aril__message_add_int(sprite, "single_image_dim", aril_size(opts->images, d));
    }
    return save_config(tb);
}

/* Saves a sprite image as the projector expects it: as many columns as rows, without gaps. */
static aril_status save_sprite(aril_tensorboard *tb, const char *folder, aril_tensor *images)
{
    static const char what[] = "tensorboard_embedding";
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    int64_t n = aril_size(images, 0), side = 1;
    while (side * side < n) side++;
    if (side * side > n) {
        aril_shape rest = aril_shape_of(images);
        rest.dim[0] = side * side - n;
        aril_tensor *empty = aril_ones(rest, aril_dtype_of(images), aril_device_of(images));
        images = aril_cat(ARIL_LIST(images, empty), 0);
    }
    /* [s,s,C,h,w] -> [C,s,h,s,w] -> [C,s*h,s*w] */
    int64_t c = aril_size(images, 1), h = aril_size(images, 2), w = aril_size(images, 3);
    aril_tensor *grid = aril_reshape(images, ARIL_SHAPE(side, side, c, h, w));
    grid = aril_reshape(aril_permute(grid, ARIL_AXES(2, 0, 3, 1, 4)),
                        ARIL_SHAPE(c, side * h, side * w));
    aril__pixels pixels = { 0 };
    aril__bytes png = { 0 };
    aril_status s = encode(what, grid, 0, &pixels, &png);
    if (s == ARIL_OK) s = save(tb, folder, "sprite.png", &png);
    aril__bytes_free(&png);
    return s;
}

aril_status aril_tensorboard_embedding(aril_tensorboard *tb, const char *tag, aril_tensor *points,
                                       aril_tensorboard_embedding_opts opts)
{
    static const char what[] = "tensorboard_embedding";
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    if (!tb || !tag || !*tag || !points)
        return aril__fail(ARIL_ERR_ARG, "%s: expected a log, a tag and points, got NULL", what);
    if (aril_tensor_status(points) == ARIL_OK && aril_ndim(points) != 2)
        return aril__fail(ARIL_ERR_SHAPE, "%s: expected points [N,D], got %d dimensions", what,
                          aril_ndim(points));
    aril_tensor *x = aril_to(aril_cast(points, ARIL_F64), aril_cpu());
    int64_t n = aril_size(x, 0), d = aril_size(x, 1);
    if (aril_ndim(x) != 2 || n < 1 || d < 1)
        return aril__fail(ARIL_ERR_SHAPE, "%s: expected at least one point [N,D]", what);
    if (opts.images && (aril_ndim(opts.images) != 4 || aril_size(opts.images, 0) != n))
        return aril__fail(ARIL_ERR_SHAPE, "%s: %" PRId64 " points need as many images [N,C,H,W]",
                          what, n);
    const double *data = aril_data(x);
    if (!data) return aril_error_code();
    char folder[128], path[4352];
    file_name(tag, folder, sizeof folder);
    snprintf(path, sizeof path, "%s/%s", tb->folder, folder);
    aril_status s = aril__folder_create(what, path);
    if (s != ARIL_OK) return s;
    aril__bytes b = { 0 };
    points_text(&b, data, n, d);
    s = save(tb, folder, "tensors.tsv", &b);
    if (s == ARIL_OK && opts.labels) {
        labels_text(&b, opts.labels, n);
        s = save(tb, folder, "metadata.tsv", &b);
    }
    if (s == ARIL_OK && opts.images) s = save_sprite(tb, folder, opts.images);
    if (s == ARIL_OK) s = add_to_config(tb, tag, folder, &opts);
    aril__bytes_free(&b);
    return s;
}
