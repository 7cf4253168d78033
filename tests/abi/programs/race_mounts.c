/* Mounts that come, move and go in several name spaces at a time, while others walk through them: nothing is seen half done.
 * abi: limit 100
 */
#include "abi.h"

enum { WORKERS = 4, ROUNDS = 60 };

static void part_of(char *path, size_t bytes, const char *format, int worker)
{
    snprintf(path, bytes, format, worker);
}

/* Each has a directory of a shared tree for itself, which all others receive. */
static int work(int worker)
{
    int wrong = 0;
    char place[64], other[64], file[80];
    part_of(place, sizeof place, "shared/%d", worker);
    part_of(other, sizeof other, "private/%d", worker);
    snprintf(file, sizeof file, "%s/file", place);
    for (int round = 0; round < ROUNDS; round++) {
        wrong += mount("none", place, "tmpfs", 0, NULL) != 0;
        int fd = open(file, O_CREAT | O_EXCL | O_WRONLY, 0600);
        wrong += fd < 0;
        close(fd);
        wrong += mount(place, other, NULL, MS_BIND, NULL) != 0;
        /* Busy for a moment where somebody else walks through it. */
        while (umount(place) != 0) {
            if (errno != EBUSY) {
                wrong++;
                break;
            }
        }
        wrong += access(file, F_OK) == 0;
        wrong += umount2(other, MNT_DETACH) != 0;
    }
    return wrong;
}

/* What is mounted on the one place or the other, always. */
static int moved(void)
{
    int wrong = 0;
    mount("none", "private/a", "tmpfs", 0, NULL);
    mkdir("private/a/mark", 0755);
    for (int round = 0; round < ROUNDS * 10; round++) {
        int even = round % 2 == 0;
        wrong += mount(even ? "private/a" : "private/b", even ? "private/b" : "private/a", NULL, MS_MOVE, NULL) != 0;
    }
    wrong += umount2("private/a", MNT_DETACH) != 0;
    return wrong;
}

int main(void)
{
    unshare(CLONE_NEWNS);
    mount("none", "/", NULL, MS_PRIVATE | MS_REC, NULL);
    mkdir("shared", 0755);
    mkdir("private", 0755);
    mount("shared", "shared", "tmpfs", 0, NULL);
    mount("private", "private", "tmpfs", 0, NULL);
    mount(NULL, "shared", NULL, MS_SHARED, NULL);
    mkdir("private/a", 0755);
    mkdir("private/b", 0755);
    for (int worker = 0; worker < WORKERS; worker++) {
        char place[64];
        part_of(place, sizeof place, "shared/%d", worker);
        mkdir(place, 0755);
        part_of(place, sizeof place, "private/%d", worker);
        mkdir(place, 0755);
    }
    pid_t workers[WORKERS + 2];
    for (int worker = 0; worker < WORKERS; worker++)
        workers[worker] = CHILD({
            int wrong = unshare(CLONE_NEWNS) != 0;
            if (worker % 2)
                wrong += mount(NULL, "shared", NULL, MS_SLAVE, NULL) != 0 || mount(NULL, "shared", NULL, MS_SHARED, NULL) != 0;
            wrong += work(worker);
            _exit(wrong != 0);
        });
    workers[WORKERS] = CHILD(_exit(moved() != 0));
    /* Looks on from outside. */
    int left = WORKERS + 1, looks = 0, odd = 0, failed = 0;
    while (left > 0) {
        char text[64], line[4096];
        part_of(text, sizeof text, looks % 2 ? "shared/%d/file" : "shared/%d/../.", looks % WORKERS);
        odd += access(text, F_OK) != 0 && errno != ENOENT;
        FILE *file = fopen("/proc/self/mountinfo", "r");
        while (fgets(line, sizeof line, file))
            odd += strstr(line, " - ") == NULL;
        fclose(file);
        looks++;
        int status;
        while (left > 0 && waitpid(-1, &status, WNOHANG) > 0) {
            left--;
            failed += status != 0;
        }
    }
    SHOW(failed);
    SHOW(odd);
    int worker = 0;
    for (; worker < WORKERS; worker++) {
        char place[64];
        part_of(place, sizeof place, "shared/%d", worker);
        SHOW(umount(place));
    }
    SHOW(umount("private"));
    SHOW(umount("shared"));
    return 0;
}
