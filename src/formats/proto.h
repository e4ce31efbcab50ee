/* The protocol buffers wire format: fields by number, written and read without a schema. */
#ifndef ARIL_FORMATS_PROTO_H
#define ARIL_FORMATS_PROTO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- writing ---- */

/* A growable message. Zero-initialize; `failed` is set when out of memory, after which nothing more
 * is written. */
typedef struct aril__proto {
    uint8_t *at;
    size_t n, capacity;
    bool failed;
} aril__proto;

void aril__proto_free(aril__proto *p);
/* Clears the message and keeps its memory. */
void aril__proto_clear(aril__proto *p);

/* An integer (int32, int64, uint64, bool, enum); a double; a float; bytes; a string. */
void aril__proto_int(aril__proto *p, uint32_t field, int64_t value);
void aril__proto_double(aril__proto *p, uint32_t field, double value);
void aril__proto_float(aril__proto *p, uint32_t field, float value);
void aril__proto_bytes(aril__proto *p, uint32_t field, const void *data, size_t n);
void aril__proto_text(aril__proto *p, uint32_t field, const char *text);
/* A packed repeated field. */
void aril__proto_doubles(aril__proto *p, uint32_t field, const double *value, size_t n);
void aril__proto_floats(aril__proto *p, uint32_t field, const float *value, size_t n);

/* A nested message: what is written between the two calls is its content. */
size_t aril__proto_begin(aril__proto *p, uint32_t field);
void aril__proto_end(aril__proto *p, size_t begun);

/* ---- reading ---- */

typedef enum aril__proto_wire {
    ARIL__PROTO_VARINT = 0,
    ARIL__PROTO_FIXED64 = 1,
    ARIL__PROTO_BYTES = 2,
    ARIL__PROTO_FIXED32 = 5,
} aril__proto_wire;

/* A position in a message, and the last field read. */
typedef struct aril__proto_in {
    const uint8_t *at, *end;
    bool malformed; /* set if an error, not the end of the message, stopped reading */
    uint32_t field;
    aril__proto_wire wire;
    uint64_t value;       /* varint and fixed: their bits */
    const uint8_t *bytes; /* ARIL__PROTO_BYTES: the content, within the message */
    size_t n;
} aril__proto_in;

aril__proto_in aril__proto_open(const void *data, size_t n);

/* Reads the next field; false at the end or if the message is malformed. Groups, which are
 * obsolete, are skipped. */
bool aril__proto_next(aril__proto_in *in);

/* The last field as a number: a varint as a signed integer, fixed-size fields as their value. */
int64_t aril__proto_get_int(const aril__proto_in *in);
double aril__proto_get_double(const aril__proto_in *in);
float aril__proto_get_float(const aril__proto_in *in);
/* Opens the nested message in the last field. */
aril__proto_in aril__proto_enter(const aril__proto_in *in);

/* Reads one number of a repeated field, packed or not: call it again with the same field until it
 * returns false. *from is NULL on the first call for a field. */
bool aril__proto_each_int(aril__proto_in *in, const uint8_t **from, int64_t *value);
bool aril__proto_each_float(aril__proto_in *in, const uint8_t **from, float *value);

#endif
