/* Where the user called Aril: for error messages, and slow (it reads debug information). */
#ifndef ARIL_CORE_SOURCE_LOCATION_H
#define ARIL_CORE_SOURCE_LOCATION_H

#include "aril/base.h"

/* Writes to buf the innermost source location on this thread's stack that is not Aril's own:
 * "mlp.c:42" when the program has line information, else the function as "main+0x1c", else the
 * object file as "prog+0x113d" (the input of addr2line). Returns the length; 0, and "" in buf, if
 * unknown or out of memory. Never more than size - 1 characters. Keeps errno.
 *
 * What is Aril's own: libaril.so and its plug-ins, by the name of the object file. In a program
 * that holds libaril.a: functions called aril_*, those compiled from the source tree that contains
 * this file, and, without line information, static ones located between aril_* functions in memory.
 *
 * Inlined functions have no frame: with link-time optimization the location may be a caller further
 * out.
 *
 * Reads 64-bit ELF with DWARF 2 to 5 line tables in the object itself; compressed or separate debug
 * files count as none. Every offset is checked: a damaged file gives no location or a wrong one,
 * and does no other harm. */
size_t aril__location(char *buf, size_t size);

/* The same in two parts: taking the stack, n frames at most (returns how many), is cheap, and their
 * location can be looked up later. */
int aril__location_frames(void **frames, int n);
size_t aril__location_in(void *const *frames, int n, char *buf, size_t size);

/* While a recorded call runs again, on this thread: aril__location gives where it was recorded, and
 * after that where it runs: "mlp.c:42, run at main.c:7". Sets its stack (n = 0: none) and returns
 * the one before, to be restored. The stack is read only when an error occurs. */
typedef struct aril__recorded {
    void *const *frames;
    int n;
} aril__recorded;
aril__recorded aril__location_set_recorded(aril__recorded of);

/* The line of one address (a virtual address of the file) of an ELF file's bytes: "file.c:42", or
 * "" and 0. Whether the address is Aril's own makes no difference. */
size_t aril__location_of(const void *elf, size_t elf_size, uint64_t address, char *buf,
                         size_t size);

/* Disables the lookup while true: for tests that raise thousands of errors. */
extern bool aril__location_off;

/* Unmaps the object files. */
void aril__location_shutdown(void);

#endif
