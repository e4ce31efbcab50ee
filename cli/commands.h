/* The command `aril`: one file a subcommand. What a subcommand takes stands in its table of
 * options; the reading of arguments, --help, the man pages and the completion of words are all made
 * from it. */
#ifndef ARIL_CLI_COMMANDS_H
#define ARIL_CLI_COMMANDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* Exit statuses. */
enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

/* What the value of an option is, and the type of its place: bool, int64_t, double, const char
 * *. */
typedef enum option_kind {
    OPTION_FLAG,
    OPTION_WHOLE,
    OPTION_REAL,
    OPTION_TEXT,
    OPTION_FILE,
    OPTION_FOLDER,
    OPTION_DATA, /* text: the name of a dataset or a path */
} option_kind;

typedef struct option {
    const char
        *name; /* "epochs", given as --epochs N or --epochs=N; "" heads a group by its help */
    const char *value; /* "N": how the help calls its value; NULL for a flag */
    option_kind kind;
    size_t at;        /* offsetof its place in the command's values */
    const char *help; /* what it does; wrapped to the width */
    double least;     /* numbers: the smallest that is taken */
    double most;      /* and the largest; 0: any that its type holds. What becomes an int has one */
    /* The words that it may be or begin with, NULL after the last; NULL: anything. For completion
     * and for the help. */
    const char *const *(*words)(void);
    bool only_words; /* anything else is an error */
    bool hidden;     /* not in the help */
} option;

typedef struct example {
    const char *line, *about;
} example;

typedef struct command {
    const char *name;
    const char *summary;   /* one line */
    const char *arguments; /* "MODEL FILE..."; NULL: none are taken */
    const char *about;     /* paragraphs with an empty line between them */
    const option *options; /* a NULL name after the last; NULL: none */
    const example *examples;
    size_t size; /* bytes of its values, zeros unless `defaults` says otherwise */
    const void *defaults;
    int least, most; /* how many arguments; most 0: none, -1: any number */
    /* Words that an argument may be, as in an option. */
    const char *const *(*words)(void);
    /* values: filled; argument[n] in order. Returns the exit status. */
    int (*run)(void *values, int n, char **argument);
} command;

extern const command command_train, command_test, command_predict, command_show, command_data,
    command_zoo, command_bench, command_devices, command_ops;

/* The names of datasets, NULL after the last: for completion. */
const char *const *dataset_names(void);

/* Reads argv[1...] into values and moves the arguments that are no options to the front of it,
 * their number in *n. False, after a message, when something is not taken. */
bool arguments_read(const command *c, int argc, char **argv, void *values, int *n);

/* Prints the help of a command, `width` columns wide; its page for man; all pages in one; what
 * bash reads to complete words. */
void help_print(const command *c, FILE *to, int width);
void help_man(const command *c, FILE *to);
void help_man_of_all(const command *const *all, int n, FILE *to);
void help_completion(const command *const *all, int n, FILE *to);

/* Are these the names of a loss and of metrics, with commas between them? NULL: the usual ones.
 * False after an error. */
bool measures_known(const char *loss, const char *metrics);

/* Prints this thread's error, if there is one, and forgets it; gives EXIT_FAILED. */
int report(const char *name);

/* Text from a file or a folder as it may be printed: control characters and what is no UTF-8 become
 * \x1b and the like. In buf, cut off where that is full; printed; how many columns it takes;
 * printed in exactly so many columns, cut off or with spaces behind it; printed as a string of
 * JSON. */
const char *printable(const char *text, char *buf, size_t size);
void print_text(FILE *to, const char *text);
int printed_width(const char *text);
void print_padded(const char *text, int width);
void print_json_text(const char *text);

/* What --threads asks for; 0: nothing. */
void use_threads(int64_t n);

/* Prints a line of text, broken between words at the width of the terminal; further lines are
 * indented. Through a pipe it is one line. */
void print_wrapped(FILE *to, const char *text, int indent);

/* The width of the terminal behind a stream, 80 where there is none. */
int terminal_width(FILE *to);

#endif
