/* System V semaphores: keys and ids, operations on several at once, waiting, time-outs, signals, undo, removal, permissions, limits. */
#include "abi.h"
#include <sys/ipc.h>
#include <sys/sem.h>

/* Nobody else's: the host may run this test several times at once. */
static key_t KEY;
static uid_t someone;

union argument {
    int value;
    struct semid_ds *status;
    unsigned short *values;
    struct seminfo *limits;
};

#define CONTROL(id, number, command, ...) semctl(id, number, command, (union argument){ __VA_ARGS__ })
#define OPERATIONS(id, ...) semop(id, (struct sembuf[]){ __VA_ARGS__ }, sizeof((struct sembuf[]){ __VA_ARGS__ }) / sizeof(struct sembuf))

static const char *values_of(int id, int count)
{
    static char shown[200];
    unsigned short values[16];
    shown[0] = 0;
    if (CONTROL(id, 0, GETALL, .values = values) < 0)
        return ERRNO_NAME(errno);
    for (int index = 0; index < count; index++)
        sprintf(shown + strlen(shown), "%d ", values[index]);
    return shown;
}

static struct semid_ds status_of(int id)
{
    struct semid_ds status;
    memset(&status, 0xee, sizeof status);
    if (CONTROL(id, 0, IPC_STAT, .status = &status) < 0)
        printf("status: %s\n", ERRNO_NAME(errno));
    return status;
}

static void keys(void)
{
    puts("-- keys");
    SHOW(semget(KEY, 1, 0600));
    SHOW(semget(KEY, 0, IPC_CREAT | 0600));
    SHOW(semget(KEY, -1, IPC_CREAT | 0600));
    SHOW(semget(KEY, 32001, IPC_CREAT | 0600));
    int id = semget(KEY, 3, IPC_CREAT | 0640);
    TRUE(id >= 0);
    TRUE(semget(KEY, 0, 0) == id);
    TRUE(semget(KEY, 3, IPC_CREAT | 0600) == id);
    SHOW(semget(KEY, 4, 0));
    SHOW(semget(KEY, 3, IPC_CREAT | IPC_EXCL | 0600));
    struct semid_ds status = status_of(id);
    SHOW(status.sem_perm.mode);
    SHOW(status.sem_nsems);
    SHOW(status.sem_otime);
    TRUE(status.sem_perm.__key == KEY);
    TRUE(status.sem_perm.uid == geteuid() && status.sem_perm.cuid == geteuid());
    TRUE(llabs((long long)status.sem_ctime - time(NULL)) < 100);
    SHOW(semctl(id, 0, IPC_RMID));
    SHOW(semctl(id, 0, IPC_RMID));
    SHOW(semctl(-1, 0, IPC_RMID));
    SHOW(semctl(id, 0, GETVAL));
    SHOW(OPERATIONS(id, { 0, 1, 0 }));
}

static void values(void)
{
    puts("-- values");
    int id = semget(IPC_PRIVATE, 4, 0600);
    puts(values_of(id, 4));
    SHOW(CONTROL(id, 1, SETVAL, 7));
    SHOW(CONTROL(id, 1, SETVAL, -1));
    SHOW(CONTROL(id, 1, SETVAL, 32768));
    SHOW(CONTROL(id, 4, SETVAL, 1));
    SHOW(CONTROL(id, -1, SETVAL, 1));
    SHOW(semctl(id, 1, GETVAL));
    TRUE(semctl(id, 1, GETPID) == getpid());
    SHOW(semctl(id, 2, GETPID));
    SHOW(semctl(id, 4, GETVAL));
    SHOW(semctl(id, 0, GETNCNT));
    SHOW(semctl(id, 0, GETZCNT));
    SHOW(semctl(id, 9, GETZCNT));
    SHOW(CONTROL(id, 0, SETALL, .values = (unsigned short[]){ 1, 2, 3, 32767 }));
    SHOW(CONTROL(id, 0, SETALL, .values = (unsigned short[]){ 1, 2, 3, 32768 }));
    SHOW(CONTROL(id, 0, SETALL, .values = (void *)8));
    SHOW(CONTROL(id, 0, GETALL, .values = (void *)8));
    puts(values_of(id, 4));
    SHOW(semctl(id, 0, 99));
    SHOW(semctl(id, 0, -1));

    puts("-- operations");
    SHOW(semop(id, (void *)8, 1));
    SHOW(semop(id, NULL, 0));
    SHOW(semop(id, (void *)8, 501));
    SHOW(semop(-1, (struct sembuf[]){ { 0, 1, 0 } }, 1));
    SHOW(OPERATIONS(id, { 4, 1, 0 }));
    SHOW(OPERATIONS(id, { 0, -1, 0 }, { 1, -2, 0 }, { 2, 1, 0 }));
    puts(values_of(id, 4));
    TRUE(status_of(id).sem_otime > 0);
    SHOW(OPERATIONS(id, { 0, 0, 0 }, { 0, 5, 0 }, { 0, -2, 0 }, { 1, 1, 0 }));
    puts(values_of(id, 4));
    SHOW(OPERATIONS(id, { 0, -3, 0 }, { 1, -2, IPC_NOWAIT }));
    SHOW(OPERATIONS(id, { 0, 0, IPC_NOWAIT }));
    SHOW(OPERATIONS(id, { 0, -1, 0 }, { 3, 1, 0 }));
    puts(values_of(id, 4));
    SHOW(semtimedop(id, (struct sembuf[]){ { 0, -9, 0 } }, 1, &(struct timespec){ 0, 1000000 }));
    SHOW(semtimedop(id, (struct sembuf[]){ { 0, -9, 0 } }, 1, &(struct timespec){ 0, 0 }));
    SHOW(semtimedop(id, (struct sembuf[]){ { 0, -9, 0 } }, 1, &(struct timespec){ 0, 1000000000 }));
    SHOW(semtimedop(id, (struct sembuf[]){ { 0, -9, 0 } }, 1, &(struct timespec){ -1, 0 }));
    SHOW(semtimedop(id, (struct sembuf[]){ { 0, -9, 0 } }, 1, (void *)8));
    SHOW(semtimedop(id, (struct sembuf[]){ { 0, -1, 0 } }, 1, &(struct timespec){ 100, 0 }));
    SHOW(semctl(id, 0, GETNCNT));
    SHOW(semctl(id, 0, IPC_RMID));
}

static void wait_for(int id, int number, int command, int count)
{
    while (semctl(id, number, command) != count)
        sched_yield();
}

static int handled;

static void handler(int signal)
{
    (void)signal;
    handled++;
}

static void waits(void)
{
    puts("-- waiting");
    int id = semget(IPC_PRIVATE, 3, 0600);
    pid_t two = CHILD(OPERATIONS(id, { 0, -2, 0 }));
    wait_for(id, 0, GETNCNT, 1);
    pid_t one = CHILD(OPERATIONS(id, { 0, -1, 0 }));
    wait_for(id, 0, GETNCNT, 2);
    CONTROL(id, 1, SETVAL, 1);
    pid_t zero = CHILD(OPERATIONS(id, { 1, 0, 0 }));
    wait_for(id, 1, GETZCNT, 1);
    /* Past the one that wants two. */
    SHOW(OPERATIONS(id, { 0, 1, 0 }));
    REAP(one);
    SHOW(semctl(id, 0, GETNCNT));
    TRUE(semctl(id, 0, GETPID) == one);
    SHOW(OPERATIONS(id, { 0, 3, 0 }));
    REAP(two);
    puts(values_of(id, 3));
    SHOW(OPERATIONS(id, { 1, -1, 0 }));
    REAP(zero);

    puts("-- several at once");
    CONTROL(id, 0, SETALL, .values = (unsigned short[]){ 1, 0, 0 });
    pid_t both = CHILD(OPERATIONS(id, { 0, -1, 0 }, { 1, -1, 0 }, { 2, 1, 0 }));
    wait_for(id, 1, GETNCNT, 1);
    SHOW(semctl(id, 0, GETNCNT));
    pid_t after = CHILD(OPERATIONS(id, { 2, -1, 0 }));
    wait_for(id, 2, GETNCNT, 1);
    SHOW(OPERATIONS(id, { 0, -1, 0 }));
    SHOW(OPERATIONS(id, { 1, 1, 0 }));
    SHOW(semctl(id, 0, GETNCNT));
    SHOW(semctl(id, 1, GETNCNT));
    SHOW(OPERATIONS(id, { 0, 1, 0 }));
    REAP(both);
    REAP(after);
    puts(values_of(id, 3));
    pid_t child = CHILD(OPERATIONS(id, { 0, -5, 0 }));
    wait_for(id, 0, GETNCNT, 1);
    SHOW(CONTROL(id, 0, SETVAL, 6));
    REAP(child);
    SHOW(semctl(id, 0, GETVAL));
    child = CHILD(OPERATIONS(id, { 0, 0, 0 }, { 2, 0, 0 }));
    wait_for(id, 0, GETZCNT, 1);
    SHOW(CONTROL(id, 0, SETALL, .values = (unsigned short[]){ 0, 0, 0 }));
    REAP(child);

    puts("-- signals, time, removal");
    struct sigaction action = { .sa_handler = handler, .sa_flags = SA_RESTART };
    sigaction(SIGUSR1, &action, NULL);
    child = CHILD(SHOW(OPERATIONS(id, { 0, -1, 0 })); SHOW(handled));
    wait_for(id, 0, GETNCNT, 1);
    kill(child, SIGUSR1);
    REAP(child);
    SHOW(semctl(id, 0, GETNCNT));
    child = CHILD(SHOW(OPERATIONS(id, { 0, -1, 0 }, { 1, -1, 0 })));
    wait_for(id, 0, GETNCNT, 1);
    kill(child, SIGKILL);
    REAP(child);
    SHOW(semctl(id, 0, GETNCNT));
    SHOW(semtimedop(id, (struct sembuf[]){ { 0, -1, 0 }, { 1, 0, 0 } }, 2, &(struct timespec){ 0, 1000000 }));
    SHOW(semctl(id, 0, GETNCNT));
    one = CHILD(_exit(OPERATIONS(id, { 0, -1, 0 }) != -1 || errno != EIDRM));
    wait_for(id, 0, GETNCNT, 1);
    two = CHILD(_exit(OPERATIONS(id, { 0, -1, 0 }, { 1, -1, 0 }) != -1 || errno != EIDRM));
    wait_for(id, 0, GETNCNT, 2);
    SHOW(semctl(id, 0, IPC_RMID));
    REAP(one);
    REAP(two);
}

static void *adds(void *argument)
{
    int id = *(int *)argument;
    OPERATIONS(id, { 0, 1, SEM_UNDO });
    return NULL;
}

static void undo(const char *self)
{
    puts("-- undo");
    int id = semget(IPC_PRIVATE, 3, 0600), other = semget(IPC_PRIVATE, 1, 0600);
    CONTROL(id, 0, SETALL, .values = (unsigned short[]){ 5, 5, 32767 });
    pid_t child = CHILD({
        OPERATIONS(id, { 0, -2, SEM_UNDO }, { 1, -1, 0 }, { 0, -1, SEM_UNDO });
        OPERATIONS(other, { 0, 9, SEM_UNDO });
        SHOW(OPERATIONS(id, { 2, -32767, SEM_UNDO }));
        SHOW(OPERATIONS(id, { 2, 32767, 0 }));
        SHOW(OPERATIONS(id, { 2, -1, SEM_UNDO }));
        puts(values_of(id, 3));
    });
    REAP(child);
    puts(values_of(id, 3));
    TRUE(semctl(id, 0, GETPID) == child);
    SHOW(semctl(other, 0, GETVAL));
    /* A child begins with none of its own; a value that was set is not taken back. */
    child = CHILD({
        OPERATIONS(id, { 0, -1, SEM_UNDO }, { 1, -1, SEM_UNDO });
        pid_t grandchild = CHILD((void)0);
        REAP(grandchild);
        puts(values_of(id, 3));
        CONTROL(id, 1, SETVAL, 1);
    });
    REAP(child);
    puts(values_of(id, 3));
    /* Values stay in their range. */
    child = CHILD({
        OPERATIONS(id, { 0, 4, SEM_UNDO });
        OPERATIONS(id, { 0, -9, 0 });
        OPERATIONS(id, { 1, -1, SEM_UNDO });
        OPERATIONS(id, { 1, 32767, 0 });
        puts(values_of(id, 3));
    });
    REAP(child);
    puts(values_of(id, 3));
    /* Threads share what is undone, when the last has ended. */
    CONTROL(id, 0, SETALL, .values = (unsigned short[]){ 0, 0, 0 });
    child = CHILD({
        pthread_t thread;
        pthread_create(&thread, NULL, adds, &id);
        pthread_join(thread, NULL);
        SHOW(semctl(id, 0, GETVAL));
        OPERATIONS(id, { 0, 1, SEM_UNDO });
    });
    REAP(child);
    SHOW(semctl(id, 0, GETVAL));
    /* Who executes another program keeps it. */
    char number[16];
    snprintf(number, sizeof number, "%d", id);
    child = CHILD({
        OPERATIONS(id, { 0, 3, SEM_UNDO });
        execl(self, self, number, NULL);
    });
    REAP(child);
    SHOW(semctl(id, 0, GETVAL));
    child = CHILD({
        OPERATIONS(id, { 0, 3, SEM_UNDO });
        SHOW(unshare(CLONE_SYSVSEM));
        SHOW(semctl(id, 0, GETVAL));
    });
    REAP(child);
    /* What is taken back lets others go on. */
    child = CHILD({
        OPERATIONS(id, { 1, 1, SEM_UNDO });
        wait_for(id, 1, GETZCNT, 1);
    });
    wait_for(id, 1, GETVAL, 1);
    SHOW(OPERATIONS(id, { 1, 0, 0 }));
    REAP(child);
    /* Killed while it waits with something to undo. */
    child = CHILD({
        OPERATIONS(id, { 1, 2, SEM_UNDO });
        OPERATIONS(id, { 0, -1, SEM_UNDO });
    });
    wait_for(id, 0, GETNCNT, 1);
    kill(child, SIGKILL);
    REAP(child);
    puts(values_of(id, 3));
    SHOW(semctl(other, 0, IPC_RMID));
    child = CHILD({
        OPERATIONS(id, { 1, 2, SEM_UNDO });
        semctl(id, 0, IPC_RMID);
    });
    REAP(child);
    SHOW(semctl(id, 0, GETVAL));
}

static void permissions(void)
{
    puts("-- permissions");
    int id = semget(KEY, 1, IPC_CREAT | 0640);
    struct semid_ds status;
    pid_t child = CHILD({
        setgroups(0, NULL);
        setresgid(2000, 2000, 2000);
        setresuid(someone, someone, someone);
        SHOW(semget(KEY, 1, 0600));
        TRUE(semget(KEY, 1, 0) == id);
        SHOW(OPERATIONS(id, { 0, 1, 0 }));
        SHOW(OPERATIONS(id, { 0, 0, 0 }));
        SHOW(OPERATIONS(id, { 1, 0, 0 }));
        SHOW(semctl(id, 0, GETVAL));
        SHOW(semctl(id, 9, GETVAL));
        SHOW(CONTROL(id, 0, SETVAL, 1));
        SHOW(CONTROL(id, 0, SETVAL, -1));
        SHOW(CONTROL(id, 0, IPC_STAT, .status = &status));
        SHOW(CONTROL(id, 0, IPC_SET, .status = &status));
        SHOW(semctl(id, 0, IPC_RMID));
    });
    REAP(child);
    status = status_of(id);
    status.sem_perm.uid = someone;
    status.sem_perm.gid = 2000;
    status.sem_perm.mode = 0100440;
    SHOW(CONTROL(id, 0, IPC_SET, .status = &status));
    SHOW(status_of(id).sem_perm.mode);
    child = CHILD({
        setgroups(0, NULL);
        setresgid(3000, 3000, 3000);
        setresuid(someone, someone, someone);
        SHOW(OPERATIONS(id, { 0, 1, 0 }));
        SHOW(OPERATIONS(id, { 0, 0, 0 }));
        SHOW(semctl(id, 0, IPC_RMID));
    });
    REAP(child);
    SHOW(semctl(id, 0, IPC_RMID));
}

static void everything(void)
{
    puts("-- all sets");
    struct seminfo limits;
    struct semid_ds status;
    TRUE(CONTROL(0, 0, IPC_INFO, .limits = &limits) >= 0);
    printf("%d %d %d %d %d %d %d %d %d %d\n", limits.semmap, limits.semmni, limits.semmns, limits.semmnu, limits.semmsl, limits.semopm,
           limits.semume, limits.semusz, limits.semvmx, limits.semaem);
    puts(get_text("/proc/sys/kernel/sem"));
    int id = semget(KEY, 11, IPC_CREAT | 0600);
    int highest = CONTROL(0, 0, SEM_INFO, .limits = &limits);
    TRUE(limits.semusz >= 1 && limits.semaem >= 11);
    int found = 0;
    for (int index = 0; index <= highest; index++)
        if (CONTROL(index, 0, SEM_STAT, .status = &status) == id) {
            found++;
            SHOW(status.sem_nsems);
            TRUE(CONTROL(index, 0, 20 /* SEM_STAT_ANY */, .status = &status) == id);
        }
    SHOW(found);
    SHOW(CONTROL(32000, 0, SEM_STAT, .status = &status));
    char line[512];
    FILE *all = fopen("/proc/sysvipc/sem", "r");
    fgets(line, sizeof line, all);
    fputs(line, stdout);
    while (fgets(line, sizeof line, all)) {
        int key, shown, mode, count;
        sscanf(line, "%d %d %o %d", &key, &shown, &mode, &count);
        if (shown == id)
            printf("%d %o %d %zu\n", key == KEY, mode, count, strlen(line));
    }
    fclose(all);
    SHOW(semctl(id, 0, IPC_RMID));
}

int main(int count, char **arguments)
{
    if (count > 1) {
        SHOW(semctl(atoi(arguments[1]), 0, GETVAL));
        return 0;
    }
    KEY = 0x5e000000 + getpid();
    someone = 100000 + getpid();
    keys();
    values();
    waits();
    undo(arguments[0]);
    permissions();
    everything();
    return 0;
}
