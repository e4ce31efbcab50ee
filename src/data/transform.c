#include "data/transform.h"

#include "aril/scope.h"
#include "aril/create.h"
#include "core/memory.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const char *const filter_names[] = { "bilinear", "nearest", "bicubic" };
enum { FILTERS = 3 };

/* ---- creation ---- */

aril_transform *aril__transform_new(const aril__transform_kind *kind)
{
    aril_transform *t = aril__calloc(sizeof *t);
    if (!t) {
        aril__fail(ARIL_ERR_MEMORY, "transform: out of memory");
        return NULL;
    }
    t->kind = kind;
    for (int k = 0; kind && k < ARIL__SETTINGS && kind->setting[k].name; k++)
        memcpy(t->value[k].v, kind->setting[k].start, sizeof kind->setting[k].start);
    return t;
}

static aril_status check_setting(const aril_transform *t, int k)
{
    const aril__setting *s = &t->kind->setting[k];
    const aril__value *v = &t->value[k];
    if (!v->n) {
        if (!s->required) return ARIL_OK;
        return aril__fail(ARIL_ERR_ARG, "%s: missing %s (%s=...)", t->kind->name, s->name,
                          t->kind->name);
    }
    for (int i = 0; i < v->n; i++) {
        bool integral = s->type == ARIL__SET_INTEGER || s->type == ARIL__SET_SIZE;
        if (!(v->v[i] >= s->low && v->v[i] <= s->high) || (integral && v->v[i] != floor(v->v[i])))
            return aril__fail(ARIL_ERR_ARG, "%s: %s is %g; expected %s from %g to %g",
                              t->kind->name, s->name, v->v[i], integral ? "an integer" : "a number",
                              s->low, s->high);
    }
    if (s->type == ARIL__SET_PAIR && (v->n != 2 || v->v[0] > v->v[1]))
        return aril__fail(ARIL_ERR_ARG,
                          "%s: expected the smallest and the largest %s, such as %g/%g, got %g/%g",
                          t->kind->name, s->name, s->start[0], s->start[1], v->v[0], v->v[1]);
    return ARIL_OK;
}

aril_transform *aril__transform_checked(aril_transform *t)
{
    if (!t) return NULL;
    aril_status status = ARIL_OK;
    for (int k = 0; k < ARIL__SETTINGS && t->kind->setting[k].name && status >= 0; k++)
        status = check_setting(t, k);
    if (status >= 0 && t->kind->check) status = t->kind->check(t);
    if (status >= 0) return t;
    aril_transform_free(t);
    return NULL;
}

void aril_transform_free(aril_transform *t)
{
    if (!t) return;
    if (t->drop) t->drop(t->ctx);
    for (int i = 0; i < t->n; i++) aril_transform_free(t->list[i]);
    free(t->list);
    free(t);
}

/* Appends t, or the elements of a list, to `to`. Takes over t. */
static bool append(aril_transform *to, aril_transform *t)
{
    int more = t->kind ? 1 : t->n;
    aril_transform **list =
        aril__realloc(to->list, (size_t)(to->n + more + 1) * sizeof(aril_transform *));
    if (!list) {
        aril__fail(ARIL_ERR_MEMORY, "transform: out of memory");
        aril_transform_free(t);
        return false;
    }
    to->list = list;
    if (t->kind) {
        list[to->n++] = t;
    } else {
        for (int i = 0; i < t->n; i++) list[to->n++] = t->list[i];
        t->n = 0;
        aril_transform_free(t);
    }
    return true;
}

aril_transform *aril_transform_list(int n, aril_transform *const *list)
{
    aril_transform *all = NULL;
    bool ok = n >= 0 && (list || !n);
    for (int i = 0; i < n && ok; i++) {
        ok = list[i] != NULL;
        if (!ok)
            aril__fail(
                ARIL_ERR_ARG,
                "transform_list: transform %d is NULL: it could not be created, or is missing", i);
    }
    ok = ok && (all = aril__transform_new(NULL));
    for (int i = 0; i < n && list; i++) {
        if (!ok)
            aril_transform_free(list[i]);
        else
            ok = append(all, list[i]);
    }
    if (ok) return all;
    aril_transform_free(all);
    return NULL;
}

static aril_status function_sample(const aril_transform *t, aril__change *w)
{
    w->mine = false;
    return t->fn(w->s, t->ctx);
}

const aril__transform_kind aril__kind_function = { .name = "function",
                                                   .doc = "a function of the program",
                                                   .sample = function_sample };

aril_transform *aril_transform_function(aril_map_fn *fn, void *ctx, void (*drop)(void *ctx))
{
    aril_transform *t = NULL;
    if (!fn)
        aril__fail(ARIL_ERR_ARG, "transform_function: the function is NULL");
    else
        t = aril__transform_new(&aril__kind_function);
    if (!t) {
        if (drop) drop(ctx);
        return NULL;
    }
    t->fn = fn;
    t->ctx = ctx;
    t->drop = drop;
    return t;
}

/* ---- parsing ---- */

static const aril__transform_kind *const kinds[] = {
    &aril__kind_resize,        &aril__kind_center_crop, &aril__kind_crop,
    &aril__kind_resized_crop,  &aril__kind_pad,         &aril__kind_flip,
    &aril__kind_flip_vertical, &aril__kind_rotate,      &aril__kind_jitter,
    &aril__kind_grayscale,     &aril__kind_to_float,    &aril__kind_normalize,
    &aril__kind_erase,         &aril__kind_cutout,      &aril__kind_one_hot,
    &aril__kind_mixup,         &aril__kind_cutmix,
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static const aril__transform_kind *find_kind(const char *name, size_t n)
{
    const char *names[KINDS];
    for (int i = 0; i < KINDS; i++) {
        names[i] = kinds[i]->name;
        if (strlen(names[i]) == n && !strncmp(names[i], name, n)) return kinds[i];
    }
    char word[64], all[512];
    snprintf(word, sizeof word, "%.*s", (int)n, name);
    const char *near = aril_nearest(word, names, KINDS);
    size_t at = 0;
    for (int i = 0; i < KINDS; i++)
        at += (size_t)snprintf(all + at, sizeof all - at, "%s%s", i ? ", " : "", kinds[i]->name);
    if (near)
        aril__fail(ARIL_ERR_ARG, "no transform '%.*s'; did you mean %s?", (int)n, name, near);
    else
        aril__fail(ARIL_ERR_ARG, "no transform '%.*s'; known transforms: %s", (int)n, name, all);
    return NULL;
}

/* Parses the numbers in text[0 .. n - 1]. */
static aril_status parse_value(const aril__transform_kind *kind, const aril__setting *s,
                               const char *text, size_t n, aril__value *out)
{
    if (s->type == ARIL__SET_FILTER)
        for (int i = 0; i < FILTERS; i++)
            if (strlen(filter_names[i]) == n && !strncmp(filter_names[i], text, n)) {
                out->n = 1;
                out->v[0] = i;
                return ARIL_OK;
            }
    char part[64], mark = s->type == ARIL__SET_SIZE ? 'x' : '/';
    int max = s->type == ARIL__SET_LIST                                ? ARIL__SETTING_NUMBERS
              : s->type == ARIL__SET_SIZE || s->type == ARIL__SET_PAIR ? 2
                                                                       : 1;
    aril__value v = { .n = 0 };
    const char *end = text + n;
    bool good = n > 0 && s->type != ARIL__SET_FILTER;
    while (good) {
        const char *stop = memchr(text, mark, (size_t)(end - text));
        size_t length = (size_t)((stop ? stop : end) - text);
        good = length > 0 && length < sizeof part && v.n < max;
        if (!good) break;
        memcpy(part, text, length);
        part[length] = 0;
        char *rest;
        v.v[v.n++] = strtod(part, &rest);
        good = !*rest;
        if (!stop) break;
        text = stop + 1;
    }
    if (!good)
        return aril__fail(ARIL_ERR_ARG, "%s: %s is '%.*s'; expected %s", kind->name, s->name,
                          (int)n, end - n,
                          s->type == ARIL__SET_FILTER ? "bilinear, nearest or bicubic"
                          : s->type == ARIL__SET_SIZE ? "a size such as 224 or 224x192"
                          : s->type == ARIL__SET_PAIR ? "two numbers such as 0.5/1"
                          : s->type == ARIL__SET_LIST ? "up to four numbers such as 0.5/0.4/0.4"
                                                      : "a number");
    *out = v;
    return ARIL_OK;
}

/* Parses one transform such as "crop=28:pad=4" in text[0 .. n - 1]. */
static aril_transform *parse_one(const char *text, size_t n)
{
    const char *end = text + n, *equals = memchr(text, '=', n);
    const aril__transform_kind *kind = find_kind(text, equals ? (size_t)(equals - text) : n);
    aril_transform *t = kind ? aril__transform_new(kind) : NULL;
    int position = 0;
    bool named = false, ok = t != NULL;
    for (const char *p = equals ? equals + 1 : end; ok && equals && p <= end;) {
        const char *stop = memchr(p, ':', (size_t)(end - p));
        if (!stop) stop = end;
        const char *is = memchr(p, '=', (size_t)(stop - p));
        int k = is ? 0 : position++;
        if (is) {
            size_t length = (size_t)(is - p);
            while (k < ARIL__SETTINGS && kind->setting[k].name &&
                   (strlen(kind->setting[k].name) != length ||
                    strncmp(kind->setting[k].name, p, length)))
                k++;
        }
        if (k >= ARIL__SETTINGS || !kind->setting[k].name) {
            char all[256] = "none";
            size_t at = 0;
            for (int i = 0; i < ARIL__SETTINGS && kind->setting[i].name; i++)
                at += (size_t)snprintf(all + at, sizeof all - at, "%s%s", i ? ", " : "",
                                       kind->setting[i].name);
            aril__fail(ARIL_ERR_ARG, "%s has no option '%.*s'; it has %s", kind->name,
                       (int)((is ? is : stop) - p), p, all);
            ok = false;
        } else if (!is && named) {
            aril__fail(ARIL_ERR_ARG, "%s: '%.*s' follows named options: name it, too", kind->name,
                       (int)(stop - p), p);
            ok = false;
        } else {
            const char *value = is ? is + 1 : p;
            ok = parse_value(kind, &kind->setting[k], value, (size_t)(stop - value),
                             &t->value[k]) >= 0;
        }
        named |= is != NULL;
        p = stop + 1;
    }
    if (ok) return aril__transform_checked(t);
    aril_transform_free(t);
    return NULL;
}

aril_transform *aril_transform_parse(const char *text)
{
    if (!text) {
        aril__fail(ARIL_ERR_ARG, "transform_parse: the text is NULL");
        return NULL;
    }
    aril_transform *all = aril__transform_new(NULL);
    for (const char *p = text; all && *text;) {
        size_t n = strcspn(p, ",");
        size_t left = strspn(p, " "), length = n;
        while (length > left && p[length - 1] == ' ') length--;
        aril_transform *one = NULL;
        if (length == left)
            aril__fail(ARIL_ERR_ARG, "an empty transform between commas in '%s'", text);
        else
            one = parse_one(p + left, length - left);
        if (!one || !append(all, one)) {
            aril_transform_free(all);
            return NULL;
        }
        if (!p[n]) break;
        p += n + 1;
    }
    return all;
}

void aril_transform_help(FILE *to)
{
    if (!to) {
        aril__fail(ARIL_ERR_ARG, "transform_help: the file is NULL");
        return;
    }
    enum { COLUMN = 42 };
    for (int i = 0; i < KINDS; i++) {
        char line[160];
        size_t at = (size_t)snprintf(line, sizeof line, "%s", kinds[i]->name);
        for (int k = 0; k < ARIL__SETTINGS && kinds[i]->setting[k].name; k++)
            at += (size_t)snprintf(line + at, sizeof line - at, "%c%s", k ? ':' : '=',
                                   kinds[i]->setting[k].name);
        if (at > COLUMN) {
            fprintf(to, "  %s\n", line);
            line[0] = '\0';
        }
        fprintf(to, "  %-*s %s\n", COLUMN, line, kinds[i]->doc);
    }
}

struct text {
    char *buf;
    size_t size, length;
};

static void __attribute__((format(printf, 2, 3))) add(struct text *t, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    bool fits = t->length < t->size;
    int n = vsnprintf(fits ? t->buf + t->length : NULL, fits ? t->size - t->length : 0, fmt, ap);
    va_end(ap);
    if (n > 0) t->length += (size_t)n;
}

static void add_one(struct text *out, const aril_transform *t)
{
    add(out, "%s", t->kind->name);
    bool first = true;
    for (int k = 0; k < ARIL__SETTINGS && t->kind->setting[k].name; k++) {
        const aril__setting *s = &t->kind->setting[k];
        const aril__value *v = &t->value[k];
        if (!v->n) continue;
        add(out, first ? "=%s=" : ":%s=", s->name);
        first = false;
        if (s->type == ARIL__SET_FILTER)
            add(out, "%s", filter_names[(int)v->v[0]]);
        else
            for (int i = 0; i < v->n; i++)
                add(out, "%s%.17g", !i ? "" : s->type == ARIL__SET_SIZE ? "x" : "/", v->v[i]);
    }
}

size_t aril_transform_text(const aril_transform *t, char *buf, size_t size)
{
    struct text out = { buf, buf ? size : 0, 0 };
    if (out.size) buf[0] = 0;
    if (!t) return 0;
    if (t->kind) add_one(&out, t);
    for (int i = 0; i < t->n; i++) {
        if (i) add(&out, ",");
        add_one(&out, t->list[i]);
    }
    return out.length;
}

/* ---- application ---- */

static int count(const aril_transform *t)
{
    return t->kind ? 1 : t->n;
}

static const aril_transform *at(const aril_transform *t, int i)
{
    return t->kind ? t : t->list[i];
}

bool aril__transform_has_region(const aril_transform *t)
{
    return count(t) && at(t, 0)->kind->region;
}

aril_status aril__transform_check_samples(const char *what, const aril_transform *t)
{
    for (int i = 0; i < count(t); i++)
        if (!at(t, i)->kind->sample)
            return aril__fail(ARIL_ERR_ARG,
                              "%s: %s transforms batches: pass it to the loader (.batch_transform)",
                              what, at(t, i)->kind->name);
    return ARIL_OK;
}

bool aril__transform_takes_batches(const aril_transform *t)
{
    for (int i = 0; i < count(t); i++)
        if (!at(t, i)->kind->batch) return false;
    return true;
}

void aril__transform_set_classes(aril_transform *t, int64_t classes)
{
    for (int i = 0; i < count(t); i++) {
        aril_transform *one = (aril_transform *)(uintptr_t)at(t, i);
        for (int k = 0; k < ARIL__SETTINGS && one->kind->setting[k].name; k++)
            if (one->kind->setting[k].class_count && one->value[k].v[0] == 0 && classes)
                aril__set1(one, k, (double)classes);
    }
}

aril_transform *aril_transform_take_batch(aril_transform *t)
{
    if (!t || t->kind) return NULL;
    aril_transform *taken = NULL;
    int kept = 0;
    for (int i = 0; i < t->n; i++) {
        aril_transform *one = t->list[i];
        if (one->kind->sample) {
            t->list[kept++] = one;
            continue;
        }
        if (!taken) taken = aril__transform_new(NULL);
        if (!taken)
            aril_transform_free(one);
        else
            append(taken, one);
    }
    t->n = kept;
    return taken;
}

bool aril_sample_region(aril_sample *s, int64_t width, int64_t height, aril_region *region)
{
    if (!s || !region || !s->wants || !aril__transform_has_region(s->wants) || width < 1 ||
        height < 1)
        return false;
    const aril_transform *first = at(s->wants, 0);
    if (!first->kind->region(first, s->random, width, height, &s->region)) return false;
    s->wants = NULL;
    *region = s->region;
    return true;
}

static aril_status run(const aril_transform *t, aril_sample *s, aril_generator *g)
{
    aril__change w = { .s = s, .g = g };
    for (int i = 0; i < count(t); i++) {
        const aril_transform *one = at(t, i);
        if (!one->kind->sample) return aril__transform_check_samples("transform", one);
        w.name = one->kind->name;
        aril_status status = one->kind->sample(one, &w);
        if (status < 0) return status;
        if (!i) {
            memset(&s->region, 0, sizeof s->region);
            memset(&s->decoded, 0, sizeof s->decoded);
        }
    }
    return ARIL_OK;
}

aril_status aril_transform_sample(const aril_transform *t, aril_sample *s)
{
    if (!t || !s) return aril__fail(ARIL_ERR_ARG, "transform_sample: NULL");
    return run(t, s, s->random ? s->random : aril__default_generator());
}

aril_tensor *aril_transform_image(const aril_transform *t, aril_tensor *image, aril_generator *g)
{
    if (!t || !image) {
        aril__fail(ARIL_ERR_ARG, "transform_image: NULL");
        return aril__poison();
    }
    ARIL_SCOPE;
    ARIL_NO_GRAD;
    aril_sample s = { .x = image, .random = g ? g : aril__default_generator() };
    if (run(t, &s, s.random) < 0) return aril_escape(aril__poison());
    return aril_escape(s.x);
}

/* Transforms compute on the host. */
static aril_status check_on_host(const char *name, const aril_batch *b)
{
    for (int k = 0; k < ARIL__PARTS; k++) {
        const aril_tensor *t = *aril__batch_part((aril_batch *)(uintptr_t)b, k);
        if (!t) continue;
        if (aril__check_value(name, t) < 0) return ARIL_ERR_ARG;
        if (!t->storage->device->host_memory)
            return aril__fail(ARIL_ERR_DEVICE,
                              "%s: %s of the batch is not in host memory: transform batches before "
                              "they are moved to a device",
                              name, aril__part_name(k));
    }
    return ARIL_OK;
}

aril_status aril_transform_batch(const aril_transform *t, aril_batch *b, aril_generator *g)
{
    if (!t || !b) return aril__fail(ARIL_ERR_ARG, "transform_batch: NULL");
    for (int i = 0; i < count(t); i++) {
        const aril_transform *one = at(t, i);
        if (!one->kind->batch)
            return aril__fail(ARIL_ERR_ARG,
                              "%s transforms samples, not batches: use aril_dataset_transform",
                              one->kind->name);
        aril_status status = check_on_host(one->kind->name, b);
        if (status == ARIL_OK) status = one->kind->batch(one, b, g ? g : aril__default_generator());
        if (status < 0) return status;
    }
    return ARIL_OK;
}

double aril__draw(aril_generator *g)
{
    double u;
    aril__rng_uniform_f64(aril__rng_next(g), 0, 1, &u);
    return u;
}

double aril__draw_between(aril_generator *g, double low, double high)
{
    return low + (high - low) * aril__draw(g);
}

int64_t aril__draw_below(aril_generator *g, int64_t n)
{
    int64_t i;
    aril__rng_below(aril__rng_next(g), 0, 1, (uint64_t)n, &i);
    return i;
}

/* ---- images ---- */

static aril_status check_image(const aril__change *w)
{
    const aril_tensor *x = w->s->x;
    char text[ARIL__SHAPE_TEXT];
    if (!x) return aril__fail(ARIL_ERR_ARG, "%s: the sample has no x", w->name);
    if (aril__check_value(w->name, x) < 0) return ARIL_ERR_ARG;
    if (x->ndim != 3 || (x->dtype != ARIL_U8 && x->dtype != ARIL_F32) || x->numel < 1)
        return aril__fail(ARIL_ERR_SHAPE, "%s: expected an image, u8 or f32 [C,H,W], got %s %s",
                          w->name, aril__dtypes[x->dtype].name, aril__text(text, x));
    if (!x->storage->device->host_memory)
        return aril__fail(ARIL_ERR_DEVICE,
                          "%s: the image is not in host memory: move it to the CPU with aril_to",
                          w->name);
    return ARIL_OK;
}

static aril_status make_dense(aril__change *w)
{
    aril_tensor *x = aril_contiguous(w->s->x);
    if (aril__is_poison(x)) return ARIL_ERR_MEMORY;
    aril__image_set(w, x);
    return ARIL_OK;
}

aril_status aril__image_dense(aril__change *w)
{
    aril_status status = check_image(w);
    if (status < 0 || aril__is_dense(w->s->x)) return status;
    return make_dense(w);
}

aril_status aril__image_view(aril__change *w, aril__pixels_view *v)
{
    aril_status status = check_image(w);
    if (status < 0) return status;
    aril_tensor *x = w->s->x;
    bool planes = x->stride[2] == 1 && x->stride[1] >= x->dim[2];
    bool interleaved =
        x->stride[0] == 1 && x->stride[2] == x->dim[0] && x->stride[1] >= x->dim[2] * x->dim[0];
    if (!planes && !interleaved) {
        if ((status = make_dense(w)) < 0) return status;
        x = w->s->x;
    }
    *v = (aril__pixels_view){ .data = aril__ptr(x),
                              .f32 = x->dtype == ARIL_F32,
                              .channels = x->dim[0],
                              .height = x->dim[1],
                              .width = x->dim[2],
                              .plane = x->stride[0],
                              .row = x->stride[1],
                              .pixel = x->stride[2] };
    return ARIL_OK;
}

aril_tensor *aril__image_new(aril_dtype dtype, int64_t c, int64_t h, int64_t w)
{
    int64_t dim[3] = { c, h, w };
    aril__thread *th = aril__self();
    aril_tensor *t = aril__tensor_new(th, dtype, 3, dim, aril__cpu_device);
    if (t) t = aril__give(th, t);
    return t && !aril__is_poison(t) ? t : NULL;
}

aril_status aril__image_own(aril__change *w)
{
    aril_status status = aril__image_dense(w);
    if (status < 0 || w->mine) return status;
    const aril_tensor *x = w->s->x;
    aril_tensor *copy = aril__image_new((aril_dtype)x->dtype, x->dim[0], x->dim[1], x->dim[2]);
    if (!copy) return ARIL_ERR_MEMORY;
    memcpy(aril__ptr(copy), aril__ptr(x), aril__dtype_bytes((aril_dtype)x->dtype, x->numel));
    aril__image_set(w, copy);
    return ARIL_OK;
}
