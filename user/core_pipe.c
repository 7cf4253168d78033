/* Core dumps that a program reads: it is started as root, gets the dump as its standard input, and the words of the pattern. A
 * dump that nobody reads to its end can be ended by SIGKILL.
 *
 * abi: guest
 * abi: alone
 * abi: limit 60
 */
#include "guest.h"

#define PATTERN "/proc/sys/kernel/core_pattern"
#define LIMIT "/proc/sys/kernel/core_pipe_limit"

static void set_knob(const char *path, const char *text)
{
    int file = open(path, O_WRONLY);
    EXPECT(file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text), "%s: %s", path, ERRNO_NAME(errno));
    close(file);
}

static int end_of(pid_t child)
{
    int status = 0;
    EXPECT(waitpid(child, &status, 0) == child, "%s", ERRNO_NAME(errno));
    EXPECT(WIFSIGNALED(status), "status %x", status);
    return status;
}

static pid_t aborting(rlim_t limit)
{
    pid_t child = fork();
    if (child == 0) {
        struct rlimit core = { limit, limit };
        setrlimit(RLIMIT_CORE, &core);
        prctl(PR_SET_NAME, "two words");
        abort();
    }
    return child;
}

/* Reads the dump, and leaves word. */
static int reader(char **words)
{
    char magic[4] = "";
    long bytes = read(0, magic, 4);
    static char rest[65536];
    for (ssize_t got; (got = read(0, rest, sizeof rest)) > 0;)
        bytes += got;
    FILE *file = fopen("/tmp/words.new", "w");
    fprintf(file, "%d [%s] [%s] %d %d\n", memcmp(magic, "\177ELF", 4) == 0, words[2], words[3], bytes > 20000, (int)getuid());
    fclose(file);
    rename("/tmp/words.new", "/tmp/words");
    return 0;
}

/* The end of a name space's first process ends the dumps of the others in it. */
static void name_space_ends(void)
{
    pid_t init = (pid_t)syscall(SYS_clone, CLONE_NEWPID | SIGCHLD, NULL, NULL, NULL, 0);
    if (init == 0) {
        aborting(0);
        for (;;)
            pause();
    }
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", init, init);
    int child;
    while ((child = atoi(get_text(path))) == 0)
        sched_yield();
    snprintf(path, sizeof path, "/proc/%d/status", child);
    while (!strstr(get_text(path), "CoreDumping:\t1"))
        sched_yield();
    kill(init, SIGKILL);
    EXPECT(WTERMSIG(end_of(init)) == SIGKILL, "another end");
}

/* A reader that crashes is not read itself. */
static void reader_crashes(void)
{
    set_knob(PATTERN, "|/abi/bin/core_pipe crash x");
    end_of(aborting(0));
    EXPECT(!strcmp(get_text("/tmp/crashes"), "x"), "%s", get_text("/tmp/crashes"));
}

int main(int count, char **words)
{
    if (count > 2 && !strcmp(words[1], "read"))
        return reader(words);
    if (count > 2 && !strcmp(words[1], "crash")) {
        write(open("/tmp/crashes", O_CREAT | O_WRONLY | O_APPEND, 0600), "x", 1);
        abort();
    }
    /* Until the dumper has gone. */
    if (count > 2 && !strcmp(words[1], "wait"))
        return poll(&(struct pollfd){ .fd = 0 }, 1, -1) != 1;
    /* With a limit the process waits for the reader, so it has left word by then. */
    set_knob(LIMIT, "4");
    set_knob(PATTERN, "|/abi/bin/core_pipe read %s %e");
    int status = end_of(aborting(0));
    EXPECT(WTERMSIG(status) == SIGABRT && WCOREDUMP(status), "status %x", status);
    const char *word = get_text("/tmp/words");
    EXPECT(!strcmp(word, "1 [6] [two words] 1 0\n"), "%s", word);
    status = end_of(aborting(1));
    EXPECT(!WCOREDUMP(status), "a limit of 1 stops it: %x", status);
    set_knob(PATTERN, "|/does/not/exist");
    status = end_of(aborting(RLIM_INFINITY));
    EXPECT(!WCOREDUMP(status), "nobody reads: %x", status);

    set_knob(PATTERN, "|/abi/bin/core_pipe wait x");
    pid_t child = aborting(0);
    /* It has filled the pipe when the reader is there and it sleeps: nothing but the signal ends that. */
    char dumping[40];
    snprintf(dumping, sizeof dumping, "/proc/%d/status", child);
    while (!strstr(get_text(dumping), "CoreDumping:\t1"))
        sched_yield();
    kill(child, SIGTERM);
    kill(child, SIGKILL);
    status = end_of(child);
    EXPECT(WTERMSIG(status) == SIGABRT && WCOREDUMP(status) == 0, "SIGKILL ends it: %x", status);
    name_space_ends();
    reader_crashes();
    set_knob(PATTERN, "core");
    return verdict_failed;
}
