#include "train/digest.h"

#include "aril/dtype.h"
#include "aril/error.h"
#include "aril/scope.h"
#include "core/error.h"

#include <string.h>

/* The five primes of XXH64. */
static const uint64_t P1 = 0x9e3779b185ebca87u, P2 = 0xc2b2ae3d27d4eb4fu, P3 = 0x165667b19e3779f9u,
                      P4 = 0x85ebca77c2b2ae63u, P5 = 0x27d4eb2f165667c5u;

static uint64_t turn(uint64_t v, int bits)
{
    return v << bits | v >> (64 - bits);
}

/* Little-endian on every machine: digests are compared between machines. */
static uint64_t read8(const unsigned char *p)
{
    uint64_t v;
    memcpy(&v, p, 8);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    v = __builtin_bswap64(v);
#endif
    return v;
}

static uint64_t mix(uint64_t lane, uint64_t input)
{
    return turn(lane + input * P2, 31) * P1;
}

static uint64_t fold(uint64_t h, uint64_t lane)
{
    return (h ^ mix(0, lane)) * P1 + P4;
}

void aril__digest_start(aril__digest *d)
{
    *d = (aril__digest){ .lane = { P1 + P2, P2, 0, 0 - P1 } };
}

static void block(aril__digest *d, const unsigned char *p)
{
    for (int i = 0; i < 4; i++) d->lane[i] = mix(d->lane[i], read8(p + 8 * i));
}

void aril__digest_add(aril__digest *d, const void *data, size_t size)
{
    const unsigned char *p = data;
    d->length += size;
    if (d->used > 0) {
        size_t n = sizeof d->rest - d->used < size ? sizeof d->rest - d->used : size;
        memcpy(d->rest + d->used, p, n);
        d->used += n;
        p += n;
        size -= n;
        if (d->used < sizeof d->rest) return;
        block(d, d->rest);
        d->used = 0;
    }
    for (; size >= 32; p += 32, size -= 32) block(d, p);
    if (size > 0) memcpy(d->rest, p, size);
    d->used = size;
}

uint64_t aril__digest_end(const aril__digest *d)
{
    uint64_t h = P5;
    if (d->length >= 32) {
        h = turn(d->lane[0], 1) + turn(d->lane[1], 7) + turn(d->lane[2], 12) + turn(d->lane[3], 18);
        for (int i = 0; i < 4; i++) h = fold(h, d->lane[i]);
    }
    h += d->length;
    size_t i = 0;
    for (; i + 8 <= d->used; i += 8) h = turn(h ^ mix(0, read8(d->rest + i)), 27) * P1 + P4;
    if (i + 4 <= d->used) {
        const unsigned char *p = d->rest + i;
        uint64_t v =
            (uint64_t)p[0] | (uint64_t)p[1] << 8 | (uint64_t)p[2] << 16 | (uint64_t)p[3] << 24;
        h = turn(h ^ v * P1, 23) * P2 + P3;
        i += 4;
    }
    for (; i < d->used; i++) h = turn(h ^ d->rest[i] * P5, 11) * P1;
    h = (h ^ h >> 33) * P2;
    h = (h ^ h >> 29) * P3;
    return h ^ h >> 32;
}

aril_status aril__digest_named(const aril_named *tensors, uint64_t *digest)
{
    uint64_t sum = 0;
    for (int i = 0; i < tensors->n; i++) {
        ARIL_SCOPE;
        aril_tensor *t = tensors->at[i];
        const char *name = tensors->name[i];
        aril_shape s = aril_shape_of(t);
        int64_t about[2 + ARIL_MAX_DIMS] = { (int64_t)aril_dtype_of(t), s.ndim };
        memcpy(about + 2, s.dim, (size_t)s.ndim * sizeof *s.dim);
        const void *data = aril_numel(t) > 0 ? aril_data(t) : "";
        if (data == NULL) return aril__latest_status();
        aril__digest d;
        aril__digest_start(&d);
        aril__digest_add(&d, name, strlen(name) + 1);
        for (int k = 0; k < 2 + s.ndim; k++) {
            unsigned char bytes[8];
            for (int b = 0; b < 8; b++) bytes[b] = (unsigned char)((uint64_t)about[k] >> 8 * b);
            aril__digest_add(&d, bytes, sizeof bytes);
        }
        size_t bits = (size_t)aril_numel(t) * (size_t)aril_dtype_bits(aril_dtype_of(t));
        aril__digest_add(&d, data, (bits + 7) / 8);
        sum += aril__digest_end(&d);
    }
    *digest = sum ^ (uint64_t)tensors->n;
    return ARIL_OK;
}
