/* What the user sees of a fit: a line that is drawn again and again in a terminal, a line for each
 * epoch elsewhere, or nothing. */
#ifndef ARIL_TRAIN_PROGRESS_H
#define ARIL_TRAIN_PROGRESS_H

#include "aril/base.h"

typedef enum aril__progress_mode {
    ARIL__PROGRESS_NONE,
    ARIL__PROGRESS_BAR,
    ARIL__PROGRESS_LINES
} aril__progress_mode;

typedef struct aril__progress {
    FILE *to;
    aril__progress_mode mode;
    bool utf8, colour;
    char title[48];   /* "Epoch 3/10" */
    const char *unit; /* "img/s" */
    int64_t total;    /* batches; -1: not known */
    int64_t skipped;  /* batches and samples that were done before the clock started */
    int64_t skipped_samples;
    double started;
    double next;  /* when it is to be drawn again */
    bool open;    /* a line is being drawn */
    int width;    /* of the terminal when it was drawn last */
    double asked; /* when it was last asked whether to draw */
} aril__progress;

/* What stands in the line beside the bar. */
typedef struct aril__progress_at {
    int64_t batch, samples; /* done */
    int n;                  /* values */
    const char *const *name;
    const double *value;
    const char *note; /* "val 12/40", or NULL */
} aril__progress_at;

/* verbose as in aril_fit_opts; `to` NULL: stdout. `images`: samples are called img. */
void aril__progress_start(aril__progress *p, FILE *to, int verbose, bool images);

/* Begins a line; `batch` and `samples` were done before. */
void aril__progress_begin(aril__progress *p, const char *title, int64_t total, int64_t batch,
                          int64_t samples);

/* True when it is time to draw: the caller then finds the values and calls aril__progress_draw. */
bool aril__progress_due(aril__progress *p);
void aril__progress_draw(aril__progress *p, const aril__progress_at *at);

/* Draws the line for the last time and ends it. `seconds`: what the batches took, without what came
 * after them. */
void aril__progress_end(aril__progress *p, const aril__progress_at *at, double seconds);

/* Says something in a line of its own, unless nothing is to be seen. */
void aril__progress_note(aril__progress *p, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Ends a line that will not be finished, and leaves it. */
void aril__progress_break(aril__progress *p);

/* The line as text, not more than `width` columns wide (0: any). Returns how many it takes. For
 * tests as much as for drawing. */
int aril__progress_line(const aril__progress *p, const aril__progress_at *at, double seconds,
                        bool finished, int width, char *buf, size_t size);

/* The end of a line as text: all values, in several lines where one of `width` columns is too
 * narrow for them; those of validation begin a line then. */
void aril__progress_result(const aril__progress *p, const aril__progress_at *at, double seconds,
                           int width, char *buf, size_t size);

#endif
