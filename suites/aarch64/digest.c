/* The digest of a fuzz target, DRIVER, built for aarch64. */
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized" /* what the scalar code writes, which is called first */
#define FUZZ_DIGEST
#include DRIVER

int main(int count, char **words)
{
    if (count != 2)
        return 2;
    printf("%016llx\n", (unsigned long long)fuzz_digest_of((uint32_t)atoi(words[1])));
    return 0;
}
