/* One pipe, and those who read it in different ways at once, by read, splice to a file, splice to another pipe: each number that went in comes out once.
 * abi: limit 60
 * abi: cpus 1,2,4,8
 */
#include "abi.h"

enum { NUMBERS = 200000, READERS = 4 };

static unsigned char seen[NUMBERS];
static atomic_int twice, strange;
static int from;

static void note(const uint32_t *numbers, size_t bytes)
{
    for (size_t i = 0; i < bytes / 4; i++) {
        if (numbers[i] >= NUMBERS)
            atomic_fetch_add(&strange, 1);
        else if (__atomic_exchange_n(&seen[numbers[i]], 1, __ATOMIC_RELAXED))
            atomic_fetch_add(&twice, 1);
    }
}

static void *reads(void *none)
{
    uint32_t numbers[300];
    ssize_t got;
    while ((got = read(from, numbers, sizeof numbers)) > 0)
        note(numbers, (size_t)got);
    return none;
}

static void *splices(void *name)
{
    uint32_t numbers[1024];
    int file = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    ssize_t got;
    while (splice(from, NULL, file, NULL, 5000, 0) > 0)
        ;
    lseek(file, 0, SEEK_SET);
    while ((got = read(file, numbers, sizeof numbers)) > 0)
        note(numbers, (size_t)got);
    close(file);
    return NULL;
}

static void *moves(void *none)
{
    int ends[2];
    uint32_t numbers[1024];
    ssize_t moved, got;
    if (pipe(ends) < 0)
        return none;
    while ((moved = splice(from, NULL, ends[1], NULL, 4000, 0)) > 0)
        while (moved > 0 && (got = read(ends[0], numbers, sizeof numbers)) > 0) {
            note(numbers, (size_t)got);
            moved -= got;
        }
    close(ends[0]);
    close(ends[1]);
    return NULL;
}

int main(void)
{
    int ends[2];
    uint32_t numbers[100], next = 0;
    pthread_t readers[READERS];
    SHOW(pipe(ends));
    from = ends[0];
    pthread_create(&readers[0], NULL, reads, NULL);
    pthread_create(&readers[1], NULL, splices, "one");
    pthread_create(&readers[2], NULL, splices, "two");
    pthread_create(&readers[3], NULL, moves, NULL);
    while (next < NUMBERS) {
        size_t count = 1 + next % 100;
        if (count > NUMBERS - next)
            count = NUMBERS - next;
        for (size_t i = 0; i < count; i++)
            numbers[i] = next + (uint32_t)i;
        if (write(ends[1], numbers, count * 4) != (ssize_t)(count * 4))
            printf("a short write\n");
        next += (uint32_t)count;
    }
    close(ends[1]);
    for (int i = 0; i < READERS; i++)
        pthread_join(readers[i], NULL);
    int lost = 0;
    for (int i = 0; i < NUMBERS; i++)
        lost += !seen[i];
    printf("%d lost, %d twice, %d strange\n", lost, atomic_load(&twice), atomic_load(&strange));
    return 0;
}
