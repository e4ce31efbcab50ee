/* Error records: created on cold paths, reference-counted, shared by the thread and the tensors
 * they poison. */
#ifndef ARIL_CORE_ERROR_H
#define ARIL_CORE_ERROR_H

#include "aril/error.h"

#include <stdatomic.h>

#define aril__likely(x)   __builtin_expect(!!(x), 1)
#define aril__unlikely(x) __builtin_expect(!!(x), 0)
#define aril__cold        __attribute__((cold, noinline))

typedef struct aril__error {
    atomic_int refs; /* 0: static, never freed */
    aril_status code;
    const char *message; /* stored right after the record */
    size_t text;         /* its length without the source location; 0: it has none */
} aril__error;

/* Records an error: the thread's first if it has none, its latest in any case. Appends the source
 * location of the caller outside Aril to the message. Returns `code`, for `return
 * aril__fail(...)`. */
aril__cold aril_status aril__fail(aril_status code, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Puts what an error is about in front of its message: "about: message". For the thread's first
 * error, which must be one that was raised just now. Returns `code`. */
aril__cold aril_status aril__fail_about(aril_status code, const char *about);

/* Makes `e` this thread's latest error, and its first if it has none (poison from elsewhere). */
aril__cold void aril__adopt_error(aril__error *e);

/* The same for an error that was held back: it reaches the error handler, too. */
aril__cold void aril__raise_error(aril__error *e);

/* The code of this thread's latest error, for functions that return a status after one that
 * returned NULL. */
aril_status aril__latest_status(void);

aril__error *aril__error_keep(aril__error *e);
void aril__error_release(aril__error *e);

/* This thread's first error without its source location, "" when there is none: for messages that
 * quote it, which get their own. */
void aril__error_text(char *buf, size_t size);

/* The calling thread's error, saved while code runs that may raise another. */
typedef struct aril__saved_errors {
    aril__error *error, *last_error;
    bool quiet;
} aril__saved_errors;

aril__saved_errors aril__errors_begin(void);
/* The same for code that is tried: its errors do not reach the error handler either. */
aril__saved_errors aril__errors_begin_quiet(void);
/* Restores the saved errors; returns the error raised in between (to be released), or NULL. */
aril__error *aril__errors_end(aril__saved_errors *before);

/* Guards invariants of Aril itself; no input may reach one. */
#define ARIL_ASSERT(cond) ((cond) ? (void)0 : aril__assert_failed(#cond, __FILE__, __LINE__))
aril__cold _Noreturn void aril__assert_failed(const char *cond, const char *file, int line);

#endif
