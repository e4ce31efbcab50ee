/* Spelling suggestions. */
#include "support/test.h"

#include <aril/aril.h>

static const char *const words[] = { "mnist", "fashion-mnist", "cifar10", "cifar100", NULL };
enum { WORDS = sizeof words / sizeof *words };

TEST(typos_are_found)
{
    CHECK_STR(aril_nearest("fashon-mnist", words, WORDS), "fashion-mnist");
    CHECK_STR(aril_nearest("fashion_mnist", words, WORDS), "fashion-mnist");
    CHECK_STR(aril_nearest("mnsit", words, WORDS), "mnist");
    CHECK_STR(aril_nearest("cifar1", words, WORDS), "cifar10");
    CHECK_STR(aril_nearest("fash", words, WORDS), "fashion-mnist");
}

TEST(closest_of_several_names)
{
    CHECK_STR(aril_nearest("cifar00", words, WORDS), "cifar10");
    CHECK_STR(aril_nearest("cifar1000", words, WORDS), "cifar100");
}

TEST(unrelated_words_get_no_suggestion)
{
    CHECK(aril_nearest("imagenet", words, WORDS) == NULL);
    CHECK(aril_nearest("", words, WORDS) == NULL);
    CHECK(aril_nearest("x", words, WORDS) == NULL);
    CHECK(aril_nearest(NULL, words, WORDS) == NULL);
    CHECK(aril_nearest("a-word-that-is-longer-than-any-that-was-meant-to-be-compared-with-it",
                       words, WORDS) == NULL);
}
