/* Read-write locks. */
#include "interpose.h"

#include <time.h>

CHANGES(pthread_rwlock_init, RWLOCK, RWLOCK_INIT, RWLOCK_INIT,
        (pthread_rwlock_t * lock, const pthread_rwlockattr_t *attributes), (lock, attributes), lock)
PLAIN(int, pthread_rwlock_destroy, RWLOCK, RWLOCK_DESTROY, (pthread_rwlock_t * lock), (lock), add_pointer(in, lock))

/* What the thread has got, if anything, and the exit. */
static void told(pthread_rwlock_t *lock, bool has_waited, uint32_t writer, enum event exit, int result)
{
    BEGIN(notes);
    if (has_waited)
        add_pointer(note(&notes, THREAD_STATE_WAKE), lock);
    if (result == 0) {
        struct note *taken = note(&notes, RWLOCK_TAKEN);
        add_pointer(taken, lock);
        add_word(taken, writer);
    }
    add_word(note(&notes, exit), (uint32_t)result);
    write_notes(&notes);
}

#define LOCKS(function, try, writer, NAME, parameters, arguments)                                                      \
    int function parameters                                                                                            \
    {                                                                                                                  \
        if (!recorded(RWLOCK))                                                                                         \
            return BEHIND(function) arguments;                                                                         \
        tell(NAME##_IN, lock);                                                                                         \
        int result = BEHIND(try)(lock);                                                                                \
        bool must_wait = result == EBUSY;                                                                              \
        if (must_wait) {                                                                                               \
            waits(lock);                                                                                               \
            result = BEHIND(function) arguments;                                                                       \
        }                                                                                                              \
        told(lock, must_wait, writer, NAME##_OUT, result);                                                             \
        return result;                                                                                                 \
    }

#define TRIES(function, writer, NAME)                                                                                  \
    int function(pthread_rwlock_t *lock)                                                                               \
    {                                                                                                                  \
        if (!recorded(RWLOCK))                                                                                         \
            return BEHIND(function)(lock);                                                                             \
        tell(NAME##_IN, lock);                                                                                         \
        int result = BEHIND(function)(lock);                                                                           \
        told(lock, false, writer, NAME##_OUT, result);                                                                 \
        return result;                                                                                                 \
    }

#define PLAINLY (pthread_rwlock_t * lock), (lock)
#define TIMED (pthread_rwlock_t * lock, const struct timespec *until), (lock, until)
#define CLOCKED (pthread_rwlock_t * lock, clockid_t clock, const struct timespec *until), (lock, clock, until)
#define EXPANDED(...) LOCKS(__VA_ARGS__)

EXPANDED(pthread_rwlock_rdlock, pthread_rwlock_tryrdlock, 0, RWLOCK_RDLOCK, PLAINLY)
EXPANDED(pthread_rwlock_timedrdlock, pthread_rwlock_tryrdlock, 0, RWLOCK_TIMEDRDLOCK, TIMED)
EXPANDED(pthread_rwlock_clockrdlock, pthread_rwlock_tryrdlock, 0, RWLOCK_CLOCKRDLOCK, CLOCKED)
EXPANDED(pthread_rwlock_wrlock, pthread_rwlock_trywrlock, 1, RWLOCK_WRLOCK, PLAINLY)
EXPANDED(pthread_rwlock_timedwrlock, pthread_rwlock_trywrlock, 1, RWLOCK_TIMEDWRLOCK, TIMED)
EXPANDED(pthread_rwlock_clockwrlock, pthread_rwlock_trywrlock, 1, RWLOCK_CLOCKWRLOCK, CLOCKED)
TRIES(pthread_rwlock_tryrdlock, 0, RWLOCK_TRYRDLOCK)
TRIES(pthread_rwlock_trywrlock, 1, RWLOCK_TRYWRLOCK)

int pthread_rwlock_unlock(pthread_rwlock_t *lock)
{
    if (!recorded(RWLOCK))
        return BEHIND(pthread_rwlock_unlock)(lock);
    BEGIN(notes);
    add_pointer(note(&notes, RWLOCK_UNLOCK_IN), lock);
    add_pointer(note(&notes, RWLOCK_FREE), lock);
    write_notes(&notes);
    int result = BEHIND(pthread_rwlock_unlock)(lock);
    tell_result(RWLOCK_UNLOCK_OUT, result);
    return result;
}
