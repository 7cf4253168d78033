/* The smallest ordinary program: what exec tests run and what the ELF mutator mutates. */
#include <stdio.h>

int main(int count, char **words)
{
    printf("hello %d %s\n", count, count > 1 ? words[1] : "-");
    return count > 2 ? 42 : 0;
}
