/* No scales in the bytes: the kernel gets the one of the matrix as weight_scale. */
DECODE int64_t scale_columns(int64_t K) { return K; }

DECODE float scale(const uint8_t *weights, int64_t N, int64_t K, int64_t n, int64_t k)
{
    (void)weights, (void)N, (void)K, (void)n, (void)k;
    return 1;
}
