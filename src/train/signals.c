#include "train/signals.h"

#include "core/error.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>

enum { SIGNALS = 2 };
static const int watched[SIGNALS] = { SIGINT, SIGTERM };
static struct sigaction before[SIGNALS];
static volatile sig_atomic_t ours[SIGNALS]; /* our handler is installed */
static volatile sig_atomic_t caught;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int users;

/* Sets the flag and restores the previous handler: a second signal gets the program's own
 * handling. */
static void handler(int sig)
{
    int error = errno;
    caught = sig;
    for (int i = 0; i < SIGNALS; i++)
        if (watched[i] == sig && ours[i]) {
            ours[i] = 0;
            sigaction(sig, &before[i], NULL);
        }
    errno = error;
}

static void put_back(void)
{
    for (int i = 0; i < SIGNALS; i++)
        if (ours[i]) {
            ours[i] = 0;
            sigaction(watched[i], &before[i], NULL);
        }
}

aril_status aril__signals_begin(void)
{
    aril_status status = ARIL_OK;
    pthread_mutex_lock(&lock);
    if (users++ == 0) {
        caught = 0;
        struct sigaction mine = { .sa_handler = handler, .sa_flags = SA_RESTART };
        sigemptyset(&mine.sa_mask);
        for (int i = 0; i < SIGNALS && status == ARIL_OK; i++) {
            /* A signal that is ignored (nohup, background jobs) stays ignored. */
            if (sigaction(watched[i], NULL, &before[i]) == 0 && before[i].sa_handler == SIG_IGN)
                continue;
            ours[i] = 1;
            if (sigaction(watched[i], &mine, NULL) == 0) continue;
            ours[i] = 0;
            status = aril__fail(ARIL_ERR_STATE, "cannot set a handler for signal %d: %s",
                                watched[i], strerror(errno));
        }
        if (status != ARIL_OK) {
            put_back();
            users--;
        }
    }
    pthread_mutex_unlock(&lock);
    return status;
}

void aril__signals_end(void)
{
    pthread_mutex_lock(&lock);
    if (users > 0 && --users == 0) put_back();
    pthread_mutex_unlock(&lock);
}

int aril__signals_caught(void)
{
    return caught;
}
