/* Passes of the transform over vectors in registers, for every instruction set. The including file defines `vector`,
 * LANES, GROUP (vectors in registers), add, sub, load and store. Loops over vectors are unrolled whole: an array that is
 * indexed by a variable would be in memory. */

/* Butterflies between `n` vectors, from neighbours to the furthest. */
static inline __attribute__((always_inline)) void across(vector *v, const int n)
{
#pragma GCC unroll 4
    for (int h = 1; h < n; h *= 2)
#pragma GCC unroll 16
        for (int i = 0; i < n; i++)
            if (!(i & h)) {
                const vector a = v[i], b = v[i + h];
                v[i] = add(a, b);
                v[i + h] = sub(a, b);
            }
}

/* Vectors at distance `apart`, `n` of them, at each place below it: their butterflies. */
static inline __attribute__((always_inline)) void between(float *y, const size_t apart, const int n)
{
    for (size_t at = 0; at < apart; at += LANES) {
        vector v[GROUP];
        for (int i = 0; i < n; i++)
            v[i] = load(y + at + (size_t)i * apart);
        across(v, n);
        for (int i = 0; i < n; i++)
            store(y + at + (size_t)i * apart, v[i]);
    }
}
