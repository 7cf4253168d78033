/* Races of System V objects: locks of several semaphores held by processes that are killed, senders and receivers that signals interrupt, and
 * removal beside all of it.
 * abi: limit 60
 */
#include "abi.h"
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>

enum { LOCKS = 5, HOLDERS = 4, KILLS = 60, MESSAGES = 600, SENDERS = 3, REMOVALS = 40 };

static struct {
    atomic_int inside[LOCKS];
    atomic_int violations;
    atomic_long sum;
} *shared;

static int set;

/* Takes two locks at once, over and over; they are given back by the kernel when it is killed. */
static void holds(unsigned seed)
{
    for (;;) {
        int one = rand_r(&seed) % LOCKS, other = (one + 1 + rand_r(&seed) % (LOCKS - 1)) % LOCKS;
        struct sembuf take[2] = { { one, -1, SEM_UNDO }, { other, -1, SEM_UNDO } };
        struct sembuf give[2] = { { one, 1, SEM_UNDO }, { other, 1, SEM_UNDO } };
        if (semop(set, take, 2))
            _exit(1);
        /* Who held it before was perhaps killed inside, so the number of who is inside is what counts. */
        int me = getpid();
        atomic_store(&shared->inside[one], me);
        atomic_store(&shared->inside[other], me);
        for (int turn = rand_r(&seed) % 50; turn > 0; turn--)
            if (atomic_load(&shared->inside[one]) != me || atomic_load(&shared->inside[other]) != me)
                atomic_fetch_add(&shared->violations, 1);
        if (semop(set, give, 2))
            _exit(1);
    }
}

static void killed_holders(void)
{
    unsigned short ones[LOCKS] = { 1, 1, 1, 1, 1 };
    pid_t holders[HOLDERS];
    unsigned seed = 7;
    set = semget(IPC_PRIVATE, LOCKS, 0600);
    semctl(set, 0, SETALL, ones);
    for (int index = 0; index < HOLDERS; index++)
        holders[index] = CHILD(holds(index));
    for (int round = 0; round < KILLS; round++) {
        int index = rand_r(&seed) % HOLDERS;
        usleep(rand_r(&seed) % 2000);
        kill(holders[index], SIGKILL);
        waitpid(holders[index], NULL, 0);
        holders[index] = CHILD(holds(100 + round));
    }
    for (int index = 0; index < HOLDERS; index++) {
        kill(holders[index], SIGKILL);
        waitpid(holders[index], NULL, 0);
    }
    semctl(set, 0, GETALL, ones);
    printf("locks: %d %d %d %d %d, %d violations\n", ones[0], ones[1], ones[2], ones[3], ones[4], atomic_load(&shared->violations));
    for (int index = 0; index < LOCKS; index++)
        printf("%d ", semctl(set, index, GETNCNT));
    semctl(set, 0, IPC_RMID);
    puts("wait");
}

static void handler(int signal)
{
    (void)signal;
}

static void interrupted_messages(void)
{
    struct {
        long kind;
        int number;
    } message;
    pid_t senders[SENDERS], receivers[SENDERS];
    int queue = msgget(IPC_PRIVATE, 0600);
    struct msqid_ds status;
    msgctl(queue, IPC_STAT, &status);
    /* Room for a few only, so that both sides wait. */
    status.msg_qbytes = 12;
    msgctl(queue, IPC_SET, &status);
    signal(SIGUSR1, handler);
    for (int index = 0; index < SENDERS; index++) {
        senders[index] = CHILD({
            for (int number = 1; number <= MESSAGES; number++) {
                message.kind = 1 + (number + index) % SENDERS;
                message.number = number;
                while (msgsnd(queue, &message, sizeof(int), 0))
                    if (errno != EINTR)
                        _exit(1);
            }
        });
        receivers[index] = CHILD({
            for (int number = 1; number <= MESSAGES; number++) {
                while (msgrcv(queue, &message, sizeof(int), 1 + index, 0) < 0)
                    if (errno != EINTR)
                        _exit(1);
                atomic_fetch_add(&shared->sum, message.number);
            }
        });
    }
    pid_t pest = CHILD({
        for (;;)
            for (int index = 0; index < SENDERS; index++) {
                kill(senders[index], SIGUSR1);
                kill(receivers[index], SIGUSR1);
                usleep(50);
            }
    });
    int failures = 0;
    for (int index = 0; index < SENDERS; index++) {
        int end;
        waitpid(senders[index], &end, 0);
        failures += end != 0;
        waitpid(receivers[index], &end, 0);
        failures += end != 0;
    }
    kill(pest, SIGKILL);
    waitpid(pest, NULL, 0);
    msgctl(queue, IPC_STAT, &status);
    printf("messages: %ld, %d failures, %d left\n", atomic_load(&shared->sum), failures, (int)status.msg_qnum);
    msgctl(queue, IPC_RMID, NULL);
}

/* Whoever is at it when it goes gets EIDRM, or EINVAL for having come late. */
static void removed(void)
{
    int wrong = 0;
    for (int round = 0; round < REMOVALS; round++) {
        struct {
            long kind;
            char byte;
        } message = { 1, 'm' };
        int queue = msgget(IPC_PRIVATE, 0600);
        set = semget(IPC_PRIVATE, 2, 0600);
        pid_t children[3];
        children[0] = CHILD({
            while (msgrcv(queue, &message, 1, 2, 0) >= 0)
                ;
            _exit(errno != EIDRM && errno != EINVAL);
        });
        children[1] = CHILD({
            while (msgsnd(queue, &message, 1, 0) == 0)
                ;
            _exit(errno != EIDRM && errno != EINVAL);
        });
        children[2] = CHILD({
            struct sembuf up = { 0, 1, SEM_UNDO }, both[2] = { { 0, -1, SEM_UNDO }, { 1, 0, 0 } };
            while (semop(set, &up, 1) == 0 && semop(set, both, 2) == 0)
                ;
            _exit(errno != EIDRM && errno != EINVAL);
        });
        usleep(round * 20);
        msgctl(queue, IPC_RMID, NULL);
        semctl(set, 0, IPC_RMID);
        for (int index = 0; index < 3; index++) {
            int end;
            waitpid(children[index], &end, 0);
            wrong += end != 0;
        }
    }
    printf("removed: %d wrong\n", wrong);
}

int main(void)
{
    shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    killed_holders();
    interrupted_messages();
    removed();
    return 0;
}
