/* Plug-ins that break the rules of aril/plugin.h: whatever they answer, the caller gets an error
 * with a message, and nothing is registered by half. */
#include "aril/aril.h"
#include "core/device.h"
#include "ops/table/plans.h"
#include "ops/table/rows.h"
#include "support/test.h"

#include <stdlib.h>
#include <string.h>

static const aril_host *host;

/* ---- a device whose functions answer what a test wants ---- */

static struct {
    aril_status from_host, to_host, copy, run, poll;
    bool fill_text; /* poll leaves its texts without an end */
    aril_plan plan;
    struct {
        bool asked;
        int index, dtype, ndim;
        int64_t dim[2];
    } alloc_out;
} answer;

static void *get(void *self, aril_queue *queue, size_t bytes)
{
    (void)self;
    (void)queue;
    return aligned_alloc(64, (bytes + 63) / 64 * 64);
}

static void give(void *self, aril_queue *queue, void *p, size_t bytes)
{
    (void)self;
    (void)queue;
    (void)bytes;
    free(p);
}

static aril_status write(void *self, aril_queue *queue, void *dst, const void *src, size_t bytes,
                         bool async)
{
    (void)self;
    (void)queue;
    (void)async;
    if (answer.from_host == ARIL_OK) memcpy(dst, src, bytes);
    return answer.from_host;
}

static aril_status read(void *self, aril_queue *queue, void *dst, const void *src, size_t bytes,
                        bool async)
{
    (void)self;
    (void)queue;
    (void)async;
    if (answer.to_host == ARIL_OK) memcpy(dst, src, bytes);
    return answer.to_host;
}

static aril_status copy(void *self, aril_queue *queue, void *dst, const void *src, size_t bytes)
{
    (void)self;
    (void)queue;
    if (answer.copy == ARIL_OK) memcpy(dst, src, bytes);
    return answer.copy;
}

static aril_status poll(void *self, aril_late_error *error)
{
    (void)self;
    if (answer.fill_text) {
        memset(error->op, 'o', sizeof error->op);
        memset(error->text, 't', sizeof error->text);
    }
    return answer.poll;
}

static int queues, queues_until_failure = 1000, waits;

static aril_queue *queue_new(void *self)
{
    (void)self;
    static char some[64];
    if (queues_until_failure-- == 0) return NULL;
    return (aril_queue *)(void *)&some[queues++];
}

static void queue_free(void *self, aril_queue *queue)
{
    (void)self;
    (void)queue;
    queues--;
}

static aril_status queue_wait(void *self, aril_queue *queue)
{
    (void)self;
    (void)queue;
    waits++;
    return ARIL_OK;
}

static aril_status synchronize(void *self)
{
    (void)self;
    return ARIL_OK;
}

static const aril_device_ops ops = { .size = sizeof ops,
                                     .alloc = get,
                                     .free = give,
                                     .from_host = write,
                                     .to_host = read,
                                     .copy = copy,
                                     .queue_new = queue_new,
                                     .queue_free = queue_free,
                                     .queue_wait = queue_wait,
                                     .synchronize = synchronize,
                                     .poll = poll };

static const char *prepare(const aril_run *r, aril_plan *plan)
{
    (void)r;
    *plan = answer.plan;
    return NULL;
}

static aril_status run(aril_run *r)
{
    if (answer.alloc_out.asked)
        return host->alloc_out(r, answer.alloc_out.index, (aril_dtype)answer.alloc_out.dtype,
                               answer.alloc_out.ndim, answer.alloc_out.dim);
    return answer.run;
}

static int prepared; /* objects of plans */

static const char *prepare_object(const aril_run *r, aril_plan *plan)
{
    prepare(r, plan);
    plan->prepared = &prepared;
    prepared++;
    return NULL;
}

static void destroy_object(void *object)
{
    (*(int *)object)--;
}

static const aril_row good_rows[] = {
    { .op = "relu", .name = "hostile_relu", .dtypes = ~0u, .prepare = prepare, .run = run },
    { .op = "cumsum", .name = "hostile_cumsum", .dtypes = ~0u, .prepare = prepare, .run = run },
    { .op = "nonzero", .name = "hostile_nonzero", .dtypes = ~0u, .run = run },
    { .op = "tanh", .name = "hostile_tanh", .dtypes = ~0u, .strided = true, .run = run },
    { .op = "gru_seq",
      .name = "hostile_gru",
      .dtypes = ~0u,
      .prepare = prepare_object,
      .run = run,
      .destroy = destroy_object },
    { .op = "lstm_seq",
      .name = "hostile_lstm",
      .dtypes = ~0u,
      .reserve = "hostile",
      .prepare = prepare,
      .run = run },
};

static aril_plugin offered;

static aril_status open_offered(const aril_host *given, aril_plugin *out)
{
    host = given;
    *out = offered;
    return ARIL_OK;
}

static void *const selves[64];

static aril_plugin plugin_of(const char *kind, int n_devices, const aril_row *rows, int n_rows)
{
    return (aril_plugin){ .size = sizeof(aril_plugin),
                          .version = ARIL_PLUGIN_VERSION,
                          .name = "hostile",
                          .kind = kind,
                          .n_devices = n_devices,
                          .device_ops = &ops,
                          .devices = selves,
                          .n_rows = n_rows,
                          .rows = rows };
}

/* The device of all tests; its plug-in is registered once, and starts well-behaved. */
static aril_device hostile(void)
{
    if (aril__device_kind("hostile") < 0) {
        offered = plugin_of("hostile", 1, good_rows, sizeof good_rows / sizeof *good_rows);
        if (aril__plugin_add("hostile.so", open_offered) < 0)
            test_fail(__FILE__, __LINE__, "%s", aril_error());
    }
    memset(&answer, 0, sizeof answer);
    aril__plans_outdate(); /* each test answers anew */
    return aril_device_named("hostile:0");
}

static aril_tensor *six(aril_device d)
{
    return aril_to(aril_arange(0, 6, 1, ARIL_F32, aril_cpu()), d);
}

static void expect_error(aril_tensor *t, aril_status code, const char *text)
{
    CHECK_INT(aril_tensor_status(t), code);
    CHECK_MSG(strstr(aril_error(), text), "expected '%s', got '%s'", text, aril_error());
    aril_clear_error();
}

/* ---- plans ---- */

TEST(plans_with_impossible_answers_are_errors)
{
    ARIL_SCOPE;
    aril_tensor *x = six(hostile()), *cube = aril_reshape(x, ARIL_SHAPE(1, 2, 3));
    for (int out = 0; out < 2; out++) {
        aril_operand *o = out ? &answer.plan.out[0] : &answer.plan.in[0];
        hostile();
        o->dtype = 200;
        expect_error(aril_relu(x), ARIL_ERR_PLUGIN, "'hostile_relu' names an unknown dtype");
        hostile();
        o->order = 5;
        expect_error(aril_cumsum(cube, 0), ARIL_ERR_PLUGIN, "names an unknown memory order");
        hostile();
        for (int k = ARIL_ORDER_CHANNELS_LAST; k <= ARIL_ORDER_HEADS_INNER; k++) {
            o->order = (uint8_t)k;
            expect_error(aril_cumsum(x, 0), ARIL_ERR_PLUGIN, "fewer than 3 dimensions");
            CHECK_INT(aril_tensor_status(aril_cumsum(cube, 0)), ARIL_OK);
        }
    }
    hostile();
    answer.plan.workspace = SIZE_MAX;
    expect_error(aril_relu(x), ARIL_ERR_MEMORY, "out of memory");
}

static aril_tensor *run_layer(aril_module *layer, aril_device d)
{
    aril_tensor *x = aril_to(aril_ones(ARIL_SHAPE(3, 2, 4), ARIL_F32, aril_cpu()), d);
    aril_module_to(layer, d);
    aril_tensor *y = aril_forward(layer, x);
    aril_module_release(layer);
    return y;
}

TEST(reserves_have_a_format_and_a_size_that_can_be)
{
    ARIL_SCOPE;
    aril_device d = hostile();
    answer.plan.reserve = 100; /* the row names no format, so that it does not run */
    CHECK_INT(aril_tensor_status(run_layer(aril_nn_gru(4, 5), d)), ARIL_OK);
    CHECK_INT(prepared, 0);
    answer.plan.reserve = SIZE_MAX;
    expect_error(run_layer(aril_nn_lstm(4, 5), d), ARIL_ERR_PLUGIN, "more than 2^47 bytes");
    hostile();
}

/* ---- statuses ---- */

TEST(every_status_but_ok_is_an_error_with_a_message)
{
    static const aril_status codes[] = { 1, 700, ARIL_ERR_ARG, -999 };
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        ARIL_SCOPE;
        aril_status expected = codes[i] == ARIL_ERR_ARG ? ARIL_ERR_ARG : ARIL_ERR_DEVICE;
        aril_tensor *x = six(hostile());
        answer.run = codes[i];
        expect_error(aril_relu(x), expected, "relu: hostile_relu failed with status");
        expect_error(aril_tanh(x), expected, "tanh: hostile_tanh failed with status");
        expect_error(aril_relu(aril_slice(x, 0, 0, 6, 2)), expected, "hostile_relu failed");
        hostile();
        answer.from_host = codes[i];
        expect_error(six(aril_device_of(x)), expected, "hostile: from_host failed with status");
        hostile();
        answer.to_host = codes[i];
        expect_error(aril_to(x, aril_cpu()), expected, "hostile: to_host failed with status");
        hostile();
        answer.copy = codes[i];
        expect_error(aril_copy(x), expected, "hostile: copy failed with status");
        hostile();
        answer.poll = codes[i];
        CHECK_INT(aril_synchronize(aril_device_of(x)), expected);
        CHECK_MSG(strstr(aril_error(), "hostile: failed (reported late)"), "%s", aril_error());
        aril_clear_error();
    }
    hostile();
}

/* The gradient of the product needs values that a kernel may have overwritten before it failed. */
TEST(a_write_that_fails_counts_as_a_write)
{
    ARIL_SCOPE;
    aril_tensor *x = six(hostile()), *a = aril_parameter(six(aril_device_of(x)));
    aril_tensor *loss = aril_sum(aril_mul(a, x), ARIL_ALL);
    answer.run = ARIL_ERR_DEVICE;
    expect_error(aril_relu_(x), ARIL_ERR_DEVICE, "hostile_relu failed");
    hostile();
    CHECK_INT(aril_backward(loss), ARIL_ERR_GRAD);
    aril_clear_error();
    aril_release(a);
}

TEST(late_errors_may_fill_their_texts)
{
    aril_device d = hostile();
    answer.fill_text = true;
    answer.poll = ARIL_ERR_DEVICE;
    CHECK_INT(aril_synchronize(d), ARIL_ERR_DEVICE);
    CHECK_INT(strspn(aril_error(), "o"), 47);
    CHECK_INT(strspn(aril_error() + 49, "t"), 255);
    aril_clear_error();
    hostile();
}

/* ---- results that rows allocate ---- */

static aril_tensor *nonzero_of(aril_tensor *x, int index, int dtype, int ndim, int64_t size)
{
    hostile();
    answer.alloc_out.asked = true;
    answer.alloc_out.index = index;
    answer.alloc_out.dtype = dtype;
    answer.alloc_out.ndim = ndim;
    answer.alloc_out.dim[0] = answer.alloc_out.dim[1] = size;
    return aril_nonzero(x);
}

TEST(results_are_only_allocated_as_they_can_be)
{
    ARIL_SCOPE;
    aril_tensor *x = six(hostile());
    for (int strided = 0; strided < 2; strided++) {
        if (strided) x = aril_slice(x, 0, 0, 6, 2);
        expect_error(nonzero_of(x, 9, ARIL_I64, 2, 1), ARIL_ERR_PLUGIN, "there is none");
        expect_error(nonzero_of(x, 0, 99, 2, 1), ARIL_ERR_PLUGIN, "with dtype 99");
        expect_error(nonzero_of(x, 0, ARIL_I64, 99, 1), ARIL_ERR_PLUGIN, "99 dimensions");
        expect_error(nonzero_of(x, 0, ARIL_I64, 1, -3), ARIL_ERR_PLUGIN, "with size -3");
        CHECK_INT(aril_tensor_status(nonzero_of(x, 0, ARIL_I64, 2, 1)), ARIL_OK);
        expect_error(aril_relu(x), ARIL_ERR_PLUGIN, "its memory is there");
        hostile();
        expect_error(aril_nonzero(x), ARIL_ERR_PLUGIN, "did not allocate result 0");
    }
}

/* ---- pinned memory ---- */

static int event_status, event_answer;

static aril_event *event_new(void *self)
{
    static char some;
    (void)self;
    return (aril_event *)(void *)&some;
}

static void event_free(void *self, aril_event *event)
{
    (void)self;
    (void)event;
}

static aril_status event_record(void *self, aril_event *event, aril_queue *queue)
{
    (void)self;
    (void)event;
    (void)queue;
    return event_status;
}

static int event_query(void *self, aril_event *event)
{
    (void)self;
    (void)event;
    return event_answer;
}

static void *pinned_alloc(void *self, size_t bytes)
{
    (void)self;
    return malloc(bytes);
}

static void pinned_free(void *self, void *p, size_t bytes)
{
    (void)self;
    (void)bytes;
    free(p);
}

/* How often the queue is waited for when a block is copied from, and then released. */
static void count_waits(aril__device *d, int copying, int releasing)
{
    char there[8];
    aril__pinned *block = aril__pinned_new(d, sizeof there);
    CHECK(block != NULL);
    waits = 0;
    memset(block->data, 0, sizeof there);
    CHECK_INT(aril__pinned_write(d, there, block, block->data, sizeof there), ARIL_OK);
    CHECK_INT(waits, copying);
    aril__pinned_release(block->data, block);
    CHECK_INT(waits, copying + releasing);
}

TEST(pinned_memory_outlives_its_copy_when_events_fail)
{
    static aril_device_ops with_events;
    with_events = ops;
    with_events.event_new = event_new;
    with_events.event_free = event_free;
    with_events.event_record = with_events.event_wait = event_record;
    with_events.event_query = event_query;
    with_events.pinned_alloc = pinned_alloc;
    with_events.pinned_free = pinned_free;
    hostile(); /* well-behaved */
    aril__device *d = aril__device_register("pinning", 0, &with_events, NULL, false);
    CHECK(d != NULL);
    event_answer = 1; /* passed */
    count_waits(d, 0, 0);
    event_answer = 0; /* not yet */
    count_waits(d, 0, 1);
    event_answer = ARIL_ERR_DEVICE; /* unknown */
    count_waits(d, 0, 1);
    event_answer = 1;
    event_status = ARIL_ERR_DEVICE; /* it marks nothing */
    count_waits(d, 1, 0);
}

/* ---- registration ---- */

static void expect_refusal(aril_plugin p, const char *text)
{
    int devices = aril_device_count(), before = queues;
    offered = p;
    CHECK(aril__plugin_add("hostile.so", open_offered) < 0);
    CHECK_MSG(strstr(aril_error(), text), "expected '%s', got '%s'", text, aril_error());
    aril_clear_error();
    CHECK_INT(aril_device_count(), devices);
    CHECK_INT(queues, before);
}

TEST(kinds_have_names_that_can_be_asked_for)
{
    expect_refusal(plugin_of("", 1, NULL, 0), "cannot name a kind");
    expect_refusal(plugin_of("a:b", 1, NULL, 0), "cannot name a kind");
    expect_refusal(plugin_of("a_name_of_24_characters_", 1, NULL, 0), "use 1 to 23 characters");
    expect_refusal(plugin_of("cpu", 1, NULL, 0), "already registered");
}

TEST(a_plugin_is_registered_as_a_whole_or_not_at_all)
{
    const aril_row without_prepare[] = {
        { .op = "relu", .name = "half_relu", .dtypes = ~0u, .run = run },
        { .op = "lstm_seq", .name = "half_lstm", .dtypes = ~0u, .run = run }
    };
    const aril_row unstaged = {
        .op = "relu", .name = "r", .dtypes = ~0u, .native = 1u << ARIL_BF16, .run = run
    };
    const aril_row without_dtypes = { .op = "relu", .name = "r", .run = run };
    expect_refusal(plugin_of("half", 1, &without_dtypes, 1), "accepts no dtype");
    expect_refusal(plugin_of("half", 1, without_prepare, 2), "needs `prepare`");
    expect_refusal(plugin_of("half", 1, &unstaged, 1), "is not in `native`");
    expect_refusal(plugin_of("half", 40, NULL, 0), "too many devices");
    queues_until_failure = 2;
    expect_refusal(plugin_of("half", 3, NULL, 0), "cannot create a queue");
    queues_until_failure = 1000;
    CHECK_INT(aril__device_kind("half"), -1);
}
