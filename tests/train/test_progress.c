/* Progress output of a fit: in a terminal of any width, through a pipe, and silent. */
#include "aril/aril.h"
#include "support/temp.h"
#include "support/test.h"
#include "train/progress.h"
#include "train/terminal.h"

#include <errno.h>
#include <poll.h>
#include <pty.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- the line ---- */

static const char *const names[] = {
    "loss", "accuracy", "val_loss", "val_accuracy", "a_metric_with_a_long_name", "f1"
};
static const double values[] = { 0.0712, 0.9781, 0.0533, 0.9832, 123.456, 1e-7 };

static aril__progress bar(bool utf8, bool color)
{
    return (aril__progress){ .to = stdout,
                             .mode = ARIL__PROGRESS_BAR,
                             .utf8 = utf8,
                             .color = color,
                             .title = "Epoch 3/10",
                             .unit = "img/s",
                             .total = 1875 };
}

TEST(line_contains_all_fields)
{
    char text[1024];
    aril__progress p = bar(true, false);
    aril__progress_at at = { 1875, 60000, 4, names, values, NULL };
    aril__progress_line(&p, &at, 4.96, true, 0, text, sizeof text);
    CHECK_STR(text, "Epoch 3/10  ━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━ 1875/1875  12.1k img/s  took 5.0s  "
                    "loss 0.0712  "
                    "accuracy 0.9781  val_loss 0.0533  val_accuracy 0.9832");
    at = (aril__progress_at){ 625, 20000, 2, names, values, NULL };
    aril__progress_line(&p, &at, 40, false, 0, text, sizeof text);
    CHECK_STR(text, "Epoch 3/10  ━━━━━━━━━━──────────────────── 625/1875  500 img/s  eta 1:20  "
                    "loss 0.0712  accuracy 0.9781");
    p = bar(false, false);
    aril__progress_line(&p, &at, 4000, false, 0, text, sizeof text);
    CHECK_STR(text, "Epoch 3/10  [=========>..................] 625/1875  5.0 img/s  eta 2:13:20  "
                    "loss 0.0712  accuracy 0.9781");
    p.mode = ARIL__PROGRESS_LINES; /* no bar in lines */
    aril__progress_line(&p, &at, 0.004, true, 0, text, sizeof text);
    CHECK_STR(text, "Epoch 3/10  625/1875  5.0M img/s  took 0.0s  loss 0.0712  accuracy 0.9781");
    p.total = -1; /* a stream */
    at.note = "val 3";
    aril__progress_line(&p, &at, 3, false, 0, text, sizeof text);
    CHECK_STR(
        text,
        "Epoch 3/10  625 batches  6.7k img/s  took 3.0s  loss 0.0712  accuracy 0.9781  val 3");
    /* batches done before a fit was resumed count in the bar, but not in the speed */
    p = bar(false, false);
    p.skipped = 600;
    p.skipped_samples = 19200;
    at.note = NULL;
    aril__progress_line(&p, &at, 1, false, 0, text, sizeof text);
    CHECK_MSG(strstr(text, " 800 img/s  eta 0:50") != NULL, "%s", text);
}

/* The width of a text in columns, -1 if it is not UTF-8; color codes have none. */
static int columns(const char *text)
{
    int n = 0;
    for (const unsigned char *c = (const unsigned char *)text; *c != 0;) {
        if (*c == 033) {
            while (*c != 0 && *c != 'm') c++;
            if (*c != 0) c++;
            continue;
        }
        int more = *c < 0x80 ? 0 : (*c & 0xe0) == 0xc0 ? 1 : (*c & 0xf0) == 0xe0 ? 2 : -1;
        if (more < 0) return -1;
        c++;
        for (; more > 0; more--, c++)
            if ((*c & 0xc0) != 0x80) return -1;
        n++;
    }
    return n;
}

TEST(values_are_formatted_for_people)
{
    static const struct {
        double v;
        const char *text;
    } cases[] = {
        { 0, "0.0000" },        { 0.0712, "0.0712" },    { 12.3456, "12.346" },
        { 123.456, "123.46" },  { 99591.54, "99591.5" }, { 107123.6, "107124" },
        { -2.5e6, "-2500000" }, { 2.32e30, "2.32e+30" }, { 1.2e-5, "1.2e-05" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[64];
        aril__value_text(text, sizeof text, cases[i].v);
        CHECK_STR(text, cases[i].text);
    }
}

TEST(line_fits_every_width)
{
    char text[4096];
    for (int kind = 0; kind < 3; kind++)
        for (int finished = 0; finished < 2; finished++)
            for (int n = 0; n <= 6; n++)
                for (int width = 1; width <= 220; width++) {
                    aril__progress p = bar(kind > 0, kind == 2);
                    aril__progress_at at = { finished ? 1875 : 999,      31968, n, names, values,
                                             finished ? NULL : "val 1/2" };
                    int wide = aril__progress_line(&p, &at, 3, finished, width, text, sizeof text);
                    CHECK_MSG(columns(text) == wide && wide <= width, "%d columns of %d: %s",
                              columns(text), width, text);
                    if (kind == 0) CHECK(strlen(text) == (size_t)wide);
                    if (width >= 60 && n > 0)
                        CHECK_MSG(strstr(text, "loss 0.0712") != NULL, "%d: %s", width, text);
                    if (width >= 80 && n == 4 && finished)
                        CHECK_MSG(strstr(text, "val_accuracy 0.9832") != NULL, "%d: %s", width,
                                  text);
                    if (width >= 80 && n == 6 && !finished)
                        CHECK_MSG(strstr(text, "accuracy") != NULL && strstr(text, "eta") != NULL,
                                  "%d: %s", width, text);
                }
}

TEST(last_line_of_an_epoch_has_all_values)
{
    char text[4096];
    for (int kind = 0; kind < 3; kind++)
        for (int n = 0; n <= 6; n++)
            for (int width = 1; width <= 220; width++) {
                aril__progress p = bar(kind > 0, kind == 2);
                aril__progress_at at = { 1875, 60000, n, names, values, NULL };
                aril__progress_result(&p, &at, 3, width, text, sizeof text);
                for (int i = 0; i < n && width >= 36; i++)
                    CHECK_MSG(strstr(text, names[i]) != NULL, "%d: no %s in %s", width, names[i],
                              text);
                if (width >= 24 && n >= 4)
                    CHECK_MSG(strstr(text, "val_loss 0.0533") != NULL &&
                                  strstr(text, "val_accuracy 0.9832") != NULL,
                              "%d: %s", width, text);
                for (char *at_line = text, *end; at_line != NULL; at_line = end) {
                    end = strchr(at_line, '\n');
                    if (end != NULL) *end++ = '\0';
                    CHECK_MSG(columns(at_line) >= 0 && columns(at_line) <= width, "%d of %d: %s",
                              columns(at_line), width, at_line);
                }
            }
    aril__progress p = bar(true, false);
    aril__progress_at at = { 1875, 60000, 4, names, values, NULL };
    aril__progress_result(&p, &at, 3, 59, text, sizeof text);
    CHECK_STR(text, "Epoch 3/10  took 3.0s  loss 0.0712  accuracy 0.9781\n"
                    "  val_loss 0.0533  val_accuracy 0.9832");
    aril__progress_result(&p, &at, 3, 38, text, sizeof text);
    CHECK_STR(text, "Epoch 3/10  1875/1875  took 3.0s\n"
                    "  loss 0.0712  accuracy 0.9781\n"
                    "  val_loss 0.0533  val_accuracy 0.9832");
}

/* ---- a fit, observed from outside ---- */

static aril_status wait_a_little(aril_fit *f, void *ctx)
{
    (void)f;
    usleep((useconds_t) * (int *)ctx);
    return ARIL_OK;
}

static int fit(FILE *to, int verbose, int64_t n, int slow)
{
    aril_seed(1);
    aril_tensor *x = aril_randn(ARIL_SHAPE(n, 3), ARIL_F32, aril_cpu());
    aril_model *m = aril_model_new(aril_nn_linear(3, 1), ARIL_SHAPE(3));
    aril_model_compile(m, (aril_model_opts){ .loss = "mse",
                                             .metrics = "mae",
                                             .optimizer =
                                                 aril_sgd(NULL, (aril_sgd_opts){ .lr = 0.1 }) });
    aril_tensor *y = aril_narrow(x, 1, 0, 1);
    aril_history *h = aril_model_fit(
        m, x, y,
        (aril_fit_opts){ .epochs = 3,
                         .batch_size = 4,
                         .verbose = verbose,
                         .output = to,
                         .validation = { x, y },
                         .callbacks = slow > 0 ? ARIL_CALLBACKS(aril_on_batch(wait_a_little, &slow))
                                               : (aril_callback_list){ 0 } });
    double loss =
        aril_model_evaluate(m, x, y, (aril_eval_opts){ .verbose = verbose, .output = to });
    int code = h != NULL && loss < 10 ? 0 : 1;
    aril_model_free(m);
    return code;
}

static char out[1 << 20];

static int count(const char *text, const char *what)
{
    int n = 0;
    for (const char *c = text; (c = strstr(c, what)) != NULL; c++) n++;
    return n;
}

/* Containers and sandboxes may not provide terminals. */
static bool has_terminals(void)
{
    int ours, theirs;
    if (openpty(&ours, &theirs, NULL, NULL, NULL) != 0) return false;
    close(ours);
    close(theirs);
    return true;
}
#define NEEDS_TERMINAL() \
    if (!has_terminals()) SKIP("no pseudo-terminal can be had: %s", strerror(errno))

/* Runs a fit in a terminal of that width; if `narrow` is not 0, changes the width after every
 * second read. */
static int in_terminal(int width, const char *locale, const char *kind, int verbose, int narrow)
{
    struct winsize size = { .ws_row = 24, .ws_col = (unsigned short)width };
    int terminal;
    fflush(stdout);
    pid_t pid = forkpty(&terminal, NULL, NULL, &size);
    if (pid == 0) {
        setenv("LC_ALL", locale, 1);
        setenv("TERM", kind, 1);
        _exit(fit(stdout, verbose, 600, 1000)); /* 450 batches of a millisecond */
    }
    if (pid < 0) return -1;
    size_t used = 0;
    int reads = 0;
    for (ssize_t n;
         used < sizeof out - 1 && (n = read(terminal, out + used, sizeof out - 1 - used)) != 0;
         reads++) {
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) break; /* EIO: the other side is closed */
        used += (size_t)n;
        if (narrow > 0) {
            size.ws_col = (unsigned short)(reads % 2 == 0 ? narrow : width);
            ioctl(terminal, TIOCSWINSZ, &size);
        }
    }
    out[used] = '\0';
    close(terminal);
    int status = 0;
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(terminal_shows_a_bar)
{
    NEEDS_TERMINAL();
    CHECK_INT(in_terminal(120, "C.UTF-8", "xterm", 0, 0), 0);
    CHECK_INT(count(out, "\n"), 4);
    CHECK(strstr(out, "━━━━") != NULL && strstr(out, "eta ") != NULL);
    CHECK_INT(count(out, "took "), 4);
    int drawn = count(out, "\033[K");
    /* at least once an epoch and not more than about ten times a second: a batch takes a
     * millisecond or more */
    CHECK_MSG(drawn > 6 && drawn < 450, "%d times", drawn);
    /* no text between two returns is wider than the terminal */
    for (char *c = out; *c != '\0';) {
        size_t n = strcspn(c, "\r\n");
        char end = c[n];
        c[n] = '\0';
        char *clear;
        while ((clear = strstr(c, "\033[K")) != NULL || (clear = strstr(c, "\033[J")) != NULL)
            memmove(clear, clear + 3, strlen(clear + 3) + 1);
        CHECK_MSG(columns(c) >= 0 && columns(c) < 120, "%d: %s", columns(c), c);
        c += n + (end != '\0');
    }
}

TEST(ascii_bar_without_utf8_locale)
{
    NEEDS_TERMINAL();
    CHECK_INT(in_terminal(100, "C", "xterm", 1, 0), 0);
    CHECK(strstr(out, "[=") != NULL);
    for (const char *c = out; *c != '\0'; c++) CHECK((unsigned char)*c < 128);
    setenv("NO_COLOR", "1", 1);
    CHECK_INT(in_terminal(100, "C.UTF-8", "xterm", 1, 0), 0);
    unsetenv("NO_COLOR");
    CHECK(strstr(out, "\033[3") == NULL && strstr(out, "━") != NULL);
    CHECK_INT(in_terminal(100, "C.UTF-8", "dumb", 1, 0), 0);
    CHECK(strchr(out, '\033') == NULL && count(out, "\n") == 4);
    CHECK_INT(in_terminal(100, "C.UTF-8", "xterm", 2, 0), 0);
    CHECK(strchr(out, '\033') == NULL && count(out, "\n") == 4);
}

TEST(bar_follows_the_terminal_width)
{
    NEEDS_TERMINAL();
    CHECK_INT(in_terminal(110, "C.UTF-8", "xterm", 1, 42), 0);
    CHECK(strstr(out, "\033[J") != NULL); /* wrapped lines are cleared */
    bool wide = false, slim = false;
    for (char *c = out; *c != '\0';) {
        size_t n = strcspn(c, "\r\n");
        char end = c[n];
        c[n] = '\0';
        if (strstr(c, "Epoch") != NULL) {
            wide |= columns(c) > 60;
            slim |= columns(c) < 50;
        }
        c += n + (end != '\0');
    }
    CHECK(wide && slim);
}

/* ---- in this process: after the tests that fork, as threads do not survive a fork ---- */

/* The progress output in a file. */
static const char *through_file(int verbose)
{
    FILE *f = fopen(temp_path("out"), "w+");
    int code = fit(f, verbose, 40, 0);
    rewind(f);
    size_t n = fread(out, 1, sizeof out - 1, f);
    fclose(f);
    out[n] = '\0';
    return code == 0 ? out : "failed";
}

TEST(pipe_gets_one_line_per_epoch)
{
    ARIL_SCOPE;
    for (int verbose = 0; verbose <= 2; verbose++) {
        const char *text = through_file(verbose);
        CHECK_INT(count(text, "\n"), 4);
        CHECK(strpbrk(text, "\r\033\b") == NULL);
        CHECK_MSG(strncmp(text, "Epoch 1/3  10/10  ", 18) == 0, "%s", text);
        CHECK_INT(count(text, "  val_loss "), 3);
        CHECK_INT(count(text, "samples/s"), 4);
        CHECK_INT(count(text, "\nEvaluate  1/1  "), 1);
        for (const char *c = text; *c != '\0'; c++) CHECK(*c == '\n' || (*c >= ' ' && *c < 127));
    }
    CHECK_STR(through_file(ARIL_SILENT), "");
}
