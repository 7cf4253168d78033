/* Data of each thread. Looking at it (pthread_getspecific) is not recorded: programs do it as they read memory. */
#include "interpose.h"

int pthread_key_create(pthread_key_t *key, void (*destructor)(void *))
{
    if (!recorded(DATA))
        return BEHIND(pthread_key_create)(key, destructor);
    BEGIN(notes);
    note(&notes, DATA_CREATE_IN);
    write_notes(&notes);
    int result = BEHIND(pthread_key_create)(key, destructor);
    if (result == 0)
        tell_change(DATA_INIT, handle(*key), DATA_CREATE_OUT, result);
    else
        tell_result(DATA_CREATE_OUT, result);
    return result;
}

PLAIN(int, pthread_key_delete, DATA, DATA_DELETE, (pthread_key_t key), (key), add_pointer(in, handle(key)))
PLAIN(int, pthread_setspecific, DATA, DATA_SET, (pthread_key_t key, const void *value), (key, value),
      add_pointer(in, handle(key)), add_pointer(in, value))
