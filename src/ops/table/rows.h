/* Kernel rows: how a backend offers its kernels. Listing a row is enough to enable it, fastest
 * first; no switch statement names it. The row struct is public, for plug-ins: aril/plugin.h. */
#ifndef ARIL_OPS_ROWS_H
#define ARIL_OPS_ROWS_H

#include "aril/plugin.h"
#include "ops/table/op.h"

typedef aril_plan aril__plan;
typedef aril_row aril__row;

/* Appends rows to those of a device kind. Rows must stay in memory. */
aril_status aril__rows_register(int kind, const aril__row *rows, int n);

/* Appends one row, which names no op, to those of every elementwise op: `careful` if the op may
 * fail (integer division by zero), else `row`. They must stay in memory. */
aril_status aril__rows_register_formulas(int kind, const aril__row *row, const aril__row *careful);

/* Adds rows behind the reference: alternative kernels that are not the fastest. They run only if a
 * row is forced, and are tested like the others. */
aril_status aril__rows_register_behind(int kind, const aril__row *rows, int n);

/* The rows of an op in the order in which they are tried, those behind the reference last: returns
 * their number and writes the first `n` to `to`. *n_default: how many precede the reference. */
int aril__rows_of(int kind, const aril__op *op, int n, const aril__row **to, int *n_default);

/* Whether rows of the device have plans for the op in that dtype, which may give its results an
 * order. */
bool aril__rows_prepare(const aril__device *d, const aril__op *op, aril_dtype type);

/* The row that runs the op in that dtype on operands of any strides without plan, staging or
 * workspace; NULL if the one to run is not of this kind. */
const aril__row *aril__row_direct(const aril__device *d, const aril__op *op, aril_dtype type);

/* Runs such a row; what it returns may come from a plug-in, and is checked. */
aril_status aril__run_direct(const aril__row *row, aril__run *r);

/* The size of a reserve: `bytes`, rounded up, plus the number of its format. So the shape of a
 * reserve says what it holds: no value has to be read from a device to find out, and copies keep
 * it. 0 without a format. */
int64_t aril__reserve_size(const char *format, size_t bytes);
/* Whether the reserve `t`, or NULL, has that format. */
bool aril__reserve_is(const aril_tensor *t, const char *format);

/* For tests: forces the k-th row of the op that accepts the call; the reference if there are not so
 * many. -1: the default choice. */
enum { ARIL__FORCE_REFERENCE = 1000 }; /* more rows than any op has */
extern _Thread_local int aril__force_row;

/* An op's attributes as text, "stride I64 3; pad I64 6; ", and a hash over those of all ops. */
const char *aril__layout_text(const aril__op *op, char *buf, size_t size);
uint64_t aril__layout_hash(void);

/* Registers a plug-in that is part of the program; `name` stands for its path in messages. */
aril_status aril__plugin_add(const char *name, aril_plugin_open_fn *open);

/* Opens the plug-ins that are found beside the library and by ARIL_PLUGINS and that may have
 * devices of that kind (NULL: all). Each is opened once. */
void aril__plugins_open(const char *kind);
/* Why there are no devices of a kind, by the plug-ins found; "" if one was opened. */
void aril__plugins_reason(const char *kind, char *buf, size_t size);
void aril__plugins_shutdown(void);

/* The queue that a run puts its work into: this thread's on the device. Orders it after work of
 * other queues on the run's tensors. */
aril_queue *aril__run_queue(const aril__run *r);

void aril__rows_shutdown(void);
void aril__plans_shutdown(void);

#endif
