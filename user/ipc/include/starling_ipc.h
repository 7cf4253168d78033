/* Messages between threads on Starling: the native system calls ipc, ipc_self, ipc_cancel, ipc_cpu, ipc_pager and ipc_unmap.
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
 *
 * Page faults are messages, too: a range of memory can be given a pager (ipc_pager()), a thread of this or of another
 * process. Who touches a page there that nobody has provided calls the pager without time-outs, and goes on when it has
 * answered. The three words of a fault:
 *   the address, bits 0 and 1 of which say what the access was: IPC_FAULT_STORE, IPC_FAULT_FETCH, or neither for a load
 *   the address of the instruction
 *   IPC_FAULT_LABEL; whoever may send to the pager may send this as well, and gains nothing by it
 * The pager answers with pages (ipc_give(), ipc_give_and_wait()). An answer without pages says that the page is there by
 * now, or else that there is none, and the thread gets SIGBUS; SIGSEGV if the first word is IPC_FAULT_DENIED. It gets
 * SIGBUS, too, when its pager ends. A signal ends the wait; after its handler there is another message.
 * The kernel's own accesses do not ask: a system call given memory with a page that is not there fails with EFAULT.
 *
 * What can be given: pages of shared memory, and of ranges that have a pager, are mapped, so that both have them; pages of
 * private anonymous memory, and of ranges that have a pager, are granted: they move. They appear in ranges of the partner
 * (or of the caller itself) whose pager the caller is, and nowhere else, whether the partner waits for them or not. fork()
 * passes the range and its pager on, but not the pages.
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
    IPC_SEMAPFAILED = 0x70,   /* the pages that the message carries could not be given; if a fault waited for them, it is
                                 answered (SIGBUS), otherwise nothing was sent */
    IPC_REABORTED = 0xc0,     /* the thread from which an answer was expected has ended */
    IPC_ERROR_MASK = 0xf0, /* see IPC_FAILED() */
    IPC_REMOTE = 0x100,
};
static inline int IPC_FAILED(long result)
{
    return result < 0 || (result & IPC_ERROR_MASK) != 0;
}

/* What an operation does (the second argument of the call). */
enum { IPC_DO_SEND = 1, IPC_DO_RECEIVE = 2, IPC_FROM_ANYBODY = 4, IPC_WITH_PAGES = 8 };

/* Flags of ipc_self(). */
enum {
    IPC_OPEN_TO_ALL = 1, /* everybody may send to this thread */
    /* The threads of this process that get a number from now on stay on the processor they are on, have a number of that
     * processor's range, and do nothing to threads of other processors but send them messages: ipc_cancel() on those fails
     * with EXDEV, and so does sched_setaffinity() to another processor. */
    IPC_PARTITIONED = 2,
};

/* In the first word of a fault. */
enum { IPC_FAULT_FETCH = 1, IPC_FAULT_STORE = 2 };
/* The third word of a fault. */
#define IPC_FAULT_LABEL ((uint64_t)-2)
/* The first word of an answer that carries no pages. */
enum { IPC_FAULT_DENIED = 1 };

/* How pages are given (ipc_give()). */
enum {
    IPC_GRANT = 1, /* the giver loses them */
    IPC_STORE = 2, /* for stores, too; pages that are there already never lose that */
    IPC_PAGES_MAX = 512,
};

/* Flag of ipc_unmap(). */
enum { IPC_ONLY_STORES = 1 };

enum {
    STARLING_NR_ipc = 4096,
    STARLING_NR_ipc_self,
    STARLING_NR_ipc_cancel,
    STARLING_NR_ipc_cpu,
    STARLING_NR_ipc_pager,
    STARLING_NR_ipc_unmap,
};

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

static inline long starling_call3(long number, uint64_t first, uint64_t second, uint64_t third)
{
    __asm__ volatile("syscall" : "+a"(number) : "D"(first), "S"(second), "d"(third) : "rcx", "r11", "memory");
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

/* Gives a range of this process's memory a pager. The range lies in one mapping of anonymous memory, private or shared, that is neither
 * heap nor stack, or has a pager already; what is in it is dropped. mmap() and munmap() take the pager away.
 * -ESRCH: no such thread; -EDEADLK: the caller itself; -EPERM: it takes no messages from this user; -EXDEV: it is partitioned, or the
 * caller is, and it is on another processor; -EINVAL: not aligned, empty, or other memory; -ENOMEM: nothing mapped there, or no memory. */
static inline long ipc_pager(void *address, uint64_t length, ipc_id pager)
{
    return starling_call3(STARLING_NR_ipc_pager, (uint64_t)(uintptr_t)address, length, pager);
}

/* Makes a message of pages: from the sender's address to the partner's, how (IPC_GRANT, IPC_STORE), and how many. The
 * partner receives these words. */
static inline void ipc_set_pages(struct ipc_message *message, const void *from, uint64_t to, unsigned how, uint64_t pages)
{
    message->words[0] = (uint64_t)(uintptr_t)from | how;
    message->words[1] = to;
    message->words[2] = pages;
}

/* Sends pages to message->partner, which were set by ipc_set_pages(). */
static inline long ipc_give(struct ipc_message *message, ipc_timeout timeout)
{
    return ipc_operate(message, IPC_DO_SEND | IPC_WITH_PAGES, timeout, IPC_ZERO);
}

/* The same, and receives from whoever sends first. */
static inline long ipc_give_and_wait(struct ipc_message *message, ipc_timeout send, ipc_timeout receive)
{
    return ipc_operate(message, IPC_DO_SEND | IPC_DO_RECEIVE | IPC_FROM_ANYBODY | IPC_WITH_PAGES, send, receive);
}

/* Takes the pages of a range back from whomever they were given to out of it, and from whomever these have given them; or
 * only the permission to store. The caller keeps its own. Those who touch them next ask their pager again. Returns the number of places
 * that lost a page; or -EINVAL; -ENOMEM: a hole in the range, or no memory. */
static inline long ipc_unmap(const void *address, uint64_t length, unsigned flags)
{
    return starling_call3(STARLING_NR_ipc_unmap, (uint64_t)(uintptr_t)address, length, flags);
}

#endif
