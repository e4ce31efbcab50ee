/* Errors: an error never terminates the process. It records a message, and functions that return a
 * tensor return a poisoned one, which every later operation propagates. */
#ifndef ARIL_ERROR_H
#define ARIL_ERROR_H

#include "aril/base.h"

ARIL_C_BEGIN

/* The list of status codes: E(name, value, text). */
#define ARIL_STATUS_LIST(E)                                      \
    E(ERR_ARG, -1, "invalid argument")                           \
    E(ERR_SHAPE, -2, "shapes do not fit")                        \
    E(ERR_DTYPE, -3, "element types do not fit")                 \
    E(ERR_INDEX, -4, "index out of range")                       \
    E(ERR_DEVICE, -5, "device not available")                    \
    E(ERR_MEMORY, -6, "out of memory")                           \
    E(ERR_GRAD, -7, "gradient not available")                    \
    E(ERR_STATE, -8, "not possible in this state")               \
    E(ERR_UNSUPPORTED, -9, "not supported")                      \
    E(ERR_NUMBER, -10, "numbers outside the operation's domain") \
    E(ERR_IO, -11, "input or output failed")                     \
    E(ERR_FORMAT, -12, "malformed data")                         \
    E(ERR_PLUGIN, -13, "plug-in refused")                        \
    E(ERR_INTERNAL, -14, "internal error")

/* ARIL_OK and ARIL_ERR_ARG, ARIL_ERR_SHAPE ...: the codes of that list. */
enum {
    ARIL_OK = 0,
#define ARIL_STATUS_ENUM(name, value, text) ARIL_##name = (value),
    ARIL_STATUS_LIST(ARIL_STATUS_ENUM)
#undef ARIL_STATUS_ENUM
};

/* "ERR_SHAPE" and "shapes do not fit"; "?" for an unknown code. */
ARIL_API const char *aril_status_name(aril_status s);
ARIL_API const char *aril_status_text(aril_status s);

/* True if this thread has had no error since it started or since aril_clear_error(). */
ARIL_API bool aril_ok(void);

/* The message of this thread's first error, "" when there is none. It stays valid until
 * aril_clear_error(). */
ARIL_API const char *aril_error(void);

/* The code of that error, ARIL_OK when there is none. */
ARIL_API aril_status aril_error_code(void);

/* Clears this thread's error. Tensors poisoned by it stay poisoned. */
ARIL_API void aril_clear_error(void);

/* Records a custom error, in functions that Aril calls (a dataset's `get`, a module's forward): a
 * code and a printf-style message of at most 1000 characters. Returns `code`, for `return
 * aril_fail(ARIL_ERR_IO, "%s is empty", path);`. A code that is not in the list above becomes
 * ARIL_ERR_ARG. */
#ifdef __GNUC__
__attribute__((format(printf, 2, 3)))
#endif
ARIL_API aril_status
aril_fail(aril_status code, const char *format, ...);

/* Prints the first error to `to` and returns 1, a program's exit status; returns 0 and prints
 * nothing when there is none. */
ARIL_API int aril_report(FILE *to);

/* Sets a function that is called for each new error, on the thread where it occurred; NULL removes
 * it. */
typedef void aril_error_handler(aril_status code, const char *message, void *ctx);
ARIL_API void aril_set_error_handler(aril_error_handler *handler, void *ctx);

/* Whether messages end with the source location of the call; default on. Off in programs whose
 * users don't know the source. Also tables of costs and printed programs then name no lines. */
ARIL_API void aril_set_error_locations(bool on);

/* ARIL_OK, or the code of the error that poisoned `t`; and that error's message or NULL. */
ARIL_API aril_status aril_tensor_status(const aril_tensor *t);
ARIL_API const char *aril_tensor_error(const aril_tensor *t);

/* The closest match to `word` among n words, for messages ("did you mean ...?"); NULL when none is
 * similar. Entries may be NULL. */
ARIL_API const char *aril_nearest(const char *word, const char *const *words, int n);

ARIL_C_END

#endif
