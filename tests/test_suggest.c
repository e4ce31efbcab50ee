/* Spelling suggestions. */
#include "support/test.h"

#include <aril/aril.h>

static const char *const words[] = { "mnist", "fashion-mnist", "cifar10", "cifar100", NULL };
enum { WORDS = sizeof words / sizeof *words };

TEST(slips_are_found)
{
    CHECK_STR(aril_nearest("fashon-mnist", words, WORDS), "fashion-mnist");
    CHECK_STR(aril_nearest("fashion_mnist", words, WORDS), "fashion-mnist");
    CHECK_STR(aril_nearest("mnsit", words, WORDS), "mnist");
    CHECK_STR(aril_nearest("cifar1", words, WORDS), "cifar10");
    CHECK_STR(aril_nearest("fash", words, WORDS), "fashion-mnist");
}

TEST(the_nearest_of_several)
{
    CHECK_STR(aril_nearest("cifar00", words, WORDS), "cifar10");
    CHECK_STR(aril_nearest("cifar1000", words, WORDS), "cifar100");
}

TEST(other_words_are_not)
{
    CHECK(aril_nearest("imagenet", words, WORDS) == NULL);
    CHECK(aril_nearest("", words, WORDS) == NULL);
    CHECK(aril_nearest("x", words, WORDS) == NULL);
    CHECK(aril_nearest(NULL, words, WORDS) == NULL);
    CHECK(aril_nearest("a-word-that-is-longer-than-any-that-was-meant-to-be-compared-with-it",
                       words, WORDS) == NULL);
}
