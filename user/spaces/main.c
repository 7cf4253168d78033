/* The tools' one program: which of them it is, and how they say what is wrong. */
#include "spaces.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *tool = "spaces";
const char *profile = "";

enum { STATUS_FAILED = 125 };

static void say(const char *format, va_list list)
{
    fprintf(stderr, "%s: ", tool);
    vfprintf(stderr, format, list);
}

void fail(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    say(format, list);
    va_end(list);
    fputc('\n', stderr);
    exit(STATUS_FAILED);
}

void fail_at(int line, const char *format, ...)
{
    int error = errno;
    va_list list;
    fprintf(stderr, "%s: ", tool);
    if (line > 0)
        fprintf(stderr, "%s:%d: ", profile, line);
    va_start(list, format);
    vfprintf(stderr, format, list);
    va_end(list);
    fprintf(stderr, error ? ": %s\n" : "\n", strerror(error));
    exit(STATUS_FAILED);
}

void note(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    say(format, list);
    va_end(list);
    fputc('\n', stderr);
}

void *allocate(size_t bytes)
{
    void *memory = calloc(1, bytes);
    if (!memory)
        fail("no memory");
    return memory;
}

char *copy_of(const char *text)
{
    char *copy = strdup(text);
    if (!copy)
        fail("no memory");
    return copy;
}

int main(int count, char **words)
{
    const char *slash = count > 0 ? strrchr(words[0], '/') : NULL;
    tool = slash ? slash + 1 : count > 0 ? words[0] : tool;
    if (!strcmp(tool, "bind"))
        return bind_main(count, words);
    if (!strcmp(tool, "newns"))
        return newns_main(count, words);
    if (!strcmp(tool, "nsdup"))
        return nsdup_main(count, words);
    fail("call it as bind, newns or nsdup");
}
