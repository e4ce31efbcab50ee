#include "core/error.h"

#include "core/foreign.h"
#include "core/memory.h"
#include "core/sizes.h"
#include "core/source_location.h"
#include "core/tensor.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { MESSAGE_MAX = 1000 };

/* Used when even the error record cannot be allocated. */
static aril__error out_of_memory = { .code = ARIL_ERR_MEMORY, .message = "out of memory" };

static pthread_mutex_t handler_lock = PTHREAD_MUTEX_INITIALIZER;
static aril_error_handler *handler;
static void *handler_ctx;

const char *aril_status_name(aril_status s)
{
    switch (s) {
    case ARIL_OK: return "OK";
#define NAME(name, value, text) \
    case value: return #name;
        ARIL_STATUS_LIST(NAME)
#undef NAME
    default: return "?";
    }
}

const char *aril_status_text(aril_status s)
{
    switch (s) {
    case ARIL_OK: return "no error";
#define TEXT(name, value, text) \
    case value: return text;
        ARIL_STATUS_LIST(TEXT)
#undef TEXT
    default: return "?";
    }
}

aril_status aril__latest_status(void)
{
    const aril__error *e = aril__self()->last_error;
    return e ? e->code : ARIL_ERR_INTERNAL;
}

aril__error *aril__error_keep(aril__error *e)
{
    if (e && atomic_load_explicit(&e->refs, memory_order_relaxed) > 0)
        atomic_fetch_add_explicit(&e->refs, 1, memory_order_relaxed);
    return e;
}

void aril__error_release(aril__error *e)
{
    if (e && atomic_load_explicit(&e->refs, memory_order_relaxed) > 0 &&
        atomic_fetch_sub_explicit(&e->refs, 1, memory_order_acq_rel) == 1)
        free(e); /* NOLINT(clang-analyzer-unix.Malloc): static records have a reference count of
                  * 0 */
}

void aril__adopt_error(aril__error *e)
{
    aril__thread *th = aril__self();
    if (th->last_error != e) {
        aril__error_release(th->last_error);
        th->last_error = aril__error_keep(e);
    }
    if (!th->error) th->error = aril__error_keep(e);
}

aril__saved_errors aril__errors_begin(void)
{
    aril__thread *th = aril__self();
    aril__saved_errors before = { th->error, th->last_error, th->quiet };
    th->error = th->last_error = NULL;
    return before;
}

aril__saved_errors aril__errors_begin_quiet(void)
{
    aril__saved_errors before = aril__errors_begin();
    aril__self()->quiet = true;
    return before;
}

aril__error *aril__errors_end(aril__saved_errors *before)
{
    aril__thread *th = aril__self();
    aril__error *made = th->error; /* keep the first error: it is the cause */
    aril__error_release(th->last_error);
    th->error = before->error;
    th->last_error = before->last_error;
    th->quiet = before->quiet;
    return made;
}

/* Messages quote names and labels from files, and are printed on terminals: control characters,
 * which could move the cursor or worse, become '?' (also those of U+0080 to U+009F in UTF-8). */
static void make_printable(char *text)
{
    for (unsigned char *c = (unsigned char *)text; *c; c++) {
        if (*c == 0xC2 && c[1] >= 0x80 && c[1] < 0xA0) *c++ = '?', *c = '?';
        if ((*c < 0x20 && *c != '\n' && *c != '\t') || *c == 0x7F) *c = '?';
    }
}

/* Memory is allocated by functions that do not know for which op: puts its name in front. */
static void name_call(char *text, size_t size)
{
    const char *call = aril__self()->call;
    size_t n = call ? strlen(call) : 0, length = strlen(text);
    if (n == 0 || (strncmp(text, call, n) == 0 && text[n] == ':')) return;
    if (n + 2 + length >= size) return;
    memmove(text + n + 2, text, length + 1);
    memcpy(text, call, n);
    memcpy(text + n, ": ", 2);
}

void aril__raise_error(aril__error *e)
{
    aril__adopt_error(e);
    pthread_mutex_lock(&handler_lock);
    aril_error_handler *fn = handler;
    void *ctx = handler_ctx;
    pthread_mutex_unlock(&handler_lock);
    if (fn && !aril__self()->quiet) fn(e->code, e->message, ctx);
}

/* In a trace, sizes may be numbers that stand for unknown ones. */
static void hide_sizes(char *text, size_t size)
{
    const char *hint = " ('?' was computed in C from a size that only the run knows)";
    const aril__sizes *s = aril__self()->sizes;
    if (!aril__sizes_hide(s, text)) return;
    if (s && s->computed) {
        snprintf(text, size, "%s", s->computed);
        return;
    }
    size_t n = strlen(text);
    if (n + strlen(hint) < size) strcpy(text + n, hint);
}

aril_status aril__fail(aril_status code, const char *fmt, ...)
{
    char text[MESSAGE_MAX], location[256];
    size_t begin = 0;
    const aril__frame *frame = aril__self()->frame;
    text[0] = 0;
    if (frame && frame->text)
        snprintf(text, sizeof text / 2, "%s: ", frame->text);
    else if (frame && aril__hook.where)
        aril__hook.where(frame, text, sizeof text / 2);
    begin = strlen(text);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text + begin, sizeof text - begin, fmt, ap);
    va_end(ap);
    /* A message that begins so itself, as it is used elsewhere too. */
    if (begin && strncmp(text + begin, text, begin) == 0)
        memmove(text, text + begin, strlen(text + begin) + 1), begin = 0;
    if (code == ARIL_ERR_MEMORY) name_call(text + begin, sizeof text - begin);
    make_printable(text);
    hide_sizes(text, sizeof text);
    size_t located = aril__location(location, sizeof location);

    size_t size = strlen(text) + (located ? strlen(location) + 4 : 0) + 1;
    aril__allocations_allow(); /* a kernel may fail */
    aril__error *e = aril__malloc(sizeof *e + size);
    aril__allocations_allow_end();
    if (e) {
        atomic_init(&e->refs, 1);
        e->code = code;
        char *message = (char *)(e + 1);
        e->message = message;
        e->text = located ? strlen(text) : 0;
        snprintf(message, size, located ? "%s at %s" : "%s", text, location);
    } else {
        e = &out_of_memory;
    }
    aril__raise_error(e);
    aril__error_release(e);
    return code;
}

aril_status aril__fail_about(aril_status code, const char *about)
{
    aril__error *old = aril__self()->error;
    if (!old) return code;
    size_t size = strlen(about) + 2 + strlen(old->message) + 1;
    aril__error *e = aril__malloc(sizeof *e + size);
    if (!e) return code; /* it stays as it was */
    atomic_init(&e->refs, 1);
    e->code = old->code;
    char *message = (char *)(e + 1);
    e->message = message;
    e->text = old->text ? strlen(about) + 2 + old->text : 0;
    snprintf(message, size, "%s: %s", about, old->message);
    make_printable(message);
    aril_clear_error();
    aril__raise_error(e);
    aril__error_release(e);
    return code;
}

void aril__error_text(char *buf, size_t size)
{
    const aril__error *e = aril__self()->error;
    if (e && e->text)
        snprintf(buf, size, "%.*s", (int)e->text, e->message);
    else
        snprintf(buf, size, "%s", e ? e->message : "");
}

void aril_set_error_locations(bool on)
{
    aril__location_off = !on;
}

aril_status aril_fail(aril_status code, const char *format, ...)
{
    char text[MESSAGE_MAX];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof text, format ? format : "", ap);
    va_end(ap);
    return aril__fail(aril__foreign_code(code, ARIL_ERR_ARG), "%s", text);
}

aril_status aril__foreign_code(aril_status s, aril_status other)
{
    return s < 0 && strcmp(aril_status_name(s), "?") != 0 ? s : other;
}

aril_status aril__foreign_error(aril_status s, const char *who, const char *function)
{
    aril_status code = aril__foreign_code(s, ARIL_ERR_DEVICE);
    if (code == s && aril__self()->last_error) return s;
    return aril__fail(code, "%s: %s failed with status %d (%s)", who, function, s,
                      code == s ? aril_status_text(s) : "not one of Aril's");
}

void aril__assert_failed(const char *cond, const char *file, int line)
{
    fprintf(stderr, "aril: internal error: %s does not hold at %s:%d\n", cond, file, line);
    abort();
}

bool aril_ok(void)
{
    return !aril__self()->error;
}

const char *aril_error(void)
{
    aril__error *e = aril__self()->error;
    return e ? e->message : "";
}

aril_status aril_error_code(void)
{
    aril__error *e = aril__self()->error;
    return e ? e->code : ARIL_OK;
}

void aril_clear_error(void)
{
    aril__thread *th = aril__self();
    aril__error_release(th->error);
    aril__error_release(th->last_error);
    th->error = th->last_error = NULL;
}

int aril_report(FILE *to)
{
    aril__error *e = aril__self()->error;
    if (!e) return 0;
    fprintf(to, "aril: %s\n", e->message);
    return 1;
}

void aril_set_error_handler(aril_error_handler *fn, void *ctx)
{
    pthread_mutex_lock(&handler_lock);
    handler = fn;
    handler_ctx = ctx;
    pthread_mutex_unlock(&handler_lock);
}
