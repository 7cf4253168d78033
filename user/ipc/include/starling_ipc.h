/* Messages between threads on Starling: the native system calls ipc, ipc_self, ipc_cancel and ipc_cpu.
 *
 * Two threads meet: the sender waits until the receiver receives, the receiver until somebody sends; then three words go
 * from the one to the other, with no buffer in between. It makes no difference to the program whether the partner is on
 * the same processor.
 *
 * Every thread has a number (ipc_self()); how others learn it is theirs to arrange: shared memory, a pipe, an argument.
 * Numbers are never used again: that of a thread that has ended, or that has executed another program, means nobody.
 *
 * Who may send to whom: the rule of kill(2) (same user, or CAP_KILL). A thread takes messages from everybody after
 * ipc_self(IPC_OPEN_TO_ALL), and from a thread whose answer it waits for in any case.
 *
 * What calls return:
 *   0, or IPC_REMOTE    success; IPC_REMOTE says that a partner was on another processor
 *   a code IPC_E...     the operation failed: see below. IPC_FAILED() tells; bit 0x10 says that the send failed, so that
 *                       nothing was delivered; without it a send that was asked for has succeeded
 *   a negative errno    the call was refused and did nothing:
 *     -EINVAL   unknown flags; a time-out between 0x80000000 and 0xfffffffe; neither send nor receive
 *     -EDEADLK  the partner is the thread itself
 *     -EPERM    the partner does not take messages from this user
 *     -ENOMEM   no memory, or no numbers, for another thread
 *     -ENOSYS   not Starling
 */
#ifndef STARLING_IPC_H
#define STARLING_IPC_H

#include <stdint.h>

/* A thread's number; 0 is nobody's. */
typedef uint64_t ipc_id;

enum { IPC_WORDS = 3 };

/* A message, and from whom it came. */
struct ipc_message {
    ipc_id partner;
    uint64_t words[IPC_WORDS];
};

/* Time-outs in microseconds, up to 0x7fffffff (35 minutes). */
typedef uint32_t ipc_timeout;
#define IPC_ZERO ((ipc_timeout)0)   /* the partner is ready, or the operation fails */
#define IPC_NEVER ((ipc_timeout)-1) /* wait until it comes */

/* Codes of operations that failed, as in L4 version 2. */
enum {
    IPC_ENOT_EXISTENT = 0x10, /* no such thread, or it ended while the sender waited for it */
    IPC_RETIMEOUT = 0x20,     /* nobody sent in time */
    IPC_SETIMEOUT = 0x30,     /* the partner did not receive in time */
    IPC_RECANCELED = 0x40,    /* waiting for a message: a signal came, or ipc_cancel() */
    IPC_SECANCELED = 0x50,    /* waiting for the receiver: likewise */
    IPC_REABORTED = 0xc0,     /* the thread from which an answer was expected has ended */
    IPC_ERROR_MASK = 0xf0, /* see IPC_FAILED() */
    IPC_REMOTE = 0x100,
};
static inline int IPC_FAILED(long result)
{
    return result < 0 || (result & IPC_ERROR_MASK) != 0;
}

/* What an operation does (the second argument of the call). */
enum { IPC_DO_SEND = 1, IPC_DO_RECEIVE = 2, IPC_FROM_ANYBODY = 4 };

/* Flags of ipc_self(). */
enum {
    IPC_OPEN_TO_ALL = 1, /* everybody may send to this thread */
    /* The threads of this process that get a number from now on stay on the processor they are on, have a number of that
     * processor's range, and do nothing to threads of other processors but send them messages: ipc_cancel() on those fails
     * with EXDEV, and so does sched_setaffinity() to another processor. */
    IPC_PARTITIONED = 2,
};

enum { STARLING_NR_ipc = 4096, STARLING_NR_ipc_self, STARLING_NR_ipc_cancel, STARLING_NR_ipc_cpu };

/* The call itself. The message is sent from *message and received into it; the partner is message->partner before, and
 * the sender afterwards. */
static inline long ipc_operate(struct ipc_message *message, uint64_t what, ipc_timeout send, ipc_timeout receive)
{
    long result = STARLING_NR_ipc;
    uint64_t partner = message->partner, flags = what, first = message->words[0];
    register uint64_t second __asm__("r10") = message->words[1];
    register uint64_t third __asm__("r8") = message->words[2];
    register uint64_t timeouts __asm__("r9") = (uint64_t)receive << 32 | send;
    __asm__ volatile("syscall"
                     : "+a"(result), "+D"(partner), "+S"(flags), "+d"(first), "+r"(second), "+r"(third), "+r"(timeouts)
                     :
                     : "rcx", "r11", "memory");
    message->partner = partner;
    message->words[0] = first;
    message->words[1] = second;
    message->words[2] = third;
    return result;
}

static inline long starling_call1(long number, uint64_t argument)
{
    __asm__ volatile("syscall" : "+a"(number) : "D"(argument) : "rcx", "r11", "memory");
    return number;
}

/* Sends to message->partner. */
static inline long ipc_send(struct ipc_message *message, ipc_timeout timeout)
{
    return ipc_operate(message, IPC_DO_SEND, timeout, IPC_ZERO);
}

/* Receives from message->partner only. */
static inline long ipc_receive(struct ipc_message *message, ipc_timeout timeout)
{
    return ipc_operate(message, IPC_DO_RECEIVE, IPC_ZERO, timeout);
}

/* Receives from whoever sends first. */
static inline long ipc_wait(struct ipc_message *message, ipc_timeout timeout)
{
    return ipc_operate(message, IPC_DO_RECEIVE | IPC_FROM_ANYBODY, IPC_ZERO, timeout);
}

/* Sends, and receives the answer, in one step: the partner may answer with IPC_ZERO. */
static inline long ipc_call(struct ipc_message *message, ipc_timeout send, ipc_timeout receive)
{
    return ipc_operate(message, IPC_DO_SEND | IPC_DO_RECEIVE, send, receive);
}

/* Answers message->partner, and receives from whoever sends first, in one step. */
static inline long ipc_reply_and_wait(struct ipc_message *message, ipc_timeout send, ipc_timeout receive)
{
    return ipc_operate(message, IPC_DO_SEND | IPC_DO_RECEIVE | IPC_FROM_ANYBODY, send, receive);
}

/* The calling thread's number; a negative errno: -EINVAL, -ENOMEM, -EBUSY (it has a number and is not partitioned). */
static inline int64_t ipc_self(unsigned flags)
{
    return starling_call1(STARLING_NR_ipc_self, flags);
}

/* Ends the operation that a thread is in: 1 if there was one, 0 if not; or -ESRCH, -EPERM, -EDEADLK, -EXDEV. */
static inline long ipc_cancel(ipc_id id)
{
    return starling_call1(STARLING_NR_ipc_cancel, id);
}

/* The processor on which a thread was in its last operation, or -ESRCH. */
static inline long ipc_cpu(ipc_id id)
{
    return starling_call1(STARLING_NR_ipc_cpu, id);
}

#endif
