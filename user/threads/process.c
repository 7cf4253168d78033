/* Processes. Their first record is written by `process_began`. */
#include "interpose.h"

#include <unistd.h>

pid_t fork(void)
{
    if (!recorded(PROCESS))
        return BEHIND(fork)();
    BEGIN(notes);
    note(&notes, PROCESS_FORK_IN);
    write_notes(&notes);
    pid_t child = BEHIND(fork)();
    tell_result(PROCESS_FORK_OUT, child);
    return child;
}
