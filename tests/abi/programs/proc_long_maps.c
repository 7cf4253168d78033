/* /proc/PID/maps and smaps of a program with thousands of mappings: the same text in small pieces as at once, from any position, and of the program that was there when the file was opened. */
#include "abi.h"
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define AT 0x500000000000UL
#define MAPPINGS 3000
#define ROOM (8 << 20)

static char *whole(const char *path, int piece, int *length)
{
    char *text = malloc(ROOM);
    int fd = open(path, O_RDONLY), read_now;
    *length = 0;
    while ((read_now = read(fd, text + *length, piece < ROOM - *length ? piece : ROOM - *length)) > 0)
        *length += read_now;
    if (read_now < 0)
        printf("read: %s\n", ERRNO_NAME(errno));
    close(fd);
    text[*length < ROOM ? *length : ROOM - 1] = 0;
    return text;
}

static int ours(const char *text)
{
    int count = 0;
    for (const char *line = text; (line = strstr(line, "\n5000")); line++)
        count++;
    return count;
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        char byte;
        int fd = atoi(argv[1]);
        lseek(fd, 0, SEEK_SET);
        printf("after execve: %d\n", (int)read(fd, &byte, 1));
        return 0;
    }
    setvbuf(stdout, 0, _IONBF, 0);
    for (long i = 0; i < MAPPINGS; i++)
        if (mmap((void *)(AT + i * 0x2000), 0x1000, PROT_READ, MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
            return 1;
    for (int i = 0; i < 2; i++) {
        const char *path = i ? "/proc/self/smaps" : "/proc/self/maps";
        int small_length, large_length;
        /* Both blocks are there before either text is read. */
        free(whole(path, 65536, &large_length));
        char *large = whole(path, 65536, &large_length);
        int ours_at_once = ours(large);
        char *small = whole(path, 977, &small_length);
        printf("%s: %d, in pieces %d\n", path, ours_at_once, ours(small));
        /* Lines of our mappings are the same, wherever the pieces ended. */
        char *first = strstr(large, "\n5000"), *second = strstr(small, "\n5000");
        int same = 0;
        for (int line = 0; line < MAPPINGS - 1; line++) {
            char *first_end = strstr(first + 1, "\n5000"), *second_end = strstr(second + 1, "\n5000");
            same += first_end - first == second_end - second && !memcmp(first, second, first_end - first);
            first = first_end;
            second = second_end;
        }
        SHOW(same);
        free(small);
        free(large);
    }

    /* Back and forth in an open file. */
    int fd = open("/proc/self/maps", O_RDONLY);
    char *text = malloc(ROOM), again[100];
    int length = 0, now;
    while ((now = read(fd, text + length, ROOM - length)) > 0)
        length += now;
    int at = strstr(text, "\n500000400000-") - text;
    SHOW(pread(fd, again, sizeof again, at) == sizeof again && !memcmp(again, text + at, sizeof again));
    at = strstr(text, "\n500000002000-") - text;
    SHOW(pread(fd, again, sizeof again, at) == sizeof again && !memcmp(again, text + at, sizeof again));
    at = strstr(text, "\n500001000000-") - text;
    SHOW(pread(fd, again, sizeof again, at) == sizeof again && !memcmp(again, text + at, sizeof again));
    SHOW((int)pread(fd, again, 1, length + 100000));

    /* The file shows the memory that was there when it was opened, or nothing. */
    pid_t child = fork();
    if (!child) {
        char number[16];
        fd = open("/proc/self/maps", O_RDONLY);
        snprintf(number, sizeof number, "%d", fd);
        execl("/proc/self/exe", "proc_long_maps", number, NULL);
        _exit(1);
    }
    waitpid(child, NULL, 0);
    return 0;
}
