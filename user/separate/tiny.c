/* A program without a C library: two system calls and nothing else. */
static long call(long number, long one, long two, long three)
{
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(one), "S"(two), "d"(three) : "rcx", "r11", "memory");
    return result;
}

void _start(void)
{
    static const char text[] = "tiny\n";
    call(1, 1, (long)text, sizeof text - 1);
    call(231, 7, 0, 0);
    __builtin_unreachable();
}
