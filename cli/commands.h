/* The command `aril`: one file a subcommand. */
#ifndef ARIL_CLI_COMMANDS_H
#define ARIL_CLI_COMMANDS_H

typedef struct command {
    const char *name;
    const char *summary;               /* one line */
    const char *help;                  /* the rest of `aril NAME --help` */
    int (*run)(int argc, char **argv); /* argv[0] is the subcommand; returns the exit status */
} command;

extern const command command_bench, command_devices, command_ops;

/* Exit statuses. */
enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

#endif
