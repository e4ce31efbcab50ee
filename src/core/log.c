#include "core/log.h"
#include "core/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LINE_SIZE = 1024 };

static const struct {
    const char *name;
    unsigned bit;
} subjects[] = {
    { "dispatch", ARIL__LOG_DISPATCH }, { "memory", ARIL__LOG_MEMORY },
    { "autograd", ARIL__LOG_AUTOGRAD }, { "trace", ARIL__LOG_TRACE },
    { "plugin", ARIL__LOG_PLUGIN },     { "tuning", ARIL__LOG_TUNING },
    { "passes", ARIL__LOG_PASSES },
};

enum { N_SUBJECTS = sizeof subjects / sizeof subjects[0] };

unsigned aril__log_mask;
static atomic_bool chosen; /* by aril_set_log, which overrides the environment */

/* stderr is unbuffered, but stdio may still split a line: write(2) of up to a page is not mixed
 * with other writers on pipes, and practically not on terminals and files. */
static void write_line(const char *line, size_t length)
{
    while (length) {
        ssize_t n = write(STDERR_FILENO, line, length);
        if (n < 0) {
            if (errno == EINTR) continue;
            return; /* the log cannot report its own failure */
        }
        line += n;
        length -= (size_t)n;
    }
}

void aril__log(unsigned what, const char *fmt, ...)
{
    if (!aril__log_on(what)) return;

    int saved_errno = errno;
    const char *subject = "log";
    for (size_t i = 0; i < N_SUBJECTS; i++)
        if (subjects[i].bit & what) {
            subject = subjects[i].name;
            break;
        }

    char line[LINE_SIZE];
    int head = snprintf(line, sizeof line, "aril: %s: ", subject);
    size_t capacity = sizeof line - (size_t)head;
    va_list args;
    va_start(args, fmt);
    int body = vsnprintf(line + head, capacity, fmt, args);
    va_end(args);
    if (body < 0) body = 0;

    size_t length = (size_t)head + (size_t)body;
    if ((size_t)body >= capacity) {
        length = sizeof line - 1;
        memcpy(line + length - 3, "...", 3);
    }
    line[length++] = '\n'; /* replaces the terminating 0 */
    write_line(line, length);
    errno = saved_errno;
}

/* Finds the next name in a comma-separated list, without surrounding blanks; false at the end. */
static bool next_name(const char **list, const char **name, size_t *length)
{
    const char *p = *list + strspn(*list, ", \t");
    if (!*p) return false;
    size_t n = strcspn(p, ",");
    *list = p + n;
    while (p[n - 1] == ' ' || p[n - 1] == '\t') n--;
    *name = p;
    *length = n;
    return true;
}

static unsigned bit_of(const char *name, size_t length)
{
    if (length == 3 && memcmp(name, "all", 3) == 0) return ARIL__LOG_METER - 1;
    for (size_t i = 0; i < N_SUBJECTS; i++)
        if (strlen(subjects[i].name) == length && memcmp(subjects[i].name, name, length) == 0)
            return subjects[i].bit;
    return 0;
}

/* Returns the known names' bits. `unknown` gets the other names, quoted, and the list of valid
 * ones; it is empty when there are none. */
static unsigned parse(const char *list, char unknown[static LINE_SIZE])
{
    unsigned mask = 0;
    size_t used = 0;
    const char *name;
    size_t length;

    unknown[0] = 0;
    while (next_name(&list, &name, &length)) {
        unsigned bit = bit_of(name, length);
        mask |= bit;
        if (bit || used >= LINE_SIZE / 2) continue;
        int shown = length > 64 ? 64 : (int)length;
        int n =
            snprintf(unknown + used, LINE_SIZE - used, "%s'%.*s'", used ? ", " : "", shown, name);
        used += n > 0 ? (size_t)n : 0;
    }
    if (used) {
        const char *before = "; known are ";
        for (size_t i = 0; i < N_SUBJECTS; i++, before = ", ") {
            int n = snprintf(unknown + used, LINE_SIZE - used, "%s%s", before, subjects[i].name);
            used += n > 0 ? (size_t)n : 0;
        }
        snprintf(unknown + used, LINE_SIZE - used, " and all");
    }
    return mask;
}

/* The bits of profile and meter are not the user's to change here. */
static void set_subjects(unsigned mask)
{
    __atomic_fetch_and(&aril__log_mask, ARIL__LOG_PROFILE | ARIL__LOG_METER, __ATOMIC_RELAXED);
    __atomic_fetch_or(&aril__log_mask, mask, __ATOMIC_RELAXED);
}

void aril__log_init(void)
{
    const char *list = getenv("ARIL_LOG");
    if (!list || atomic_load(&chosen)) return;
    char unknown[LINE_SIZE], line[LINE_SIZE + 32];
    unsigned mask = parse(list, unknown);
    if (unknown[0]) {
        int n = snprintf(line, sizeof line, "aril: ARIL_LOG: unknown %s\n", unknown);
        write_line(line, n > 0 ? (size_t)n : 0);
    }
    set_subjects(mask);
}

aril_status aril_set_log(const char *list)
{
    char unknown[LINE_SIZE];
    unsigned mask = parse(list ? list : "", unknown);
    if (unknown[0]) return aril__fail(ARIL_ERR_ARG, "set_log: unknown %s", unknown);
    atomic_store(&chosen, true);
    set_subjects(mask);
    return ARIL_OK;
}
