#include "formats/gzip.h"

#include "core/error.h"

#include <string.h>

aril_status aril__read_unpacked(const char *what, const char *path, aril__bytes *b)
{
    aril_status status = aril__read_file(what, path, 0, b);
    if (status != ARIL_OK || b->n < 2 || b->at[0] != 0x1f || b->at[1] != 0x8b) return status;
    aril__bytes packed = *b;
    *b = (aril__bytes){ 0 };
    uint64_t limit = (uint64_t)packed.n * ARIL__UNPACKED_TIMES + ARIL__UNPACKED_FREE;
    status = aril__gunzip(what, path, packed.at, packed.n, limit, b);
    aril__bytes_free(&packed);
    if (status != ARIL_OK) aril__bytes_free(b);
    return status;
}

#ifdef ARIL_HAVE_ZLIB

#include <zlib.h>

/* zlib counts in 32 bits: input is passed in chunks. */
static void feed(z_stream *z, const unsigned char **data, size_t *size)
{
    if (z->avail_in > 0 || *size == 0) return;
    size_t part = *size < (1u << 30) ? *size : 1u << 30;
    z->next_in = (Bytef *)(uintptr_t)*data;
    z->avail_in = (uInt)part;
    *data += part;
    *size -= part;
}

static aril_status no_memory(const char *what, const char *name)
{
    return aril__fail(ARIL_ERR_MEMORY, "%s: out of memory unpacking %s", what, name);
}

static aril_status corrupt(const char *what, const char *name, const z_stream *z)
{
    return aril__fail(ARIL_ERR_FORMAT, "%s: %s is corrupt or truncated (%s)", what, name,
                      z->msg ? z->msg : "it ends too early");
}

aril_status aril__gunzip(const char *what, const char *name, const void *data, size_t size,
                         uint64_t limit, aril__bytes *out)
{
    const unsigned char *in = data;
    size_t begin = out->n;
    z_stream z = { 0 };
    if (inflateInit2(&z, 15 + 16) != Z_OK) return no_memory(what, name);
    aril_status status = ARIL_OK;
    for (bool more = true; more && status == ARIL_OK;) {
        size_t had = out->n, space = out->capacity > had + 1 ? out->capacity - had - 1 : 0;
        if (space < 1 << 16) space = had - begin < 1 << 18 ? 1 << 18 : had - begin;
        if (space > 1 << 30) space = 1 << 30;
        if (limit > 0 && space > limit - (had - begin) + 1)
            space = (size_t)(limit - (had - begin)) + 1; /* one more byte shows an overrun */
        z.next_out = aril__bytes_add(out, NULL, space);
        if (!z.next_out) {
            status = no_memory(what, name);
            break;
        }
        z.avail_out = (uInt)space;
        feed(&z, &in, &size);
        int rc = inflate(&z, Z_NO_FLUSH);
        out->n = had + space - z.avail_out;
        out->at[out->n] = 0;
        if (rc == Z_STREAM_END) {
            more = z.avail_in > 0 || size > 0;
            /* Another member may follow; other trailing data is ignored, as gzip does. */
            if (more) feed(&z, &in, &size);
            if (more && (z.avail_in < 2 || z.next_in[0] != 0x1f || z.next_in[1] != 0x8b))
                more = false;
            if (more && inflateReset(&z) != Z_OK) status = no_memory(what, name);
        } else if (rc == Z_MEM_ERROR) {
            status = no_memory(what, name);
        } else if (rc != Z_OK && !(rc == Z_BUF_ERROR && (z.avail_in > 0 || size > 0))) {
            status = corrupt(what, name, &z);
        }
        if (limit > 0 && out->n - begin > limit)
            status = aril__fail(ARIL_ERR_FORMAT,
                                "%s: %s unpacks to more than the %llu bytes expected for its size; "
                                "if that is intended, unpack it first (gunzip)",
                                what, name, (unsigned long long)limit);
    }
    inflateEnd(&z);
    return status;
}

aril_status aril__inflate(const char *what, const char *name, const void *data, size_t size,
                          void *to, size_t want)
{
    const unsigned char *in = data;
    unsigned char *out = to, past;
    z_stream z = { 0 };
    if (inflateInit2(&z, -15) != Z_OK) return no_memory(what, name);
    int rc = Z_OK;
    size_t left = want;
    z.next_out = out;
    while (rc == Z_OK) {
        feed(&z, &in, &size);
        if (z.avail_out == 0) {
            size_t part = left < (1u << 30) ? left : 1u << 30;
            z.next_out =
                left ? out + (want - left) : &past; /* at the end: one byte to detect excess */
            z.avail_out = left ? (uInt)part : 1;
            left -= part;
        }
        rc = inflate(&z, Z_NO_FLUSH);
        if (z.next_out == &past + 1) break;
    }
    bool complete =
        rc == Z_STREAM_END && left == 0 && (z.next_out == out + want || z.next_out == &past);
    aril_status status = complete            ? ARIL_OK
                         : rc == Z_MEM_ERROR ? no_memory(what, name)
                                             : corrupt(what, name, &z);
    inflateEnd(&z);
    return status;
}

aril_status aril__inflate_first(const char *what, const char *name, const void *data, size_t size,
                                void *to, size_t want, size_t *got)
{
    const unsigned char *in = data;
    z_stream z = { 0 };
    *got = 0;
    if (inflateInit2(&z, -15) != Z_OK) return no_memory(what, name);
    int rc = Z_OK;
    z.next_out = to;
    z.avail_out = (uInt)want;
    while (rc == Z_OK && z.avail_out > 0) {
        feed(&z, &in, &size);
        rc = inflate(&z, Z_NO_FLUSH);
    }
    bool good = rc == Z_STREAM_END || (rc == Z_OK && z.avail_out == 0);
    *got = want - z.avail_out;
    aril_status status = good                ? ARIL_OK
                         : rc == Z_MEM_ERROR ? no_memory(what, name)
                                             : corrupt(what, name, &z);
    inflateEnd(&z);
    return status;
}

#else

static aril_status absent(const char *what, const char *name)
{
    return aril__fail(ARIL_ERR_UNSUPPORTED,
                      "%s: %s is compressed, and Aril was built without zlib; unpack it with "
                      "gunzip or unzip, or, on Debian, apt-get install zlib1g-dev and build again",
                      what, name);
}

aril_status aril__gunzip(const char *what, const char *name, const void *data, size_t size,
                         uint64_t limit, aril__bytes *out)
{
    (void)data, (void)size, (void)limit, (void)out;
    return absent(what, name);
}

aril_status aril__inflate(const char *what, const char *name, const void *data, size_t size,
                          void *to, size_t want)
{
    (void)data, (void)size, (void)to, (void)want;
    return absent(what, name);
}

aril_status aril__inflate_first(const char *what, const char *name, const void *data, size_t size,
                                void *to, size_t want, size_t *got)
{
    (void)data, (void)size, (void)to, (void)want, (void)got;
    return absent(what, name);
}

#endif
