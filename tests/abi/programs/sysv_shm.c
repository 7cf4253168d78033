/* System V shared memory: keys and ids, attaching and detaching in pieces, fork, exec and exit, removal, permissions, limits. */
#include "abi.h"
#include <sys/ipc.h>
#include <sys/shm.h>

#define PAGE 4096ul

/* Nobody else's: the host may run this test several times at once. */
static key_t KEY;
/* What a user keeps in memory counts on all of the host. */
static uid_t someone;

static struct shmid_ds status_of(int id)
{
    struct shmid_ds status;
    memset(&status, 0xee, sizeof status);
    if (shmctl(id, IPC_STAT, &status) < 0)
        printf("status: %s\n", ERRNO_NAME(errno));
    return status;
}

static long attached(int id)
{
    return (long)status_of(id).shm_nattch;
}

/* Length, protection, offset and name of the mapping that begins at an address, as /proc/self/maps has them; the key without its process. */
static const char *mapping_at(const void *address, int *id)
{
    static char line[512], shown[160];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps)) {
        unsigned long start, end, offset;
        unsigned major, minor;
        char mode[8], name[100] = "";
        if (sscanf(line, "%lx-%lx %7s %lx %x:%x %d %99[^\n]", &start, &end, mode, &offset, &major, &minor, id, name) >= 7 &&
            start == (unsigned long)address) {
            fclose(maps);
            char expected[32];
            snprintf(expected, sizeof expected, "/SYSV%08x (deleted)", KEY);
            snprintf(shown, sizeof shown, "%lu pages %s %lx %s", (end - start) / PAGE, mode, offset, strcmp(name, expected) ? name : "key");
            return shown;
        }
    }
    fclose(maps);
    return "none";
}

static void keys(void)
{
    puts("-- keys");
    SHOW(shmget(KEY, 4096, 0600));
    int id = shmget(KEY, 5000, IPC_CREAT | 0640);
    TRUE(id >= 0);
    TRUE(shmget(KEY, 0, 0) == id);
    TRUE(shmget(KEY, 5000, IPC_CREAT | 0600) == id);
    SHOW(shmget(KEY, 5001, 0));
    SHOW(shmget(KEY, 5000, IPC_CREAT | IPC_EXCL | 0600));
    SHOW(shmget(IPC_PRIVATE, 0, 0600));
    SHOW(shmget(IPC_PRIVATE, (size_t)-1, 0600));
    struct shmid_ds status = status_of(id);
    SHOW(status.shm_segsz);
    SHOW(status.shm_perm.mode);
    TRUE(status.shm_perm.__key == KEY);
    TRUE(status.shm_perm.uid == geteuid() && status.shm_perm.cuid == geteuid());
    TRUE(status.shm_perm.gid == getegid() && status.shm_perm.cgid == getegid());
    TRUE(status.shm_cpid == getpid());
    SHOW(status.shm_lpid);
    SHOW(status.shm_nattch);
    SHOW(status.shm_atime);
    SHOW(status.shm_dtime);
    TRUE(llabs((long long)status.shm_ctime - time(NULL)) < 100);
    int first = shmget(IPC_PRIVATE, 1, 0600), second = shmget(IPC_PRIVATE, 1, 0600);
    TRUE(first >= 0 && second >= 0 && first != second);
    SHOW(shmctl(first, IPC_RMID, NULL));
    SHOW(shmctl(first, IPC_RMID, NULL));
    SHOW(shmctl(first, IPC_STAT, &status));
    OK(shmat(first, NULL, 0));
    SHOW(shmctl(second, IPC_RMID, NULL));
    SHOW(shmctl(id, IPC_RMID, NULL));
    SHOW(shmget(KEY, 4096, 0600));
}

static void pieces(void)
{
    puts("-- attaching");
    int id = shmget(KEY, 5 * PAGE - 100, IPC_CREAT | 0600), shown = -1;
    char *one = shmat(id, NULL, 0), *two = shmat(id, NULL, SHM_RDONLY);
    TRUE(one != (void *)-1 && two != (void *)-1 && one != two);
    SHOW(attached(id));
    struct shmid_ds status = status_of(id);
    TRUE(status.shm_lpid == getpid() && status.shm_atime > 0);
    SHOW(status.shm_dtime);
    puts(mapping_at(one, &shown));
    TRUE(shown == id);
    puts(mapping_at(two, &shown));
    strcpy(one + 4000, "written through one");
    puts(two + 4000);
    SHOW(two[5 * PAGE - 1]);
    SHOW(mprotect(two, PAGE, PROT_READ | PROT_WRITE));
    SHOW(mprotect(two, PAGE, PROT_READ | PROT_EXEC));
    SHOW(mprotect(one + PAGE, PAGE, PROT_READ));
    SHOW(attached(id));
    SHOW(munmap(one + 3 * PAGE, PAGE));
    SHOW(attached(id));
    puts(mapping_at(one + 4 * PAGE, &shown));
    SHOW(shmdt(one + PAGE));
    SHOW(shmdt(one + 1));
    SHOW(shmdt(one));
    SHOW(attached(id));
    TRUE(status_of(id).shm_dtime > 0);
    SHOW(shmdt(one));
    SHOW(shmdt(two));
    SHOW(attached(id));

    puts("-- places");
    char *room = mmap(NULL, 16 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    OK(shmat(id, room, 0));
    OK(shmat(id, room + 1, 0));
    OK(shmat(id, NULL, SHM_REMAP));
    OK(shmat(id, (void *)1, SHM_REMAP | SHM_RND));
    OK(shmat(id, (void *)1, SHM_REMAP));
    OK(shmat(id, (void *)(0xffffull << 48), 0));
    OK(shmat(id, (void *)-PAGE, 0));
    OK(shmat(id, (void *)-PAGE, SHM_REMAP));
    SHOW(attached(id));
    TRUE(shmat(id, room, SHM_REMAP) == room);
    puts(room + 4000);
    SHOW(shmdt(room));
    TRUE(shmat(id, room, 0) == room);
    SHOW(shmdt(room));
    TRUE(shmat(id, room + 77, SHM_RND | SHM_EXEC) == room);
    puts(mapping_at(room, &shown));
    char *moved = mremap(room, 5 * PAGE, 5 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, room + 8 * PAGE);
    TRUE(moved == room + 8 * PAGE);
    SHOW(attached(id));
    SHOW(shmdt(room));
    SHOW(shmdt(moved));
    SHOW(attached(id));
    OK(shmat(-1, NULL, 0));
    OK(shmat(id ^ 0x8000, NULL, 0));
    SHOW(shmctl(id, IPC_RMID, NULL));
}

static void lives(const char *self)
{
    puts("-- fork, exec, exit");
    int id = shmget(IPC_PRIVATE, PAGE, 0600), ends[2], back[2];
    atomic_int *word = shmat(id, NULL, 0);
    pipe(ends);
    pipe(back);
    pid_t child = CHILD({
        tell(back[1]);
        hear(ends[0]);
        *word += 5;
        shmdt(word);
        tell(back[1]);
        hear(ends[0]);
    });
    hear(back[0]);
    SHOW(attached(id));
    tell(ends[1]);
    hear(back[0]);
    SHOW(attached(id));
    TRUE(status_of(id).shm_lpid == child);
    tell(ends[1]);
    REAP(child);
    SHOW((int)*word);
    child = CHILD(*word += 1);
    REAP(child);
    SHOW(attached(id));
    TRUE(status_of(id).shm_lpid == child);
    char number[16];
    snprintf(number, sizeof number, "%d", id);
    child = CHILD(execl(self, self, number, NULL));
    REAP(child);
    child = CHILD(raise(SIGKILL));
    REAP(child);
    SHOW(attached(id));

    puts("-- removal");
    child = CHILD({ tell(back[1]); hear(ends[0]); });
    hear(back[0]);
    SHOW(shmctl(id, IPC_RMID, NULL));
    struct shmid_ds status = status_of(id);
    SHOW(status.shm_nattch);
    SHOW(status.shm_perm.mode);
    SHOW(status.shm_perm.__key);
    int *again = shmat(id, NULL, SHM_RDONLY);
    SHOW(again[0]);
    SHOW(attached(id));
    SHOW(shmdt(word));
    SHOW(shmdt(again));
    SHOW(attached(id));
    tell(ends[1]);
    REAP(child);
    SHOW(shmctl(id, IPC_STAT, &status));

    id = shmget(KEY, PAGE, IPC_CREAT | 0600);
    word = shmat(id, NULL, 0);
    SHOW(shmctl(id, IPC_RMID, NULL));
    SHOW(shmget(KEY, PAGE, 0));
    int other = shmget(KEY, PAGE, IPC_CREAT | 0600);
    TRUE(other >= 0 && other != id);
    int shown;
    puts(mapping_at(word, &shown));
    SHOW(shmdt((void *)word));
    SHOW(shmctl(id, IPC_STAT, &status));
    SHOW(shmctl(other, IPC_RMID, NULL));
}

static void permissions(void)
{
    puts("-- permissions");
    struct shmid_ds status;
    int id = shmget(KEY, PAGE, IPC_CREAT | 0640);
    int locked = shmget(IPC_PRIVATE, 2 * PAGE, 0666);
    pid_t child = CHILD({
        setgroups(0, NULL);
        setresgid(2000, 2000, 2000);
        setresuid(someone, someone, someone);
        SHOW(shmget(KEY, PAGE, 0600));
        TRUE(shmget(KEY, PAGE, 0) >= 0);
        OK(shmat(id, NULL, SHM_RDONLY));
        SHOW(shmctl(id, IPC_STAT, &status));
        SHOW(shmctl(id, IPC_SET, &status));
        SHOW(shmctl(id, IPC_RMID, NULL));
        SHOW(shmctl(id, SHM_LOCK, NULL));
        SHOW(shmctl(id, SHM_UNLOCK, NULL));
    });
    REAP(child);
    status = status_of(id);
    status.shm_perm.uid = someone;
    status.shm_perm.gid = 2000;
    status.shm_perm.mode = 0100440;
    SHOW(shmctl(id, IPC_SET, &status));
    status = status_of(id);
    SHOW(status.shm_perm.mode);
    TRUE(status.shm_perm.uid == someone);
    SHOW(status.shm_perm.cuid);
    child = CHILD({
        setgroups(0, NULL);
        setresgid(3000, 3000, 3000);
        setresuid(someone, someone, someone);
        OK(shmat(id, NULL, SHM_RDONLY));
        OK(shmat(id, NULL, 0));
        OK(shmat(id, NULL, SHM_RDONLY | SHM_EXEC));
        SHOW(shmctl(id, IPC_STAT, &status));
        setrlimit(RLIMIT_MEMLOCK, &(struct rlimit){ PAGE, PAGE });
        SHOW(shmctl(id, SHM_LOCK, NULL));
        SHOW(shmctl(id, SHM_LOCK, NULL));
        SHOW(status_of(id).shm_perm.mode);
        int large = shmget(IPC_PRIVATE, PAGE, 0600);
        SHOW(shmctl(large, SHM_LOCK, NULL));
        SHOW(shmctl(id, SHM_UNLOCK, NULL));
        SHOW(shmctl(large, SHM_LOCK, NULL));
        SHOW(shmctl(large, IPC_RMID, NULL));
        setrlimit(RLIMIT_MEMLOCK, &(struct rlimit){ 0, 0 });
        SHOW(shmctl(id, SHM_LOCK, NULL));
        SHOW(shmctl(locked, SHM_LOCK, NULL));
        status.shm_perm.mode = 0;
        SHOW(shmctl(id, IPC_SET, &status));
        SHOW(shmctl(id, IPC_STAT, &status));
    });
    REAP(child);
    status.shm_perm.mode = 0040;
    SHOW(shmctl(id, IPC_SET, &status));
    child = CHILD({
        setgroups(1, (gid_t[]){ 2000 });
        setresgid(3000, 3000, 3000);
        setresuid(1001, 1001, 1001);
        SHOW(shmctl(id, IPC_STAT, &status));
        SHOW(shmctl(locked, IPC_STAT, &status));
        OK(shmat(locked, NULL, 0));
    });
    REAP(child);
    status.shm_perm.uid = -1;
    SHOW(shmctl(id, IPC_SET, &status));
    SHOW(shmctl(locked, SHM_LOCK, NULL));
    SHOW(status_of(locked).shm_perm.mode);
    SHOW(shmctl(locked, SHM_UNLOCK, NULL));
    SHOW(status_of(locked).shm_perm.mode);
    SHOW(shmctl(locked, IPC_RMID, NULL));
    SHOW(shmctl(id, IPC_RMID, NULL));
}

static void everything(void)
{
    puts("-- all segments");
    struct shminfo limits;
    struct shm_info totals;
    struct shmid_ds status;
    memset(&limits, 0, sizeof limits);
    TRUE(shmctl(0, IPC_INFO, (void *)&limits) >= 0);
    SHOW(limits.shmmin);
    TRUE(limits.shmseg == limits.shmmni);
    TRUE(limits.shmmax == strtoul(get_text("/proc/sys/kernel/shmmax"), NULL, 10));
    TRUE(limits.shmall == strtoul(get_text("/proc/sys/kernel/shmall"), NULL, 10));
    TRUE(limits.shmmni == strtoul(get_text("/proc/sys/kernel/shmmni"), NULL, 10));
    int id = shmget(KEY, 3 * PAGE + 1, IPC_CREAT | 0600);
    char *bytes = shmat(id, NULL, 0);
    bytes[0] = bytes[PAGE] = 1;
    int highest = shmctl(0, SHM_INFO, (void *)&totals);
    TRUE(totals.used_ids >= 1 && totals.shm_tot >= 4 && totals.shm_rss >= 2);
    int found = 0;
    for (int index = 0; index <= highest; index++)
        if (shmctl(index, SHM_STAT, &status) == id) {
            found++;
            SHOW(status.shm_segsz);
            TRUE(shmctl(index, 15 /* SHM_STAT_ANY */, &status) == id);
        }
    SHOW(found);
    SHOW(shmctl(32000, SHM_STAT, &status));
    char line[512];
    FILE *all = fopen("/proc/sysvipc/shm", "r");
    fgets(line, sizeof line, all);
    fputs(line, stdout);
    while (fgets(line, sizeof line, all)) {
        int key, shown, mode;
        long size, rss, swap;
        int cpid, lpid, nattch, uid, gid, cuid, cgid, atime, dtime, ctime;
        sscanf(line, "%d %d %o %ld %d %d %d %d %d %d %d %d %d %d %ld %ld", &key, &shown, &mode, &size, &cpid, &lpid,
               &nattch, &uid, &gid, &cuid, &cgid, &atime, &dtime, &ctime, &rss, &swap);
        if (shown != id)
            continue;
        printf("%d %o %ld %d %ld %ld\n", key == KEY, mode, size, nattch, rss, swap);
        TRUE(cpid == getpid() && lpid == getpid() && atime > 0 && ctime > 0);
    }
    fclose(all);
    SHOW(shmctl(id, 99, NULL));
    SHOW(shmctl(id, -1, NULL));
    SHOW(shmctl(-1, IPC_STAT, &status));
    SHOW(shmctl(-1, IPC_INFO, (void *)&limits));
    SHOW(shmctl(id, IPC_STAT, (void *)8));
    SHOW(shmctl(id, IPC_SET, (void *)8));
    SHOW(shmctl(0, SHM_INFO, (void *)8));
    SHOW(shmctl(0, IPC_INFO, (void *)8));
    SHOW(shmctl(id, IPC_RMID, NULL));
    memset(&status, 0, sizeof status);
    shmctl(id, IPC_STAT, &status);
    SHOW(status.shm_perm.mode);
    SHOW(shmdt(bytes));
}

int main(int count, char **arguments)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (count > 1) {
        printf("after exec %ld\n", attached(atoi(arguments[1])));
        return 0;
    }
    KEY = 0x51000000 | getpid();
    if (syscall(SYS_getrandom, &someone, sizeof someone, 0) != sizeof someone)
        return 1;
    someone = 20000 + someone % 40000;
    keys();
    pieces();
    lives(arguments[0]);
    permissions();
    everything();
    return 0;
}
