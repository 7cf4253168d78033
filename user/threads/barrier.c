/* Barriers. */
#include "interpose.h"

int pthread_barrier_init(pthread_barrier_t *barrier, const pthread_barrierattr_t *attributes, unsigned count)
{
    if (!recorded(BARRIER))
        return BEHIND(pthread_barrier_init)(barrier, attributes, count);
    BEGIN(notes);
    struct note *in = note(&notes, BARRIER_INIT_IN);
    add_pointer(in, barrier);
    add_pointer(in, attributes);
    add_word(in, count);
    write_notes(&notes);
    int result = BEHIND(pthread_barrier_init)(barrier, attributes, count);
    notes.count = 0;
    if (result == 0) {
        struct note *initialized = note(&notes, BARRIER_INIT);
        add_pointer(initialized, barrier);
        add_word(initialized, count);
    }
    add_word(note(&notes, BARRIER_INIT_OUT), (uint32_t)result);
    write_notes(&notes);
    return result;
}

PLAIN(int, pthread_barrier_destroy, BARRIER, BARRIER_DESTROY, (pthread_barrier_t * barrier), (barrier),
      add_pointer(in, barrier))

int pthread_barrier_wait(pthread_barrier_t *barrier)
{
    if (!recorded(BARRIER))
        return BEHIND(pthread_barrier_wait)(barrier);
    BEGIN(notes);
    add_pointer(note(&notes, BARRIER_WAIT_IN), barrier);
    add_pointer(note(&notes, THREAD_STATE_WAIT), barrier);
    write_notes(&notes);
    int result = BEHIND(pthread_barrier_wait)(barrier);
    /* It may have been destroyed meanwhile by who came out first: only its address is told. */
    waited(barrier, NO_EVENT, NULL, BARRIER_WAIT_OUT, result);
    return result;
}
