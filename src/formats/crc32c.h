/* The checksum of TensorFlow's files. */
#ifndef ARIL_FORMATS_CRC32C_H
#define ARIL_FORMATS_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* CRC-32C (Castagnoli), rotated and with a constant added, as in TFRecord files and checkpoints. */
uint32_t aril__masked_crc32c(const void *data, size_t n);

#endif
