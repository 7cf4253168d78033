/* Spin locks. */
#include "interpose.h"

CHANGES(pthread_spin_init, SPIN, SPIN_INIT, SPIN_INIT, (pthread_spinlock_t * lock, int shared), (lock, shared),
        (const void *)lock)
PLAIN(int, pthread_spin_destroy, SPIN, SPIN_DESTROY, (pthread_spinlock_t * lock), (lock),
      add_pointer(in, (const void *)lock))
CHANGES(pthread_spin_trylock, SPIN, SPIN_TRYLOCK, SPIN_TAKEN, (pthread_spinlock_t * lock), (lock), (const void *)lock)

int pthread_spin_lock(pthread_spinlock_t *lock)
{
    const void *object = (const void *)lock;
    if (!recorded(SPIN))
        return BEHIND(pthread_spin_lock)(lock);
    tell(SPIN_LOCK_IN, object);
    if (BEHIND(pthread_spin_trylock)(lock) == 0) {
        tell_change(SPIN_TAKEN, object, SPIN_LOCK_OUT, 0);
        return 0;
    }
    waits(object);
    int result = BEHIND(pthread_spin_lock)(lock);
    waited(object, SPIN_TAKEN, object, SPIN_LOCK_OUT, result);
    return result;
}

int pthread_spin_unlock(pthread_spinlock_t *lock)
{
    if (!recorded(SPIN))
        return BEHIND(pthread_spin_unlock)(lock);
    BEGIN(notes);
    add_pointer(note(&notes, SPIN_UNLOCK_IN), (const void *)lock);
    add_pointer(note(&notes, SPIN_FREE), (const void *)lock);
    write_notes(&notes);
    int result = BEHIND(pthread_spin_unlock)(lock);
    tell_result(SPIN_UNLOCK_OUT, result);
    return result;
}
