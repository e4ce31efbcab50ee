/* The command `aril`: one file per subcommand. Each subcommand has a table of options, from which
 * argument parsing, --help, the man pages and shell completion are all generated. */
#ifndef ARIL_CLI_COMMANDS_H
#define ARIL_CLI_COMMANDS_H

#include <aril/device.h>
#include <aril/metrics.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Exit statuses. */
enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

/* Kinds of option values, which are stored as bool, int64_t, double or const char *. */
typedef enum option_kind {
    OPTION_FLAG,
    OPTION_INTEGER,
    OPTION_FLOAT,
    OPTION_STRING,
    OPTION_LIST, /* string: entries separated by commas; given again, it adds more */
    OPTION_FILE,
    OPTION_FOLDER,
    OPTION_DATASET, /* string: a dataset name or a path */
} option_kind;

typedef struct option {
    const char *name;  /* "epochs", for --epochs N; "": starts a group titled by its help */
    const char *value; /* "N": name of the value in the help; NULL for a flag */
    option_kind kind;
    size_t at;        /* offsetof its field in the command's values */
    const char *help; /* description; wrapped to the width */
    /* The default as the help shows it, "(default the last one)"; NULL: the value in the command's
     * defaults, if it is a number other than 0. */
    const char *by_default;
    double min; /* numbers: the minimum */
    double max; /* and maximum; 0: the limit of its type. Required if stored in an int */
    /* The values to choose from, NULL-terminated; NULL: anything. For completion and the help. */
    const char *const *(*choices)(void);
    bool only_choices; /* anything else is an error; upper and lower case are the same */
    /* The options that may be given beside it, "NAME NAME "; NULL: all. */
    const char *beside;
    bool hidden;       /* omitted from the help */
    bool may_be_empty; /* a string: "" is a value */
} option;

/* Options that several commands have, in a struct called `options`. */
#define OPTION_AT(field) .at = offsetof(options, field)
#define OPTION_TARGET(text)                                                            \
    {                                                                                  \
        .name = "target", .value = "COLUMN", .kind = OPTION_STRING, OPTION_AT(target), \
        .help = text                                                                   \
    }
#define OPTION_SKIP                                                               \
    {                                                                             \
        .name = "skip", .value = "COLUMNS", .kind = OPTION_LIST, OPTION_AT(skip), \
        .help = "tables: columns to ignore, such as id,name"                      \
    }
#define OPTION_WEIGHTS                                                                \
    {                                                                                 \
        .name = "weights", .value = "FILE", .kind = OPTION_FILE, OPTION_AT(weights),  \
        .by_default = "the published ones, of `aril zoo get`",                        \
        .help = "weights for a network of the zoo: PyTorch's, safetensors and others" \
    }
#define OPTION_ROOT                                                                            \
    {                                                                                          \
        .name = "root", .value = "PART", .kind = OPTION_STRING, OPTION_AT(root),               \
        .by_default = "the weights of the model",                                              \
        .help = "the part of --weights to load, such as ema.model; `aril show --all` lists it" \
    }
#define OPTION_CLASSES                                                                         \
    {                                                                                          \
        .name = "classes", .value = "N", .kind = OPTION_INTEGER, OPTION_AT(classes), .min = 1, \
        .by_default = "that of the weights",                                                   \
        .help = "number of classes that --weights are for; --labels names them"                \
    }
#define OPTION_SAMPLES                                                                         \
    {                                                                                          \
        .name = "samples", .value = "N", .kind = OPTION_INTEGER, OPTION_AT(samples), .min = 1, \
        .help = "use only the first N samples"                                                 \
    }
#define OPTION_WORKERS                                                                            \
    {                                                                                             \
        .name = "workers", .value = "N", .kind = OPTION_INTEGER, OPTION_AT(workers), .max = 1024, \
        .by_default = "0", .help = "worker threads that load samples"                             \
    }
#define OPTION_THREADS                                                                         \
    {                                                                                          \
        .name = "threads", .value = "N", .kind = OPTION_INTEGER, OPTION_AT(threads), .min = 1, \
        .by_default = "all CPUs", .help = "number of CPU threads"                              \
    }

#define OPTION_DEVICE(help_)                                                             \
    {                                                                                    \
        .name = "device", .value = "NAME", .kind = OPTION_STRING, OPTION_AT(device),     \
        .by_default = "cpu", .help = help_ ", such as cuda:0; `aril devices` lists them" \
    }

typedef struct example {
    const char *line, *about;
} example;

typedef struct command {
    const char *name;
    const char *summary;   /* one line */
    const char *arguments; /* "MODEL FILE..."; NULL: none */
    const char *about;     /* paragraphs separated by empty lines */
    const option *options; /* ends with a NULL name; NULL: none */
    const example *examples;
    size_t size; /* bytes of its values, zeros unless `defaults` is set */
    const void *defaults;
    int min, max; /* number of arguments; max 0: none, -1: unlimited */
    /* Values that an argument may have, as for an option. */
    const char *const *(*choices)(void);
    /* values: parsed options; argument[n] in order. Returns the exit status. */
    int (*run)(void *values, int n, char **argument);
} command;

extern const command command_train, command_test, command_predict, command_show, command_data,
    command_zoo, command_bench, command_devices, command_ops, command_test_onnx, command_convert,
    command_draw, command_time, command_generate, command_features;

/* Tables of names that options take: `aril help NAME` prints one. Ends with a NULL name. */
typedef struct topic {
    const char *name, *about;
    void (*print)(FILE *to);
} topic;

extern const topic help_topics[];

/* Prints a topic's table, with the descriptions word-wrapped on a terminal. */
void print_topic(FILE *to, const topic *t);

/* The names of datasets, NULL-terminated: for completion. */
const char *const *dataset_names(void);

/* Parses argv[1...] into values, moves the non-option arguments to the front of argv and stores
 * their number in *n. False, after a message, when an argument is invalid. */
bool arguments_read(const command *c, int argc, char **argv, void *values, int *n);

/* Whether no option has been given that is (`these`), or is not, among "NAME NAME "; otherwise
 * false after the message that it has no effect on `what`. An option that has its default value
 * counts as not given. */
bool arguments_without(const command *c, const void *values, const char *names, bool these,
                       const char *what);

/* Prints the help of a command, `width` columns wide; its man page; one man page for all commands;
 * the bash completion script. */
void help_print(const command *c, FILE *to, int width);
void help_man(const command *c, FILE *to);
void help_man_of_all(const command *const *all, int n, FILE *to);
void help_completion(const command *const *all, int n, FILE *to);

/* Whether these are valid names of a loss and of comma-separated metrics. NULL: the defaults. False
 * after an error. */
bool measures_known(const char *loss, const char *metrics);

/* The next metric of a list such as "accuracy, top5", which the caller frees; advances *list past
 * it. NULL at the end of the list, or after an error. */
aril_metric *next_metric(const char **list);

/* Puts `what`, the option that caused this thread's error, before its message; returns false. */
bool blame(const char *what);

/* Prints this thread's error, if any, and clears it; returns EXIT_FAILED. */
int report(const char *name);

/* True if there is a device of that name (the value of --device), or none is named; otherwise
 * records an error. */
bool check_device(const char *name);

/* Why there is no such device, as its plug-in says it; "" if it does not say. */
void explain_missing(aril_device device, char *to, size_t size);

/* That device; NULL: the CPU. */
aril_device device_option(const char *name);

/* Text from a file or a folder, made safe to print: control characters and invalid UTF-8 become
 * \x1b and the like. Written to buf, truncated when full; printed; its width in columns; printed in
 * exactly `width` columns, truncated or padded with spaces; printed as a JSON string. */
const char *printable(const char *text, char *buf, size_t size);
void print_text(FILE *to, const char *text);
int printed_width(const char *text);
void print_padded(const char *text, int width);
void print_json_text(const char *text);

/* "1.05 MB": units of 1024, three digits, as in summaries. */
const char *bytes_text(double bytes, char *buf, size_t size);

/* Whether a text is valid UTF-8. */
bool is_utf8(const char *text);

/* Applies --threads; 0: not set. */
void use_threads(int64_t n);

/* Prints a line of text, word-wrapped at the terminal width; continuation lines are indented. In a
 * pipe it stays one line. */
void print_wrapped(FILE *to, const char *text, int indent);

/* The terminal width of a stream; 80 if it is not a terminal. */
int terminal_width(FILE *to);

/* src/backend/cuda/rows.list: lines of "OP ROW ROW ...". */
extern const char cuda_rows_text[];

#endif
