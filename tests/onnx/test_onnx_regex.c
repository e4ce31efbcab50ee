/* Regular expressions of RegexFullMatch: RE2's syntax, and what is refused. */
#include "onnx/regex.h"
#include "support/test.h"

#include <stdlib.h>
#include <string.h>

/* Whether each text, up to NULL, matches or not. */
static void check(const char *pattern, bool matches, const char *const *texts)
{
    const char *error = NULL;
    aril__regex *r = aril__regex_new(pattern, strlen(pattern), &error);
    CHECK_MSG(r != NULL, "%s: %s", pattern, error ? error : "out of memory");
    for (; *texts; texts++)
        if (aril__regex_matches(r, *texts, strlen(*texts)) != matches)
            test_fail(__FILE__, __LINE__, "%s and \"%s\"", pattern, *texts);
    aril__regex_free(r);
}

#define YES(pattern, ...) check(pattern, true, (const char *const[]){ __VA_ARGS__, NULL })
#define NO(pattern, ...)  check(pattern, false, (const char *const[]){ __VA_ARGS__, NULL })

static void refuses(const char *pattern, const char *why)
{
    const char *error = NULL;
    aril__regex *r = aril__regex_new(pattern, strlen(pattern), &error);
    if (r || !error || !strstr(error, why))
        test_fail(__FILE__, __LINE__, "%.40s: %s", pattern, error ? error : "taken");
    aril__regex_free(r);
}

TEST(the_whole_text_matches)
{
    YES("abc", "abc");
    NO("abc", "ab", "abcd", "xabc", "");
    YES("", "");
    NO("", "a");
    YES("a|bc|", "a", "bc", "");
    NO("a|bc|", "b", "abc");
    YES("(www.[\\w.-]+\\.[a-zA-Z]{2,})", "www.google.com", "www.facebook-1.com");
    NO("(www.[\\w.-]+\\.[a-zA-Z]{2,})", "account@gmail.com", "www.a.b");
}

TEST(repetitions)
{
    YES("a*b+c?", "b", "aabbc", "abc");
    NO("a*b+c?", "", "ac", "abcc");
    YES("(ab){2}", "abab");
    NO("(ab){2}", "ab", "ababab");
    YES("a{1,3}", "a", "aa", "aaa");
    NO("a{1,3}", "", "aaaa");
    YES("a{2,}?", "aa", "aaaaa");
    NO("a{2,}", "a");
    YES("a{,3}", "a{,3}");
    YES("a{x", "a{x");
    YES("(a*)*", "", "aaa");
    YES("(|a){3}b", "b", "aab");
}

TEST(classes_and_escapes)
{
    YES("[a-c\\d_-]+", "abc019_-");
    NO("[a-c\\d_-]+", "d", "a.");
    YES("[^a-c]", "d", "\n", "\xc3\xa9");
    NO("[^a-c]", "a", "");
    YES("[]a]+", "]a");
    YES("[[:alpha:][:^digit:]]", "a", "-");
    NO("[[:alpha:]]", "1");
    YES("\\D\\W\\S", "a-b");
    NO("\\D", "1");
    YES("\\x41\\x{e9}\\060\\.\\t", "A\xc3\xa9"
                                   "0.\t");
    YES("\\Qa.b*\\E+", "a.b*");
    YES("..", "\xe6\x97\xa5\xc3\xa9");
    NO(".", "\n");
    YES("(?s).", "\n");
    YES("(?i)aB[c-d]", "Abd", "abC");
    YES("a(?i:b)c", "aBc");
    NO("a(?i:b)c", "aBC");
    YES("(?P<name>a)(?<other>b)(?:c)", "abc");
}

TEST(borders)
{
    YES("^a$", "a");
    NO("a^b", "ab");
    YES("(?m)a$\n^b", "a\nb");
    NO("a$\n^b", "a\nb");
    YES("\\ba\\b-\\Bx?", "a-");
    NO("a\\bb", "ab");
    YES("\\Aab\\z", "ab");
}

TEST(patterns_that_are_wrong)
{
    refuses("(a", "a group is not closed");
    refuses("a)", "a parenthesis is not open");
    refuses("[a", "a bracket is not closed");
    refuses("[b-a]", "a range ends before it begins");
    refuses("*a", "nothing stands before a repetition");
    refuses("a**", "a repetition of a repetition");
    refuses("a{2}{3}", "a repetition of a repetition");
    refuses("a{1001}", "a repetition is out of range");
    refuses("a{3,2}", "a repetition is out of range");
    refuses("\\1", "an escape is not supported");
    refuses("\\pL", "an escape is not supported");
    refuses("a\\", "it ends with a backslash");
    refuses("(?=a)", "a group of this kind");
    refuses("(?<=a)", "looking behind");
    refuses("\\x{110000}", "a character is beyond Unicode");
}

/* Neither memory nor time without bounds. */
TEST(patterns_that_are_too_large)
{
    char *deep = malloc(200001);
    CHECK(deep != NULL);
    memset(deep, '(', 20000);
    deep[20000] = '\0';
    refuses(deep, "groups are nested too deep");
    memset(deep, 'a', 200000);
    deep[200000] = '\0';
    refuses(deep, "it is too long");
    deep[50000] = '\0';
    refuses(deep, "it is too large");
    free(deep);
    refuses("((((a{1,255}){1,255}){1,255}){1,255})", "it is too large");
    refuses("((((){1000}){1000}){1000}){1000}", "it is too large");
    refuses("((((a*){1000}){1000}){1000}){1000}", "it is too large");
    NO("(a*)*(a*)*(a*)*(a*)*b",
       "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa");
    NO("(a|aa)+b",
       "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa");
}
