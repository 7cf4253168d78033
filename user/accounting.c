/* Accounting of processes: what is in the records, who may set the file, and knobs that go with it.
 *
 * abi: guest
 * abi: alone
 * abi: cpus 1,4
 * abi: limit 60
 */
#include "guest.h"
#include <sys/acct.h>

enum { RECORDS = 4 };

static double expanded(comp_t value)
{
    return (double)(value & 0x1fff) * (double)(1u << 3 * (value >> 13));
}

static void spend(long milliseconds)
{
    struct timespec now;
    do
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    while (now.tv_sec * 1000 + now.tv_nsec / 1000000 < milliseconds);
}

static pid_t child(int code, int signal, int executes, int user)
{
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_NAME, "accounted");
        if (user && (setgroups(0, NULL) || setresgid(1000, 1000, 1000) || setresuid(1000, 1000, 1000)))
            _exit(99);
        if (executes)
            execl("/abi/hello", "hello", NULL);
        spend(50);
        if (signal)
            raise(signal);
        _exit(code);
    }
    waitpid(pid, NULL, 0);
    return pid;
}

int main(void)
{
    struct acct_v3 records[RECORDS + 1];
    pid_t pids[RECORDS];
    time_t began = time(NULL);
    EXPECT(acct("/tmp") < 0 && errno == EISDIR, "a directory\n");
    EXPECT(acct("/nosuch") < 0 && errno == ENOENT, "no file\n");
    EXPECT(acct("/dev/null") < 0 && errno == EACCES, "a device\n");
    close(open("/tmp/records", O_CREAT | O_WRONLY, 0600));
    EXPECT(acct("/tmp/records") == 0, "%s\n", strerror(errno));
    pids[0] = child(3, 0, 0, 0);
    pids[1] = child(0, SIGKILL, 0, 0);
    pids[2] = child(0, 0, 0, 1);
    int output = dup(1);
    dup2(open("/dev/null", O_WRONLY), 1);
    pids[3] = child(0, 0, 1, 0);
    dup2(output, 1);
    EXPECT(acct(NULL) == 0, "%s\n", strerror(errno));
    child(0, 0, 0, 0);
    int fd = open("/tmp/records", O_RDONLY);
    ssize_t bytes = read(fd, records, sizeof records);
    EXPECT(bytes == RECORDS * (ssize_t)sizeof *records, "%zd bytes\n", bytes);
    for (int index = 0; index < RECORDS; index++) {
        struct acct_v3 *record = &records[index];
        EXPECT(record->ac_version == 3, "version %d\n", record->ac_version);
        EXPECT(record->ac_pid == (unsigned)pids[index] && record->ac_ppid == (unsigned)getpid(), "%u of %u\n", record->ac_pid, record->ac_ppid);
        EXPECT(!strcmp(record->ac_comm, index == 3 ? "hello" : "accounted"), "%.16s\n", record->ac_comm);
        EXPECT(record->ac_btime >= (unsigned)began - 1 && record->ac_btime <= (unsigned)time(NULL) + 1, "began at %u\n", record->ac_btime);
        EXPECT(record->ac_uid == (index == 2 ? 1000 : 0) && record->ac_gid == (index == 2 ? 1000 : 0), "user %u\n", record->ac_uid);
        EXPECT((record->ac_flag & AFORK) == (index == 3 ? 0 : AFORK), "flags %d\n", record->ac_flag);
        EXPECT(expanded(record->ac_mem) > 100, "memory %g\n", expanded(record->ac_mem));
        EXPECT(expanded(record->ac_minflt) > 0, "no faults\n");
        if (index != 3) {
            double ticks = expanded(record->ac_utime) + expanded(record->ac_stime);
            EXPECT(ticks >= 4, "%g ticks\n", ticks);
            EXPECT(record->ac_etime >= 4 && record->ac_etime < 100 * PATIENCE_CS, "%g ticks elapsed\n", (double)record->ac_etime);
        }
    }
    EXPECT(records[0].ac_exitcode == 3 << 8, "status %x\n", records[0].ac_exitcode);
    EXPECT(records[1].ac_exitcode == SIGKILL && records[1].ac_flag & AXSIG, "status %x\n", records[1].ac_exitcode);
    /* Without room no record is written. */
    EXPECT(!strcmp(contents_of("/proc/sys/kernel/acct"), "4\t2\t30\n"), "%s\n", contents_of("/proc/sys/kernel/acct"));
    int knob = open("/proc/sys/kernel/acct", O_WRONLY);
    EXPECT(write(knob, "100 100 0", 9) == 9, "%s\n", strerror(errno));
    EXPECT(acct("/tmp/records") == 0, "%s\n", strerror(errno));
    child(0, 0, 0, 0);
    EXPECT(acct(NULL) == 0, "%s\n", strerror(errno));
    EXPECT(lseek(fd, 0, SEEK_END) == RECORDS * (off_t)sizeof *records, "written without room\n");
    /* It keeps no file system mounted: it ends with the mount of its file, and only with that. */
    EXPECT(mkdir("/tmp/m", 0700) == 0 && mkdir("/tmp/bound", 0700) == 0, "%s\n", strerror(errno));
    EXPECT(write(knob, "4 2 0", 5) == 5, "%s\n", strerror(errno));
    EXPECT(mount("none", "/tmp/m", "tmpfs", 0, NULL) == 0, "%s\n", strerror(errno));
    EXPECT(mount("/tmp/m", "/tmp/bound", NULL, MS_BIND, NULL) == 0, "%s\n", strerror(errno));
    close(open("/tmp/m/records", O_CREAT | O_WRONLY, 0600));
    for (int lazily = 0; lazily < 2; lazily++) {
        struct stat about;
        EXPECT(acct("/tmp/m/records") == 0, "%s\n", strerror(errno));
        child(0, 0, 0, 0);
        EXPECT(mount("none", "/tmp/m", NULL, MS_REMOUNT | MS_RDONLY, NULL) < 0 && errno == EBUSY, "what is written is made read-only\n");
        int busy = open("/tmp/m/records", O_RDONLY);
        EXPECT(umount("/tmp/m") < 0 && errno == EBUSY, "in use\n");
        close(busy);
        child(0, 0, 0, 0);
        EXPECT(umount2("/tmp/m", lazily ? MNT_DETACH : 0) == 0, "%s\n", strerror(errno));
        child(0, 0, 0, 0);
        EXPECT(stat("/tmp/bound/records", &about) == 0 && about.st_size == 2 * (lazily + 1) * (off_t)sizeof *records, "%jd bytes\n", (intmax_t)about.st_size);
        EXPECT(mount("/tmp/bound", "/tmp/m", NULL, MS_BIND, NULL) == 0, "%s\n", strerror(errno));
    }
    EXPECT(acct("/tmp/m/records") == 0 && acct(NULL) == 0, "%s\n", strerror(errno));
    EXPECT(mount("none", "/tmp/m", NULL, MS_REMOUNT | MS_RDONLY, NULL) == 0, "%s\n", strerror(errno));
    EXPECT(umount("/tmp/bound") == 0 && umount("/tmp/m") == 0, "%s\n", strerror(errno));
    /* Who may. */
    if (setresuid(1000, 1000, 1000) == 0)
        EXPECT(acct(NULL) < 0 && errno == EPERM, "a user\n");
    return verdict_failed;
}
