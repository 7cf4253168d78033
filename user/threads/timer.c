/* Timers. */
#include "interpose.h"

#include <signal.h>
#include <time.h>

int timer_create(clockid_t clock, struct sigevent *event, timer_t *timer)
{
    if (!recorded(TIMER))
        return BEHIND(timer_create)(clock, event, timer);
    tell_result(TIMER_CREATE_IN, clock);
    int result = BEHIND(timer_create)(clock, event, timer);
    BEGIN(notes);
    if (result == 0) {
        struct note *made = note(&notes, TIMER_INIT);
        add_pointer(made, *timer);
        add_word(made, (uint32_t)clock);
    }
    add_word(note(&notes, TIMER_CREATE_OUT), (uint32_t)result);
    write_notes(&notes);
    return result;
}

PLAIN(int, timer_settime, TIMER, TIMER_SETTIME,
      (timer_t timer, int flags, const struct itimerspec *value, struct itimerspec *old), (timer, flags, value, old),
      add_pointer(in, timer), add_word(in, (uint32_t)flags))
PLAIN(int, timer_gettime, TIMER, TIMER_GETTIME, (timer_t timer, struct itimerspec *value), (timer, value),
      add_pointer(in, timer))
PLAIN(int, timer_getoverrun, TIMER, TIMER_GETOVERRUN, (timer_t timer), (timer), add_pointer(in, timer))
PLAIN(int, timer_delete, TIMER, TIMER_DELETE, (timer_t timer), (timer), add_pointer(in, timer))
