/* A folder for a test's files, made at its first use and removed with the next test or at the end. */
#ifndef ARIL_TESTS_SUPPORT_TEMP_H
#define ARIL_TESTS_SUPPORT_TEMP_H

/* The path of a file of that name in the folder of the running test; "" is the folder itself. In a static buffer,
 * of which there are eight in turn. */
const char *temp_path(const char *name);

/* How many files the folder holds. */
int temp_count(void);

#endif
