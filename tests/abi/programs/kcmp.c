/* kcmp(2): whether two threads share something; process_madvise(2): advice about another process's memory. */
#include "abi.h"
#include <linux/kcmp.h>

static long compare(pid_t one, pid_t two, int kind, unsigned long first, unsigned long second)
{
    return syscall(SYS_kcmp, one, two, kind, first, second);
}

static void *stub(void *ends)
{
    hear(((int *)ends)[0]);
    return NULL;
}

static int is_different(long result)
{
    return result == 1 || result == 2;
}

int main(void)
{
    static const int kinds[] = { KCMP_VM, KCMP_FILES, KCMP_FS, KCMP_SIGHAND, KCMP_SYSVSEM };
    int ends[2];
    pipe(ends);
    pid_t me = getpid();
    pid_t child = CHILD(hear(ends[0]));
    int copy = dup(ends[0]);
    int other = open("/dev/null", O_RDONLY);
    puts("-- a process and its child");
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        printf("kind %d: with itself %ld, different %d\n", kinds[i], compare(me, me, kinds[i], 0, 0),
               is_different(compare(me, child, kinds[i], 0, 0)));
        long forth = compare(me, child, kinds[i], 0, 0), back = compare(child, me, kinds[i], 0, 0);
        TRUE(forth == 0 ? back == 0 : forth + back == 3);
    }
    puts("-- files");
    SHOW(compare(me, me, KCMP_FILE, ends[0], copy));
    SHOW(compare(me, child, KCMP_FILE, ends[0], ends[0]));
    TRUE(is_different(compare(me, me, KCMP_FILE, ends[0], ends[1])));
    TRUE(is_different(compare(me, me, KCMP_FILE, ends[0], other)));
    SHOW(compare(me, me, KCMP_FILE, 900, 0));
    SHOW(compare(me, me, KCMP_FILE, 0, -1));
    puts("-- threads");
    pthread_t thread;
    pid_t tid;
    pthread_create(&thread, NULL, stub, ends);
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *entry; (entry = readdir(tasks));)
        if (atoi(entry->d_name) && atoi(entry->d_name) != me)
            tid = atoi(entry->d_name);
    closedir(tasks);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        printf("kind %d: %ld\n", kinds[i], compare(me, tid, kinds[i], 0, 0));
    puts("-- what is wrong");
    SHOW(compare(me, 4000000, KCMP_VM, 0, 0));
    SHOW(compare(me, -1, KCMP_VM, 0, 0));
    SHOW(compare(me, me, 99, 0, 0));
    REAP(CHILD({
        setgroups(0, NULL);
        setresgid(101, 101, 101);
        setresuid(101, 101, 101);
        SHOW(compare(getpid(), me, KCMP_VM, 0, 0));
        SHOW(compare(getpid(), me, 99, 0, 0));
    }));
    puts("-- advice");
    char *memory = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memory[0] = 7;
    struct iovec ranges[2] = { { memory, 4096 }, { memory + 4096, 4096 } };
    int process = (int)syscall(SYS_pidfd_open, child, 0);
    struct iovec own = { (void *)((long)stub & -4096l), 4096 };
    SHOW(syscall(SYS_process_madvise, process, &own, 1, MADV_COLD, 0));
    SHOW(syscall(SYS_process_madvise, process, &own, 1, MADV_PAGEOUT, 0));
    SHOW(syscall(SYS_process_madvise, process, &own, 1, MADV_WILLNEED, 0));
    SHOW(syscall(SYS_process_madvise, process, &own, 1, MADV_DONTNEED, 0));
    SHOW(syscall(SYS_process_madvise, process, &own, 1, MADV_COLD, 1));
    SHOW(syscall(SYS_process_madvise, process, &own, 2000, MADV_COLD, 0));
    SHOW(syscall(SYS_process_madvise, process, 8, 1, MADV_COLD, 0));
    SHOW(syscall(SYS_process_madvise, 0, &own, 1, MADV_COLD, 0));
    SHOW(syscall(SYS_process_madvise, -1, &own, 1, MADV_COLD, 0));
    /* The child has not got this. */
    SHOW(syscall(SYS_process_madvise, process, ranges, 2, MADV_COLD, 0));
    tell(ends[1]);
    tell(ends[1]);
    pthread_join(thread, NULL);
    REAP(child);
    return 0;
}
