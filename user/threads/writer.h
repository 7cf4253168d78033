/* Taking room in the buffer and writing a record into it. */
#ifndef THREADS_WRITER_H
#define THREADS_WRITER_H
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>

#include "ring.h"

/* Without errno, and no point of cancellation. */
static inline long raw_call(long number, long a, long b, long c, long d)
{
    long result;
    register long fourth __asm__("r10") = d;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth)
                     : "rcx", "r11", "memory");
    return result;
}

static inline long raw_futex(_Atomic uint32_t *word, int op, uint32_t value, const struct timespec *timeout)
{
    return raw_call(SYS_futex, (long)word, op, value, (long)timeout);
}

static inline void ring_the_bell(struct ring *ring)
{
    atomic_fetch_add(&ring->bell, 1);
    raw_futex(&ring->bell, FUTEX_WAKE, 1, NULL);
}

static inline char *buffer_of(struct ring *ring)
{
    return (char *)ring + RING_PAGE;
}

static inline _Atomic uint32_t *word_at(struct ring *ring, uint64_t position)
{
    return (_Atomic uint32_t *)(void *)(buffer_of(ring) + (position & (ring->capacity - 1)));
}

/* Sleeps until the room is free. False if nobody will free it any more. */
static inline int wait_for_room(struct ring *ring, uint64_t end)
{
    const struct timespec second = { 1, 0 };
    int alive = 1;
    atomic_fetch_add(&ring->waiting, 1);
    for (;;) {
        uint32_t before = atomic_load(&ring->room);
        if (end <= atomic_load(&ring->taken) + ring->capacity)
            break;
        if (raw_call(SYS_kill, ring->reader, 0, 0, 0) == -3 /* ESRCH */) {
            atomic_store(&ring->level, 0);
            alive = 0;
            break;
        }
        raw_futex(&ring->room, FUTEX_WAIT, before, &second);
    }
    atomic_fetch_sub(&ring->waiting, 1);
    return alive;
}

/* Takes room for so many bytes. False if there will be none. */
static inline int take_room(struct ring *ring, uint32_t bytes, uint64_t *position)
{
    uint64_t begin = atomic_fetch_add_explicit(&ring->reserved, bytes, memory_order_relaxed);
    uint64_t end = begin + bytes;
    *position = begin;
    if ((begin ^ end) & (ring->capacity / 2))
        ring_the_bell(ring);
    /* Acquire: what is taken has been made zero before. */
    return end <= atomic_load_explicit(&ring->taken, memory_order_acquire) + ring->capacity || wait_for_room(ring, end);
}

/* Writes a record into room that was taken for it. */
static inline void write_record(struct ring *ring, uint64_t position, uint32_t event, uint32_t thread, uint32_t process,
                                uint64_t time, const uint32_t *parameters, uint32_t count)
{
    _Atomic uint32_t *place = word_at(ring, position);
    uint32_t *words = (uint32_t *)place;
    uint32_t length = WORDS_BEFORE_PARAMETERS + count;
    atomic_store_explicit(place, header_word(BEGUN, length, event), memory_order_relaxed);
    words[WORD_THREAD] = thread;
    words[WORD_PROCESS] = process;
    words[WORD_TIME] = (uint32_t)time;
    words[WORD_TIME + 1] = (uint32_t)(time >> 32);
    for (uint32_t i = 0; i < count; i++)
        words[WORDS_BEFORE_PARAMETERS + i] = parameters[i];
    /* Release: pairs with the reader's look at the header. */
    atomic_store_explicit(place, header_word(WHOLE, length, event), memory_order_release);
}
#endif
