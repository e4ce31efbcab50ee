/* Messages from files. */
#include "formats/proto_message.h"

#include "core/error.h"
#include "formats/mapped_file.h"

#include <stdio.h>
#include <string.h>

/* Values of ONNX that hold nothing have no bytes. */
static bool may_be_empty(const aril__proto_type *type)
{
    return strcmp(type->name, "OptionalProto") == 0 || strcmp(type->name, "SequenceProto") == 0;
}

aril__message *aril__message_load(const aril__proto_type *type, const char *path)
{
    char expected[64];
    aril__mapped *f = aril__mapped_open("load", path);
    if (!f) return NULL;
    snprintf(expected, sizeof expected, "a %s", type->name);
    if (!may_be_empty(type) && aril__mapped_is_other(f, path, expected)) {
        aril__mapped_close(f);
        return NULL;
    }
    aril__message *m = aril__message_read(type, aril__mapped_data(f), aril__mapped_size(f),
                                          (aril__message_opts){ .name = path });
    if (m) m->owner->file = f;
    if (m && aril__mapped_check(f) == ARIL_OK) return m;
    if (m)
        aril__message_free(m);
    else
        aril__mapped_close(f);
    return NULL;
}

aril__message *aril__message_load_text(const aril__proto_type *type, const char *path)
{
    aril__bytes b = { 0 };
    if (aril__read_file("load", path, 0, &b) != ARIL_OK) return NULL;
    aril__message *m =
        aril__message_parse(type, (const char *)b.at, b.n, (aril__message_opts){ .name = path });
    aril__bytes_free(&b);
    return m;
}

aril_status aril__message_check(const aril__message *root)
{
    return root->owner->file ? aril__mapped_check(root->owner->file) : ARIL_OK;
}

void aril__message_rest(const aril__message *root)
{
    if (root->owner->file) aril__mapped_rest(root->owner->file);
}
