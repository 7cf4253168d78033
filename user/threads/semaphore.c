/* Semaphores. */
#include "interpose.h"

#include <fcntl.h>
#include <semaphore.h>
#include <stdarg.h>
#include <time.h>

int sem_init(sem_t *semaphore, int shared, unsigned value)
{
    if (!recorded(SEM))
        return BEHIND(sem_init)(semaphore, shared, value);
    BEGIN(notes);
    struct note *in = note(&notes, SEM_INIT_IN);
    add_pointer(in, semaphore);
    add_word(in, (uint32_t)shared);
    add_word(in, value);
    write_notes(&notes);
    int result = BEHIND(sem_init)(semaphore, shared, value);
    notes.count = 0;
    if (result == 0) {
        struct note *initialized = note(&notes, SEM_INIT);
        add_pointer(initialized, semaphore);
        add_word(initialized, value);
    }
    add_word(note(&notes, SEM_INIT_OUT), (uint32_t)result);
    write_notes(&notes);
    return result;
}

sem_t *sem_open(const char *name, int flags, ...)
{
    va_list list;
    va_start(list, flags);
    mode_t mode = flags & O_CREAT ? va_arg(list, mode_t) : 0;
    unsigned value = flags & O_CREAT ? va_arg(list, unsigned) : 0;
    va_end(list);
    tell_result(SEM_OPEN_IN, flags);
    sem_t *semaphore = BEHIND(sem_open)(name, flags, mode, value);
    BEGIN(notes);
    if (semaphore != SEM_FAILED) {
        struct note *named = note(&notes, SEM_NAME);
        add_pointer(named, semaphore);
        add_text(named, name);
    }
    add_word(note(&notes, SEM_OPEN_OUT), semaphore == SEM_FAILED ? (uint32_t)-1 : 0);
    write_notes(&notes);
    return semaphore;
}

PLAIN(int, sem_close, SEM, SEM_CLOSE, (sem_t * semaphore), (semaphore), add_pointer(in, semaphore))
PLAIN(int, sem_destroy, SEM, SEM_DESTROY, (sem_t * semaphore), (semaphore), add_pointer(in, semaphore))
PLAIN(int, sem_unlink, SEM, SEM_UNLINK, (const char *name), (name), )
CHANGES(sem_trywait, SEM, SEM_TRYWAIT, SEM_TAKEN, (sem_t * semaphore), (semaphore), semaphore)

int sem_post(sem_t *semaphore)
{
    if (!recorded(SEM))
        return BEHIND(sem_post)(semaphore);
    /* Told before: who takes it shall not come first. */
    BEGIN(notes);
    add_pointer(note(&notes, SEM_POST_IN), semaphore);
    add_pointer(note(&notes, SEM_GIVEN), semaphore);
    write_notes(&notes);
    int result = BEHIND(sem_post)(semaphore);
    tell_result(SEM_POST_OUT, result);
    return result;
}

/* A point of cancellation even if it need not wait. */
#define SEMAPHORE_WAIT(function, NAME, parameters, arguments)                                                          \
    int function parameters                                                                                            \
    {                                                                                                                  \
        if (!recorded(SEM))                                                                                            \
            return BEHIND(function) arguments;                                                                         \
        WAITS_FOR(semaphore, NULL);                                                                                    \
        tell(NAME##_IN, semaphore);                                                                                    \
        pthread_testcancel();                                                                                          \
        int saved = errno, result = BEHIND(sem_trywait)(semaphore);                                                    \
        if (result == 0 || errno != EAGAIN) {                                                                          \
            wait.ended = true;                                                                                         \
            if (result == 0)                                                                                           \
                tell_change(SEM_TAKEN, semaphore, NAME##_OUT, result);                                                 \
            else                                                                                                       \
                tell_result(NAME##_OUT, result);                                                                       \
            return result;                                                                                             \
        }                                                                                                              \
        errno = saved;                                                                                                 \
        waits(semaphore);                                                                                              \
        result = BEHIND(function) arguments;                                                                           \
        wait.ended = true;                                                                                             \
        waited(semaphore, result == 0 ? SEM_TAKEN : NO_EVENT, semaphore, NAME##_OUT, result);                          \
        return result;                                                                                                 \
    }

SEMAPHORE_WAIT(sem_wait, SEM_WAIT, (sem_t * semaphore), (semaphore))
SEMAPHORE_WAIT(sem_timedwait, SEM_TIMEDWAIT, (sem_t * semaphore, const struct timespec *until), (semaphore, until))
SEMAPHORE_WAIT(sem_clockwait, SEM_CLOCKWAIT, (sem_t * semaphore, clockid_t clock, const struct timespec *until),
               (semaphore, clock, until))
