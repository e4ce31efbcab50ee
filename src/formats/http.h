/* One HTTP request, by libcurl: GET of a file or of the rest of one. */
#ifndef ARIL_FORMATS_HTTP_H
#define ARIL_FORMATS_HTTP_H

#include "aril/base.h"

/* The headers of the last answer, after redirects. */
typedef struct aril__http_head {
    int status;        /* 200: the whole file, 206: a part of it */
    int64_t length;    /* of the body; -1: not told */
    int64_t from;      /* the first byte of the part, -1: not told */
    int64_t total;     /* size of the file that the part belongs to; -1: not told */
    char version[160]; /* what If-Range takes: a strong ETag, or a date; "": neither */
    char sha256[72];   /* X-Linked-ETag, which Hugging Face sends before its redirect; "": none */
} aril__http_head;

typedef struct aril__http_get {
    const char *url;     /* http or https */
    int64_t from;        /* the first byte wanted */
    const char *version; /* If-Range: only if the file still has this version; "": of any */
    double stall;        /* seconds without a byte before the connection is given up */
    /* The file's data, of a 200 or 206 answer only: false stops the transfer. */
    bool (*data)(void *ctx, const aril__http_head *head, const void *data, size_t size);
    /* Called several times a second: false stops the transfer. */
    bool (*tick)(void *ctx);
    void *ctx;
} aril__http_get;

typedef enum aril__http_end {
    ARIL__HTTP_DONE,      /* an answer, of any status, and all of its body */
    ARIL__HTTP_CUT,       /* the connection ended or stalled: may be tried again */
    ARIL__HTTP_NO_SERVER, /* name not found, no connection */
    ARIL__HTTP_REFUSED, /* would fail again: certificate, too many redirects, from https to http */
    ARIL__HTTP_STOPPED, /* by a callback */
    ARIL__HTTP_UNABLE,  /* no libcurl, out of memory */
} aril__http_end;

typedef struct aril__http_answer {
    aril__http_end end;
    aril__http_head head; /* status 0: there was none */
    char why[256];        /* for any end but DONE and STOPPED */
} aril__http_answer;

/* Performs the request. Does not set an error. */
void aril__http_request(const aril__http_get *get, aril__http_answer *answer);

#endif
