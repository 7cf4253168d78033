/* The options of `record`. */
#ifndef THREADS_OPTIONS_H
#define THREADS_OPTIONS_H
#include <stdint.h>

struct options {
    const char *file, *library;
    uint64_t size, last, limit;
    uint32_t level;
    /* After so long without progress the application is stopped. */
    unsigned timeout_ms;
    char **command;
};

/* Reads them, or prints what is wrong and ends with status 125. */
struct options read_options(int count, char **words);
/* `ALL`, `IO`, `NONE`, or classes with one of them: `MUTEX_ALL,THREAD_IO`. */
int read_level(const char *words, uint32_t *level);
#endif
