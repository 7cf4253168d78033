/* What /proc/PID shows of a program's arguments when other memory is in their place: of a file nothing is shown, since whoever lists processes would wait for its server; memory without a file is. */
#include "abi.h"
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>

/* An argument of several pages, and what all are together. */
#define LONG 20000
#define WHOLE ((int)sizeof "proc_strings" + LONG + 1)

static int length_of(int pid, const char *name)
{
    static char text[1 << 16];
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    int fd = open(path, O_RDONLY), length = 0, now;
    while ((now = read(fd, text + length, sizeof text - length)) > 0)
        length += now;
    close(fd);
    return length;
}

static void show(const char *what, int pid, long before)
{
    int length = length_of(pid, "cmdline");
    printf("%s: %s; environ %s\n", what, length == WHOLE ? "whole" : length == before ? "what is before" : "something else",
           length_of(pid, "environ") ? "shown" : "empty");
}

int main(int argc, char **argv)
{
    setvbuf(stdout, 0, _IONBF, 0);
    if (argc < 2) {
        char *own[] = {"proc_strings", malloc(LONG + 1), NULL}, *others[] = {"SOMETHING=there", NULL};
        memset(own[1], 'x', LONG);
        own[1][LONG] = 0;
        pid_t child = fork();
        if (!child) {
            execve("/proc/self/exe", own, others);
            _exit(1);
        }
        waitpid(child, NULL, 0);
        return 0;
    }
    int ends[2], back[2], fd = open("strings", O_RDWR | O_CREAT, 0600);
    char page[4096], byte;
    memset(page, 'f', sizeof page);
    for (int i = 0; i < LONG / 4096; i++)
        write(fd, page, sizeof page);
    pipe(ends);
    pipe(back);
    unsigned long first = ((unsigned long)argv[1] | 4095) + 1, length = (((unsigned long)argv[1] + LONG) & -4096UL) - first;
    pid_t child = fork();
    if (!child) {
        close(ends[1]);
        read(ends[0], &byte, 1);
        if (mmap((void *)first, length, PROT_READ, MAP_FIXED | MAP_PRIVATE, fd, 0) == MAP_FAILED)
            _exit(1);
        write(back[1], "x", 1);
        read(ends[0], &byte, 1);
        if (mmap((void *)first, length, PROT_READ | PROT_WRITE, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
            _exit(1);
        write(back[1], "x", 1);
        read(ends[0], &byte, 1);
        _exit(0);
    }
    show("as executed", child, first - (unsigned long)argv[0]);
    write(ends[1], "x", 1);
    read(back[0], &byte, 1);
    show("a file in the place", child, first - (unsigned long)argv[0]);
    write(ends[1], "x", 1);
    read(back[0], &byte, 1);
    show("other memory in the place", child, first - (unsigned long)argv[0]);
    write(ends[1], "x", 1);
    waitpid(child, NULL, 0);
    unlink("strings");
    return 0;
}
