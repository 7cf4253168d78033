/* Condition variables. Their functions exist twice in the C library, the older ones for programs of 2002. */
#include "interpose.h"

#include <time.h>

#define PRESENT "GLIBC_2.3.2"
#define BEHIND_PRESENT(function) BEHIND_VERSION(function, PRESENT)

int pthread_cond_init(pthread_cond_t *condition, const pthread_condattr_t *attributes)
{
    if (!recorded(COND))
        return BEHIND_PRESENT(pthread_cond_init)(condition, attributes);
    tell(COND_INIT_IN, condition);
    int result = BEHIND_PRESENT(pthread_cond_init)(condition, attributes);
    tell_change(COND_INIT, condition, COND_INIT_OUT, result);
    return result;
}

#define CONDITION(function, NAME)                                                                                      \
    int function(pthread_cond_t *condition)                                                                            \
    {                                                                                                                  \
        if (!recorded(COND))                                                                                           \
            return BEHIND_PRESENT(function)(condition);                                                                \
        tell(NAME##_IN, condition);                                                                                    \
        int result = BEHIND_PRESENT(function)(condition);                                                              \
        tell_result(NAME##_OUT, result);                                                                               \
        return result;                                                                                                 \
    }

CONDITION(pthread_cond_destroy, COND_DESTROY)
CONDITION(pthread_cond_signal, COND_SIGNAL)
CONDITION(pthread_cond_broadcast, COND_BROADCAST)

static void begins(enum event entry, const void *condition, const void *mutex)
{
    BEGIN(notes);
    struct note *in = note(&notes, entry);
    add_pointer(in, condition);
    add_pointer(in, mutex);
    add_pointer(note(&notes, MUTEX_FREE), mutex);
    add_pointer(note(&notes, THREAD_STATE_WAIT), condition);
    write_notes(&notes);
}

/* Whether it ended by a signal or a time-out, the thread has the mutex again; not if the call was refused, which it never gave back then. */
#define CONDITION_WAIT(function, NAME, version, parameters, arguments)                                                 \
    int function parameters                                                                                            \
    {                                                                                                                  \
        if (!recorded(COND) && !recorded(MUTEX))                                                                       \
            return BEHIND_VERSION(function, version) arguments;                                                        \
        WAITS_FOR(condition, mutex);                                                                                   \
        begins(NAME##_IN, condition, mutex);                                                                           \
        int result = BEHIND_VERSION(function, version) arguments;                                                      \
        wait.ended = true;                                                                                             \
        waited(condition, MUTEX_TAKEN, mutex, NAME##_OUT, result);                                                     \
        return result;                                                                                                 \
    }

CONDITION_WAIT(pthread_cond_wait, COND_WAIT, PRESENT, (pthread_cond_t * condition, pthread_mutex_t *mutex),
               (condition, mutex))
CONDITION_WAIT(pthread_cond_timedwait, COND_TIMEDWAIT, PRESENT,
               (pthread_cond_t * condition, pthread_mutex_t *mutex, const struct timespec *until),
               (condition, mutex, until))
CONDITION_WAIT(pthread_cond_clockwait, COND_CLOCKWAIT, NULL,
               (pthread_cond_t * condition, pthread_mutex_t *mutex, clockid_t clock, const struct timespec *until),
               (condition, mutex, clock, until))
