/* Progress output of a fit: a line redrawn in place in a terminal, one line per epoch elsewhere, or
 * nothing. */
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
    bool utf8, color, bytes; /* bytes: of a download, in the place of batches and samples */
    char title[48];          /* "Epoch 3/10" */
    const char *unit;        /* "img/s" */
    int64_t total;           /* batches; -1: unknown */
    int64_t skipped;         /* batches and samples done before the clock started */
    int64_t skipped_samples;
    double started;
    double next;  /* time of the next redraw */
    bool open;    /* a line is being redrawn */
    int width;    /* of the terminal at the last redraw */
    double asked; /* time of the last aril__progress_due */
} aril__progress;

/* The contents of the line beside the bar. */
typedef struct aril__progress_at {
    int64_t batch, samples; /* done */
    int n;                  /* number of values */
    const char *const *name;
    const double *value;
    const char *note; /* "val 12/40", or NULL */
} aril__progress_at;

/* verbose as in aril_fit_opts; `to` NULL: stdout. `images`: the unit is img, not samples. */
void aril__progress_start(aril__progress *p, FILE *to, int verbose, bool images);

/* Starts a line; `batch` and `samples` were already done. */
void aril__progress_begin(aril__progress *p, const char *title, int64_t total, int64_t batch,
                          int64_t samples);

/* True when a redraw is due: the caller then computes the values and calls aril__progress_draw. */
bool aril__progress_due(aril__progress *p);
void aril__progress_draw(aril__progress *p, const aril__progress_at *at);

/* Draws the line for the last time and ends it. `seconds`: the time of the batches only. */
void aril__progress_end(aril__progress *p, const aril__progress_at *at, double seconds);

/* Prints a message on a line of its own, unless progress is off. */
void aril__progress_note(aril__progress *p, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Ends an unfinished line, leaving it visible. */
void aril__progress_break(aril__progress *p);

/* Formats the line with at most `width` columns (0: no limit). Returns the columns used. Used for
 * drawing and by tests. */
int aril__progress_line(const aril__progress *p, const aril__progress_at *at, double seconds,
                        bool finished, int width, char *buf, size_t size);

/* Formats the final result: all values, on several lines if `width` columns are too narrow; then
 * validation values start a new line. */
void aril__progress_result(const aril__progress *p, const aril__progress_at *at, double seconds,
                           int width, char *buf, size_t size);

#endif
