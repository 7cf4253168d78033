/* Message queues. An object is the descriptor. */
#include "interpose.h"

#include <fcntl.h>
#include <mqueue.h>
#include <stdarg.h>

static const void *object(mqd_t queue)
{
    return handle((unsigned)queue);
}

mqd_t mq_open(const char *name, int flags, ...)
{
    va_list list;
    va_start(list, flags);
    mode_t mode = flags & O_CREAT ? va_arg(list, mode_t) : 0;
    struct mq_attr *attributes = flags & O_CREAT ? va_arg(list, struct mq_attr *) : NULL;
    va_end(list);
    tell_result(QUEUE_OPEN_IN, flags);
    mqd_t queue = BEHIND(mq_open)(name, flags, mode, attributes);
    BEGIN(notes);
    if (queue >= 0) {
        struct note *named = note(&notes, QUEUE_NAME);
        add_pointer(named, object(queue));
        add_text(named, name);
    }
    add_word(note(&notes, QUEUE_OPEN_OUT), (uint32_t)queue);
    write_notes(&notes);
    return queue;
}

PLAIN(int, mq_close, QUEUE, QUEUE_CLOSE, (mqd_t queue), (queue), add_pointer(in, object(queue)))
PLAIN(int, mq_unlink, QUEUE, QUEUE_UNLINK, (const char *name), (name), )
PLAIN(int, mq_notify, QUEUE, QUEUE_NOTIFY, (mqd_t queue, const struct sigevent *event), (queue, event),
      add_pointer(in, object(queue)))

/* Whether it must wait is not known beforehand: all of the call is a wait. */
#define TRANSFER(type, function, NAME, parameters, arguments, ...)                                                     \
    type function parameters                                                                                           \
    {                                                                                                                  \
        if (!recorded(QUEUE))                                                                                          \
            return BEHIND(function) arguments;                                                                         \
        WAITS_FOR(object(queue), NULL);                                                                                \
        BEGIN(notes);                                                                                    \
        struct note *in = note(&notes, NAME##_IN);                                                                     \
        add_pointer(in, object(queue));                                                                                \
        __VA_ARGS__;                                                                                                   \
        add_pointer(note(&notes, THREAD_STATE_WAIT), object(queue));                                                   \
        write_notes(&notes);                                                                                           \
        type result = BEHIND(function) arguments;                                                                      \
        wait.ended = true;                                                                                             \
        waited(object(queue), NO_EVENT, NULL, NAME##_OUT, (long)result);                                               \
        return result;                                                                                                 \
    }

TRANSFER(int, mq_send, QUEUE_SEND, (mqd_t queue, const char *message, size_t length, unsigned priority),
         (queue, message, length, priority), add_word(in, (uint32_t)length))
TRANSFER(int, mq_timedsend, QUEUE_TIMEDSEND,
         (mqd_t queue, const char *message, size_t length, unsigned priority, const struct timespec *until),
         (queue, message, length, priority, until), add_word(in, (uint32_t)length))
TRANSFER(ssize_t, mq_receive, QUEUE_RECEIVE, (mqd_t queue, char *message, size_t length, unsigned *priority),
         (queue, message, length, priority), )
TRANSFER(ssize_t, mq_timedreceive, QUEUE_TIMEDRECEIVE,
         (mqd_t queue, char *restrict message, size_t length, unsigned *restrict priority,
          const struct timespec *restrict until),
         (queue, message, length, priority, until), )
