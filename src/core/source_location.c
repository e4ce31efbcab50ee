#include "core/source_location.h"

#include "core/file.h"

bool aril__location_off;

static _Thread_local aril__recorded recorded;

aril__recorded aril__location_set_recorded(aril__recorded of)
{
    aril__recorded before = recorded;
    recorded = of;
    return before;
}

#if defined(__linux__) && defined(__LP64__) && __has_include(<execinfo.h>)

#include <elf.h>
#include <errno.h>
#include <execinfo.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MAX_FRAMES = 128, MAX_FILES = 8, NAME_SIZE = 512 };

/* ---- Bounded reading ------------------------------------------------------------------------ */

/* A range of a file. Reading past its end sets `bad` and gives zeros from then on. */
struct reader {
    const uint8_t *p, *end;
    bool bad;
};

static size_t left(const struct reader *r)
{
    return (size_t)(r->end - r->p);
}

static const uint8_t *take(struct reader *r, uint64_t n)
{
    if (r->bad || n > left(r)) {
        r->bad = true;
        r->p = r->end;
        return NULL;
    }
    const uint8_t *p = r->p;
    r->p += n;
    return p;
}

/* Reads an integer of 1, 2, 4 or 8 bytes. The object is loaded in this process, so it has the
 * machine's byte order; short ones are widened by hand for either byte order. */
static uint64_t take_uint(struct reader *r, unsigned bytes)
{
    const uint8_t *p = take(r, bytes);
    if (!p) return 0;
    uint16_t u16;
    uint32_t u32;
    uint64_t u64;
    switch (bytes) {
    case 1: return *p;
    case 2: memcpy(&u16, p, 2); return u16;
    case 4: memcpy(&u32, p, 4); return u32;
    default: memcpy(&u64, p, 8); return u64;
    }
}

static uint8_t take_u8(struct reader *r)
{
    return (uint8_t)take_uint(r, 1);
}

/* LEB128: seven bits per byte, low bits first. Bits beyond 64 are dropped. */
static uint64_t take_uleb(struct reader *r)
{
    uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
        uint8_t byte = take_u8(r);
        if (shift < 64) value |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) return value;
    }
}

static int64_t take_sleb(struct reader *r)
{
    uint64_t value = 0;
    for (unsigned shift = 0;;) {
        uint8_t byte = take_u8(r);
        if (shift < 64) value |= (uint64_t)(byte & 0x7f) << shift;
        shift += 7;
        if (!(byte & 0x80)) {
            if (shift < 64 && (byte & 0x40)) value |= ~(uint64_t)0 << shift;
            return (int64_t)value;
        }
    }
}

/* A string that is terminated within bounds, "" otherwise. */
static const char *take_string(struct reader *r)
{
    const uint8_t *zero = r->bad ? NULL : memchr(r->p, 0, left(r));
    const uint8_t *p = take(r, zero ? (uint64_t)(zero - r->p) + 1 : UINT64_MAX);
    return p ? (const char *)p : "";
}

static const char *string_at(struct reader section, uint64_t offset)
{
    take(&section, offset);
    return take_string(&section);
}

static bool starts_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

/* ---- Object files --------------------------------------------------------------------------- */

/* A contiguous piece of code that one unit's line table describes. */
struct sequence {
    uint64_t low, high;   /* of all its rows */
    const uint8_t *table; /* where the unit begins in .debug_line */
};

/* The sequences of all units, in their order. */
struct index {
    struct sequence *at;
    size_t n, room;
    bool complete; /* false: not built, or out of memory */
};

struct object {
    struct reader all;
    struct reader line, line_str, str; /* .debug_line, .debug_line_str, .debug_str; empty if none */
    struct reader sym, sym_str;        /* .symtab or .dynsym, and its names */
    struct reader segments;            /* program headers */
    unsigned segment_size;
    struct index index;
};

/* The range [offset, offset + size) of a file; empty if it is out of bounds. */
static struct reader part(struct reader all, uint64_t offset, uint64_t size)
{
    struct reader r = all;
    take(&r, offset);
    const uint8_t *p = take(&r, size);
    return p ? (struct reader){ p, p + size, false } : (struct reader){ all.end, all.end, false };
}

static bool section_at(const struct object *o, const Elf64_Ehdr *h, uint64_t index, Elf64_Shdr *s)
{
    if (h->e_shentsize < sizeof *s || index > UINT32_MAX) return false;
    struct reader r = o->all;
    take(&r, h->e_shoff);
    take(&r, index * h->e_shentsize);
    const uint8_t *p = take(&r, sizeof *s);
    if (p) memcpy(s, p, sizeof *s);
    return p != NULL;
}

static struct reader section_data(const struct object *o, const Elf64_Shdr *s)
{
    bool here = s->sh_type != SHT_NOBITS && !(s->sh_flags & SHF_COMPRESSED);
    return part(o->all, s->sh_offset, here ? s->sh_size : 0);
}

/* Finds the sections of an ELF file that we need. False if it is not an ELF file for this
 * machine. */
static bool object_read(struct object *o, const void *data, size_t size)
{
    memset(o, 0, sizeof *o);
    o->all = (struct reader){ data, (const uint8_t *)data + size, false };
    const struct reader none = { o->all.end, o->all.end, false };
    o->line = o->line_str = o->str = o->sym = o->sym_str = none;

    Elf64_Ehdr h;
    if (size < sizeof h) return false;
    memcpy(&h, data, sizeof h);
    const uint16_t one = 1;
    bool little = *(const uint8_t *)&one == 1;
    if (memcmp(h.e_ident, ELFMAG, SELFMAG) != 0 || h.e_ident[EI_CLASS] != ELFCLASS64 ||
        h.e_ident[EI_DATA] != (little ? ELFDATA2LSB : ELFDATA2MSB))
        return false;
    o->segments = part(o->all, h.e_phoff, (uint64_t)h.e_phnum * h.e_phentsize);
    o->segment_size = h.e_phentsize;

    /* A file with very many sections stores their number, and the index of the name section, in
     * section 0. */
    Elf64_Shdr s;
    if (!section_at(o, &h, 0, &s)) return true;
    uint64_t count = h.e_shnum ? h.e_shnum : s.sh_size;
    uint64_t names_index = h.e_shstrndx != SHN_XINDEX ? h.e_shstrndx : s.sh_link;
    if (!section_at(o, &h, names_index, &s)) return true;
    struct reader names = section_data(o, &s);

    for (uint64_t i = 1; i < count && section_at(o, &h, i, &s); i++) {
        const char *name = string_at(names, s.sh_name);
        if (strcmp(name, ".debug_line") == 0)
            o->line = section_data(o, &s);
        else if (strcmp(name, ".debug_line_str") == 0)
            o->line_str = section_data(o, &s);
        else if (strcmp(name, ".debug_str") == 0)
            o->str = section_data(o, &s);
        else if (s.sh_type == SHT_SYMTAB || (s.sh_type == SHT_DYNSYM && !left(&o->sym))) {
            o->sym = section_data(o, &s);
            if (section_at(o, &h, s.sh_link, &s)) o->sym_str = section_data(o, &s);
        }
    }
    return true;
}

/* The linker drops unused functions but not their line tables, which then seem to be near address
 * 0: such addresses are in no executable segment. */
static bool is_code(const struct object *o, uint64_t address)
{
    struct reader r = o->segments;
    Elf64_Phdr ph;
    while (o->segment_size >= sizeof ph) {
        const uint8_t *p = take(&r, o->segment_size);
        if (!p) break;
        memcpy(&ph, p, sizeof ph);
        if (ph.p_type == PT_LOAD && (ph.p_flags & PF_X) && address >= ph.p_vaddr &&
            address - ph.p_vaddr < ph.p_memsz)
            return address != 0;
    }
    return false;
}

/* The function that contains an address. */
struct symbol {
    const char *name; /* NULL: none */
    uint64_t offset;  /* of the address within the function */
    bool is_local;
    const char *before, *after; /* the nearest global functions around the address, "" if none */
};

static struct symbol symbol_at(const struct object *o, uint64_t address)
{
    struct symbol found = { NULL, 0, false, "", "" };
    uint64_t before = 0, after = UINT64_MAX;
    struct reader r = o->sym;
    const uint8_t *p;
    while ((p = take(&r, sizeof(Elf64_Sym)))) {
        Elf64_Sym s;
        memcpy(&s, p, sizeof s);
        unsigned type = ELF64_ST_TYPE(s.st_info);
        if ((type != STT_FUNC && type != STT_GNU_IFUNC) || s.st_shndx == SHN_UNDEF) continue;
        const char *name = string_at(o->sym_str, s.st_name);
        if (!*name) continue;
        /* Hidden functions become local ones when a program is linked, so the binding alone does
         * not show what was static: Aril's internal functions count as global. */
        bool is_local = ELF64_ST_BIND(s.st_info) == STB_LOCAL && !starts_with(name, "aril_");
        if (!is_local && s.st_value <= address && s.st_value >= before) {
            before = s.st_value;
            found.before = name;
        }
        if (!is_local && s.st_value > address && s.st_value < after) {
            after = s.st_value;
            found.after = name;
        }
        /* Among several names for one function, prefer a global one. */
        if (s.st_value <= address && address - s.st_value < s.st_size &&
            (!found.name || (found.is_local && !is_local))) {
            found.name = name;
            found.offset = address - s.st_value;
            found.is_local = is_local;
        }
    }
    return found;
}

/* ---- DWARF line tables ---------------------------------------------------------------------- */

enum {
    LNS_COPY = 1,
    LNS_ADVANCE_PC,
    LNS_ADVANCE_LINE,
    LNS_SET_FILE,
    LNS_CONST_ADD_PC = 8,
    LNS_FIXED_ADVANCE_PC,
    LNE_END_SEQUENCE = 1,
    LNE_SET_ADDRESS,
    LNCT_PATH = 1,
    LNCT_DIRECTORY,
};

/* One compilation unit's line table. */
struct unit {
    const uint8_t *table;  /* where it begins */
    struct reader tables;  /* directories and files */
    struct reader program; /* the opcodes that generate the rows */
    unsigned version, offset_size;
    uint64_t min_instruction;
    int line_base;
    unsigned line_range, opcode_base;
    uint8_t operands[256]; /* of each standard opcode */
};

/* A file of a unit as it was passed to the compiler; dir is "" if the name has none. */
struct source {
    const char *dir, *name;
};

struct hit {
    uint64_t line;
    struct source file;    /* of the line: may be a header */
    struct source primary; /* of the unit: what was compiled; unreliable before DWARF 5 and with
                            * LTO */
    const char *comp_dir;  /* where the compiler ran; "" if unknown (before DWARF 5) */
};

/* Reads the next unit from `section`. False at its end; a unit that can't be read has no
 * program. */
static bool unit_read(struct reader *section, struct unit *u)
{
    u->table = section->p;
    u->offset_size = 4;
    uint64_t length = take_uint(section, 4);
    if (length == 0xffffffff) {
        u->offset_size = 8;
        length = take_uint(section, 8);
    }
    const uint8_t *start = take(section, length);
    if (!start) return false;

    struct reader r = { start, start + length, false };
    const struct reader none = { r.end, r.end, false };
    u->program = u->tables = none;
    u->version = (unsigned)take_uint(&r, 2);
    if (u->version < 2 || u->version > 5) return true;
    if (u->version >= 5) {
        uint8_t address_size = take_u8(&r);
        uint8_t selector_size = take_u8(&r);
        if (address_size != 8 || selector_size != 0) return true;
    }
    uint64_t header_length = take_uint(&r, u->offset_size);
    struct reader program = r;
    take(&program, header_length);
    u->min_instruction = take_u8(&r);
    uint8_t max_ops = u->version >= 4 ? take_u8(&r) : 1;
    take_u8(&r); /* default_is_stmt: all rows count here */
    u->line_base = (int8_t)take_u8(&r);
    u->line_range = take_u8(&r);
    u->opcode_base = take_u8(&r);
    for (unsigned i = 1; i < u->opcode_base; i++) u->operands[i] = take_u8(&r);
    if (r.bad || program.bad || max_ops != 1 || u->line_range == 0 || u->opcode_base == 0)
        return true;
    u->tables = (struct reader){ r.p, program.p < r.p ? r.p : program.p, false };
    u->program = program;
    return true;
}

/* A value in one of the forms that line tables use: a number, or a string. */
static uint64_t take_form(const struct object *o, const struct unit *u, struct reader *r,
                          uint64_t form, const char **string)
{
    switch (form) {
    case 0x08: /* string */ *string = take_string(r); return 0;
    case 0x0e: /* strp */ *string = string_at(o->str, take_uint(r, u->offset_size)); return 0;
    case 0x1f: /* line_strp */
        *string = string_at(o->line_str, take_uint(r, u->offset_size));
        return 0;
    case 0x0b: /* data1 */ return take_uint(r, 1);
    case 0x05: /* data2 */ return take_uint(r, 2);
    case 0x06: /* data4 */ return take_uint(r, 4);
    case 0x07: /* data8 */ return take_uint(r, 8);
    case 0x0f: /* udata */ return take_uleb(r);
    case 0x1e: /* data16, an MD5 sum */ take(r, 16); return 0;
    case 0x09: /* block */ take(r, take_uleb(r)); return 0;
    default: r->bad = true; return 0;
    }
}

/* Reads a DWARF 5 table of directories or files to its end; stores the entry `index`, if present,
 * in *name and *dir. */
static void table_entry(const struct object *o, const struct unit *u, struct reader *r,
                        uint64_t index, const char **name, uint64_t *dir)
{
    uint64_t kinds[16], forms[16];
    unsigned n_forms = take_u8(r);
    if (n_forms > 16) r->bad = true;
    for (unsigned i = 0; i < n_forms && !r->bad; i++) {
        kinds[i] = take_uleb(r);
        forms[i] = take_uleb(r);
    }
    uint64_t count = take_uleb(r);
    if (n_forms == 0 && count > 0)
        r->bad = true; /* zero-size entries would make an endless table */
    for (uint64_t e = 0; e < count && !r->bad; e++)
        for (unsigned i = 0; i < n_forms && !r->bad; i++) {
            const char *string = NULL;
            uint64_t number = take_form(o, u, r, forms[i], &string);
            if (e != index || r->bad) continue;
            if (kinds[i] == LNCT_PATH && string)
                *name = string;
            else if (kinds[i] == LNCT_DIRECTORY && dir)
                *dir = number;
        }
}

/* Before DWARF 5: directories and files are numbered from 1, and each list ends in an empty
 * name. */
static struct source old_file(const struct unit *u, uint64_t index)
{
    struct source f = { "", "" };
    struct reader files = u->tables;
    while (*take_string(&files))
        ;
    for (uint64_t i = 1; !files.bad; i++) {
        const char *name = take_string(&files);
        if (!*name) break;
        uint64_t dir = take_uleb(&files);
        take_uleb(&files); /* time */
        take_uleb(&files); /* size */
        if (i != index || files.bad) continue;
        f.name = name;
        struct reader dirs = u->tables;
        for (uint64_t d = 1; d <= dir; d++) {
            f.dir = take_string(&dirs);
            if (!*f.dir) break;
        }
        break;
    }
    return f;
}

static struct source new_file(const struct object *o, const struct unit *u, uint64_t index)
{
    struct source f = { "", "" };
    uint64_t dir = 0;
    struct reader r = u->tables;
    table_entry(o, u, &r, UINT64_MAX, &f.dir, NULL); /* to get past the directories */
    table_entry(o, u, &r, index, &f.name, &dir);
    if (dir != 0) { /* 0 is the compilation directory, to which names are relative */
        r = u->tables;
        table_entry(o, u, &r, dir, &f.dir, NULL);
    }
    return f;
}

static struct source unit_file(const struct object *o, const struct unit *u, uint64_t index)
{
    struct source f = u->version >= 5 ? new_file(o, u, index) : old_file(u, index);
    if (f.name[0] == '/') f.dir = "";
    return f;
}

/* Appends a sequence that has rows, unless there is no index. */
static void index_add(struct index *x, const struct sequence *s)
{
    if (!x || s->low >= s->high) return;
    if (x->n == x->room) {
        size_t room = x->room ? 2 * x->room : 256;
        struct sequence *more = realloc(x->at, room * sizeof *more);
        if (!more) {
            x->complete = false;
            return;
        }
        x->at = more;
        x->room = room;
    }
    x->at[x->n++] = *s;
}

/* Runs a unit's program up to the row that covers `address`. Sequences before that row are
 * appended to `index`, unless it is NULL. */
static bool unit_find(const struct object *o, const struct unit *u, uint64_t address,
                      struct index *index, uint64_t *file_index, uint64_t *line_found)
{
    struct reader r = u->program;
    struct sequence rows = { UINT64_MAX, 0, u->table };
    uint64_t at = 0, file = 1, line = 1;
    uint64_t row_at = 0, row_file = 1, row_line = 0;
    enum { FRESH, LIVE, DEAD } sequence = FRESH; /* LIVE: row_* belongs to it */

    while (!r.bad && left(&r) > 0) {
        unsigned op = take_u8(&r);
        bool emit = false, end = false;

        if (op >= u->opcode_base) {
            op -= u->opcode_base;
            at += op / u->line_range * u->min_instruction;
            line += (uint64_t)(int64_t)(u->line_base + (int)(op % u->line_range));
            emit = true;
        } else if (op == 0) {
            uint64_t length = take_uleb(&r);
            const uint8_t *p = take(&r, length);
            if (!p) break;
            struct reader x = { p, p + length, false };
            unsigned extended = take_u8(&x);
            if (extended == LNE_END_SEQUENCE)
                emit = end = true;
            else if (extended == LNE_SET_ADDRESS && length == 9)
                at = take_uint(&x, 8);
        } else if (op == LNS_COPY) {
            emit = true;
        } else if (op == LNS_ADVANCE_PC) {
            at += take_uleb(&r) * u->min_instruction;
        } else if (op == LNS_ADVANCE_LINE) {
            line += (uint64_t)take_sleb(&r);
        } else if (op == LNS_SET_FILE) {
            file = take_uleb(&r);
        } else if (op == LNS_CONST_ADD_PC) {
            at += (255 - u->opcode_base) / u->line_range * u->min_instruction;
        } else if (op == LNS_FIXED_ADVANCE_PC) {
            at += take_uint(&r, 2);
        } else {
            for (unsigned i = 0; i < u->operands[op]; i++) take_uleb(&r);
        }

        if (!emit || r.bad) continue;
        if (sequence == LIVE && row_at <= address && address < at && row_line != 0) {
            *file_index = row_file;
            *line_found = row_line;
            return true;
        }
        if (sequence == LIVE && row_at < rows.low) rows.low = row_at;
        if (sequence == LIVE && at > rows.high) rows.high = at;
        if (end) {
            index_add(index, &rows);
            rows.low = UINT64_MAX;
            rows.high = 0;
            at = 0;
            file = line = 1;
            row_line = 0;
            sequence = FRESH;
            continue;
        }
        if (sequence == FRESH) sequence = is_code(o, at) ? LIVE : DEAD;
        row_at = at;
        /* Line 0 marks code without a source line: the preceding line is the best guess. */
        if (line != 0) {
            row_file = file;
            row_line = line;
        }
    }
    index_add(index, &rows);
    return false;
}

/* The line at an address, by the unit that begins at `section`, which is read. */
static bool unit_line_at(const struct object *o, struct reader *section, uint64_t address,
                         struct hit *hit)
{
    struct unit u;
    uint64_t file;
    if (!unit_read(section, &u) || !unit_find(o, &u, address, NULL, &file, &hit->line))
        return false;
    hit->file = unit_file(o, &u, file);
    hit->primary = unit_file(o, &u, u.version >= 5 ? 0 : 1);
    hit->comp_dir = "";
    if (u.version >= 5) {
        struct reader r = u.tables;
        table_entry(o, &u, &r, 0, &hit->comp_dir, NULL);
    }
    return true;
}

/* The first unit that covers the address counts. */
static bool line_at(const struct object *o, uint64_t address, struct hit *hit)
{
    struct reader section = o->line;
    bool found = false;
    if (!is_code(o, address)) return false;
    for (size_t i = 0; i < o->index.n && o->index.complete && !found; i++) {
        const struct sequence *s = &o->index.at[i];
        if (address < s->low || address >= s->high) continue;
        section.p = s->table;
        found = unit_line_at(o, &section, address, hit);
    }
    while (!o->index.complete && !found && left(&section) > 0)
        found = unit_line_at(o, &section, address, hit);
    return found && hit->file.name[0] != 0;
}

/* Runs all programs once, so that later only that of one unit has to run. */
static void index_build(struct object *o)
{
    struct reader section = o->line;
    struct unit u;
    uint64_t file, line;
    o->index.complete = true;
    while (o->index.complete && left(&section) > 0 && unit_read(&section, &u))
        unit_find(o, &u, 0, &o->index, &file, &line);
}

/* ---- Writing -------------------------------------------------------------------------------- */

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static size_t fit(int wanted, size_t size)
{
    if (wanted < 0) return 0;
    return (size_t)wanted < size ? (size_t)wanted : size - 1;
}

static size_t write_line_location(const struct hit *hit, char *buf, size_t size)
{
    return fit(snprintf(buf, size, "%s:%llu", base_name(hit->file.name),
                        (unsigned long long)hit->line),
               size);
}

size_t aril__location_of(const void *elf, size_t elf_size, uint64_t address, char *buf, size_t size)
{
    struct object o;
    struct hit hit;
    if (size == 0) return 0;
    buf[0] = 0;
    if (!object_read(&o, elf, elf_size) || !line_at(&o, address, &hit)) return 0;
    return write_line_location(&hit, buf, size);
}

/* ---- The objects of this process ------------------------------------------------------------ */

struct mapped {
    struct object object;
    void *data;
    size_t size;
    dev_t device;
    ino_t inode;
    struct timespec changed;
    bool readable;
};

/* All of it is guarded by `lock`. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct mapped files[MAX_FILES];
static unsigned n_files, next_out;

static void unmap(struct mapped *m)
{
    free(m->object.index.at);
    if (m->data) munmap(m->data, m->size);
    memset(m, 0, sizeof *m);
}

/* The object file at `path`, mapped at most once; NULL when it can't be read. A file that changes
 * while mapped is no worse here than for the program that runs from it. */
static const struct object *object_open(const char *path)
{
    struct stat st;
    int fd = aril__open_to_read(path, &st);
    if (fd < 0) return NULL;
    if (st.st_size <= 0) {
        close(fd);
        return NULL;
    }
    for (unsigned i = 0; i < n_files; i++)
        if (files[i].device == st.st_dev && files[i].inode == st.st_ino &&
            files[i].size == (size_t)st.st_size && files[i].changed.tv_sec == st.st_mtim.tv_sec &&
            files[i].changed.tv_nsec == st.st_mtim.tv_nsec) {
            close(fd);
            return files[i].readable ? &files[i].object : NULL;
        }

    void *data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (data == MAP_FAILED) return NULL;
    struct mapped *m;
    if (n_files < MAX_FILES) {
        m = &files[n_files++];
    } else {
        m = &files[next_out++ % MAX_FILES];
        unmap(m);
    }
    m->data = data;
    m->size = (size_t)st.st_size;
    m->device = st.st_dev;
    m->inode = st.st_ino;
    m->changed = st.st_mtim;
    m->readable = object_read(&m->object, data, m->size);
    if (m->readable) index_build(&m->object);
    return m->readable ? &m->object : NULL;
}

/* The loaded object that contains an address. */
struct module {
    uintptr_t address; /* the address to look up */
    uintptr_t bias;    /* address in memory - address in the file */
    char path[PATH_MAX];
    bool found;
};

static int find_module(struct dl_phdr_info *info, size_t info_size, void *arg)
{
    (void)info_size;
    struct module *m = arg;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *ph = &info->dlpi_phdr[i];
        if (ph->p_type != PT_LOAD || m->address - info->dlpi_addr - ph->p_vaddr >= ph->p_memsz)
            continue;
        m->bias = info->dlpi_addr;
        m->found = true;
        const char *name = info->dlpi_name ? info->dlpi_name : "";
        /* The program itself has no name here. */
        snprintf(m->path, sizeof m->path, "%s", *name ? name : "/proc/self/exe");
        return 1;
    }
    return 0;
}

/* libaril.so and plug-ins such as libaril_cuda.so. */
static bool is_aril_object(const char *path)
{
    const char *name = base_name(path);
    return starts_with(name, "libaril.so") || starts_with(name, "libaril_") ||
           starts_with(name, "libaril-");
}

/* Libraries whose frames appear between Aril's own on the stack, or below main. */
static bool is_runtime_object(const char *path)
{
    static const char *const names[] = {
        "libc.so",  "libc-2.",    "libpthread", "libgomp", "libomp",  "libiomp5", "libdnnl",
        "ld-linux", "linux-vdso", "libasan",    "libtsan", "liblsan", "libubsan", "libcurl",
    };
    const char *name = base_name(path);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (starts_with(name, names[i])) return true;
    return false;
}

/* ---- What is Aril's own --------------------------------------------------------------------- */

/* Where Aril's sources were when this file was compiled, according to its own line table: "src/" if
 * the path was mapped, something longer otherwise. */
static struct {
    bool tried, known;
    char root[NAME_SIZE], comp_dir[NAME_SIZE];
} own;

static bool copy_string(char *to, size_t size, const char *from)
{
    return fit(snprintf(to, size, "%s", from), size) == strlen(from);
}

static bool source_path(const struct source *f, char *buf, size_t size)
{
    int n = snprintf(buf, size, "%s%s%s", f->dir, *f->dir ? "/" : "", f->name);
    return n >= 0 && (size_t)n < size;
}

static void own_find(const struct object *o, uintptr_t bias)
{
    static const char here[] = "core/source_location.c";
    if (own.tried) return;
    own.tried = true;
    struct hit hit;
    if (!line_at(o, (uintptr_t)&aril__location - bias, &hit) ||
        !source_path(&hit.file, own.root, sizeof own.root) ||
        !copy_string(own.comp_dir, sizeof own.comp_dir, hit.comp_dir))
        return;
    size_t length = strlen(own.root), tail = sizeof here - 1;
    if (length <= tail || strcmp(own.root + length - tail, here) != 0) return;
    own.root[length - tail] = 0;
    own.known = true;
}

static bool is_own_path(const struct source *file)
{
    static const char *const layers[] = {
        "core/",  "ops/",  "backend/", "autograd/", "graph/", "codegen/", "formats/", "nn/",
        "optim/", "data/", "models/",  "train/",    "serve/", "dist/",    "aot/",     "init.c",
    };
    char path[NAME_SIZE];
    if (!source_path(file, path, sizeof path) || !starts_with(path, own.root)) return false;
    for (size_t i = 0; i < sizeof layers / sizeof layers[0]; i++)
        if (starts_with(path + strlen(own.root), layers[i])) return true;
    return false;
}

/* Whether a line is from Aril's sources, or from a header used there. A program may have its own
 * src/ directory: then it was compiled elsewhere, or has no subdirectory with one of Aril's
 * names. */
static bool is_own_source(const struct hit *hit)
{
    return own.known && strcmp(hit->comp_dir, own.comp_dir) == 0 &&
           (is_own_path(&hit->file) || is_own_path(&hit->primary));
}

/* ---- Walking the stack ---------------------------------------------------------------------- */

static size_t write_module_location(const char *path, uint64_t offset, char *buf, size_t size)
{
    char program[PATH_MAX];
    if (strcmp(path, "/proc/self/exe") == 0) {
        ssize_t n = readlink(path, program, sizeof program - 1);
        if (n <= 0) return 0;
        program[n] = 0;
        path = program;
    }
    return fit(snprintf(buf, size, "%s+0x%llx", base_name(path), (unsigned long long)offset), size);
}

static bool is_own_name(const char *name)
{
    return name && starts_with(name, "aril_");
}

/* Whether an address in the object that contains libaril.a belongs to Aril. */
static bool is_own_code(const struct symbol *symbol, const struct hit *hit)
{
    if (is_own_name(symbol->name)) return true;
    if (symbol->name && !symbol->is_local) return false; /* Aril has no other global functions */
    if (hit && own.known) return is_own_source(hit);
    /* No line table for Aril's part. The linker keeps code from one library together. */
    return !hit && symbol->is_local && is_own_name(symbol->before) && is_own_name(symbol->after);
}

/* The source location of one frame: returns its length, 0 to stop the search, -1 to go on to the
 * caller. */
static int frame_location(const struct module *at, const struct module *here, char *buf,
                          size_t size)
{
    uint64_t address = at->address - at->bias;
    const struct object *o = object_open(at->path);
    struct symbol symbol = { NULL, 0, false, "", "" };
    struct hit hit;
    bool has_line = false;
    if (o) {
        symbol = symbol_at(o, address);
        has_line = line_at(o, address, &hit);
    }
    if (here->found && at->bias == here->bias) {
        if (!o) return -1;
        own_find(o, at->bias);
        /* Fully stripped: Aril's code cannot be recognized, and internal addresses help nobody. */
        if (!own.known && !symbol_at(o, here->address - here->bias).name) return -1;
        if (is_own_code(&symbol, has_line ? &hit : NULL)) return -1;
    }
    if (has_line) return (int)write_line_location(&hit, buf, size);
    if (symbol.name && strcmp(symbol.name, "_start") == 0) return 0; /* past main */
    if (symbol.name)
        return (int)fit(snprintf(buf, size, "%s+0x%llx", symbol.name,
                                 (unsigned long long)symbol.offset + 1),
                        size);
    return (int)write_module_location(at->path, address + 1, buf, size);
}

/* Reading debug information takes a millisecond or more, and the same call often fails again. */
struct memo {
    uintptr_t address, bias;
    uint64_t path; /* a hash: another object may be loaded at the same address later */
    int result;
    char text[60];
};

/* The memo of an address, or the place for one: among a few neighbors, so that the frames of one
 * stack do not evict each other at every error. */
static struct memo *memo_of(const struct module *at, uint64_t *path)
{
    enum { MEMOS = 1024, WAYS = 8 };
    static struct memo memos[MEMOS]; /* guarded by `lock` */
    static unsigned evicted;
    *path = 0xcbf29ce484222325u;
    for (const char *p = at->path; *p; p++) *path = (*path ^ (unsigned char)*p) * 0x100000001b3u;
    uint64_t mixed = (uint64_t)at->address * 0x9e3779b97f4a7c15u;
    struct memo *first = &memos[(mixed >> 32) % (MEMOS / WAYS) * WAYS];
    for (int i = 0; i < WAYS; i++)
        if (first[i].address == at->address || first[i].address == 0) return &first[i];
    return &first[evicted++ % WAYS];
}

static size_t find_location(void *const *frames, int n_frames, char *buf, size_t size)
{
    static struct module here, at; /* too large for a stack that may be small; guarded by `lock` */
    here = (struct module){ .address = (uintptr_t)&aril__location };
    dl_iterate_phdr(find_module, &here);

    for (int i = 0; i < n_frames; i++) {
        /* A return address may belong to the next line, or even to the next function. */
        at = (struct module){ .address = (uintptr_t)frames[i] - 1 };
        dl_iterate_phdr(find_module, &at);
        if (!at.found || is_aril_object(at.path) || is_runtime_object(at.path)) continue;

        uint64_t path;
        struct memo *m = memo_of(&at, &path);
        bool known = m->address == at.address && m->bias == at.bias && m->path == path;
        int n = known ? m->result : frame_location(&at, &here, buf, size);
        if (known && n > 0) n = (int)fit(snprintf(buf, size, "%s", m->text), size);
        if (!known && n < (int)sizeof m->text && n < (int)size - 1) {
            *m = (struct memo){ at.address, at.bias, path, n, "" };
            if (n > 0) memcpy(m->text, buf, (size_t)n + 1);
        }
        if (n >= 0) return (size_t)n;
    }
    return 0;
}

/* A child forked while another thread held the lock would wait forever, so use a timeout. */
static bool lock_soon(void)
{
    struct timespec until;
    if (pthread_mutex_trylock(&lock) == 0) return true;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 2;
    return pthread_mutex_timedlock(&lock, &until) == 0;
}

size_t aril__location_in(void *const *frames, int n, char *buf, size_t size)
{
    if (size == 0) return 0;
    buf[0] = 0;
    int saved_errno = errno;
    size_t length = 0;
    if (n > 0 && lock_soon()) {
        length = find_location(frames, n, buf, size);
        pthread_mutex_unlock(&lock);
    }
    if (length == 0) buf[0] = 0;
    errno = saved_errno;
    return length;
}

int aril__location_frames(void **frames, int n)
{
    return aril__location_off ? 0 : backtrace(frames, n);
}

size_t aril__location(char *buf, size_t size)
{
    void *frames[MAX_FRAMES];
    int n_frames = aril__location_off ? 0 : backtrace(frames, MAX_FRAMES), first = 0;
    /* Sanitizers add their own frames around backtrace: start at the caller. */
    for (int i = 0; i < n_frames && first == 0; i++)
        if (frames[i] == __builtin_return_address(0)) first = i;
    static const char between[] = ", run at ";
    size_t n = aril__location_off ? 0 : aril__location_in(recorded.frames, recorded.n, buf, size);
    if (n == 0) return aril__location_in(frames + first, n_frames - first, buf, size);
    if (n + sizeof between >= size) return n;
    memcpy(buf + n, between, sizeof between);
    size_t now = n + sizeof between - 1;
    size_t more = aril__location_in(frames + first, n_frames - first, buf + now, size - now);
    if (more == 0) buf[n] = 0;
    return more ? now + more : n;
}

void aril__location_shutdown(void)
{
    if (!lock_soon()) return;
    for (unsigned i = 0; i < n_files; i++) unmap(&files[i]);
    n_files = next_out = 0;
    pthread_mutex_unlock(&lock);
}

#else

size_t aril__location(char *buf, size_t size)
{
    if (size > 0) buf[0] = 0;
    return 0;
}

size_t aril__location_in(void *const *frames, int n, char *buf, size_t size)
{
    (void)frames;
    (void)n;
    return aril__location(buf, size);
}

int aril__location_frames(void **frames, int n)
{
    (void)frames;
    (void)n;
    return 0;
}

size_t aril__location_of(const void *elf, size_t elf_size, uint64_t address, char *buf, size_t size)
{
    (void)elf;
    (void)elf_size;
    (void)address;
    return aril__location(buf, size);
}

void aril__location_shutdown(void)
{
}

#endif
