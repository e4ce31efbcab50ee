/* JPEG through libjpeg-turbo, or another libjpeg. If only a region or a smaller version of an image
 * is needed, only that is decoded. */
#include "formats/image.h"

#include "aril/device.h"
#include "aril/create.h"
#include "aril/view.h"
#include "core/tensor.h"

#include <stdlib.h>
#include <string.h>

bool aril__is_jpeg(const unsigned char *data, size_t size)
{
    return size >= 3 && memcmp(data, "\xff\xd8\xff", 3) == 0;
}

#ifdef ARIL_HAVE_JPEG

#include <jpeglib.h>
#include <jerror.h>
#include <setjmp.h>

struct failure {
    struct jpeg_error_mgr base; /* must be first: libjpeg only knows this part */
    jmp_buf wrong;
    char message[JMSG_LENGTH_MAX];
};

static void on_error(j_common_ptr c)
{
    struct failure *f = (struct failure *)c->err;
    f->base.format_message(c, f->message);
    longjmp(f->wrong, 1);
}

/* Treat these warnings as errors: libjpeg would fill missing data with gray. */
static void on_message(j_common_ptr c, int level)
{
    if (level >= 0) return;
    int code = c->err->msg_code;
    if (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER || code == JWRN_HUFF_BAD_CODE ||
        code == JWRN_ARITH_BAD_CODE || code == JWRN_NOT_SEQUENTIAL)
        on_error(c);
}

/* Each scan of a progressive file covers the whole image but may take only a few bytes: a small
 * file could hold thousands. Encoders write about ten. */
static void count_scans(j_common_ptr c)
{
    enum { MAX_SCANS = 100 };
    if (((j_decompress_ptr)c)->input_scan_number <= MAX_SCANS) return;
    struct failure *f = (struct failure *)c->err;
    snprintf(f->message, sizeof f->message, "it has more than %d scans", MAX_SCANS);
    longjmp(f->wrong, 1);
}

static struct jpeg_error_mgr *handle_errors(struct failure *f)
{
    jpeg_std_error(&f->base);
    f->base.error_exit = on_error;
    f->base.emit_message = on_message;
    return &f->base;
}

/* ---- orientation: EXIF's tag 0x0112, 1 to 8 ---- */

static unsigned number16(const unsigned char *p, bool big)
{
    return big ? aril__be16(p) : aril__le16(p);
}

static uint32_t number32(const unsigned char *p, bool big)
{
    return big ? aril__be32(p) : aril__le32(p);
}

static int orientation(const struct jpeg_decompress_struct *c)
{
    for (jpeg_saved_marker_ptr m = c->marker_list; m; m = m->next) {
        const unsigned char *p = m->data;
        size_t n = m->data_length;
        if (m->marker != JPEG_APP0 + 1 || n < 14 || memcmp(p, "Exif\0", 6) != 0) continue;
        p += 6;
        n -= 6;
        bool big = p[0] == 'M';
        size_t at = number32(p + 4, big);
        if (at > n || n - at < 2) return 1;
        unsigned entries = number16(p + at, big);
        for (at += 2; entries > 0 && n - at >= 12; entries--, at += 12) {
            if (number16(p + at, big) != 0x0112) continue;
            unsigned value = number16(p + at + 8, big);
            return value >= 1 && value <= 8 ? (int)value : 1;
        }
        return 1;
    }
    return 1;
}

/* Applies the orientation to [H,W,C]: a view, copied if needed. */
static aril_tensor *upright(aril_tensor *x, int how)
{
    if (how == 1) return x;
    if (how >= 5) x = aril_transpose(x, 0, 1);
    bool rows = how == 3 || how == 4 || how == 7 || how == 8;
    bool columns = how == 2 || how == 3 || how == 6 || how == 7;
    if (rows) x = aril_flip(x, ARIL_AXES(0));
    if (columns) x = aril_flip(x, ARIL_AXES(1));
    return aril_contiguous(x);
}

/* ---- reading ---- */

struct plan {
    int how;                     /* orientation */
    int64_t x, y, width, height; /* region of the scaled image to keep */
    bool cmyk;
};

/* The largest of 1, 2, 4, 8 that divides `have` with at least `least` left. */
static int divisor(int64_t have, int64_t min)
{
    int by = 1;
    while (by < 8 && min > 0 && have / (by * 2) >= min) by *= 2;
    return by;
}

/* Reads the header and decides what to decode. False, with an error, if it is too large. */
static bool prepare(struct jpeg_decompress_struct *c, size_t size, aril__image_want *want,
                    struct plan *plan)
{
    jpeg_save_markers(c, JPEG_APP0 + 1, 0xffff);
    jpeg_read_header(c, TRUE);
    if (!aril__image_fits(want->name, c->image_width, c->image_height, 3, size, 4096)) return false;
    plan->how = want->opts.as_stored ? 1 : orientation(c);
    bool swapped = plan->how >= 5;
    int64_t width = swapped ? c->image_height : c->image_width;
    int64_t height = swapped ? c->image_width : c->image_height;

    aril__region region = { 0, 0, width, height, want->opts.min_width, want->opts.min_height };
    bool part = want->region && want->region(want->ctx, width, height, &region);
    if (want->region && !part) region.to_width = region.to_height = 0;
    int by_x = divisor(region.width, region.to_width),
        by_y = divisor(region.height, region.to_height);
    if (region.to_width <= 0) by_x = region.to_height > 0 ? 8 : 1;
    if (region.to_height <= 0) by_y = region.to_width > 0 ? 8 : 1;
    c->scale_num = 1;
    c->scale_denom = (unsigned)(by_x < by_y ? by_x : by_y);
    /* After rotation, a partial last column would come first. */
    if (part && plan->how != 1) c->scale_denom = 1;

    plan->cmyk = c->jpeg_color_space == JCS_CMYK || c->jpeg_color_space == JCS_YCCK;
    if (plan->cmyk)
        c->out_color_space = JCS_CMYK;
    else if (want->opts.channels == 1 || want->opts.channels == 2 ||
             (want->opts.channels == 0 && c->jpeg_color_space == JCS_GRAYSCALE))
        c->out_color_space = JCS_GRAYSCALE;
    else
        c->out_color_space = JCS_RGB;
    jpeg_calc_output_dimensions(c);
    plan->width = c->output_width;
    plan->height = c->output_height;
    /* Use the exact scale: the last column and row may cover fewer pixels than the others. */
    double scale = 1.0 / c->scale_denom;
    if (part && plan->how == 1) { /* one more pixel on each side, for rounding */
        int64_t left = (int64_t)((double)region.x * scale) - 1,
                top = (int64_t)((double)region.y * scale) - 1;
        int64_t right = (int64_t)((double)(region.x + region.width) * scale) + 2;
        int64_t bottom = (int64_t)((double)(region.y + region.height) * scale) + 2;
        plan->x = left < 0 ? 0 : left;
        plan->y = top < 0 ? 0 : top;
        plan->width = (right < plan->width ? right : plan->width) - plan->x;
        plan->height = (bottom < plan->height ? bottom : plan->height) - plan->y;
    }
    want->decoded = (aril__decoded){ scale, scale, plan->x, plan->y };
    return true;
}

/* Cropping starts at block boundaries, and edge columns are interpolated without their neighbours:
 * decode a margin around the kept columns. Returns how many decoded columns precede them. */
static JDIMENSION crop_columns(struct jpeg_decompress_struct *c, const struct plan *plan)
{
#ifdef LIBJPEG_TURBO_VERSION
    enum { MARGIN = 16 };
    if (plan->width + 2 * MARGIN < (int64_t)c->output_width) {
        int64_t from = plan->x > MARGIN ? plan->x - MARGIN : 0, to = plan->x + plan->width + MARGIN;
        if (to > (int64_t)c->output_width) to = c->output_width;
        JDIMENSION offset = (JDIMENSION)from, width = (JDIMENSION)(to - from);
        jpeg_crop_scanline(c, &offset, &width);
        return (JDIMENSION)plan->x - offset;
    }
#endif
    return (JDIMENSION)plan->x;
}

static void cmyk_row(const unsigned char *in, unsigned char *out, int64_t n, bool adobe)
{
    for (int64_t i = 0; i < n; i++, in += 4, out += 3)
        for (int k = 0; k < 3; k++) {
            unsigned ink = adobe ? in[k] : 255u - in[k], black = adobe ? in[3] : 255u - in[3];
            out[k] = (unsigned char)((ink * black + 127) / 255);
        }
}

/* Decodes into `to`. Calls longjmp on an error. */
static void decode(struct jpeg_decompress_struct *c, const struct plan *plan, unsigned char *to,
                   int channels, JSAMPARRAY row)
{
    JDIMENSION before = crop_columns(c, plan);
    size_t bytes = (size_t)plan->width * (size_t)channels;
    bool direct = before == 0 && c->output_width == (JDIMENSION)plan->width && !plan->cmyk;
    JDIMENSION first = (JDIMENSION)plan->y, end = (JDIMENSION)(plan->y + plan->height);
#ifdef LIBJPEG_TURBO_VERSION
    if (first > 0) jpeg_skip_scanlines(c, first);
#endif
    while (c->output_scanline < end) {
        JDIMENSION y = c->output_scanline;
        JSAMPROW line = y >= first && direct ? to + (size_t)(y - first) * bytes : row[0];
        jpeg_read_scanlines(c, &line, 1);
        if (y < first || direct) continue;
        const unsigned char *in = row[0] + (size_t)before * (size_t)c->output_components;
        unsigned char *out = to + (size_t)(y - first) * bytes;
        if (plan->cmyk)
            cmyk_row(in, out, plan->width, c->saw_Adobe_marker);
        else
            memcpy(out, in, bytes);
    }
}

/* Reader state that survives a longjmp. */
struct reading {
    struct jpeg_decompress_struct c;
    struct failure failure;
    struct jpeg_progress_mgr progress;
    struct plan plan;
    aril_tensor *result;
};

static bool read_image(struct reading *r, const unsigned char *data, size_t size,
                       aril__image_want *want)
{
    jpeg_create_decompress(&r->c);
    r->c.mem->max_memory_to_use = 1 << 30;
    r->progress.progress_monitor = count_scans;
    r->c.progress = &r->progress;
    jpeg_mem_src(&r->c, data, (unsigned long)size);
    if (!prepare(&r->c, size, want, &r->plan)) return false;
    jpeg_start_decompress(&r->c);
    int channels = r->plan.cmyk ? 3 : r->c.output_components;
    r->result =
        aril_empty(ARIL_SHAPE(r->plan.height, r->plan.width, channels), ARIL_U8, aril_cpu());
    if (aril_tensor_status(r->result) != ARIL_OK) return false;
    JSAMPARRAY row =
        r->c.mem->alloc_sarray((j_common_ptr)&r->c, JPOOL_IMAGE,
                               r->c.output_width * (JDIMENSION)r->c.output_components, 1);
    decode(&r->c, &r->plan, aril__ptr(r->result), channels, row);
    if (r->c.output_scanline == r->c.output_height) jpeg_finish_decompress(&r->c);
    return true;
}

/* False, with an error, on failure. State that changes before a longjmp belongs to the caller. */
static bool read_guarded(struct reading *r, const unsigned char *data, size_t size,
                         aril__image_want *want)
{
    if (setjmp(r->failure.wrong) == 0) return read_image(r, data, size, want);
    aril__fail(r->failure.base.msg_code == JERR_OUT_OF_MEMORY ? ARIL_ERR_MEMORY : ARIL_ERR_FORMAT,
               "%s is not a valid JPEG file: %s", want->name, r->failure.message);
    return false;
}

aril_tensor *aril__jpeg_decode(const unsigned char *data, size_t size, aril__image_want *want)
{
    struct reading r = { .result = NULL };
    r.c.err = handle_errors(&r.failure);
    bool good = read_guarded(&r, data, size, want);
    jpeg_destroy_decompress(&r.c);
    if (good) return upright(r.result, r.plan.how);
    if (r.result) aril_drop(r.result);
    return aril__poison();
}

/* ---- writing ---- */

struct writing {
    struct jpeg_compress_struct c;
    struct failure failure;
    struct jpeg_destination_mgr to;
    aril__bytes *out;
    unsigned char buffer[1 << 14];
};

static void begin_output(j_compress_ptr c)
{
    struct writing *w = (struct writing *)c;
    w->to.next_output_byte = w->buffer;
    w->to.free_in_buffer = sizeof w->buffer;
}

static boolean flush_output(j_compress_ptr c)
{
    struct writing *w = (struct writing *)c;
    aril__bytes_add(w->out, w->buffer, sizeof w->buffer);
    begin_output(c);
    return TRUE;
}

static void end_output(j_compress_ptr c)
{
    struct writing *w = (struct writing *)c;
    aril__bytes_add(w->out, w->buffer, sizeof w->buffer - w->to.free_in_buffer);
}

static void write_image(struct writing *w, const aril__pixels *p, int quality)
{
    jpeg_create_compress(&w->c);
    w->to = (struct jpeg_destination_mgr){ .init_destination = begin_output,
                                           .empty_output_buffer = flush_output,
                                           .term_destination = end_output };
    w->c.dest = &w->to;
    w->c.image_width = (JDIMENSION)p->width;
    w->c.image_height = (JDIMENSION)p->height;
    w->c.input_components = p->channels;
    w->c.in_color_space = p->channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_set_defaults(&w->c);
    jpeg_set_quality(&w->c, quality, TRUE);
    jpeg_start_compress(&w->c, TRUE);
    while (w->c.next_scanline < w->c.image_height) {
        size_t at = (size_t)w->c.next_scanline * (size_t)p->width * (size_t)p->channels;
        JSAMPROW row = p->at + at;
        jpeg_write_scanlines(&w->c, &row, 1);
    }
    jpeg_finish_compress(&w->c);
}

static aril_status write_guarded(struct writing *w, const aril__pixels *p, int quality)
{
    if (setjmp(w->failure.wrong) != 0)
        return aril__fail(ARIL_ERR_INTERNAL, "libjpeg: %s", w->failure.message);
    write_image(w, p, quality);
    if (!w->out->failed) return ARIL_OK;
    return aril__fail(ARIL_ERR_MEMORY, "out of memory writing an image as JPEG");
}

aril_status aril__jpeg_encode(const aril__pixels *p, int quality, aril__bytes *out)
{
    if ((p->channels != 1 && p->channels != 3) || p->width < 1 || p->height < 1 ||
        p->width > 65500 || p->height > 65500)
        return aril__fail(ARIL_ERR_SHAPE,
                          "JPEG cannot store an image of %d channels, %lld x %lld; expected 1 or 3 "
                          "channels and at most 65500 x 65500 pixels",
                          p->channels, (long long)p->width, (long long)p->height);
    struct writing *w = aril__calloc(sizeof *w);
    if (!w) return aril__fail(ARIL_ERR_MEMORY, "out of memory writing an image as JPEG");
    w->out = out;
    w->c.err = handle_errors(&w->failure);
    aril_status status = write_guarded(w, p, quality);
    jpeg_destroy_compress(&w->c);
    free(w);
    return status;
}

#else

static aril_status absent(const char *what)
{
    return aril__fail(ARIL_ERR_UNSUPPORTED,
                      "%s, and Aril was built without libjpeg; on Debian: apt-get install "
                      "libjpeg-dev, then build again",
                      what);
}

aril_tensor *aril__jpeg_decode(const unsigned char *data, size_t size, aril__image_want *want)
{
    (void)data, (void)size;
    char what[512];
    snprintf(what, sizeof what, "%s is a JPEG file", want->name);
    absent(what);
    return aril__poison();
}

aril_status aril__jpeg_encode(const aril__pixels *p, int quality, aril__bytes *out)
{
    (void)out, (void)p, (void)quality;
    return absent("an image was to be written as JPEG");
}

#endif
