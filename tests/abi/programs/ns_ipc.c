/* Name spaces of System V objects: what is made in one is nobody else's, and goes with it. */
#include "abi.h"
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>

enum { KEY = 0x57a7, BYTES = 8192 };

static void counts(const char *who)
{
    struct shm_info memory;
    struct msginfo messages;
    struct seminfo semaphores;
    shmctl(0, SHM_INFO, (void *)&memory);
    msgctl(0, MSG_INFO, (void *)&messages);
    semctl(0, 0, SEM_INFO, &semaphores);
    printf("%s: %d segments, %ld pages, %d queues, %d messages, %d sets, %d semaphores\n", who, memory.used_ids, memory.shm_tot, messages.msgpool,
        messages.msgmap, semaphores.semusz, semaphores.semaem);
}

static long lines(const char *path)
{
    FILE *file = fopen(path, "r");
    long count = 0;
    char line[512];
    while (fgets(line, sizeof line, file))
        count++;
    fclose(file);
    return count;
}

static void make(void)
{
    SHOW(shmget(KEY, BYTES, IPC_CREAT | IPC_EXCL | 0600) >= 0);
    int queue = msgget(KEY, IPC_CREAT | IPC_EXCL | 0600);
    struct { long type; char text[4]; } message = { 1, "abc" };
    SHOW(msgsnd(queue, &message, 4, 0));
    SHOW(semget(KEY, 3, IPC_CREAT | IPC_EXCL | 0600) >= 0);
}

static void remove_all(void)
{
    SHOW(shmctl(shmget(KEY, 0, 0), IPC_RMID, NULL));
    SHOW(msgctl(msgget(KEY, 0), IPC_RMID, NULL));
    SHOW(semctl(semget(KEY, 0, 0), 0, IPC_RMID));
}

int main(void)
{
    SHOW(unshare(CLONE_NEWIPC));
    counts("new");
    make();
    counts("made");
    int ends[2];
    int back[2];
    pipe(ends);
    pipe(back);
    char *attached = shmat(shmget(KEY, 0, 0), NULL, 0);
    strcpy(attached, "outside");
    pid_t child = CHILD({
        SHOW(unshare(CLONE_NEWIPC));
        counts("inside");
        SHOW(shmget(KEY, BYTES, 0));
        SHOW(msgget(KEY, 0));
        SHOW(semget(KEY, 3, 0));
        printf("%s\n", attached);
        make();
        counts("inside");
        SHOW(lines("/proc/sysvipc/shm"));
        SHOW(lines("/proc/sysvipc/msg"));
        SHOW(lines("/proc/sysvipc/sem"));
        char *own = shmat(shmget(KEY, 0, 0), NULL, 0);
        strcpy(own, "inside");
        printf("%s %s\n", attached, own);
        /* Limits are each one's own. */
        int fd = open("/proc/sys/kernel/shmmni", O_WRONLY);
        SHOW(write(fd, "1", 1));
        close(fd);
        SHOW(shmget(IPC_PRIVATE, 1, 0600));
        fflush(stdout);
        tell(ends[1]);
        hear(back[0]);
        struct { long type; char text[4]; } message;
        SHOW(msgrcv(msgget(KEY, 0), &message, 4, 0, 0));
        printf("%s\n", message.text);
        SHOW(shmdt(attached));
    });
    hear(ends[0]);
    counts("outside");
    int another = shmget(IPC_PRIVATE, 1, 0600);
    TRUE(another >= 0);
    shmctl(another, IPC_RMID, NULL);
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/ns/ipc", child);
    int own = open("/proc/self/ns/ipc", O_RDONLY);
    int its = open(path, O_RDONLY);
    /* What was done with SEM_UNDO is taken back by who leaves. */
    int set = semget(KEY, 0, 0);
    struct sembuf more = { 0, 5, SEM_UNDO };
    SHOW(semop(set, &more, 1));
    SHOW(semctl(set, 0, GETVAL));
    SHOW(setns(its, CLONE_NEWIPC));
    counts("entered");
    char *entered = shmat(shmget(KEY, 0, 0), NULL, 0);
    printf("%s\n", entered);
    struct { long type; char text[4]; } message = { 2, "new" };
    struct msqid_ds about;
    msgctl(msgget(KEY, 0), IPC_STAT, &about);
    SHOW(about.msg_qnum);
    tell(back[1]);
    REAP(child);
    SHOW(msgsnd(msgget(KEY, 0), &message, 4, 0));
    SHOW(setns(own, 0));
    SHOW(semctl(set, 0, GETVAL));
    counts("back");
    close(its);
    /* Its name space is gone, and it stays. */
    printf("%s\n", entered);
    strcpy(entered, "kept");
    printf("%s\n", entered);
    SHOW(shmdt(entered));
    SHOW(shmdt(attached));
    remove_all();
    counts("removed");
    return 0;
}
