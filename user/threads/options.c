#define _GNU_SOURCE
#include "options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ring.h"

static const char *const CLASS_NAMES[CLASSES] = {
    [PROCESS] = "PROCESS", [THREAD] = "THREAD", [MUTEX] = "MUTEX", [COND] = "COND",   [BARRIER] = "BARRIER", [SEM] = "SEM",
    [RWLOCK] = "RWLOCK",   [SPIN] = "SPIN",     [TIMER] = "TIMER", [QUEUE] = "QUEUE", [DATA] = "DATA",
};

static int add_level(const char *word, size_t length, uint32_t *level)
{
    static const struct {
        const char *name;
        uint32_t bits;
    } kinds[] = { { "ALL", LEVEL_ALL }, { "IO", LEVEL_IO }, { "NONE", 0 } };
    for (int i = 0; i < 3; i++) {
        size_t end = strlen(kinds[i].name);
        if (length == end && strncmp(word, kinds[i].name, end) == 0) {
            *level |= kinds[i].bits;
            return 1;
        }
        for (int class = 0; class < CLASSES; class++) {
            size_t begin = strlen(CLASS_NAMES[class]);
            if (length == begin + 1 + end && strncmp(word, CLASS_NAMES[class], begin) == 0 && word[begin] == '_' &&
                strncmp(word + begin + 1, kinds[i].name, end) == 0) {
                *level |= kinds[i].bits & 3u << 2 * class;
                return 1;
            }
        }
    }
    return 0;
}

int read_level(const char *words, uint32_t *level)
{
    *level = 0;
    for (;; words++) {
        size_t length = strcspn(words, ",");
        if (!add_level(words, length, level))
            return 0;
        words += length;
        if (!*words)
            break;
    }
    /* Without processes nothing could be told apart. */
    if (*level)
        *level |= LEVEL_BIT(PROCESS, STATE);
    return 1;
}

static _Noreturn void refuse(const char *what)
{
    fprintf(stderr, "record: %s\n", what);
    exit(125);
}

static uint64_t number(const char *word)
{
    char *end;
    uint64_t value = strtoull(word, &end, 10);
    if (end == word || *end)
        refuse("not a number");
    return value;
}

struct options read_options(int count, char **words)
{
    struct options options = { .level = LEVEL_ALL, .timeout_ms = 10000, .size = 16 << 20 };
    int letter;
    while ((letter = getopt(count, words, "+o:p:s:k:m:l:t:")) != -1) {
        switch (letter) {
        case 'o':
            options.file = optarg;
            break;
        case 'p':
            options.library = optarg;
            break;
        case 's':
            options.size = number(optarg);
            break;
        case 'k':
            options.last = number(optarg);
            break;
        case 'm':
            options.limit = number(optarg);
            break;
        case 'l':
            if (!read_level(optarg, &options.level))
                refuse("no such level");
            break;
        case 't':
            options.timeout_ms = (unsigned)number(optarg);
            break;
        default:
            refuse("usage: record -o FILE -p LIBRARY [-s SIZE] [-k LAST] [-m LIMIT] [-l LEVEL] [-t MS] -- COMMAND...");
        }
    }
    options.command = words + optind;
    if (!options.file || !options.library || !options.command[0])
        refuse("-o, -p and a command are needed");
    if (options.size < RING_PAGE || options.size > 1ull << 32 || options.size & (options.size - 1))
        refuse("the buffer's size is a power of two from 4096 bytes to 4 GiB");
    return options;
}
