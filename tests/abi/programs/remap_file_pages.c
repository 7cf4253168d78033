/* remap_file_pages: pages of a file in another order, in one mapping of it. */
#include "abi.h"

#define PAGE 4096ul

/* What the pages of a mapping begin with. */
static void show_order(const char *map, unsigned pages)
{
    for (unsigned i = 0; i < pages; i++)
        printf("%c", map[i * PAGE]);
    printf("\n");
}

static char *filled(int flags, int fd, unsigned pages)
{
    char *map = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, flags, fd, 0);
    for (unsigned i = 0; i < pages; i++)
        map[i * PAGE] = (char)('a' + i);
    return map;
}

static void of_a_file(void)
{
    int fd = open("file", O_RDWR | O_CREAT, 0600);
    ftruncate(fd, 8 * PAGE);
    char *map = filled(MAP_SHARED, fd, 8);
    show_order(map, 8);
    SHOW(remap_file_pages(map, PAGE, 0, 7, 0));
    SHOW(remap_file_pages(map + PAGE, 2 * PAGE, 0, 4, MAP_NONBLOCK));
    show_order(map, 8);
    /* Both places show the same page. */
    map[0] = 'H';
    show_order(map, 8);
    SHOW(pread(fd, map + 6 * PAGE, 1, 7 * PAGE));
    show_order(map, 8);
    /* Addresses and lengths are rounded down. */
    SHOW(remap_file_pages(map + 3 * PAGE + 5, PAGE + 7, 0, 0, 0));
    show_order(map, 8);
    SHOW(remap_file_pages(map, 8 * PAGE, 0, 0, 0));
    show_order(map, 8);
    SHOW(mprotect(map, 2 * PAGE, PROT_READ));
    SHOW(remap_file_pages(map, 4 * PAGE, 0, 2, 0));
    SHOW(remap_file_pages(map, 2 * PAGE, 0, 2, 0));
    show_order(map, 8);
    /* The protection stays. */
    SHOW(read(fd, map, 1));
    SHOW(remap_file_pages(map, PAGE, PROT_READ, 0, 0));
    SHOW(remap_file_pages(map, PAGE, 0, (size_t)-1, 0));
    SHOW(remap_file_pages(map, 0, 0, 0, 0));
    SHOW(remap_file_pages(map + 7 * PAGE, 2 * PAGE, 0, 0, 0));
    SHOW(remap_file_pages(map + 7 * PAGE, -7 * PAGE, 0, 0, 0));
    munmap(map + 7 * PAGE, PAGE);
    SHOW(remap_file_pages(map + 7 * PAGE, PAGE, 0, 0, 0));
    close(fd);
    SHOW(remap_file_pages(map + 5 * PAGE, PAGE, 0, 1, 0));
    show_order(map, 7);
    munmap(map, 7 * PAGE);
}

static void of_other_memory(void)
{
    char *shared = filled(MAP_SHARED | MAP_ANONYMOUS, -1, 4);
    SHOW(remap_file_pages(shared, PAGE, 0, 3, 0));
    show_order(shared, 4);
    char *private = filled(MAP_PRIVATE | MAP_ANONYMOUS, -1, 4);
    SHOW(remap_file_pages(private, PAGE, 0, 3, 0));
    show_order(private, 4);
    int fd = open("file", O_RDWR);
    char *copy = mmap(NULL, 4 * PAGE, PROT_READ, MAP_PRIVATE, fd, 0);
    SHOW(remap_file_pages(copy, PAGE, 0, 3, 0));
    SHOW(remap_file_pages(NULL, PAGE, 0, 0, 0));
}

int main(void)
{
    of_a_file();
    of_other_memory();
    return 0;
}
