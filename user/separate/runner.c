/* The runner: runs the cases it is given one after the other and frames what they did on its standard output.
 *
 * It is process 1 on both sides. Each case gets an empty scratch directory, a session of its own, files for its standard
 * output and error, a fixed environment and umask, and a time limit. After a case every process left over is killed
 * and reaped, so the next one starts in an empty system. It uses as little of the kernel as it can: no pipes, no
 * threads, no signals but SIGKILL, and SIGCHLD to wait for.
 *
 * usage: runner NAME...      the names are looked up in /abi/cases: NAME LIMIT WORD...
 *
 * A LIMIT that starts with `+` is one of a case that may bring the machine down: it gets the runner's standard error
 * as descriptor 9, so that what it was doing is known outside even when nothing else is.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WORDS_MAX 64
#define OUTPUT_BYTES_MAX (4 << 20)
#define SCRATCH_DEPTH_MAX 64
#define PROGRESS_FD 9

static char *const environment[] = { "PATH=/bin:/abi/bin", "HOME=/root", "TZ=UTC", "LC_ALL=C", "TERM=linux", NULL };

static long long milliseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000ll + now.tv_nsec / 1000000;
}

static void put(const char *bytes, size_t count)
{
    while (count > 0) {
        ssize_t done = write(1, bytes, count);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            _exit(120);
        bytes += done;
        count -= done;
    }
}

/* Removes a tree, without following links and without recursion deeper than a test may have made it. */
static void remove_tree(const char *path, int depth)
{
    umount2(path, MNT_DETACH);
    DIR *folder = depth < SCRATCH_DEPTH_MAX ? opendir(path) : NULL;
    if (folder) {
        struct dirent *entry;
        while ((entry = readdir(folder))) {
            if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
                continue;
            char inner[PATH_MAX];
            if (snprintf(inner, sizeof inner, "%s/%s", path, entry->d_name) >= (int)sizeof inner)
                continue;
            struct stat about;
            if (lstat(inner, &about) == 0 && S_ISDIR(about.st_mode))
                remove_tree(inner, depth + 1);
            else
                unlink(inner);
        }
        closedir(folder);
    }
    rmdir(path);
}

static void put_file(const char *path, size_t bytes)
{
    static char chunk[65536];
    int fd = open(path, O_RDONLY);
    while (bytes > 0) {
        ssize_t count = read(fd, chunk, bytes < sizeof chunk ? bytes : sizeof chunk);
        if (count <= 0) {
            memset(chunk, '?', sizeof chunk);
            count = bytes < sizeof chunk ? bytes : sizeof chunk;
        }
        put(chunk, count);
        bytes -= count;
    }
    close(fd);
}

static size_t file_bytes(const char *path)
{
    struct stat about;
    if (stat(path, &about) < 0)
        return 0;
    return about.st_size < OUTPUT_BYTES_MAX ? about.st_size : OUTPUT_BYTES_MAX;
}

/* The child: a session, a scratch directory, three descriptors, and the program. */
static void become(const char *scratch, char **words, int reports)
{
    setsid();
    umask(022);
    /* Whoever started the runner may have ignored or blocked signals, those of glibc's own (32 and 33) among them. */
    struct { void *action; unsigned long flags; void *restorer; unsigned long mask; } defaults = { 0 };
    for (int number = 1; number <= 64; number++)
        syscall(SYS_rt_sigaction, number, &defaults, NULL, 8);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (mkdir(scratch, 0755) < 0 || chmod(scratch, 0755) < 0 || chdir(scratch) < 0)
        _exit(121);
    int in = open("/dev/null", O_RDONLY);
    if (in < 0)
        in = open("/abi/cases", O_RDONLY);
    int out = open("/run/out", O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0666);
    int err = open("/run/err", O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0666);
    if (out < 0 || err < 0)
        _exit(122);
    if (reports)
        dup2(2, PROGRESS_FD);
    dup2(in, 0);
    dup2(out, 1);
    dup2(err, 2);
    for (int fd = 3; fd < 64; fd++)
        if (!reports || fd != PROGRESS_FD)
            close(fd);
    struct rlimit files = { 1024, 4096 };
    setrlimit(RLIMIT_NOFILE, &files);
    struct rlimit core = { 0, RLIM_INFINITY };
    setrlimit(RLIMIT_CORE, &core);
    execve(words[0], words, environment);
    dprintf(2, "runner: %s: %s\n", words[0], strerror(errno));
    _exit(127);
}

static void run_case(const char *name, int limit_seconds, char **words, int reports)
{
    char line[512], scratch[256], status_text[32] = "timeout";
    snprintf(scratch, sizeof scratch, "/tmp/%s", name);
    put(line, snprintf(line, sizeof line, "@start %s\n", name));
    sigset_t children;
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    sigprocmask(SIG_BLOCK, &children, NULL);
    long long start = milliseconds();
    pid_t child = fork();
    if (child == 0)
        become(scratch, words, reports);
    int status = 0, ended = child < 0;
    if (child < 0)
        snprintf(status_text, sizeof status_text, "fork:%d", errno);
    while (!ended && milliseconds() - start < limit_seconds * 1000ll) {
        pid_t found = waitpid(-1, &status, WNOHANG);
        if (found == child) {
            ended = 1;
            if (WIFEXITED(status))
                snprintf(status_text, sizeof status_text, "exited:%d", WEXITSTATUS(status));
            else
                snprintf(status_text, sizeof status_text, "killed:%d", WTERMSIG(status));
        } else if (found <= 0) {
            /* Without looking again and again: the machine may be judged by how idle it is. */
            struct timespec pause = { 1, 0 };
            sigtimedwait(&children, NULL, &pause);
        }
    }
    long long took = milliseconds() - start;
    if (getpid() <= 2)
        kill(-1, SIGKILL);
    else if (child > 0)
        kill(-child, SIGKILL);
    long long grace = milliseconds() + 5000;
    while (milliseconds() < grace) {
        pid_t found = waitpid(-1, &status, WNOHANG);
        if (found < 0 && errno == ECHILD)
            break;
        if (found == 0) {
            struct timespec pause = { 0, 1000000 };
            nanosleep(&pause, NULL);
            if (getpid() <= 2)
                kill(-1, SIGKILL);
        }
    }
    size_t out = file_bytes("/run/out"), err = file_bytes("/run/err");
    put(line, snprintf(line, sizeof line, "@case %s %s %zu %zu %lld\n", name, status_text, out, err, took));
    put_file("/run/out", out);
    put_file("/run/err", err);
    put("@end\n", 5);
    unlink("/run/out");
    unlink("/run/err");
    remove_tree(scratch, 0);
}

int main(int count, char **names)
{
    static char table[65536];
    int fd = open("/abi/cases", O_RDONLY);
    ssize_t size = 0, got;
    while (fd >= 0 && (got = read(fd, table + size, sizeof table - 1 - size)) > 0)
        size += got;
    close(fd);
    umask(022);
    mkdir("/run", 0755);
    mkdir("/tmp", 01777);
    for (int i = 1; i < count; i++) {
        static char copy[65536];
        memcpy(copy, table, sizeof copy);
        char *rest = copy, *line;
        while ((line = strsep(&rest, "\n"))) {
            char *words[WORDS_MAX], *word;
            int used = 0;
            while ((word = strsep(&line, " ")) && used < WORDS_MAX - 1)
                words[used++] = word;
            words[used] = NULL;
            if (used >= 3 && !strcmp(words[0], names[i])) {
                run_case(words[0], atoi(words[1]), words + 2, words[1][0] == '+');
                break;
            }
        }
    }
    return 0;
}
