/* The wire format of protocol buffers: fields by number, written and read without a schema. */
#ifndef ARIL_FORMATS_PROTO_H
#define ARIL_FORMATS_PROTO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- writing ---- */

/* A message that grows. All zeros at the start; `failed` when memory ran out, after which nothing
 * is written any more. */
typedef struct aril__proto {
    uint8_t *at;
    size_t n, room;
    bool failed;
} aril__proto;

void aril__proto_free(aril__proto *p);
/* Empties it and keeps the memory. */
void aril__proto_clear(aril__proto *p);

/* A whole number (int32, int64, uint64, bool, enum); a double; a float; bytes; a text. */
void aril__proto_int(aril__proto *p, uint32_t field, int64_t value);
void aril__proto_double(aril__proto *p, uint32_t field, double value);
void aril__proto_float(aril__proto *p, uint32_t field, float value);
void aril__proto_bytes(aril__proto *p, uint32_t field, const void *data, size_t n);
void aril__proto_text(aril__proto *p, uint32_t field, const char *text);
/* A repeated field, packed. */
void aril__proto_doubles(aril__proto *p, uint32_t field, const double *value, size_t n);
void aril__proto_floats(aril__proto *p, uint32_t field, const float *value, size_t n);

/* A message inside: what is written between the two is its content. */
size_t aril__proto_begin(aril__proto *p, uint32_t field);
void aril__proto_end(aril__proto *p, size_t begun);

/* ---- reading ---- */

typedef enum aril__proto_wire {
    ARIL__PROTO_VARINT = 0,
    ARIL__PROTO_FIXED64 = 1,
    ARIL__PROTO_BYTES = 2,
    ARIL__PROTO_FIXED32 = 5,
} aril__proto_wire;

/* A place in a message, and the field that was read last. */
typedef struct aril__proto_in {
    const uint8_t *at, *end;
    bool malformed; /* why there is no next field; the end of the message is no error */
    uint32_t field;
    aril__proto_wire wire;
    uint64_t value;       /* varint and fixed: their bits */
    const uint8_t *bytes; /* ARIL__PROTO_BYTES: the content, within the message */
    size_t n;
} aril__proto_in;

aril__proto_in aril__proto_open(const void *data, size_t n);

/* The next field; false at the end or where the message is malformed. Groups, which nobody writes
 * any more, are passed over. */
bool aril__proto_next(aril__proto_in *in);

/* The last field as a number: a varint as a signed number, fixed forms as what they hold. */
int64_t aril__proto_get_int(const aril__proto_in *in);
double aril__proto_get_double(const aril__proto_in *in);
float aril__proto_get_float(const aril__proto_in *in);
/* The message in the last field. */
aril__proto_in aril__proto_enter(const aril__proto_in *in);

/* Takes one number from a repeated field, packed or not: call it again with the same field until it
 * is false. *from is NULL at the first call for a field. */
bool aril__proto_each_int(aril__proto_in *in, const uint8_t **from, int64_t *value);
bool aril__proto_each_float(aril__proto_in *in, const uint8_t **from, float *value);

#endif
