#include "backend/onednn/conv_split.h"

#include <string.h>

/* Costs, in multiplications. The figures are rough: they only have to rank the splits. */
#define READ   12.0    /* reading an element that other threads read, too */
#define ADD    24.0    /* writing, reading and adding an element of a partial result */
#define STAGE  8.0     /* copying an element to or from a contiguous block */
#define FAR    4.0     /* activating an element that has left the per-core cache */
#define START  60e3    /* starting a piece of any size */
#define PREFER 1.03    /* how much more cuts by rows may cost than cuts by channels */
#define NEAR   32768.0 /* elements that fit in the per-core cache */
#define LATE   0.3     /* of many threads, the last one is late by this part of a piece */
#define MANY   5       /* threads */

/* Partial weight gradients take at most 128 MB in total. */
#define MAX_PARTIALS 33554432.0

static int64_t min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t part(int64_t n, int64_t parts)
{
    return (n + parts - 1) / parts;
}

double aril__conv_weights(const aril__conv *d)
{
    double n = (double)d->groups * (double)d->c * (double)d->k;
    for (int i = 0; i < 3; i++) n *= (double)d->kernel[i];
    return n;
}

double aril__conv_work(const aril__conv *d)
{
    double n = aril__conv_weights(d) * (double)d->batch;
    for (int i = 0; i < 3; i++) n *= (double)d->out[i];
    return n;
}

double aril__conv_image(const aril__conv *d, bool x)
{
    double n = (double)d->groups * (double)(x ? d->c : d->k);
    for (int i = 0; i < 3; i++) n *= (double)(x ? d->in[i] : d->out[i]);
    return n;
}

int64_t aril__conv_rows(const aril__conv_job *j)
{
    return j->role == ARIL__CONV_X ? j->d->in[j->axis] : j->d->out[j->axis];
}

/* The channels that are cut: groups, or those of the result. */
static int64_t channels(const aril__conv_job *j)
{
    if (j->d->groups > 1) return j->d->groups;
    return j->role == ARIL__CONV_X ? j->d->c : j->d->k;
}

static int64_t block(const aril__conv_job *j)
{
    return j->d->groups > 1 ? 1 : ARIL__CONV_BLOCK;
}

static int64_t blocks(const aril__conv_job *j)
{
    return part(channels(j), block(j));
}

void aril__conv_channels(const aril__conv_job *j, int64_t i, int64_t n, int64_t *begin,
                         int64_t *end)
{
    *begin = blocks(j) * i / n * block(j);
    *end = min(channels(j), blocks(j) * (i + 1) / n * block(j));
}

/* The fraction of the input's rows that a piece of `rows` rows reads. */
static double rows_read(const aril__conv_job *j, int64_t rows)
{
    const aril__conv *d = j->d;
    int64_t step = d->stride[j->axis], reach = (d->kernel[j->axis] - 1) * d->dilation[j->axis] + 1;
    double all = (double)(j->role == ARIL__CONV_X ? d->out[j->axis] : d->in[j->axis]);
    double n = j->role == ARIL__CONV_X ? (double)(rows + reach - 1) / (double)step
                                       : (double)((rows - 1) * step + reach);
    return n < all ? n / all : 1;
}

/* The time of the busiest thread, estimated from the largest piece. */
static double cost_of(const aril__conv_job *j, const aril__conv_split *s)
{
    const aril__conv *d = j->d;
    bool grouped = d->groups > 1, cut = s->channels > 1;
    int64_t pieces = s->batch * s->rows * s->channels, rows = part(aril__conv_rows(j), s->rows);
    double samples = (double)part(d->batch, s->batch);
    double width = (double)min(channels(j), part(blocks(j), s->channels) * block(j));
    double some = width / (double)channels(j), groups = grouped ? some : 1;
    double of_rows = (double)rows / (double)aril__conv_rows(j);
    double work = aril__conv_work(d) / (double)d->batch * samples * of_rows * some;
    double weights = aril__conv_weights(d) * some;
    bool to_x = j->role == ARIL__CONV_X;
    double image = aril__conv_image(d, !to_x) * samples * rows_read(j, rows) * groups;
    double pixels =
        aril__conv_image(d, to_x) / (double)(d->groups * (to_x ? d->c : d->k)) * samples * of_rows;
    double result = aril__conv_image(d, to_x) * samples * of_rows * some;

    /* Kernels reuse each loaded weight and pixel less when there are few channels or pixels. */
    if (!grouped) work *= 1 + 2.4 / width;
    work *= 1 + 3 / pixels;
    double cost = START + work + READ * (weights + image);
    if (cut) cost += STAGE * (result + (grouped ? image : 0));
    if (j->activates && result > NEAR) cost += FAR * result;
    bool many = j->threads >= MANY && j->role != ARIL__CONV_W && pieces > 1;
    cost *= (double)part(pieces, j->threads) + (many ? LATE : 0);
    double partials = (double)(s->batch * s->rows);
    if (j->role == ARIL__CONV_W && partials > 1)
        cost += ADD * partials * aril__conv_weights(d) / (double)j->threads;
    return cut ? cost * PREFER : cost;
}

typedef struct found {
    aril__conv_split *to;
    int n, max;
} found;

/* Keeps the list sorted by cost; the last slot is reserved for the uncut split. */
static void offer(found *f, const aril__conv_job *j, int64_t batch, int64_t rows, int64_t channels_)
{
    aril__conv_split s = { batch, rows, channels_, 0 };
    double partials = (double)(batch * rows);
    if (j->role == ARIL__CONV_W && partials > 2 &&
        partials * aril__conv_weights(j->d) > MAX_PARTIALS)
        return;
    s.cost = cost_of(j, &s);
    int at = f->n;
    while (at > 0 && f->to[at - 1].cost > s.cost) at--;
    if (at == f->max) return;
    if (f->n < f->max) f->n++;
    memmove(f->to + at + 1, f->to + at, (size_t)(f->n - 1 - at) * sizeof *f->to);
    f->to[at] = s;
}

/* Offers splits that keep every thread busy where possible, with few pieces. */
static void offer_channels(found *f, const aril__conv_job *j, int64_t batch, int64_t rows)
{
    int64_t max = min(blocks(j), j->threads);
    for (int64_t n = 1; n <= max; n++) {
        int64_t pieces = batch * rows * n;
        if (n > 1 && pieces > j->threads && (batch < j->d->batch || pieces > 4 * j->threads)) break;
        if (pieces > 1) offer(f, j, batch, rows, n);
    }
}

int aril__conv_splits(const aril__conv_job *j, aril__conv_split *to, int max)
{
    found f = { to, 0, max - 1 };
    int64_t each = j->threads >= MANY ? 4 : 1; /* more pieces than threads even out their speeds */
    int64_t samples = j->d->batch, rows = min(aril__conv_rows(j), each * j->threads);
    for (int64_t n = 1; n <= min(samples, j->threads); n++) offer_channels(&f, j, n, 1);
    if (samples > j->threads) offer_channels(&f, j, samples, 1);
    for (int64_t n = 2; n <= rows && samples * n <= 4 * j->threads; n++)
        offer_channels(&f, j, samples, n);
    aril__conv_split uncut = { 1, 1, 1, 0 };
    uncut.cost = cost_of(j, &uncut);
    while (f.n > 0 && f.to[f.n - 1].cost > uncut.cost) f.n--; /* cutting does not pay */
    to[f.n] = uncut;
    return f.n + 1;
}
