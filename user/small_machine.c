/* A static program runs in a machine of 32 MiB.
 *
 * abi: guest
 * abi: memory 32M
 */
#include "guest.h"

int main(void)
{
    printf("MemTotal %ld KiB, MemFree %ld KiB\n", figure("/proc/meminfo", "MemTotal"), free_kib());
    REAP(CHILD(execl("/abi/hello", "hello", "small", NULL)));
    return 0;
}
