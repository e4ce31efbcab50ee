#include "core/ended.h"

#include "core/source_location.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define ENDED \
    "used after its scope ended or after its last aril_release; aril_escape or aril_keep it"

bool aril__debug_scopes;

aril__error aril__ended_error = { .code = ARIL_ERR_STATE, .message = "a tensor was " ENDED };

typedef struct traced {
    aril_tensor t;
    struct traced *next; /* among those that have ended */
    char made_at[56];
} traced;

static struct {
    pthread_mutex_t lock;
    traced *first;
    int64_t count;
} retired = { .lock = PTHREAD_MUTEX_INITIALIZER };

void aril__debug_init(void)
{
    const char *list = getenv("ARIL_DEBUG");
    while (list && *list) {
        size_t n = strcspn(list, ",");
        if (n == 6 && memcmp(list, "scopes", n) == 0)
            aril__debug_scopes = true;
        else if (n)
            fprintf(stderr, "aril: ARIL_DEBUG: unknown '%.*s'; known is scopes\n", (int)n, list);
        list += n + (list[n] == ',');
    }
}

aril_tensor *aril__traced_header(aril__thread *th)
{
    traced *h = aril__slab_alloc(&th->slab, sizeof *h);
    if (!h) return NULL;
    aril__location(h->made_at, sizeof h->made_at);
    return &h->t;
}

void aril__traced_retire(aril_tensor *t)
{
    traced *h = (traced *)(void *)t;
    pthread_mutex_lock(&retired.lock);
    h->next = retired.first;
    retired.first = h;
    retired.count++;
    pthread_mutex_unlock(&retired.lock);
}

int64_t aril__traced_count(void)
{
    pthread_mutex_lock(&retired.lock);
    int64_t n = retired.count;
    pthread_mutex_unlock(&retired.lock);
    return n;
}

void aril__traced_shutdown(aril__thread *th)
{
    pthread_mutex_lock(&retired.lock);
    traced *h = retired.first;
    retired.first = NULL;
    retired.count = 0;
    pthread_mutex_unlock(&retired.lock);
    while (h) {
        traced *next = h->next;
        aril__slab_free(&th->slab, h, sizeof *h);
        h = next;
    }
}

aril_status aril__fail_ended(const char *what, int input, const aril_tensor *t)
{
    char who[32] = "a tensor", made[96] = "ARIL_DEBUG=scopes shows where it was made";
    if (what && input < 0)
        snprintf(who, sizeof who, "the tensor");
    else if (what)
        snprintf(who, sizeof who, "input %d", input);
    if (aril__debug_scopes) {
        const traced *h = (const traced *)(const void *)t;
        snprintf(made, sizeof made, "it was made at %s", *h->made_at ? h->made_at : "?");
    }
    /* "add: input 1", "item: the tensor", "a tensor" */
    return aril__fail(ARIL_ERR_STATE, "%s%s%s was " ENDED " (%s)", what ? what : "",
                      what ? ": " : "", who, made);
}

aril_status aril__refuse_poison(const char *what, int input, const aril_tensor *t)
{
    if (t->flags & ARIL__ENDED) return aril__fail_ended(what, input, t);
    aril__adopt_error(t->u.error);
    return t->u.error->code;
}

aril_tensor *aril__pass_on(aril_tensor *t)
{
    /* A tensor of its own: dropping the result must not end the argument, and the header of an
     * ended tensor may soon be another's. */
    return t->flags & ARIL__ENDED ? aril__poison() : aril__poison_like(t);
}
