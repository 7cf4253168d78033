/* What the index of a file's pages costs: nodes by height, as /proc/pagecache counts them, before and after.
 *
 * abi: guest
 * abi: alone
 */
#include "guest.h"

#define HEIGHTS 16

struct nodes {
    long all;
    long at[HEIGHTS + 1];
};

static struct nodes count(void) {
    struct nodes nodes = {0};
    char line[128];
    FILE *file = fopen("/proc/pagecache", "r");
    if (!file) {
        perror("/proc/pagecache");
        exit(1);
    }
    while (fgets(line, sizeof line, file)) {
        int height;
        long number;
        if (sscanf(line, "nodes %ld", &number) == 1)
            nodes.all = number;
        if (sscanf(line, "nodes_at_height_%d %ld", &height, &number) == 2 && height <= HEIGHTS)
            nodes.at[height] = number;
    }
    fclose(file);
    return nodes;
}

/* Ends the program unless so many nodes were added since, at the heights 1 to 6. */
static void expect(const char *what, const struct nodes *before, const long added[7]) {
    struct nodes now = count();
    for (int height = 0; height <= 6; height++) {
        long more = height == 0 ? now.all - before->all : now.at[height] - before->at[height];
        printf("%s: %s %d: %ld nodes\n", what, height == 0 ? "all" : "height", height, more);
        if (more != added[height]) {
            printf("expected %ld\n", added[height]);
            exit(1);
        }
    }
}

static const long none[7] = {0};

static int new_file(void) {
    int file = open("/tmp/pages", O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (file < 0) {
        perror("/tmp/pages");
        exit(1);
    }
    return file;
}

static void fill(int file, size_t bytes) {
    static char page[4096];
    for (size_t at = 0; at < bytes; at += sizeof page) {
        if (pwrite(file, page, sizeof page, (off_t)at) != sizeof page) {
            perror("pwrite");
            exit(1);
        }
    }
}

static void end(const char *what, int file, const struct nodes *before) {
    close(file);
    unlink("/tmp/pages");
    /* The file itself goes after a grace period. */
    time_t limit = time(NULL) + PATIENCE_CS / 100;
    while (count().all != before->all && time(NULL) < limit)
        sched_yield();
    expect(what, before, none);
}

int main(void) {
    /* All that the program needs itself is in memory then. */
    close(new_file());
    unlink("/tmp/pages");
    count();
    struct nodes before = count();
    expect("nothing done", &before, none);

    int file = new_file();
    fill(file, 1);
    expect("one page", &before, none);
    fill(file, 256 << 10);
    expect("256 KiB", &before, (long[7]){1, 1, 0, 0, 0, 0, 0});
    fill(file, 260 << 10);
    expect("260 KiB", &before, (long[7]){3, 2, 1, 0, 0, 0, 0});
    if (ftruncate(file, 256 << 10))
        return 1;
    expect("256 KiB again", &before, (long[7]){1, 1, 0, 0, 0, 0, 0});
    end("after that", file, &before);

    file = new_file();
    if (ftruncate(file, 2LL << 40) || pwrite(file, "x", 1, 1LL << 40) != 1) {
        perror("sparse");
        return 1;
    }
    expect("one byte at 1 TiB", &before, (long[7]){5, 1, 1, 1, 1, 1, 0});
    char byte = 0;
    if (pread(file, &byte, 1, 1LL << 40) != 1 || byte != 'x' || pread(file, &byte, 1, 0) != 1 || byte != 0)
        return 1;
    if (ftruncate(file, 0))
        return 1;
    expect("nothing left", &before, none);
    end("after the sparse file", file, &before);
    return 0;
}
