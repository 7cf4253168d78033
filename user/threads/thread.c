/* Threads. */
#include "interpose.h"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>

struct start {
    void *(*routine)(void *);
    void *argument;
};

/* Runs however the thread ends: by returning, pthread_exit or cancellation. */
static void dies(void **value)
{
    tell(THREAD_STATE_DEAD, *value);
}

static void *starts(void *argument)
{
    struct start start = *(struct start *)argument;
    free(argument);
    if (level() & event_bit[THREAD_INIT]) {
        char name[128];
        BEGIN(notes);
        struct note *thread = note(&notes, THREAD_INIT);
        add_pointer(thread, handle(pthread_self()));
        add_pointer(thread, (const void *)start.routine);
        add_text(thread, name_of_function((const void *)start.routine, name, sizeof name));
        note(&notes, START_USER_FUNC);
        write_notes(&notes);
    }
    __attribute__((cleanup(dies))) void *value = PTHREAD_CANCELED;
    value = start.routine(start.argument);
    return value;
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*routine)(void *), void *argument)
{
    struct start *start = malloc(sizeof *start);
    if (!start)
        return EAGAIN;
    *start = (struct start){ routine, argument };
    if (recorded(THREAD))
        tell(THREAD_CREATE_IN, (const void *)routine);
    int result = BEHIND(pthread_create)(thread, attributes, starts, start);
    if (result)
        free(start);
    BEGIN(notes);
    if (result == 0) {
        struct note *created = note(&notes, THREAD_CREATED);
        add_pointer(created, handle(*thread));
        add_pointer(created, (const void *)routine);
    }
    add_word(note(&notes, THREAD_CREATE_OUT), (uint32_t)result);
    write_notes(&notes);
    return result;
}

static void joined(pthread_t thread, enum event exit, int result)
{
    if (result == 0)
        waited(handle(thread), THREAD_JOIN, handle(thread), exit, result);
    else
        waited(handle(thread), NO_EVENT, NULL, exit, result);
}

#define JOINS(function, NAME, parameters, arguments)                                                                   \
    int function parameters                                                                                            \
    {                                                                                                                  \
        if (!recorded(THREAD))                                                                                         \
            return BEHIND(function) arguments;                                                                         \
        WAITS_FOR(handle(thread), NULL);                                                                               \
        tell(NAME##_IN, handle(thread));                                                                               \
        waits(handle(thread));                                                                                         \
        int result = BEHIND(function) arguments;                                                                       \
        wait.ended = true;                                                                                             \
        joined(thread, NAME##_OUT, result);                                                                            \
        return result;                                                                                                 \
    }

JOINS(pthread_join, THREAD_JOIN, (pthread_t thread, void **value), (thread, value))
JOINS(pthread_timedjoin_np, THREAD_TIMEDJOIN, (pthread_t thread, void **value, const struct timespec *until),
      (thread, value, until))
JOINS(pthread_clockjoin_np, THREAD_CLOCKJOIN,
      (pthread_t thread, void **value, clockid_t clock, const struct timespec *until), (thread, value, clock, until))
CHANGES(pthread_tryjoin_np, THREAD, THREAD_TRYJOIN, THREAD_JOIN, (pthread_t thread, void **value), (thread, value),
        handle(thread))
CHANGES(pthread_detach, THREAD, THREAD_DETACH, THREAD_DETACH, (pthread_t thread), (thread), handle(thread))

PLAIN(int, pthread_cancel, THREAD, THREAD_CANCEL, (pthread_t thread), (thread), add_pointer(in, handle(thread)))
PLAIN(int, pthread_kill, THREAD, THREAD_KILL, (pthread_t thread, int number), (thread, number),
      add_pointer(in, handle(thread)), add_word(in, (uint32_t)number))
PLAIN(int, pthread_setschedparam, THREAD, THREAD_SET_PD,
      (pthread_t thread, int policy, const struct sched_param *values), (thread, policy, values),
      add_pointer(in, handle(thread)), add_word(in, (uint32_t)policy))
PLAIN(int, pthread_setschedprio, THREAD, THREAD_SET_PRIORITY, (pthread_t thread, int priority), (thread, priority),
      add_pointer(in, handle(thread)), add_word(in, (uint32_t)priority))
PLAIN(int, sched_yield, THREAD, THREAD_YIELD, (void), (), )
PLAIN(int, pthread_once, THREAD, THREAD_ONCE, (pthread_once_t * control, void (*routine)(void)), (control, routine),
      add_pointer(in, control))
PLAIN(int, pthread_setcancelstate, THREAD, THREAD_SET_STATE, (int state, int *old), (state, old),
      add_word(in, (uint32_t)state))

int pthread_setcanceltype(int type, int *old)
{
    BEGIN(notes);
    add_word(note(&notes, THREAD_SET_TYPE_IN), (uint32_t)type);
    write_notes(&notes);
    /* From before it may be cancelled at any time until it may not any more. */
    if (type == PTHREAD_CANCEL_ASYNCHRONOUS)
        cancelled_at_any_time = true;
    int result = BEHIND(pthread_setcanceltype)(type, old);
    if (result == 0 && type == PTHREAD_CANCEL_DEFERRED)
        cancelled_at_any_time = false;
    tell_result(THREAD_SET_TYPE_OUT, result);
    return result;
}

void pthread_exit(void *value)
{
    tell(THREAD_EXIT_IN, value);
    BEHIND(pthread_exit)(value);
    __builtin_unreachable();
}

int pthread_setname_np(pthread_t thread, const char *name)
{
    int result = BEHIND(pthread_setname_np)(thread, name);
    if (result == 0) {
        BEGIN(notes);
        struct note *named = note(&notes, THREAD_NAME);
        add_pointer(named, handle(thread));
        add_text(named, name);
        write_notes(&notes);
    }
    return result;
}
