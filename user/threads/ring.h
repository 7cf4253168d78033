/* The buffer that a traced program's threads write records to, and its records.
 *
 * One buffer is shared by all threads of all processes that a command starts. It lies in memory of its own (memfd_create), twice in a row in
 * each address space, so a record that begins near the end goes on in one piece.
 *
 * A writer takes room by adding to `reserved`, waits while its room is not free yet, and writes its record: first the header word marked BEGUN, then the
 * rest, then the header word marked WHOLE. Nothing is ever taken back, so no writer waits for another one, and a thread that is killed in between
 * leaves a hole that is told from a record. The reader, one thread of `record.c`, takes whole records in their order, makes what it took zero and adds it to `taken`.
 *
 *     taken <= reserved;  a record at p may be written when p + its length <= taken + capacity
 *
 * Both are counts of bytes since the beginning. Of a count the place is what remains modulo the capacity, a power of two.
 */
#ifndef THREADS_RING_H
#define THREADS_RING_H
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define RING_VARIABLE "STARLING_THREADS"
#define RING_MAGIC 0x31545450474e4952ull

enum { RING_PAGE = 4096 };

struct ring {
    uint64_t magic, capacity;
    /* Of the process that takes records: when it is gone, nothing is recorded any more. */
    int32_t reader;
    /* Which classes and kinds are recorded, two bits a class. Anybody may change it at any time. */
    _Atomic uint32_t level;
    /* The reader sleeps until this changes: half a buffer is full, or something has ended. */
    _Alignas(64) _Atomic uint32_t bell;
    _Alignas(64) _Atomic uint64_t reserved;
    _Alignas(64) _Atomic uint64_t taken;
    /* Who finds no room sleeps until this changes. */
    _Atomic uint32_t room;
    _Atomic uint32_t waiting;
    /* How many programs have mapped it. */
    _Atomic uint32_t programs;
};

_Static_assert(sizeof(struct ring) <= RING_PAGE, "the words before the buffer have a page");

/* A record: all its items are multiples of 32 bits. */
enum { WORD_HEADER, WORD_THREAD, WORD_PROCESS, WORD_TIME, WORDS_BEFORE_PARAMETERS = WORD_TIME + 2, WORDS_MAX = 64 };
enum { WHOLE = 0xa5, BEGUN = 0x5a };

static inline uint32_t header_word(uint32_t state, uint32_t words, uint32_t event)
{
    return state << 24 | words << 16 | event;
}

enum class { PROCESS, THREAD, MUTEX, COND, BARRIER, SEM, RWLOCK, SPIN, TIMER, QUEUE, DATA, CLASSES };
enum kind { IO, STATE };

#define LEVEL_BIT(class, kind) (1u << (2 * (class) + (kind)))
#define LEVEL_ALL ((1u << 2 * CLASSES) - 1)
#define LEVEL_IO (LEVEL_ALL / 3)

enum event {
    NO_EVENT,
#define EVENT(name, class, kind, parameters, phrase) name,
#define CALL(name, class, function, parameters) name##_IN, name##_OUT,
#include "events.h"
#undef EVENT
#undef CALL
    EVENTS
};

/* The class and kind of each event, as a bit of a level. */
static const uint32_t event_bit[EVENTS] = {
#define EVENT(name, class, kind, parameters, phrase) [name] = LEVEL_BIT(class, kind),
#define CALL(name, class, function, parameters)                                                                        \
    [name##_IN] = LEVEL_BIT(class, IO), [name##_OUT] = LEVEL_BIT(class, IO),
#include "events.h"
#undef EVENT
#undef CALL
};

static inline uint64_t time_stamp(void)
{
    uint32_t low, high;
    __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
    return (uint64_t)high << 32 | low;
}
#endif
