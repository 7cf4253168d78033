/* What the functions that stand before those of the C library share.
 *
 * Each does what the one behind it does, with the same result and errno, and records its entry and exit and what changed between. Nothing here takes a lock,
 * allocates memory or is a point of cancellation. While a level is not recorded a function costs a load and a test more.
 */
#ifndef THREADS_INTERPOSE_H
#define THREADS_INTERPOSE_H
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>

#include "ring.h"

/* A program may have functions of these names itself. */
#pragma GCC visibility push(hidden)

/* The buffer, or an empty one with level 0 while there is none. */
extern struct ring *ring;

/* Whether the thread may be cancelled at any time: then records are written with that put off, so that all of them are whole. */
extern __thread bool cancelled_at_any_time;

/* A record that is being put together. */
struct note {
    uint16_t event, words;
    uint32_t parameters[WORDS_MAX - WORDS_BEFORE_PARAMETERS];
};

/* Records that belong to one moment are written at once. */
struct notes {
    int count;
    struct note note[3];
};

/* Only the count: the rest is written before it is read. */
#define BEGIN(notes)                                                                                                   \
    struct notes notes;                                                                                                \
    notes.count = 0

void write_notes(const struct notes *notes);
void process_began(void);
const char *name_of_function(const void *address, char *buffer, size_t size);

static inline uint32_t level(void)
{
    return atomic_load_explicit(&ring->level, memory_order_relaxed);
}

static inline bool recorded(enum class class)
{
    return level() & (LEVEL_BIT(class, IO) | LEVEL_BIT(class, STATE) | LEVEL_BIT(THREAD, STATE));
}

/* Nothing, if events of its kind are not recorded. */
static inline struct note *note(struct notes *notes, enum event event)
{
    static __thread struct note unwanted;
    struct note *note = level() & event_bit[event] ? &notes->note[notes->count++] : &unwanted;
    note->event = (uint16_t)event;
    note->words = 0;
    return note;
}

static inline void add_word(struct note *note, uint32_t word)
{
    note->parameters[note->words++] = word;
}

static inline void add_pointer(struct note *note, const void *pointer)
{
    add_word(note, (uint32_t)(uintptr_t)pointer);
    add_word(note, (uint32_t)((uintptr_t)pointer >> 32));
}

static inline const void *handle(uintptr_t value)
{
    return (const void *)value;
}

void add_text(struct note *note, const char *text);

/* One record with an object, or with a number. */
static inline void tell(enum event event, const void *object)
{
    BEGIN(notes);
    add_pointer(note(&notes, event), object);
    write_notes(&notes);
}

static inline void tell_result(enum event event, long result)
{
    BEGIN(notes);
    add_word(note(&notes, event), (uint32_t)result);
    write_notes(&notes);
}

/* A change of an object, and the exit of the function that made it. */
static inline void tell_change(enum event change, const void *object, enum event exit, long result)
{
    BEGIN(notes);
    add_pointer(note(&notes, change), object);
    add_word(note(&notes, exit), (uint32_t)result);
    write_notes(&notes);
}

/* A wait that may end by cancellation: `cut_short` runs then. */
struct wait {
    const void *object;
    /* What the thread has again when its wait has ended so: the mutex of a condition variable. */
    const void *mutex;
    bool ended;
};

void cut_short(struct wait *wait);

#define WAITS_FOR(object, mutex) __attribute__((cleanup(cut_short))) struct wait wait = { object, mutex, false }

static inline void waits(const void *object)
{
    tell(THREAD_STATE_WAIT, object);
}

/* The end of a wait: what the thread has got, if anything, and the exit. */
static inline void waited(const void *object, enum event change, const void *changed, enum event exit, long result)
{
    BEGIN(notes);
    add_pointer(note(&notes, THREAD_STATE_WAKE), object);
    if (change != NO_EVENT)
        add_pointer(note(&notes, change), changed);
    add_word(note(&notes, exit), (uint32_t)result);
    write_notes(&notes);
}

void *function_behind(const char *name, const char *version);

#pragma GCC visibility pop

/* The function of the C library that has this one's name. Looked for when it is first called, which may be before this library has begun. */
#define BEHIND_VERSION(function, version)                                                                              \
    ({                                                                                                                 \
        static __typeof__(&function) found;                                                                            \
        if (!found)                                                                                                    \
            found = (__typeof__(&function))function_behind(#function, version);                                        \
        found;                                                                                                         \
    })
#define BEHIND(function) BEHIND_VERSION(function, NULL)

/* A function that does not wait: `parameters` as it is declared, `arguments` as it is called, and what is recorded of them. */
#define PLAIN(type, function, class, NAME, parameters, arguments, ...)                                                 \
    type function parameters                                                                                           \
    {                                                                                                                  \
        if (!recorded(class))                                                                                          \
            return BEHIND(function) arguments;                                                                         \
        BEGIN(notes);                                                                                    \
        struct note *in = note(&notes, NAME##_IN);                                                                     \
        (void)in;                                                                                                      \
        __VA_ARGS__;                                                                                                   \
        write_notes(&notes);                                                                                           \
        type result = BEHIND(function) arguments;                                                                      \
        tell_result(NAME##_OUT, (long)result);                                                                         \
        return result;                                                                                                 \
    }

/* The same for one that changes an object when it succeeds. */
#define CHANGES(function, class, NAME, change, parameters, arguments, object)                                          \
    int function parameters                                                                                            \
    {                                                                                                                  \
        if (!recorded(class))                                                                                          \
            return BEHIND(function) arguments;                                                                         \
        tell(NAME##_IN, object);                                                                                       \
        int result = BEHIND(function) arguments;                                                                       \
        if (result == 0)                                                                                               \
            tell_change(change, object, NAME##_OUT, result);                                                           \
        else                                                                                                           \
            tell_result(NAME##_OUT, result);                                                                           \
        return result;                                                                                                 \
    }
#endif
