#include "data/caffe/list.h"

#include "aril/create.h"
#include "aril/device.h"
#include "aril/formats.h"
#include "aril/dtype.h"
#include "aril/scope.h"
#include "aril/view.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/tensor.h"
#include "data/caffe/transform.h"
#include "data/image/resize.h"
#include "formats/bytes.h"
#include "formats/image.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* "path label", where the path may contain spaces; false if it is not. Ends the path with NUL. */
static bool split(char *line, int64_t *label)
{
    char *space = strrchr(line, ' '), *tab = strrchr(line, '\t'), *end;
    if (tab && (!space || tab > space)) space = tab;
    if (!space || space == line) return false;
    errno = 0;
    *label = strtoll(space + 1, &end, 10);
    if (end == space + 1 || *end || errno || *label < INT32_MIN || *label > INT32_MAX) return false;
    while (space > line && (space[-1] == ' ' || space[-1] == '\t')) space--;
    *space = '\0';
    return space > line;
}

static aril_status read_lines(const char *path, char *text, aril__caffe_list *l)
{
    static const char mark[] = "\xef\xbb\xbf"; /* of UTF-8, which some editors write */
    int64_t number = 0, capacity = 0;
    if (strncmp(text, mark, strlen(mark)) == 0) text += strlen(mark);
    for (char *line = text, *next; line; line = next) {
        next = strchr(line, '\n');
        if (next) *next++ = '\0';
        number++;
        size_t n = strlen(line);
        while (n > 0 && (line[n - 1] == '\r' || line[n - 1] == ' ' || line[n - 1] == '\t'))
            line[--n] = '\0';
        if (n == 0) continue;
        if (l->path.n == capacity) {
            capacity = capacity ? 2 * capacity : 1024;
            int64_t *more = aril__realloc(l->label, (size_t)capacity * sizeof *more);
            if (!more) return aril__fail(ARIL_ERR_MEMORY, "out of memory reading %s", path);
            l->label = more;
        }
        if (!split(line, &l->label[l->path.n]))
            return aril__fail(ARIL_ERR_FORMAT,
                              "%s, line %lld: expected a file name, a space and an integer label, "
                              "got '%.80s'",
                              path, (long long)number, line);
        aril_status status = aril__texts_add(&l->path, line);
        if (status != ARIL_OK) return status;
    }
    return l->path.n ? ARIL_OK : aril__fail(ARIL_ERR_FORMAT, "%s lists no images", path);
}

aril_status aril__caffe_list_read(const char *path, const char *folder, const char *root,
                                  aril__caffe_list *l)
{
    *l = (aril__caffe_list){ .folder = aril__strdup(folder),
                             .root = root ? aril__strdup(root) : NULL };
    aril__bytes b = { 0 };
    aril_status status = l->folder && (l->root || !root)
                             ? aril__read_file("image list", path, 0, &b)
                             : aril__fail(ARIL_ERR_MEMORY, "out of memory reading %s", path);
    if (status == ARIL_OK && b.n && memchr(b.at, 0, b.n))
        status = aril__fail(ARIL_ERR_FORMAT, "%s is not a text file", path);
    if (status == ARIL_OK) status = read_lines(path, b.n ? (char *)b.at : (char[]){ 0 }, l);
    aril__bytes_free(&b);
    if (status != ARIL_OK) aril__caffe_list_free(l);
    return status;
}

void aril__caffe_list_free(aril__caffe_list *l)
{
    aril__texts_free(&l->path);
    free(l->label);
    free(l->folder);
    free(l->root);
    *l = (aril__caffe_list){ 0 };
}

aril_tensor *aril__caffe_resize(aril_tensor *x, int64_t height, int64_t width)
{
    if (aril_tensor_status(x) != ARIL_OK || (x->dim[1] == height && x->dim[2] == width)) return x;
    aril_tensor *to = aril_empty(ARIL_SHAPE(x->dim[0], height, width), ARIL_U8, aril_cpu());
    if (aril_tensor_status(to) != ARIL_OK) return to;
    aril__pixels_view v = { .data = aril__ptr(x),
                            .channels = x->dim[0],
                            .height = x->dim[1],
                            .width = x->dim[2],
                            .plane = x->stride[0],
                            .row = x->stride[1],
                            .pixel = x->stride[2] };
    aril__box all = { 0, 0, (double)v.width, (double)v.height };
    aril_status status = aril__resize(&v, all, height, width,
                                      (aril_resize_opts){ .no_antialias = true }, aril__ptr(to));
    return status == ARIL_OK ? to : aril__poison();
}

aril_tensor *aril__caffe_list_image(const aril__caffe_list *l, int64_t i, int channels,
                                    int64_t height, int64_t width)
{
    char *path = aril__caffe_listed_path(l->root, l->folder, l->path.at[i]);
    if (!path) return aril__poison();
    aril_tensor *x = aril_image_read(path, (aril_image_opts){ .channels = channels });
    free(path);
    return height > 0 ? aril__caffe_resize(x, height, width) : x;
}
