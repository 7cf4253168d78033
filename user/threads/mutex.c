/* Mutexes. Who finds one taken is told from who does not by trying first. */
#include "interpose.h"

#include <time.h>

CHANGES(pthread_mutex_init, MUTEX, MUTEX_INIT, MUTEX_INIT, (pthread_mutex_t * mutex, const pthread_mutexattr_t *kind),
        (mutex, kind), mutex)
PLAIN(int, pthread_mutex_destroy, MUTEX, MUTEX_DESTROY, (pthread_mutex_t * mutex), (mutex), add_pointer(in, mutex))
PLAIN(int, pthread_mutex_consistent, MUTEX, MUTEX_CONSISTENT, (pthread_mutex_t * mutex), (mutex),
      add_pointer(in, mutex))

/* With these results the caller has the mutex. */
static bool has(int result)
{
    return result == 0 || result == EOWNERDEAD;
}

static void told(pthread_mutex_t *mutex, enum event exit, int result)
{
    if (has(result))
        tell_change(MUTEX_TAKEN, mutex, exit, result);
    else
        tell_result(exit, result);
}

#define LOCKS(function, NAME, parameters, arguments)                                                                   \
    int function parameters                                                                                            \
    {                                                                                                                  \
        if (!recorded(MUTEX))                                                                                          \
            return BEHIND(function) arguments;                                                                         \
        tell(NAME##_IN, mutex);                                                                                        \
        int result = BEHIND(pthread_mutex_trylock)(mutex);                                                             \
        if (result != EBUSY) {                                                                                         \
            told(mutex, NAME##_OUT, result);                                                                           \
            return result;                                                                                             \
        }                                                                                                              \
        waits(mutex);                                                                                                  \
        result = BEHIND(function) arguments;                                                                           \
        waited(mutex, has(result) ? MUTEX_TAKEN : NO_EVENT, mutex, NAME##_OUT, result);                                \
        return result;                                                                                                 \
    }

LOCKS(pthread_mutex_lock, MUTEX_LOCK, (pthread_mutex_t * mutex), (mutex))
LOCKS(pthread_mutex_timedlock, MUTEX_TIMEDLOCK, (pthread_mutex_t * mutex, const struct timespec *until), (mutex, until))
LOCKS(pthread_mutex_clocklock, MUTEX_CLOCKLOCK,
      (pthread_mutex_t * mutex, clockid_t clock, const struct timespec *until), (mutex, clock, until))

int pthread_mutex_trylock(pthread_mutex_t *mutex)
{
    if (!recorded(MUTEX))
        return BEHIND(pthread_mutex_trylock)(mutex);
    tell(MUTEX_TRYLOCK_IN, mutex);
    int result = BEHIND(pthread_mutex_trylock)(mutex);
    told(mutex, MUTEX_TRYLOCK_OUT, result);
    return result;
}

int pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    if (!recorded(MUTEX))
        return BEHIND(pthread_mutex_unlock)(mutex);
    /* Told before: the next owner's record shall not come first. Who is refused takes it back by having it again. */
    BEGIN(notes);
    add_pointer(note(&notes, MUTEX_UNLOCK_IN), mutex);
    add_pointer(note(&notes, MUTEX_FREE), mutex);
    write_notes(&notes);
    int result = BEHIND(pthread_mutex_unlock)(mutex);
    tell_result(MUTEX_UNLOCK_OUT, result);
    return result;
}
