/* System V message queues: keys and ids, types, sizes, waiting senders and receivers, signals, removal, permissions, limits. */
#include "abi.h"
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/syscall.h>

#ifndef MSG_COPY
#define MSG_COPY 040000
#endif

/* Nobody else's: the host may run this test several times at once. */
static key_t KEY;
static uid_t someone;

static struct {
    long kind;
    char text[20000];
} message;

static ssize_t send_text(int id, long kind, const char *text, int flags)
{
    message.kind = kind;
    strcpy(message.text, text);
    return msgsnd(id, &message, strlen(text), flags);
}

/* What was received, as text. */
static const char *receive(int id, size_t room, long kind, int flags)
{
    static char shown[200];
    memset(&message, 0, sizeof message);
    ssize_t got = msgrcv(id, &message, room, kind, flags);
    if (got < 0)
        snprintf(shown, sizeof shown, "%s", ERRNO_NAME(errno));
    else
        snprintf(shown, sizeof shown, "%ld: %.*s (%zd)", message.kind, (int)(got > 100 ? 100 : got), message.text, got);
    return shown;
}

static struct msqid_ds status_of(int id)
{
    struct msqid_ds status;
    memset(&status, 0xee, sizeof status);
    if (msgctl(id, IPC_STAT, &status) < 0)
        printf("status: %s\n", ERRNO_NAME(errno));
    return status;
}

static void keys(void)
{
    puts("-- keys");
    SHOW(msgget(KEY, 0600));
    int id = msgget(KEY, IPC_CREAT | 0640);
    TRUE(id >= 0);
    TRUE(msgget(KEY, 0) == id);
    TRUE(msgget(KEY, IPC_CREAT | 0600) == id);
    SHOW(msgget(KEY, IPC_CREAT | IPC_EXCL | 0600));
    struct msqid_ds status = status_of(id);
    SHOW(status.msg_perm.mode);
    TRUE(status.msg_perm.__key == KEY);
    TRUE(status.msg_perm.uid == geteuid() && status.msg_perm.cuid == geteuid());
    SHOW(status.msg_qnum);
    SHOW(status.__msg_cbytes);
    SHOW(status.msg_lspid);
    SHOW(status.msg_lrpid);
    SHOW(status.msg_stime);
    SHOW(status.msg_rtime);
    TRUE(llabs((long long)status.msg_ctime - time(NULL)) < 100);
    SHOW(msgctl(id, IPC_RMID, NULL));
    SHOW(msgctl(id, IPC_RMID, NULL));
    SHOW(msgctl(-1, IPC_RMID, NULL));
    SHOW(msgctl(id, 99, NULL));
    SHOW(msgctl(id, -1, NULL));
    SHOW(send_text(id, 1, "gone", 0));
    puts(receive(id, 10, 0, 0));
}

static void kinds(void)
{
    puts("-- types");
    int id = msgget(IPC_PRIVATE, 0600);
    SHOW(send_text(id, 0, "x", 0));
    SHOW(send_text(id, -3, "x", 0));
    SHOW(send_text(-1, 1, "x", 0));
    SHOW(msgsnd(id, (void *)8, 4, 0));
    message.kind = 1;
    SHOW(msgsnd(id, &message, 8193, 0));
    SHOW(msgsnd(id, &message, (size_t)-1, 0));
    const long all[] = { 5, 3, 9, 3, 1, 7 };
    for (int index = 0; index < 6; index++) {
        char text[20];
        snprintf(text, sizeof text, "number %d", index);
        send_text(id, all[index], text, 0);
    }
    struct msqid_ds status = status_of(id);
    SHOW(status.msg_qnum);
    SHOW(status.__msg_cbytes);
    TRUE(status.msg_lspid == getpid() && status.msg_stime > 0);
    puts(receive(id, 100, 2, IPC_NOWAIT | MSG_COPY));
    puts(receive(id, 100, 6, IPC_NOWAIT | MSG_COPY));
    puts(receive(id, 100, 0, MSG_COPY));
    puts(receive(id, 100, 0, MSG_COPY | MSG_EXCEPT | IPC_NOWAIT));
    puts(receive(id, 3, 0, MSG_COPY | IPC_NOWAIT));
    puts(receive(id, 3, 0, MSG_COPY | IPC_NOWAIT | MSG_NOERROR));
    SHOW(status_of(id).msg_qnum);
    puts(receive(id, 100, 3, 0));
    puts(receive(id, 100, 5, MSG_EXCEPT));
    puts(receive(id, 100, -4, 0));
    puts(receive(id, 100, -2, IPC_NOWAIT));
    puts(receive(id, 100, -2, IPC_NOWAIT));
    puts(receive(id, 100, 4, IPC_NOWAIT));
    puts(receive(id, 3, 0, 0));
    puts(receive(id, 3, 0, MSG_NOERROR));
    puts(receive(id, (size_t)-1, 0, 0));
    SHOW(send_text(id, 8, "", 0));
    puts(receive(id, 0, 0, 0));
    puts(receive(id, 100, 0, 0));
    puts(receive(id, 100, 0, IPC_NOWAIT));
    send_text(id, 8, "into nothing", 0);
    SHOW(msgrcv(id, (void *)8, 100, 0, 0));
    SHOW(status_of(id).msg_qnum);
    TRUE(status_of(id).msg_lrpid == getpid() && status_of(id).msg_rtime > 0);
    SHOW(msgctl(id, IPC_RMID, NULL));
}

static void full(void)
{
    puts("-- room");
    int id = msgget(IPC_PRIVATE, 0600), ends[2];
    pipe(ends);
    SHOW(status_of(id).msg_qbytes);
    message.kind = 1;
    SHOW(msgsnd(id, &message, 8192, IPC_NOWAIT));
    SHOW(msgsnd(id, &message, 8192, IPC_NOWAIT));
    SHOW(msgsnd(id, &message, 1, IPC_NOWAIT));
    SHOW(msgsnd(id, &message, 0, IPC_NOWAIT));
    msgrcv(id, &message, 8192, 0, 0);
    struct msqid_ds status = status_of(id);
    status.msg_qbytes = 8200;
    SHOW(msgctl(id, IPC_SET, &status));
    message.kind = 1;
    SHOW(msgsnd(id, &message, 9, IPC_NOWAIT));
    SHOW(msgsnd(id, &message, 8, IPC_NOWAIT));
    pid_t child = CHILD({
        setresuid(someone, someone, someone);
        int own = msgget(IPC_PRIVATE, 0600);
        struct msqid_ds mine = status_of(own);
        mine.msg_qbytes = 16384;
        SHOW(msgctl(own, IPC_SET, &mine));
        mine.msg_qbytes = 16385;
        SHOW(msgctl(own, IPC_SET, &mine));
        SHOW(msgctl(own, IPC_RMID, NULL));
    });
    REAP(child);
    while (msgrcv(id, &message, 8192, 0, IPC_NOWAIT) >= 0)
        ;

    puts("-- senders that wait");
    status.msg_qbytes = 100;
    msgctl(id, IPC_SET, &status);
    child = CHILD({
        for (int index = 0; index < 200; index++) {
            char text[40];
            snprintf(text, sizeof text, "%d and something to fill it up", index);
            if (send_text(id, index + 1, text, 0))
                puts("lost");
        }
    });
    int right = 0;
    for (int index = 0; index < 200; index++) {
        ssize_t got = msgrcv(id, &message, 100, 0, 0);
        right += got > 0 && atoi(message.text) == index && message.kind == index + 1;
    }
    SHOW(right);
    REAP(child);
    SHOW(status_of(id).msg_qnum);
    SHOW(msgctl(id, IPC_RMID, NULL));
}

static int handled;

static void handler(int signal)
{
    (void)signal;
    handled++;
}

/* Asleep in msgsnd or msgrcv: on a busy host a new child also sleeps elsewhere. */
static int parked(pid_t child)
{
    char path[40];
    int call = -1;
    snprintf(path, sizeof path, "/proc/%d/syscall", child);
    FILE *file = fopen(path, "r");
    if (file) {
        if (fscanf(file, "%d", &call) != 1)
            call = -1;
        fclose(file);
    }
    return call == SYS_msgsnd || call == SYS_msgrcv;
}

static void wait_until_parked(pid_t child)
{
    while (!parked(child))
        sched_yield();
}

static void waits(void)
{
    puts("-- receivers that wait");
    int id = msgget(IPC_PRIVATE, 0600), ends[2];
    pipe(ends);
    /* Each takes what it waits for, past those before it. */
    pid_t three = CHILD(puts(receive(id, 100, 3, 0)));
    wait_until_parked(three);
    pid_t low = CHILD(puts(receive(id, 100, -2, 0)));
    wait_until_parked(low);
    pid_t small = CHILD(puts(receive(id, 2, 5, 0)));
    wait_until_parked(small);
    /* The children print. */
    send_text(id, 4, "for nobody", 0);
    send_text(id, 3, "for three", 0);
    REAP(three);
    send_text(id, 2, "for low", 0);
    REAP(low);
    send_text(id, 5, "too long", 0);
    REAP(small);
    SHOW(status_of(id).msg_qnum);
    puts(receive(id, 100, 4, 0));
    puts(receive(id, 100, 5, 0));

    puts("-- signals");
    struct sigaction action = { .sa_handler = handler, .sa_flags = SA_RESTART };
    sigaction(SIGUSR1, &action, NULL);
    pid_t child = CHILD(puts(receive(id, 100, 0, 0)); SHOW(handled));
    wait_until_parked(child);
    kill(child, SIGUSR1);
    REAP(child);
    child = CHILD(puts(receive(id, 100, 0, 0)));
    wait_until_parked(child);
    kill(child, SIGCHLD);
    kill(child, SIGCONT);
    send_text(id, 1, "after what is ignored", 0);
    REAP(child);
    child = CHILD({ receive(id, 100, 0, 0); });
    wait_until_parked(child);
    kill(child, SIGKILL);
    REAP(child);
    SHOW(send_text(id, 1, "nobody waits", 0));
    SHOW(status_of(id).msg_qnum);
    struct msqid_ds status = status_of(id);
    status.msg_qbytes = 14;
    msgctl(id, IPC_SET, &status);
    child = CHILD(SHOW(send_text(id, 1, "no room", 0)); SHOW(handled));
    wait_until_parked(child);
    kill(child, SIGUSR1);
    REAP(child);

    puts("-- removal");
    pid_t receiver = CHILD(_exit(strcmp(receive(id, 100, 77, 0), "EIDRM")));
    wait_until_parked(receiver);
    pid_t sender = CHILD(_exit(send_text(id, 1, "never", 0) != -1 || errno != EIDRM));
    wait_until_parked(sender);
    msgctl(id, IPC_RMID, NULL);
    REAP(receiver);
    REAP(sender);
}

/* A sender that was told of room gives its message to a receiver that waits for it: the next sender has the room. */
static void unused_room(void)
{
    puts("-- room that is not used");
    int id = msgget(IPC_PRIVATE, 0600), ends[2];
    pipe(ends);
    struct msqid_ds status = status_of(id);
    status.msg_qbytes = 100;
    msgctl(id, IPC_SET, &status);
    message.kind = 1;
    SHOW(msgsnd(id, &message, 100, 0));
    pid_t receiver = CHILD(_exit(msgrcv(id, &message, 100, 2, 0) != 60));
    wait_until_parked(receiver);
    pid_t senders[2];
    for (int index = 0; index < 2; index++) {
        senders[index] = CHILD({
            message.kind = 2 + index;
            _exit(msgsnd(id, &message, 60, 0) != 0);
        });
        wait_until_parked(senders[index]);
    }
    SHOW(msgrcv(id, &message, 100, 1, 0));
    REAP(receiver);
    REAP(senders[0]);
    /* Linux may leave the second one asleep beside the room; setting anything wakes it. */
    siginfo_t ended = { 0 };
    while (access("/proc/starling", F_OK) && !waitid(P_PID, senders[1], &ended, WEXITED | WNOHANG | WNOWAIT) && !ended.si_pid)
        msgctl(id, IPC_SET, &status);
    REAP(senders[1]);
    SHOW(msgrcv(id, &message, 100, 3, 0));
    SHOW(msgctl(id, IPC_RMID, NULL));
}

static void permissions(void)
{
    puts("-- permissions");
    int id = msgget(KEY, IPC_CREAT | 0640);
    send_text(id, 1, "for the group", 0);
    pid_t child = CHILD({
        struct msqid_ds status;
        setgroups(0, NULL);
        setresgid(2000, 2000, 2000);
        setresuid(someone, someone, someone);
        SHOW(msgget(KEY, 0600));
        TRUE(msgget(KEY, 0) == id);
        SHOW(send_text(id, 1, "x", 0));
        puts(receive(id, 100, 0, IPC_NOWAIT));
        SHOW(msgctl(id, IPC_STAT, &status));
        SHOW(msgctl(id, IPC_SET, &status));
        SHOW(msgctl(id, IPC_RMID, NULL));
    });
    REAP(child);
    struct msqid_ds status = status_of(id);
    status.msg_perm.uid = someone;
    status.msg_perm.gid = 2000;
    status.msg_perm.mode = 0100440;
    SHOW(msgctl(id, IPC_SET, &status));
    SHOW(status_of(id).msg_perm.mode);
    child = CHILD({
        setgroups(0, NULL);
        setresgid(3000, 3000, 3000);
        setresuid(someone, someone, someone);
        SHOW(send_text(id, 1, "x", 0));
        puts(receive(id, 100, 0, IPC_NOWAIT));
        SHOW(msgctl(id, IPC_RMID, NULL));
    });
    REAP(child);
    /* Who waits and may not any more is told. */
    id = msgget(KEY, IPC_CREAT | 0666);
    child = CHILD({
        setgroups(0, NULL);
        setresgid(3000, 3000, 3000);
        setresuid(someone, someone, someone);
        puts(receive(id, 100, 0, 0));
    });
    wait_until_parked(child);
    status = status_of(id);
    status.msg_perm.mode = 0600;
    msgctl(id, IPC_SET, &status);
    REAP(child);
    status.msg_perm.uid = -1;
    SHOW(msgctl(id, IPC_SET, &status));
    SHOW(msgctl(id, IPC_SET, NULL));
    SHOW(msgctl(id, IPC_RMID, NULL));
}

static void everything(void)
{
    puts("-- all queues");
    struct msginfo limits;
    struct msqid_ds status;
    memset(&limits, 0, sizeof limits);
    TRUE(msgctl(0, IPC_INFO, (void *)&limits) >= 0);
    printf("%d %d %d %d %d %d %d %d\n", limits.msgpool, limits.msgmap, limits.msgmax, limits.msgmnb, limits.msgmni, limits.msgssz,
           limits.msgtql, limits.msgseg);
    puts(get_text("/proc/sys/kernel/msgmax"));
    puts(get_text("/proc/sys/kernel/msgmnb"));
    puts(get_text("/proc/sys/kernel/msgmni"));
    int id = msgget(KEY, IPC_CREAT | 0600);
    send_text(id, 1, "a message", 0);
    int highest = msgctl(0, MSG_INFO, (void *)&limits);
    TRUE(limits.msgpool >= 1 && limits.msgmap >= 1 && limits.msgtql >= 9);
    int found = 0;
    for (int index = 0; index <= highest; index++)
        if (msgctl(index, MSG_STAT, &status) == id) {
            found++;
            SHOW(status.msg_qnum);
            TRUE(msgctl(index, 13 /* MSG_STAT_ANY */, &status) == id);
        }
    SHOW(found);
    SHOW(msgctl(32000, MSG_STAT, &status));
    char line[512];
    FILE *all = fopen("/proc/sysvipc/msg", "r");
    fgets(line, sizeof line, all);
    fputs(line, stdout);
    while (fgets(line, sizeof line, all)) {
        int key, shown, mode, bytes, count, sender, receiver;
        sscanf(line, "%d %d %o %d %d %d %d", &key, &shown, &mode, &bytes, &count, &sender, &receiver);
        if (shown != id)
            continue;
        printf("%d %o %d %d %d %d %zu\n", key == KEY, mode, bytes, count, sender == getpid(), receiver, strlen(line));
    }
    fclose(all);
    SHOW(msgctl(id, IPC_RMID, NULL));
}

int main(void)
{
    KEY = 0x5d000000 + getpid();
    someone = 100000 + getpid();
    keys();
    kinds();
    full();
    waits();
    unused_room();
    permissions();
    everything();
    return 0;
}
