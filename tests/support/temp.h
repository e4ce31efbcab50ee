/* A folder for a test's files, created on first use and removed with the next test or at exit. */
#ifndef ARIL_TESTS_SUPPORT_TEMP_H
#define ARIL_TESTS_SUPPORT_TEMP_H

/* The path of a file in the folder of the running test; "" is the folder itself. Returns one of
 * eight static buffers, used in turn. */
const char *temp_path(const char *name);

/* The number of files in the folder. */
int temp_count(void);

/* The names in a folder, sorted, each followed by a space. Returns a static buffer. */
const char *files_in(const char *dir);

#endif
